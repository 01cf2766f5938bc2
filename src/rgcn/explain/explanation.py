"""An explanation: plain values, ready to be written as text, JSON, a picture or a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rgcn.explain.fidelity import Fidelity
from rgcn.explain.phrases import Named, arrow, percent, sentence

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class ExplainedEdge:
    """A triple and what it did."""

    subject: Named
    relation: Named
    object: Named
    importance: float  # positive where it speaks for the answer
    share: float  # of the importance of all triples in reach, signs left aside
    hop: int  # 1 where it touches an asked node, 2 where it touches a neighbor
    itself: bool  # whether it is the very triple that was asked about

    @property
    def text(self) -> str:
        return sentence(self.subject, self.relation, self.object)


@dataclass(frozen=True)
class ExplainedNeighbor:
    """A node that sent messages, and their importance together."""

    node: Named
    importance: float
    share: float


@dataclass(frozen=True)
class Step:
    """A triple of a path; forward where the path follows it from subject to object."""

    subject: Named
    relation: Named
    object: Named
    forward: bool


@dataclass(frozen=True)
class ExplainedPath:
    """A walk from an asked node outward, or from subject to object."""

    steps: tuple[Step, ...]
    importance: float

    @property
    def text(self) -> str:
        """
        >>> step = Step({"title": "Ada"}, {"title": "worksAt"}, {"title": "KIT"}, forward=True)
        >>> back = Step({"title": "Bob"}, {"title": "worksAt"}, {"title": "KIT"}, forward=False)
        >>> ExplainedPath((step, back), 0.5).text
        'Ada —worksAt→ KIT ←worksAt— Bob'
        """
        first = self.steps[0]
        words = [(first.subject if first.forward else first.object)["title"]]
        for step in self.steps:
            words += [arrow(step.relation, step.forward), (step.object if step.forward else step.subject)["title"]]
        return " ".join(words)


@dataclass(frozen=True)
class Explanation:
    """Why a model answers as it does."""

    question: dict[str, Any]  # {"kind": "class", "node", "class", "predicted"} or {"kind": "link", "subject", ...}
    method: str  # how the importances were found
    model: str  # the name of the run
    probability: float | None  # of the answer, calibrated; None where there was nothing to calibrate on
    score: float  # the network's own number: a logit, or a triple's score
    own_share: float | None  # how much the asked nodes brought themselves; None where the method does not say
    ruled_out: bool  # whether a triple is not in the graph, and examples rule it out (`rgcn.answers.by_example`)
    added: tuple[Named, ...]  # asked nodes that were added after training
    edges: tuple[ExplainedEdge, ...]  # triples that speak for the answer, most important first
    against: tuple[ExplainedEdge, ...]  # triples that speak against it, likewise
    connections: tuple[ExplainedEdge, ...]  # triples that join those to the asked nodes, for the picture
    neighbors: tuple[ExplainedNeighbor, ...]
    paths: tuple[ExplainedPath, ...]
    fidelity: Fidelity
    considered: int  # how many triples could have had a say

    @property
    def title(self) -> str:
        """The question in a line."""
        asked = self.question
        if asked["kind"] == "class":
            return f"Why {asked['class']['title']} for {asked['node']['title']}?"
        return f"Why {sentence(asked['subject'], asked['relation'], asked['object'])}?"

    @property
    def asked(self) -> tuple[Named, ...]:
        """The nodes the question is about."""
        if self.question["kind"] == "class":
            return (self.question["node"],)
        return self.question["subject"], self.question["object"]

    @property
    def sure(self) -> str:
        """How sure the model is, in a few words."""
        if self.probability is None:
            return f"score {self.score:.3g}; no probability, since nothing was there to calibrate on"
        return f"probability {percent(self.probability)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("model", "connections")}
        paths = [{"text": path.text, **told} for path, told in zip(self.paths, plain["paths"], strict=True)]
        return {**plain, "paths": paths, "fidelity": self.fidelity.as_dict()}

    def as_text(self) -> str:
        """For a terminal or a mail: no markup, no color."""
        from rgcn.explain.text import text

        return text(self)

    def as_svg(self) -> Markup:
        """The triples as a drawing, to be set into a page whose colors it takes."""
        from rgcn.explain.picture import drawing

        return drawing(self)

    def as_svg_file(self) -> str:
        """The same as a file of its own, with colors of its own."""
        from rgcn.explain.picture import drawing_file

        return drawing_file(self)

    def as_page(self) -> str:
        """One HTML file with everything, nothing loaded from elsewhere."""
        from rgcn.explain.explanation_page import explanation_page

        return explanation_page(self)
