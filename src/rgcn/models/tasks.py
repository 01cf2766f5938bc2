"""The tasks that come with the package: classes of nodes, missing links, classes by links, weights for any graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

from rgcn.errors import ConfigError, DataError
from rgcn.models.task import Task
from rgcn.training.history import Metric

if TYPE_CHECKING:
    from rgcn.config import RunConfig
    from rgcn.graph import KnowledgeGraph
    from rgcn.training.plan import Plan

ACCURACY = Metric("accuracy", "accuracy", share=True)
LOSS = Metric("loss", "loss", higher=False)
VALID = 0.1  # of the triples, where a graph without split is split
HELD_OUT = 0.2  # of the training labels, where the data has no validation split and the configuration does not say
RANKING = (
    Metric("mrr", "MRR"),
    Metric("hits@1", "hits@1", share=True),
    Metric("hits@3", "hits@3", share=True),
    Metric("hits@10", "hits@10", share=True),
    Metric("mean_rank", "mean rank", higher=False),
)
MEASUREMENTS = 10  # on validation data in a trial, where the configuration does not say


@cache
def _candidates() -> dict[str, dict[str, Any]]:
    import yaml

    found: dict[str, dict[str, Any]] = yaml.safe_load((resources.files("rgcn") / "configs/candidates.yaml").read_text())
    return found


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
    estimator = "rgcn.models.node_classifier:NodeClassifier"
    brings: ClassVar = {"Reporting": "rgcn.pages.node_report:NodeReporting", "Outcome": "rgcn.cli.results:ClassOutcome"}
    # AIFB has 140 training labels, of which 28 are held out: one fold tells accuracies apart in steps of 3.6 %, more
    # than most settings matter.
    folds = 3

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return _candidates()["classes"]

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        labels, data = graph.labels, config.data
        if labels is None or not data.test or labels.splits.any():
            return graph
        if data.split == "time":
            raise ConfigError("data.split: labels are held out at random, time is for triples: set it to random")
        words = f"labels for test drawn at random, seed {data.seed}"
        held_out = labels.holding_out("test", data.test, data.seed)
        return replace(graph, labels=held_out, metadata={**graph.metadata, "split": words})

    def memory_parts(self, plan: Plan) -> Mapping[str, int]:
        from rgcn.training.resources import of_classes

        return of_classes(plan.model, plan.training, plan.graph)

    def frugal(self, config: RunConfig) -> list[dict[str, Any]]:
        width = "embedding" if config.model.encoder == "e-rgcn" else "hidden"
        batches = {"training.batch_labels": 1000, "training.fan_out": 10}
        return [batches, {f"model.{width}": max(1, getattr(config.model, width) // 4)}]

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
    estimator = "rgcn.models.link_predictor:LinkPredictor"
    brings: ClassVar = {"Reporting": "rgcn.pages.link_report:LinkReporting", "Outcome": "rgcn.cli.results:LinkOutcome"}

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return _candidates()["links"]

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        data, valid, splits = config.data, config.training.validation, graph.triple_splits
        if splits is None:
            by = graph.triple_times if data.split == "time" else None
            if by is None and data.split == "time":
                raise DataError("data.split: time needs a table with a column of times, and this graph has none")
            return graph.split(VALID if valid is None else valid, data.test, seed=data.seed, by=by)
        if data.split == "time":
            raise ConfigError("data.split: the graph brings its own split; set it to random, which leaves that alone")
        return graph.split(valid, 0.0, seed=data.seed) if valid and 1 not in splits else graph

    def memory_parts(self, plan: Plan) -> Mapping[str, int]:
        from rgcn.training.resources import of_links

        return of_links(plan.model, plan.training, plan.graph)

    def frugal(self, config: RunConfig) -> list[dict[str, Any]]:
        fewer = {"training.batch_edges": min(config.training.batch_edges or 10_000, 10_000)}
        by_rows = {**fewer, "training.optimizer": "adagrad"}
        on_disk = {**by_rows, "training.tables": "disk"}
        return [fewer, by_rows, on_disk, {"model.embedding": max(1, config.model.embedding // 4)}]

    def blinded(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        graph = graph.without_test_triples()
        if graph.triple_splits is None or not len(graph.split_triples("valid")):
            raise DataError("tuning needs validation triples, and the graph has none: read it with a valid split")
        return graph

    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        every = config.training.evaluate_every or max(1, config.training.epochs // MEASUREMENTS)
        return {"training.evaluate_every": every, "training.validation": config.training.validation or VALID}

    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Training measures on validation as the trial did, and keeps the best weights by itself: its number of steps
        stays, since the learning rate may fall along it."""
        return self.for_trials(config)

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        return ["training.epochs is as it was: training keeps the weights that are best on validation by itself."]


MEASURED = LinkPrediction()  # how a link model is measured while it trains


class ClassificationByLinks(NodeClassification):
    """The same, learned otherwise: labels are triples, and a node's class is the object that is missing."""

    name = "classification-by-links"
    watched = (ACCURACY,)
    run = "rgcn.config:ClassificationByLinksRun"
    estimator = "rgcn.models.link_classifier:LinkClassifier"
    folds = 1

    def memory_parts(self, plan: Plan) -> Mapping[str, int]:
        return {}

    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        return {**MEASURED.for_trials(config), "training.validation": config.training.validation or HELD_OUT}

    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        return self.for_trials(config)

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        return MEASURED.words_on_trials(config, epoch)


class Pretraining(LinkPrediction):
    """Which triples are missing, in any graph? Learned from several, watched on one that is never learned from."""

    name = "pretraining"
    about = (
        "Pretraining: weights that belong to no graph learn from many. What is measured are missing links of a graph "
        "that they never learned from."
    )
    run = "rgcn.config:PretrainingRun"
    estimator = "rgcn.models.pretrainer:Pretrainer"

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return {}
