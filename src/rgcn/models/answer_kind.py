"""Kinds of answers as objects: everything that depends on the kind of question that a trained model answers.

No other module asks which kind it is: it asks the kind for what it needs. A kind of another package is one class, named
by a task's `answers` or registered as an entry point of the group rgcn.answer_kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import yaml

from rgcn.errors import ConfigError
from rgcn.plugins import ANSWER_KINDS

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph
    from rgcn.links.calibration import Calibration
    from rgcn.models.estimator import Estimator
    from rgcn.system.progress import Budget

Interface = TypeVar("Interface")


class HasParts:
    """Something with parts in later subpackages, each an implementation of an interface there.

    Attributes:
        name: Its name.
        parts: Where each implementation is, by the name of its interface: {"Reporting": "module:Class"}.
    """

    name: ClassVar[str]
    parts: ClassVar[Mapping[str, str]] = {}

    def part_class(self, interface: type[Interface]) -> type[Interface]:
        """Return the implementation of an interface; the interface itself if it is no abstract class.

        Raises:
            ConfigError: There is no implementation.
        """
        place = self.parts.get(interface.__name__)
        if place is None and getattr(interface, "__abstractmethods__", None):
            raise ConfigError(f"{self.name} has no {interface.__name__}, so it cannot be used here: add it to `parts`")
        return interface if place is None else resolve_name(place)

    def make_part(self, interface: type[Interface]) -> Interface:
        """Return an instance of the implementation of an interface, made for this object."""
        return self.part_class(interface)(self)  # type: ignore[call-arg]


class AnswerKind(HasParts):
    """A kind of question that trained models answer, and everything that depends on it.

    Attributes:
        name: Its name in files and for programs, such as "classes".
        topic: What a question names: "nodes", or the ends of "triples".
        ability: What a model does that answers it, such as "classifies nodes".
        question: What such a question is, in words.
        example: A command that trains such a model.
        commands: Commands that ask such a model; RUN stands for its folder.
        needs_labels: True if models learn it from labels of nodes and are measured on them, else on triples.
        calibration: Function that fits probabilities, as "module:function" of model, hiding note and budget, or None.
        parts: "NodeTables": answers as tables; "Question": how to explain them; "Endpoints": how to serve them.
    """

    name: ClassVar[str] = "nothing"
    topic: ClassVar[Literal["nodes", "triples"]]
    ability: ClassVar[str] = "answers other questions"
    question: ClassVar[str] = "a question"
    example: ClassVar[str] = "`rgcn train`"
    commands: ClassVar[tuple[str, ...]] = ()
    needs_labels: ClassVar[bool] = False
    calibration: ClassVar[str | None] = None

    def missing(self, graph: KnowledgeGraph) -> str | None:
        """Return what the graph lacks for such questions and what to do about it, or None."""
        if not self.needs_labels or (graph.labels is not None and len(graph.labels)):
            return None
        return (
            "no labels: read it with labels=FILE (--labels FILE), or with labels_from=RELATION (--labels-from "
            "RELATION) to take them from the graph"
        )

    def split_sizes(self, graph: KnowledgeGraph) -> Mapping[str, int]:
        """Return for each split the number of labels or triples that models learn from and are measured on."""
        statistics = graph.statistics()
        return statistics.labels_per_split if self.needs_labels else statistics.triples_per_split

    def classes(self, model: Estimator) -> list[str]:
        """Return the classes among which an answer is chosen; none if an answer is no choice among classes."""
        return []

    def calibrate(self, model: Estimator, hiding: str | None, budget: Budget | None) -> Calibration:
        """Fit how scores become probabilities; arguments as for `rgcn.links.calibration_fitting.calibrate_classes`."""
        if self.calibration is not None:
            return resolve_name(self.calibration)(model, hiding, budget)  # type: ignore[no-any-return]
        from rgcn.links.calibration import Calibration

        return Calibration(self.name, False, f"No probabilities: a model that {self.ability} has none.")

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the models of `configs/candidates.yaml` that `rgcn train` chooses from if no model is named."""
        return _candidates().get(self.name, {})


class ClassKind(AnswerKind):
    """Which class does a node belong to?"""

    name = "classes"
    topic = "nodes"
    ability = "classifies nodes"
    question = "a question about a node's class"
    example = "`rgcn train rgcn/nc-world`"
    commands = ("rgcn predict RUN --nodes names.txt --out classes.csv", "rgcn explain RUN NODE")
    needs_labels = True
    calibration = "rgcn.links.calibration_fitting:calibrate_classes"
    parts: ClassVar = {
        "NodeTables": "rgcn.predict.answer_tables:ClassTables",
        "Question": "rgcn.explain.question:ClassQuestion",
        "Endpoints": "rgcn.serve.answer_endpoints:ClassEndpoints",
    }

    def classes(self, model: Estimator) -> list[str]:
        """Return the names of the model's classes."""
        return model.classes_


class LinkKind(AnswerKind):
    """Which triples are missing?"""

    name = "links"
    topic = "triples"
    ability = "predicts links"
    question = "a question about triples"
    example = "`rgcn train rgcn/lp-world`"
    commands = (
        "rgcn predict RUN --subject NODE --relation RELATION -k 10",
        "rgcn complete RUN --relation RELATION --out missing.nt",
    )
    calibration = "rgcn.links.calibration_fitting:calibrate_links"
    parts: ClassVar = {
        "Question": "rgcn.explain.question:LinkQuestion",
        "Endpoints": "rgcn.serve.answer_endpoints:LinkEndpoints",
    }


@cache
def _make(kind: type[AnswerKind]) -> AnswerKind:
    return kind()


def kind_of(choice: str | type[AnswerKind]) -> AnswerKind:
    """Return the kind of a name or class: always the same object for the same class."""
    kind: Any = ANSWER_KINDS.resolve(choice, trusted=True)
    return _make(kind)


def wrong_question_message(kinds: Iterable[AnswerKind], wanted: AnswerKind) -> str:
    """Say that a model answers other kinds of questions than the wanted one, and what to train instead."""
    abilities = " and ".join(kind.ability for kind in kinds) or AnswerKind.ability
    return f"this model {abilities}; {wanted.question} needs one that {wanted.ability}, such as {wanted.example} makes"


@cache
def _candidates() -> dict[str, dict[str, Any]]:
    file = resources.files("rgcn") / "configs/candidates.yaml"
    return yaml.safe_load(file.read_text())  # type: ignore[no-any-return]
