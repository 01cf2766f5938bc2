"""Link prediction as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rgcn.errors import DataError
from rgcn.tasks.task import Metric, Task

if TYPE_CHECKING:
    from rgcn.config import RunConfig
    from rgcn.graph import KnowledgeGraph

RANKING = (
    Metric("mrr", "MRR"),
    Metric("hits@1", "hits@1", share=True),
    Metric("hits@3", "hits@3", share=True),
    Metric("hits@10", "hits@10", share=True),
    Metric("mean_rank", "mean rank", higher=False),
)
MEASUREMENTS = 10  # on validation data in a trial, where the configuration does not say


class LinkPrediction(Task):
    """Which triples are missing?"""

    name = "link-prediction"
    noun = "links"
    about = (
        "Link prediction: the model scores triples (subject, relation, object), so that missing ones can be found. For "
        "each held-out triple it must find the missing object, and the missing subject, among all nodes. MRR is the "
        "mean of 1 / rank of the right one: 1 is perfect, 0.5 is as good as always coming second."
    )
    metrics = RANKING
    watched = RANKING
    answers = ("links",)
    run = "rgcn.config:LinkPredictionRun"
    estimator = "rgcn.tasks.link_predictor:LinkPredictor"
    brings: ClassVar = {
        "Reporting": "rgcn.pages.link_report:LinkReporting",
        "Outcome": "rgcn.cli.outcome:LinkOutcome",
    }

    def blinded(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        graph = graph.without_test_triples()
        if graph.triple_splits is None or not len(graph.split_triples("valid")):
            raise DataError("tuning needs validation triples, and the graph has none: read it with a valid split")
        return graph

    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        every = config.training.evaluate_every or max(1, config.training.epochs // MEASUREMENTS)
        return {"training.evaluate_every": every}

    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Training measures on validation as the trial did, and keeps the best weights by itself: its number of steps
        stays, since the learning rate may fall along it."""
        return self.for_trials(config)

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        return ["training.epochs is as it was: training keeps the weights that are best on validation by itself."]
