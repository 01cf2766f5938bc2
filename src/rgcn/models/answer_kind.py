"""Kinds of answers as objects: what follows from the kind of question that a trained model answers.

Nobody else asks which kind it is: a caller asks the kind for what it needs. A kind of someone else's is one class,
named by a task's `answers` or registered as an entry point of the group rgcn.answer_kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from rgcn.errors import ConfigError
from rgcn.plugins import ANSWER_KINDS, imported

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph
    from rgcn.links.calibration import Calibration
    from rgcn.models.estimator import Estimator
    from rgcn.system.progress import Budget

F = TypeVar("F")


class HasParts:
    """What has parts in later subpackages, each an implementation of an interface there.

    brings  the parts, by the name of their interface: {"Reporting": "module:Class"}
    """

    name: ClassVar[str]
    brings: ClassVar[Mapping[str, str]] = {}

    def part(self, interface: type[F]) -> type[F]:
        """The class that it brings for an interface; the interface itself where it needs no more."""
        place = self.brings.get(interface.__name__)
        if place is None and getattr(interface, "__abstractmethods__", None):
            raise ConfigError(f"{self.name} brings no {interface.__name__}: it cannot be used here")
        return interface if place is None else imported(place)

    def to(self, interface: type[F]) -> F:
        """The part that it brings for an interface, made for it."""
        return self.part(interface)(self)  # type: ignore[call-arg]


class AnswerKind(HasParts):
    """A kind of question that trained models answer, and everything that follows from it.

    name          in files and answers to programs, "classes"
    about         what a question names: nodes, or the ends of triples; by this a question finds its kind
    does          what a model does that answers it, "classifies nodes"
    question      what such a question is, "a question about a node's class"
    example       a command that trains such a model
    commands      how a model is asked; RUN is its folder
    needs_labels  whether it is learned from labels of nodes and measured on them, else on triples
    calibration   what fits probabilities, as "module:function" of model, hiding and budget; None: there are none
    brings        "NodeTables": its answers as tables, printed and written; "Question": how they are explained;
                  "Endpoints": how they are served
    """

    name: ClassVar[str] = "nothing"
    about: ClassVar[Literal["nodes", "triples"]]
    does: ClassVar[str] = "answers other questions"
    question: ClassVar[str] = "a question"
    example: ClassVar[str] = "`rgcn train`"
    commands: ClassVar[tuple[str, ...]] = ()
    needs_labels: ClassVar[bool] = False
    calibration: ClassVar[str | None] = None

    def missing(self, graph: KnowledgeGraph) -> str | None:
        """What the graph lacks for it, and what to do about that; None where it lacks nothing."""
        if not self.needs_labels or (graph.labels is not None and len(graph.labels)):
            return None
        return (
            "no labels: read it with labels=FILE (--labels FILE), or with labels_from=RELATION (--labels-from "
            "RELATION) to take them from the graph"
        )

    def split_sizes(self, graph: KnowledgeGraph) -> Mapping[str, int]:
        """How many labels or triples each split has, of what it is learned from and measured on."""
        statistics = graph.statistics()
        return statistics.labels_per_split if self.needs_labels else statistics.triples_per_split

    def classes(self, model: Estimator) -> list[str]:
        """The classes among which an answer is chosen; none where it is no choice."""
        return []

    def calibrate(self, model: Estimator, hiding: str | None, budget: Budget | None) -> Calibration:
        """How scores become probabilities; arguments as for `rgcn.links.calibration_fitting.calibrate_classes`."""
        if self.calibration is not None:
            return imported(self.calibration)(model, hiding, budget)  # type: ignore[no-any-return]
        from rgcn.links.calibration import Calibration

        return Calibration(self.name, False, f"No probabilities: a model that {self.does} has none.")

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        """Models to choose from where none is named for a graph."""
        return {}


class ClassKind(AnswerKind):
    """Which class does a node belong to?"""

    name = "classes"
    about = "nodes"
    does = "classifies nodes"
    question = "a question about a node's class"
    example = "`rgcn train rgcn/nc-world`"
    commands = ("rgcn predict RUN --nodes names.txt --out classes.csv", "rgcn explain RUN NODE")
    needs_labels = True
    calibration = "rgcn.links.calibration_fitting:calibrate_classes"
    brings: ClassVar = {
        "NodeTables": "rgcn.predict.answer_tables:ClassTables",
        "Question": "rgcn.explain.question:ClassQuestion",
        "Endpoints": "rgcn.serve.class_endpoints:ClassEndpoints",
    }

    def classes(self, model: Estimator) -> list[str]:
        return list(model.classes_)

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return _candidates()[self.name]


class LinkKind(AnswerKind):
    """Which triples are missing?"""

    name = "links"
    about = "triples"
    does = "predicts links"
    question = "a question about triples"
    example = "`rgcn train rgcn/lp-world`"
    commands = (
        "rgcn predict RUN --subject NODE --relation RELATION -k 10",
        "rgcn complete RUN --relation RELATION --out missing.nt",
    )
    calibration = "rgcn.links.calibration_fitting:calibrate_links"
    brings: ClassVar = {
        "Question": "rgcn.explain.question:LinkQuestion",
        "Endpoints": "rgcn.serve.link_endpoints:LinkEndpoints",
    }

    def candidates(self) -> Mapping[str, Mapping[str, Any]]:
        return _candidates()[self.name]


def kind_of(choice: str | type[AnswerKind]) -> AnswerKind:
    """The kind of this name, or of this class; one object for each class."""
    found: Any = ANSWER_KINDS.find(choice, trusted=True)
    return _made(found)


@cache
def _made(kind: Any) -> AnswerKind:
    return kind()  # type: ignore[no-any-return]


def cannot_answer(kinds: Iterable[AnswerKind], wanted: AnswerKind) -> str:
    """The words for a question to a model that answers other kinds of questions."""
    has = " and ".join(kind.does for kind in kinds) or AnswerKind.does
    return f"this model {has}; {wanted.question} needs one that {wanted.does}, such as {wanted.example} makes"


@cache
def _candidates() -> dict[str, dict[str, Any]]:
    import yaml

    found: dict[str, dict[str, Any]] = yaml.safe_load((resources.files("rgcn") / "configs/candidates.yaml").read_text())
    return found
