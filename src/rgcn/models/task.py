"""Tasks as objects: what a configuration, a run, a report or a server needs to know about what is learned.

No other module asks which task it works for. A task of another package is one class, registered as an entry point of
the group rgcn.tasks; those of this package are at the end of the file.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from rgcn.errors import ConfigError, DataError, NothingToHoldOutError
from rgcn.models.answer_kind import AnswerKind, HasParts, kind_of
from rgcn.plugins import TASKS
from rgcn.training.history import Metric

if TYPE_CHECKING:
    from rgcn.config import RunConfig, Section
    from rgcn.graph import KnowledgeGraph
    from rgcn.models.estimator import Estimator
    from rgcn.training.plan import Plan


class Task(HasParts, ABC):
    """What there is to learn, and everything that depends on it.

    Attributes:
        name: Its name in configurations, such as "link-prediction".
        noun: Its name in lists, such as "links".
        description: A few sentences for someone who has never heard of it.
        metrics: What models are measured by on a held-out split; the first is the main one.
        validation_metrics: Metrics that a training reports, and that early stopping and tuning may use.
        answers: The kinds of questions a trained model answers (`rgcn.models.answer_kind`), by name or class.
        run: The run's configuration, as "module:Class".
        estimator: The estimator, as "module:Class".
        memory: Function that estimates the memory of a training, as "module:function" of model, training and graph.
        folds: Number of trainings whose mean a trial of tuning takes.
        has_candidates: True if `rgcn train` tries the candidates of its first kind when no model is named.
        parts: "Reporting", "Outcome", and "Endpoints" besides those of its kinds.
    """

    noun: ClassVar[str]
    description: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    validation_metrics: ClassVar[tuple[Metric, ...]]
    answers: ClassVar[tuple[str | type[AnswerKind], ...]]
    run: ClassVar[str]
    estimator: ClassVar[str]
    memory: ClassVar[str | None] = None
    folds: ClassVar[int] = 1
    has_candidates: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """Its name for people, such as "link prediction"."""
        return self.name.replace("-", " ")

    @property
    def run_config(self) -> type[RunConfig]:
        """The class of the run's configuration."""
        return resolve_name(self.run)  # type: ignore[no-any-return]

    @property
    def estimator_class(self) -> type[Estimator]:
        """The class of the estimator."""
        return resolve_name(self.estimator)  # type: ignore[no-any-return]

    @property
    def kinds(self) -> tuple[AnswerKind, ...]:
        """The kinds of questions a trained model answers."""
        return tuple(map(kind_of, self.answers))

    @property
    def kind(self) -> AnswerKind:
        """The first kind, by which a model is measured and calibrated; `AnswerKind()` if there is none."""
        return (*self.kinds, AnswerKind())[0]

    @property
    def headline(self) -> Metric:
        """The main metric."""
        return self.metrics[0]

    def watch(self, training: Section) -> Metric:
        """Return the validation metric that tells which weights are best: `training.watch`, or the main metric."""
        name = getattr(training, "watch", None)
        return next((metric for metric in self.validation_metrics if metric.name == name), self.headline)

    def with_splits(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        """Return the graph with the splits of a run: its own, or those that `data.split` draws."""
        if config.data.split is None or "split" in graph.metadata:
            return graph
        try:
            return self.split(graph, config)
        except NothingToHoldOutError as error:
            message = f"{error}. Everything is learned, and metrics are of what was learned"
            warnings.warn(message, stacklevel=2)
            return replace(graph, metadata={**graph.metadata, "split": message})

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        """Return the graph with the splits that `data.split` draws; unchanged if it has splits of its own."""
        return graph

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the models of `configs/candidates.yaml` that `rgcn train` chooses from if no model is named."""
        return self.kind.candidates() if self.has_candidates else {}

    def memory_estimate(self, plan: Plan) -> Mapping[str, int]:
        """Estimate the bytes that a training takes besides the graph, by purpose; empty if that is not known."""
        return resolve_name(self.memory)(plan.model, plan.training, plan.graph) if self.memory else {}

    def memory_savings(self, config: RunConfig) -> list[dict[str, Any]]:
        """Return changes of settings with which a training takes less memory, the least harmful first."""
        return []

    @abstractmethod
    def without_test_split(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph without its test split.

        Raises:
            DataError: Nothing is left to validate on.
        """

    @abstractmethod
    def trial_settings(self, config: RunConfig) -> dict[str, Any]:
        """Return changes of settings so that a trial of tuning has validation metrics: {"training.validation": 0.2}."""

    @abstractmethod
    def settings_after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Return changes of settings for a training with the settings of a trial that was best at `epoch`."""

    def trial_notes(self, config: RunConfig, epoch: int | None) -> list[str]:
        """Return notes for readers of the best settings."""
        return []


@cache
def task_of(name: str) -> Task:
    """Return the task of a name."""
    return TASKS.resolve(name)()  # type: ignore[no-any-return]


ACCURACY = Metric("accuracy", "accuracy", is_share=True)
LOSS = Metric("loss", "loss", higher_is_better=False)
RANKING = (
    Metric("mrr", "MRR"),
    Metric("hits@1", "hits@1", is_share=True),
    Metric("hits@3", "hits@3", is_share=True),
    Metric("hits@10", "hits@10", is_share=True),
    Metric("mean_rank", "mean rank", higher_is_better=False),
)
VALIDATION_SHARE = 0.1  # of the triples of a graph without splits
VALIDATION_LABEL_SHARE = 0.2  # of the training labels in a trial, if neither data nor configuration hold any out
TRIAL_MEASUREMENTS = 10  # on validation data in a trial, if the configuration does not say


class NodeClassification(Task):
    """Which class does a node belong to?"""

    name = "node-classification"
    noun = "nodes"
    description = (
        "Node classification: the model predicts the class of a node from its place in the graph. Accuracy is the "
        "share of held-out nodes whose class it gets right."
    )
    metrics = (ACCURACY,)
    validation_metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY, LOSS)
    answers = ("classes",)
    run = "rgcn.config:NodeClassificationRun"
    estimator = "rgcn.models.node_classifier:NodeClassifier"
    memory: ClassVar[str | None] = "rgcn.training.plan:node_classification_memory"
    parts: ClassVar = {"Reporting": "rgcn.pages.node_report:NodeReporting", "Outcome": "rgcn.cli.output:ClassOutcome"}
    # With the 28 held-out labels of AIFB, the accuracy of one fold moves in steps of 3.6 %, more than most settings do.
    folds = 3
    has_candidates = True

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        """Return the graph with test labels drawn at random, if no label has another split than train."""
        labels, data = graph.labels, config.data
        if labels is None or not data.test or labels.splits.any():
            return graph
        if data.split == "time":
            raise ConfigError("data.split: time is for triples; labels are held out at random: set it to random")
        note = f"labels for test drawn at random, seed {data.seed}"
        held_out = labels.hold_out("test", data.test, data.seed)
        return replace(graph, labels=held_out, metadata={**graph.metadata, "split": note})

    def memory_savings(self, config: RunConfig) -> list[dict[str, Any]]:
        """Return changes to batches of labels, and to narrower layers."""
        width = "embedding" if config.model.encoder == "e-rgcn" else "hidden"
        batches = {"training.batch_labels": 1000, "training.fan_out": 10}
        return [batches, {f"model.{width}": max(1, getattr(config.model, width) // 4)}]

    def without_test_split(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph without its test labels."""
        graph = graph.without_test_labels()
        if graph.labels is None or not len(graph.labels):
            raise DataError("tuning needs labels, and the graph has none outside its test split")
        return graph

    def trial_settings(self, config: RunConfig) -> dict[str, Any]:
        """Return changes that hold out labels for validation."""
        return {"training.validation": config.training.validation or VALIDATION_LABEL_SHARE}

    def settings_after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Return changes for a training up to the trial's best epoch, on all training labels."""
        return {"training.epochs": epoch, "training.patience": None}

    def trial_notes(self, config: RunConfig, epoch: int | None) -> list[str]:
        """Return notes on the number of epochs."""
        held_out = config.training.validation
        but = f" but a share of {held_out:g}" if held_out else ", with nothing held out"
        notes = [f"training.epochs is the best epoch; training is on all training labels{but}."]
        if epoch is not None and epoch >= config.training.epochs:
            notes.append("That was the last epoch tried: more may be better (--set training.epochs=...).")
        return notes


class LinkPrediction(Task):
    """Which triples are missing?"""

    name = "link-prediction"
    noun = "links"
    description = (
        "Link prediction: the model scores triples (subject, relation, object), so that missing ones can be found. For "
        "each held-out triple it ranks the object, and the subject, among all nodes. MRR is the mean of 1 / rank of "
        "the right node: 1 is perfect, 0.5 is as good as always coming second."
    )
    metrics = RANKING
    validation_metrics = RANKING
    answers = ("links",)
    run = "rgcn.config:LinkPredictionRun"
    estimator = "rgcn.models.link_predictor:LinkPredictor"
    memory = "rgcn.training.plan:link_prediction_memory"
    parts: ClassVar = {"Reporting": "rgcn.pages.link_report:LinkReporting", "Outcome": "rgcn.cli.output:LinkOutcome"}
    has_candidates = True

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        """Return the graph with validation and test triples drawn at random or by time, if it has no splits."""
        data, valid, splits = config.data, config.training.validation, graph.triple_splits
        if splits is None:
            by = graph.triple_times if data.split == "time" else None
            if by is None and data.split == "time":
                raise DataError("data.split: time needs a column of times: set data.time, or data.split to random")
            return graph.split(VALIDATION_SHARE if valid is None else valid, data.test, seed=data.seed, by=by)
        if data.split == "time":
            raise ConfigError("data.split: the graph has splits of its own; set it to random, which keeps them")
        return graph.split(valid, 0.0, seed=data.seed) if valid and 1 not in splits else graph

    def memory_savings(self, config: RunConfig) -> list[dict[str, Any]]:
        """Return changes to smaller batches, a smaller optimizer, tables on disk, and shorter vectors."""
        small_batches = {"training.batch_edges": min(config.training.batch_edges or 10_000, 10_000)}
        small_optimizer = {**small_batches, "training.optimizer": "row-adagrad"}
        on_disk = {**small_optimizer, "training.tables": "disk"}
        return [small_batches, small_optimizer, on_disk, {"model.embedding": max(1, config.model.embedding // 4)}]

    def without_test_split(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph without its test triples."""
        graph = graph.without_test_triples()
        if graph.triple_splits is None or not len(graph.split_triples("valid")):
            raise DataError("tuning needs validation triples, and the graph has none: read it with a valid split")
        return graph

    def trial_settings(self, config: RunConfig) -> dict[str, Any]:
        """Return changes that hold out triples for validation and measure on them."""
        every = config.training.evaluate_every or max(1, config.training.steps // TRIAL_MEASUREMENTS)
        share = config.training.validation or VALIDATION_SHARE
        return {"training.evaluate_every": every, "training.validation": share}

    def settings_after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Return the changes of the trial: a training keeps the best weights by itself.

        Its number of steps stays, since the learning rate may depend on it.
        """
        return self.trial_settings(config)

    def trial_notes(self, config: RunConfig, epoch: int | None) -> list[str]:
        """Return a note on the number of steps."""
        return ["training.steps is unchanged: training keeps the weights that are best on validation data by itself."]


class ClassificationByLinks(NodeClassification):
    """Node classification whose labels are triples: a node's class is the missing object."""

    name = "classification-by-links"
    validation_metrics = (ACCURACY,)
    run = "rgcn.config:ClassificationByLinksRun"
    estimator = "rgcn.models.link_classifier:LinkClassifier"
    memory = None
    folds = 1

    def trial_settings(self, config: RunConfig) -> dict[str, Any]:
        """Return changes that hold out labels for validation and measure on them."""
        share = config.training.validation or VALIDATION_LABEL_SHARE
        return {**LinkPrediction().trial_settings(config), "training.validation": share}

    def settings_after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Return the changes of the trial: a training keeps the best weights by itself."""
        return self.trial_settings(config)

    def trial_notes(self, config: RunConfig, epoch: int | None) -> list[str]:
        """Return a note on the number of steps."""
        return LinkPrediction().trial_notes(config, epoch)


class Pretraining(LinkPrediction):
    """Which triples are missing, in any graph? Learned from several graphs, validated on one that is not among them."""

    name = "pretraining"
    description = (
        "Pretraining: weights for any graph are learned from many graphs. Metrics are of the missing links of a graph "
        "that they were not learned from."
    )
    run = "rgcn.config:PretrainingRun"
    estimator = "rgcn.models.pretrainer:Pretrainer"
    has_candidates = False  # pretraining names its model
