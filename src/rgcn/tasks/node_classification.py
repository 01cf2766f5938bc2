"""Node classification as a task: by a classifier of nodes, or by a link model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rgcn.errors import DataError
from rgcn.tasks.link_prediction import LinkPrediction
from rgcn.tasks.task import Metric, Task

if TYPE_CHECKING:
    from rgcn.config import RunConfig
    from rgcn.graph import KnowledgeGraph

ACCURACY = Metric("accuracy", "accuracy", share=True)
LOSS = Metric("loss", "loss", higher=False)
HELD_OUT = 0.2  # of the training labels, where the data has no validation split and the configuration does not say
MEASURED = LinkPrediction()  # how a link model is measured while it trains


class NodeClassification(Task):
    """Which class does a node belong to?"""

    name = "node-classification"
    noun = "nodes"
    about = (
        "Node classification: from its place in the graph, the model tells which class a node belongs to. Accuracy is "
        "the share of held-out nodes whose class it gets right."
    )
    metrics = (ACCURACY,)
    watched: ClassVar[tuple[Metric, ...]] = (ACCURACY, LOSS)
    answers = ("classes",)
    run = "rgcn.config:NodeClassificationRun"
    estimator = "rgcn.tasks.node_classifier:NodeClassifier"
    brings: ClassVar = {
        "Reporting": "rgcn.pages.node_report:NodeReporting",
        "Outcome": "rgcn.cli.outcome:ClassOutcome",
    }
    # AIFB has 140 training labels, of which 28 are held out: one fold tells accuracies apart in steps of 3.6 %, more
    # than most settings matter.
    folds = 3

    def blinded(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        graph = graph.without_test_labels()
        if graph.labels is None or not len(graph.labels):
            raise DataError("tuning needs labels, and the graph has none outside its test split")
        return graph

    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        return {"training.validation": config.training.validation or HELD_OUT}

    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """For the trial's best epoch, on all training labels."""
        return {"training.epochs": epoch, "training.patience": None}

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        held_out = config.training.validation
        what = f"training labels but a share of {held_out:g}" if held_out else "training labels, with nothing held out"
        lines = [f"training.epochs is the best epoch; training is on all {what}."]
        if epoch is not None and epoch >= config.training.epochs:
            lines.append("That was the last epoch tried: more may be better (--set training.epochs=...).")
        return lines


class ClassificationByLinks(NodeClassification):
    """The same, learned otherwise: labels are triples, and a node's class is the object that is missing."""

    name = "classification-by-links"
    watched = (ACCURACY,)
    run = "rgcn.config:ClassificationByLinksRun"
    estimator = "rgcn.tasks.link_classifier:LinkClassifier"
    folds = 1

    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        return {**MEASURED.for_trials(config), "training.validation": config.training.validation or HELD_OUT}

    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        return self.for_trials(config)

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        return MEASURED.words_on_trials(config, epoch)
