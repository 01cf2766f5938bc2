"""Tasks as objects: what a configuration, a run, a report, a server and a person need to know of them.

Nobody else asks which task it serves. A task of someone else's is one class, registered as an entry point of the group
rgcn.tasks; those that come with the package are at the end of this file.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from rgcn.errors import ConfigError, DataError, NothingToHoldOutError
from rgcn.models.answer_kind import AnswerKind, HasParts, kind_of
from rgcn.plugins import TASKS, imported
from rgcn.training.history import Metric

if TYPE_CHECKING:
    from rgcn.config import RunConfig, Section
    from rgcn.graph import KnowledgeGraph
    from rgcn.models.estimator import Estimator
    from rgcn.training.plan import Plan


class Task(HasParts, ABC):
    """What there is to learn, and everything that follows from it.

    name         in configurations, "link-prediction"
    noun         in lists, "links"
    about        a few sentences for someone who has never heard of it
    metrics      what models are measured by on a held-out split; the first is the one they are judged by
    watched      validation figures that a training reports, and that early stopping and tuning may go by
    answers      the kinds of questions a trained model answers (`rgcn.models.answer_kind`), by name or class
    run          the configuration, as "module:Class"
    estimator    the estimator, likewise
    memory       what counts the bytes that a training takes, as "module:function" of model, training and graph
    brings       its parts in later subpackages: "Reporting", "Outcome", and "Endpoints" beside those of its kinds
    """

    noun: ClassVar[str]
    about: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    watched: ClassVar[tuple[Metric, ...]]
    answers: ClassVar[tuple[str | type[AnswerKind], ...]]
    run: ClassVar[str]
    estimator: ClassVar[str]
    memory: ClassVar[str | None] = None

    @property
    def title(self) -> str:
        """For people, "link prediction"."""
        return self.name.replace("-", " ")

    @property
    def run_config(self) -> type[RunConfig]:
        """What `rgcn train` reads."""
        return imported(self.run)  # type: ignore[no-any-return]

    @property
    def estimator_class(self) -> type[Estimator]:
        return imported(self.estimator)  # type: ignore[no-any-return]

    @property
    def kinds(self) -> tuple[AnswerKind, ...]:
        return tuple(map(kind_of, self.answers))

    @property
    def kind(self) -> AnswerKind:
        """The first kind, by which a model is measured and calibrated; of a task that answers none, one of nothing."""
        return (*self.kinds, AnswerKind())[0]

    @property
    def headline(self) -> Metric:
        return self.metrics[0]

    def watch(self, training: Section) -> Metric:
        """The validation figure by which a training tells its best weights; what models are judged by, if none is."""
        name = getattr(training, "watch", None)
        return next((metric for metric in self.watched if metric.name == name), self.headline)

    def with_held_out(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        """The graph that a run learns from and is measured on: split, where it brings no split and is to be."""
        if config.data.split is None or "split" in graph.metadata:
            return graph
        try:
            return self.split(graph, config)
        except NothingToHoldOutError as error:
            words = f"{error}. All is learned, and figures are of what was learned"
            warnings.warn(words, stacklevel=2)
            return replace(graph, metadata={**graph.metadata, "split": words})

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        """The same graph with what `data.split` holds out; as it is where it brings a split."""
        return graph

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        """Models to choose from where none is named for a graph, as `configs/candidates.yaml` has them."""
        return {}

    def memory_parts(self, plan: Plan) -> Mapping[str, int]:
        """{what it is for: bytes} that a training takes beside the graph, from counts; empty where it is not known."""
        return imported(self.memory)(plan.model, plan.training, plan.graph) if self.memory else {}

    def frugal(self, config: RunConfig) -> list[dict[str, Any]]:
        """Changes with which a training takes less memory, the gentlest first."""
        return []

    folds: ClassVar[int] = 1
    """Trainings a trial of tuning takes the mean of."""

    @abstractmethod
    def blinded(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """The graph without its test split; DataError where nothing is left to validate on."""

    @abstractmethod
    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        """Changes so that a trial is measured on validation often enough: {"training.validation": 0.2}."""

    @abstractmethod
    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        """Changes for a training of its own with the settings of a trial that was best at `epoch`."""

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        """What whoever reads the best settings should know of them."""
        return []


@cache
def task_of(name: str) -> Task:
    return TASKS.find(name)()  # type: ignore[no-any-return]


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
    memory: ClassVar[str | None] = "rgcn.training.plan:of_classes"
    brings: ClassVar = {"Reporting": "rgcn.pages.node_report:NodeReporting", "Outcome": "rgcn.cli.output:ClassOutcome"}
    # AIFB has 140 training labels, of which 28 are held out: one fold tells accuracies apart in steps of 3.6 %, more
    # than most settings matter.
    folds = 3

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return self.kind.candidates()

    def split(self, graph: KnowledgeGraph, config: RunConfig) -> KnowledgeGraph:
        labels, data = graph.labels, config.data
        if labels is None or not data.test or labels.splits.any():
            return graph
        if data.split == "time":
            raise ConfigError("data.split: labels are held out at random, time is for triples: set it to random")
        words = f"labels for test drawn at random, seed {data.seed}"
        held_out = labels.holding_out("test", data.test, data.seed)
        return replace(graph, labels=held_out, metadata={**graph.metadata, "split": words})

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
    memory = "rgcn.training.plan:of_links"
    brings: ClassVar = {"Reporting": "rgcn.pages.link_report:LinkReporting", "Outcome": "rgcn.cli.output:LinkOutcome"}

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return self.kind.candidates()

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
    memory = None
    folds = 1

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
