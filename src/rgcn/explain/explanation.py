"""An explanation: plain values, and the same as text, JSON, a picture or a page."""

from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from rgcn.explain.fidelity import Fidelity
from rgcn.system.formatting import percent

Named = dict[str, Any]
"""A node, relation or class as `OpenModel` describes it: at least its name and its title."""

WIDEST_BAR = 12
SHOWN_AGAINST, SHOWN_NEIGHBORS, SHOWN_PATHS = 3, 5, 5
METHOD_WORDS = {
    "integrated-gradients": "integrated gradients over the graph's edges",
    "edge-mask": "a learned mask over the graph's triples",
    "paths": "gradients along the paths to it",
}
PATH_WORDS = {True: "The paths that made it, best first:", False: "Paths:"}


def arrow(relation: Named, forward: bool) -> str:
    """A relation as an arrow in the direction of its triple.

    >>> arrow({"title": "author"}, False)
    '←author—'
    """
    return f"—{relation['title']}→" if forward else f"←{relation['title']}—"


def sentence(subject: Named, relation: Named, object: Named) -> str:
    """'Bern —capital of→ Switzerland'"""
    return f"{subject['title']} {arrow(relation, True)} {object['title']}"


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
    model: str  # the name of the run or graph
    calibration: str  # what probabilities are calibrated on, or why there are none
    probability: float | None  # of the answer, calibrated; None where there is none, and for what is known
    score: float  # the network's own number: a logit, or a triple's score. People are shown `fidelity.shown` instead
    own_share: float | None  # how much the asked nodes brought themselves; None where the method does not say
    ruled_out: bool  # whether a triple is not in the graph, and rules forbid it (`rgcn.links.relation_constraints`)
    hidden: bool  # whether the triple itself is known, and was hidden while asking
    walked: bool  # whether the network walked from the asked node to the answer: paths are its ways there, best first
    added: tuple[Named, ...]  # asked nodes that were added after training
    edges: tuple[ExplainedEdge, ...]  # triples that speak for the answer, most important first
    against: tuple[ExplainedEdge, ...]  # triples that speak against it, likewise
    connections: tuple[ExplainedEdge, ...]  # triples that join those to the asked nodes, for the picture
    neighbors: tuple[ExplainedNeighbor, ...]
    paths: tuple[ExplainedPath, ...]
    fidelity: Fidelity
    considered: int  # how many triples could have had a say
    left_out: tuple[str, ...] = ()  # what there was not time for, in sentences

    @property
    def title(self) -> str:
        asked = self.question
        if asked["kind"] == "class":
            return f"Why {asked['class']['title']} for {asked['node']['title']}?"
        return f"Why {sentence(asked['subject'], asked['relation'], asked['object'])}?"

    @property
    def asked(self) -> tuple[Named, ...]:
        if self.question["kind"] == "class":
            return (self.question["node"],)
        return self.question["subject"], self.question["object"]

    @property
    def sure(self) -> str:
        """On the scale on which `fidelity` says what becomes of it."""
        if self.question.get("known"):
            return "in the data"
        if self.probability is None:
            shown = self.fidelity.shown
            return f"{shown.title} {shown.words(shown.full)}; no probability"
        return f"probability {percent(self.probability)}"

    def as_dict(self) -> dict[str, Any]:
        plain = {key: value for key, value in asdict(self).items() if key not in ("model", "connections")}
        paths = [{"text": path.text, **told} for path, told in zip(self.paths, plain["paths"], strict=True)]
        return {**plain, "paths": paths, "fidelity": self.fidelity.as_dict()}

    def as_text(self) -> str:
        """For a terminal or a mail: no markup, no color."""
        against, neighbors = self.against[:SHOWN_AGAINST], self.neighbors[:SHOWN_NEIGHBORS]
        loudest = max((edge.share for edge in (*self.edges, *self.against)), default=1.0)
        loudest_neighbor = max((one.share for one in neighbors), default=1.0)
        paths = {PATH_WORDS[self.walked]: [f"  {path.text}" for path in self.paths[:SHOWN_PATHS]]}
        parts = {
            **(paths if self.walked else {}),  # first, where they made the answer; a key keeps its first place
            "What speaks for it:": [_line(edge, loudest) for edge in self.edges],
            "What speaks against it:": [_line(edge, loudest) for edge in against],
            "Neighbors that mattered:": [_line(one, loudest_neighbor) for one in neighbors],
            **paths,
            "Does it hold?": [f"  {sentence}." for sentence in _sentences(self)],
        }
        written = ["\n".join([heading, *lines]) for heading, lines in parts.items() if lines]
        return "\n\n".join(["\n".join([self.title, *_answer(self)]), *written]) + "\n"

    def as_svg(self, alone: bool = False) -> Markup:
        """The triples, or a walking network's ways, in the colors of the page around; `alone`: its own, on white."""
        from rgcn.explain.drawing import drawing

        return drawing(self, alone)

    def _repr_html_(self) -> str:
        return str(self.as_svg(alone=True))

    def as_svg_file(self) -> str:
        """The same as a file of its own, which knows no page."""
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{self.as_svg(alone=True)}\n'

    def as_page(self) -> str:
        """One HTML file with everything, nothing loaded from elsewhere."""
        from rgcn.pages.layout import page, parts

        words = {"remarks": remarks(self), "found_by": METHOD_WORDS[self.method], "percent": percent}
        content = parts("explanation.html", why=self, **words)
        return page(self.title, content, footer=f"Explained by rgcn from {self.model}.")


def _answer(explanation: Explanation) -> list[str]:
    lines = [f"{explanation.sure.capitalize()}."]
    asked = explanation.question
    if asked["kind"] == "class" and asked["predicted"] != asked["class"]:
        lines.append(f"The model itself says {asked['predicted']['title']}.")
    found = f"{explanation.considered:,} triples could have a say; by {METHOD_WORDS[explanation.method]}:"
    return [*lines, *remarks(explanation), found if explanation.considered else _nothing_reaches(explanation)]


def remarks(explanation: Explanation) -> list[str]:
    """Sentences on what the probability rests on, where that is not the score and its calibration alone."""
    said = []
    asked = explanation.question
    if explanation.hidden:
        said.append("The triple itself was hidden while asking.")
    if explanation.ruled_out:
        relation = asked["relation"]["title"]
        said.append(f"It goes against what is known of {relation}: `rgcn data stats --relations` shows it.")
        said.append(
            "Such triples share one probability, whatever their score."
            if explanation.fidelity.by_score
            else "Predictions leave it out."
        )
    if explanation.added and explanation.probability is not None:
        names = " and ".join(node["title"] for node in explanation.added)
        verb = "was" if len(explanation.added) == 1 else "were"
        said.append(f"{names} {verb} added after training: nothing was calibrated on nodes added later.")
    if explanation.probability is None and not asked.get("known"):
        said.append(explanation.calibration)
    return [*said, *explanation.left_out]


def _nothing_reaches(explanation: Explanation) -> str:
    if explanation.own_share is None:
        return "No triple reaches it."
    one = len(explanation.asked) == 1
    whose = "the node itself" if one else "the nodes themselves"
    if explanation.own_share:
        return f"No triple reaches it: the answer comes from {whose}."
    alike = "any such node has" if one else "any such nodes have"
    return f"No triple reaches it, and the network does not hear {whose}: {alike} this answer."


def _line(one: ExplainedEdge | ExplainedNeighbor, loudest: float) -> str:
    """A share, its bar (hollow where it speaks against the answer), and what it belongs to."""
    words = one.node["title"] if isinstance(one, ExplainedNeighbor) else one.text
    note = "   (the triple itself)" if isinstance(one, ExplainedEdge) and one.itself else ""
    length = max(1, round(WIDEST_BAR * min(one.share / loudest, 1.0))) if loudest else 1
    bar = ("░" if one.importance < 0 else "█") * length
    return f"  {100 * one.share:4.1f} %  {bar:<{WIDEST_BAR}}  {words}{note}"


def _sentences(explanation: Explanation) -> list[str]:
    said = explanation.fidelity.words.rstrip(".").split(". ")
    if explanation.own_share is not None and explanation.considered:
        whose = "node itself brings" if len(explanation.asked) == 1 else "two nodes themselves bring"
        said.append(f"The {whose} {percent(explanation.own_share)} of what counts, the triples the rest")
    return said
