"""A task as an object: what a configuration, a run, a report, a server and a person need to know of it.

Nobody else asks which task it serves. A task of someone else's is one class, registered as an entry point of the group
rgcn.tasks; ours are three lines of `plugins.TASKS`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rgcn.errors import ConfigError, NothingToHoldOutError
from rgcn.plugins import TASKS, imported
from rgcn.training.history import Metric

if TYPE_CHECKING:
    from rgcn.config import RunConfig, Section
    from rgcn.graph import KnowledgeGraph
    from rgcn.models.estimator import Estimator
    from rgcn.training.plan import Plan

F = TypeVar("F")


class Task(ABC):
    """What there is to learn, and everything that follows from it.

    name         in configurations, "link-prediction"
    noun         in lists, "links"
    about        a few sentences for someone who has never heard of it
    metrics      what models are measured by on a held-out split; the first is the one they are judged by
    watched      validation figures that a training reports, and that early stopping and tuning may go by
    answers      kinds of questions a trained model answers, "classes" or "links": what predict, explain and serve offer
    run          the configuration, as "module:Class"
    estimator    the estimator, likewise
    brings       what it brings to rooms further along, by the name of their interface: {"Reporting": "module:Class"}
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    about: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    watched: ClassVar[tuple[Metric, ...]]
    answers: ClassVar[tuple[str, ...]]
    run: ClassVar[str]
    estimator: ClassVar[str]
    brings: ClassVar[Mapping[str, str]] = {}

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
    def headline(self) -> Metric:
        return self.metrics[0]

    def to(self, interface: type[F]) -> F:
        """What this task brings to a room, by that room's interface; the interface itself where it needs no more."""
        place = self.brings.get(interface.__name__)
        if place is None:
            if getattr(interface, "__abstractmethods__", None):
                raise ConfigError(f"the task {self.name} brings no {interface.__name__}: it cannot be used here")
            return interface(self)  # type: ignore[call-arg]
        return imported(place)(self)  # type: ignore[no-any-return]

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
        return {}

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
