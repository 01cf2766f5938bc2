"""`Explanation`: plain values that can be shown as text, JSON, a drawing or a page; and its fidelity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from rgcn.explain.question import LOG_ODDS, Question
from rgcn.system.formatting import format_percent
from rgcn.system.progress import Budget, Timer

Named = dict[str, Any]
"""A node, relation or class as `OpenModel` describes it: at least its name and its title."""

Numbers = NDArray[np.float64]

PROBABILITY = "the probability"
LOG_ODDS_HINT = "Log-odds compare the answer with all others together: above 0, it is likelier than they are."
BAR_LENGTH = 12
NUM_SHOWN_OPPOSING, NUM_SHOWN_NEIGHBORS, NUM_SHOWN_PATHS = 3, 5, 5
TEXT_ONLY_FIELDS = ("title", "query_nodes", "notes", "known", "found_by", "model", "connections")  # not in JSON


def arrow(relation: Named, forward: bool) -> str:
    """Format a relation as an arrow in the direction of its triple.

    >>> arrow({"title": "author"}, False)
    '←author—'
    """
    return f"—{relation['title']}→" if forward else f"←{relation['title']}—"


# Colors of the drawing in a notebook: those of a site made with Furo, else of Jupyter, light or dark, else on white.
NOTEBOOK_COLORS = {
    "card": "var(--color-background-primary, var(--jp-layout-color0, #ffffff))",
    "text": "var(--color-foreground-primary, var(--jp-content-font-color0, #1b2026))",
    "muted": "var(--color-foreground-secondary, var(--jp-content-font-color2, #545d68))",
    "line": "var(--color-background-border, var(--jp-border-color1, #d9dee4))",
}


@dataclass(frozen=True)
class ExplainedEdge:
    """A triple and its importance.

    Attributes:
        subject: The triple's subject.
        relation: The triple's relation.
        object: The triple's object.
        importance: Positive if it supports the answer.
        share: Its share of the absolute importance of all triples.
        hop: Distance from the question's nodes: 1 if it touches one of them.
        itself: Whether it is the triple that was asked about.
    """

    subject: Named
    relation: Named
    object: Named
    importance: float
    share: float
    hop: int
    itself: bool

    @property
    def text(self) -> str:
        """The triple as text: "Bern —capital of→ Switzerland"."""
        return f"{self.subject['title']} {arrow(self.relation, True)} {self.object['title']}"


@dataclass(frozen=True)
class ExplainedNeighbor:
    """A node, and the total importance of its messages."""

    node: Named
    importance: float
    share: float


@dataclass(frozen=True)
class Step:
    """A triple of a path; forward if the path leads from its subject to its object."""

    subject: Named
    relation: Named
    object: Named
    forward: bool


@dataclass(frozen=True)
class ExplainedPath:
    """A path of triples, from a query node outward or from subject to object."""

    steps: tuple[Step, ...]
    importance: float

    @property
    def text(self) -> str:
        """The path as text.

        >>> step = Step({"title": "Ada"}, {"title": "worksAt"}, {"title": "KIT"}, forward=True)
        >>> back = Step({"title": "Bob"}, {"title": "worksAt"}, {"title": "KIT"}, forward=False)
        >>> ExplainedPath((step, back), 0.5).text
        'Ada —worksAt→ KIT ←worksAt— Bob'
        """
        first = self.steps[0]
        parts = [(first.subject if first.forward else first.object)["title"]]
        for step in self.steps:
            parts += [arrow(step.relation, step.forward), (step.object if step.forward else step.subject)["title"]]
        return " ".join(parts)


@dataclass(frozen=True)
class Change:
    """How much a measure falls when triples are removed; negative if it rises.

    Attributes:
        named: For the triples of the explanation.
        random: Mean for as many random triples; None if there was no time.
        random_near: Mean for as many random triples that touch a query node.
    """

    named: float
    random: float | None
    random_near: float | None


@dataclass(frozen=True)
class Measure:
    """The probability, score or log-odds of the answer, and how it changes when triples are removed.

    Attributes:
        name: "the probability", "the score" or "the log-odds".
        full: Its value with all triples.
        without: How much it falls without the named triples: much if they were needed.
        only: How much it falls with only the named triples: little if they suffice.
    """

    name: str
    full: float
    without: Change
    only: Change

    @property
    def title(self) -> str:
        """The name without its article."""
        return self.name.removeprefix("the ")

    @property
    def scale(self) -> str:
        """How to read the number, as the beginning of a sentence."""
        return "above 0: likelier than all others together; " if self.name == LOG_ODDS else ""

    def left(self, change: float) -> float:
        """Return the value after a change."""
        return self.full - change

    def words(self, value: float) -> str:
        """Format a value of this measure."""
        return format_percent(value) if self.name == PROBABILITY else f"{value:.3g}"

    def describe_change(self, value: float, with_start: bool = True) -> str:
        """Say that the measure falls, rises or stays, by rounded numbers: "falls from 0.9 to 0.2"."""
        start, end = self.words(self.full), self.words(value)
        verb = "stay" if start == end else "fall" if value < self.full else "rise"
        verb += "" if self.name == LOG_ODDS else "s"  # log-odds are plural
        if start == end:
            return f"{verb} at {end}"
        return f"{verb} from {start} to {end}" if with_start else f"{verb} to {end}"


@dataclass(frozen=True)
class Fidelity:
    """How the answer changes without the named triples, and with only these.

    The graph is normalized as if removed triples had never existed; self-loops stay.

    Attributes:
        edges: Number of named triples.
        draws: Number of random sets of as many triples.
        strength: The score or log-odds.
        probability: The calibrated probability; None without a calibration.
        evidence: How much the strength falls without any triple.
        by_score: True if the data rule the answer out. Removing triples does not change its probability then, so
            `probability` is the one that follows from the score alone.
    """

    edges: int
    draws: int
    strength: Measure
    probability: Measure | None
    evidence: float
    by_score: bool = False

    @property
    def shown(self) -> Measure:
        """The measure to show: the probability if there is one."""
        return self.strength if self.probability is None else self.probability

    @property
    def words(self) -> str:
        """The result in sentences."""
        if not self.edges:
            return "No triple supports this answer, so none can be removed."
        these = "this triple" if self.edges == 1 else f"these {self.edges} triples"
        others = "a random one" if self.edges == 1 else f"{self.edges} random ones"
        shown, evidence = self.shown, self.strength.without
        without, alone = shown.left(shown.without.named), shown.left(shown.only.named)
        pronoun, verb = ("they", "are") if shown.name == LOG_ODDS else ("it", "is")
        lead, subject, comparison = "", shown.name, ""
        if self.by_score:
            lead = f"By its score alone the triple would have a probability of {shown.words(shown.full)}. "
            subject = "that"
        if shown.without.random is not None:
            change = shown.describe_change(shown.left(shown.without.random), with_start=False)
            comparison = f"; without {others} {pronoun} {change}"
        text = (
            f"{lead}Without {these} {subject} {shown.describe_change(without)}{comparison}. "
            f"With only {these} {pronoun} {verb} {shown.words(alone)}."
        )
        text += f" {LOG_ODDS_HINT}" if shown.name == LOG_ODDS else ""
        if shown.words(without) != shown.words(shown.full) or evidence.named <= 0 or self.evidence <= 0:
            return text
        text += " Other triples would have sufficed too"
        if evidence.random is None:
            return f"{text}."
        ours, theirs = (format_percent(change / self.evidence) for change in (evidence.named, evidence.random))
        return f"{text}: {ours} of the evidence depends on {these}, {theirs} on {others}."

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the text, for JSON."""
        return {**asdict(self), "words": self.words}


@dataclass(frozen=True)
class Explanation:
    """Why a model gives an answer: the triples that the answer depends on.

    Attributes:
        question: {"kind": "class", "node", "class", "predicted"} or {"kind": "link", "subject", ...}.
        title: The question as text.
        query_nodes: The nodes that the question is about.
        notes: Sentences on what the answer depends on besides triples.
        known: Whether the answer is in the data.
        method: Name of the explanation method.
        found_by: Description of the method.
        model: Name of the run or graph.
        calibration: What probabilities are calibrated on, or why there are none.
        probability: Calibrated probability of the answer; None without a calibration, and for known triples.
        score: The raw score: a logit, or a triple's score.
        own_share: Share of the nodes' own embeddings or features; None if the method has none.
        ruled_out: Whether the triple is not in the graph and contradicts its constraints.
        hidden: Whether the triple is known, and was hidden from the model.
        walked: Whether the paths are those that the model itself follows, best first.
        added: Nodes of the question that were added after training.
        edges: Triples that support the answer, most important first.
        against: Triples that oppose the answer, most important first.
        connections: Triples that connect these to the question's nodes, for the drawing.
        neighbors: The most important neighbors.
        paths: The most important paths.
        fidelity: How the answer changes without the triples.
        considered: Number of triples that the answer can depend on.
        left_out: What was left out for lack of time, as sentences.
    """

    question: dict[str, Any]
    title: str
    query_nodes: tuple[Named, ...]
    notes: tuple[str, ...]
    known: bool
    method: str
    found_by: str
    model: str
    calibration: str
    probability: float | None
    score: float
    own_share: float | None
    ruled_out: bool
    hidden: bool
    walked: bool
    added: tuple[Named, ...]
    edges: tuple[ExplainedEdge, ...]
    against: tuple[ExplainedEdge, ...]
    connections: tuple[ExplainedEdge, ...]
    neighbors: tuple[ExplainedNeighbor, ...]
    paths: tuple[ExplainedPath, ...]
    fidelity: Fidelity
    considered: int
    left_out: tuple[str, ...] = ()

    @property
    def sure(self) -> str:
        """The probability or score of the answer, as text."""
        if self.known:
            return "in the data"
        if self.probability is None:
            shown = self.fidelity.shown
            return f"{shown.title} {shown.words(shown.full)}; no probability"
        return f"probability {format_percent(self.probability)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation for JSON."""
        fields = {key: value for key, value in asdict(self).items() if key not in TEXT_ONLY_FIELDS}
        paths = [{"text": path.text, **values} for path, values in zip(self.paths, fields["paths"], strict=True)]
        return {**fields, "paths": paths, "fidelity": self.fidelity.as_dict()}

    def as_text(self) -> str:
        """Return the explanation as plain text, without colors."""
        opposing, neighbors = self.against[:NUM_SHOWN_OPPOSING], self.neighbors[:NUM_SHOWN_NEIGHBORS]
        max_share = max((edge.share for edge in (*self.edges, *self.against)), default=1.0)
        max_neighbor_share = max((neighbor.share for neighbor in neighbors), default=1.0)
        heading = "Paths to the answer, best first:" if self.walked else "Paths:"
        paths = {heading: [f"  {path.text}" for path in self.paths[:NUM_SHOWN_PATHS]]}
        parts = {
            **(paths if self.walked else {}),  # a dict keeps the position where a key was first inserted
            "Supporting triples:": [_line(edge, max_share) for edge in self.edges],
            "Opposing triples:": [_line(edge, max_share) for edge in opposing],
            "Neighbors:": [_line(neighbor, max_neighbor_share) for neighbor in neighbors],
            **paths,
            "Fidelity:": [f"  {sentence}." for sentence in _reliability(self)],
        }
        basis = f"The answer depends on {self.considered:,} triples, weighted by {self.found_by}:"
        basis = basis if self.considered else _nothing_reaches(self)
        introduction = "\n".join([self.title, f"{self.sure.capitalize()}.", *remarks(self), basis])
        written = ["\n".join([heading, *lines]) for heading, lines in parts.items() if lines]
        return "\n\n".join([introduction, *written]) + "\n"

    def as_svg(self, alone: bool = False) -> Markup:
        """Draw the triples, or the paths of a path network, as SVG; `alone` with own colors instead of the page's."""
        from rgcn.explain.drawing import drawing

        return drawing(self, alone)

    def _repr_html_(self) -> str:
        colors = "".join(f"--{name}: {value}; " for name, value in NOTEBOOK_COLORS.items())
        return f'<div style="{colors}background: var(--card)">{self.as_svg()}</div>'

    def as_svg_file(self) -> str:
        """Return the drawing as an SVG file."""
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{self.as_svg(alone=True)}\n'

    def as_page(self) -> str:
        """Return the explanation as an HTML file that loads nothing from elsewhere."""
        from rgcn.pages.layout import page, parts

        content = parts("explanation.html", why=self, remarks=remarks(self), percent=format_percent)
        return page(self.title, content, footer=f"Explained by rgcn from {self.model}.")


def remarks(explanation: Explanation) -> list[str]:
    """Return sentences on what the probability depends on besides the score and its calibration."""
    sentences = list(explanation.notes)
    if explanation.hidden:
        sentences.append("The triple itself was hidden from the model.")
    if explanation.added and explanation.probability is not None:
        names = " and ".join(node["title"] for node in explanation.added)
        verb = "was" if len(explanation.added) == 1 else "were"
        sentences.append(f"{names} {verb} added after training, and the calibration has no such nodes.")
    if explanation.probability is None and not explanation.known:
        sentences.append(explanation.calibration)
    return [*sentences, *explanation.left_out]


def _nothing_reaches(explanation: Explanation) -> str:
    is_one = len(explanation.query_nodes) == 1
    whose = "the node itself" if is_one else "the nodes themselves"
    if explanation.own_share is None:
        return "No triple reaches it."
    if explanation.own_share:
        return f"No triple reaches it: the answer comes from {whose}."
    which = "any such node has" if is_one else "any such nodes have"
    return f"No triple reaches it, and the network ignores {whose}: {which} this answer."


def _line(item: ExplainedEdge | ExplainedNeighbor, max_share: float) -> str:
    """Format a share, its bar (hollow if it opposes the answer), and the triple or node."""
    text = item.node["title"] if isinstance(item, ExplainedNeighbor) else item.text
    note = "   (the triple itself)" if isinstance(item, ExplainedEdge) and item.itself else ""
    length = max(1, round(BAR_LENGTH * min(item.share / max_share, 1.0))) if max_share else 1
    bar = ("░" if item.importance < 0 else "█") * length
    return f"  {100 * item.share:4.1f} %  {bar:<{BAR_LENGTH}}  {text}{note}"


def _reliability(explanation: Explanation) -> list[str]:
    sentences = explanation.fidelity.words.rstrip(".").split(". ")
    if explanation.own_share is not None and explanation.considered:
        whose = "node itself contributes" if len(explanation.query_nodes) == 1 else "two nodes themselves contribute"
        sentences.append(f"The {whose} {format_percent(explanation.own_share)} of the importance, triples the rest")
    return sentences


def fidelity(
    question: Question,
    named: NDArray[np.int64],
    draws: int,
    seed: int,
    timer: Timer | None = None,
    on_draw: Callable[[], object] = lambda: None,
) -> Fidelity:
    """Measure how the answer changes without some triples and with only these, and for random sets of as many.

    Args:
        question: The question.
        named: Indices of the triples in the subgraph.
        draws: Number of random sets.
        seed: Seed of the random sets.
        timer: Limit of time; fewer sets are drawn if it is over.
        on_draw: Called after each set.
    """
    rng, triples = np.random.default_rng(seed), np.arange(len(question.subgraph))
    near, timer = np.flatnonzero(question.subgraph.hop == 1), timer or Budget().start_timer()
    random_sets = [
        [rng.choice(pool, min(len(named), len(pool)), replace=False) for _ in range(draws)] for pool in (triples, near)
    ]

    def changes(chosen: NDArray[np.int64]) -> Numbers:
        """Return how much strength and probability fall without and with only the chosen triples, `[2, 2]`."""
        keep = np.isin(triples, chosen, invert=True)
        return np.stack([full - _measure(question, mask) for mask in (keep, ~keep)])

    with torch.no_grad():
        full, bare = _measure(question), _measure(question, np.zeros(len(triples), dtype=np.bool_))
        start = timer.elapsed
        of_named, of_random = changes(named), list[list[Numbers]]()
        needed = 2 * (timer.elapsed - start)  # a draw has two sets
        for pair in zip(*random_sets, strict=True):
            if timer.is_over(needed):
                break
            of_random.append([changes(chosen) for chosen in pair])
            on_draw()
    means = np.mean(of_random, axis=0) if of_random else None  # [pool, without or only, measure]

    def measure(name: str, i: int) -> Measure:
        random = [[None, None]] * 2 if means is None else means[:, :, i].T.tolist()
        return Measure(name, float(full[i]), *map(Change, of_named[:, i].tolist(), *zip(*random, strict=True)))

    strength = measure(question.strength_name, 0)
    probability = measure(PROBABILITY, 1) if question.calibration.fitted else None
    return Fidelity(len(named), len(of_random), strength, probability, float(full[0] - bare[0]), question.by_score)


def _measure(question: Question, keep: NDArray[np.bool_] | None = None) -> Numbers:
    """Return strength and probability (0 without a calibration) with only the kept triples; with all for None."""
    output = question.full_output if keep is None else question.output(question.subgraph.keep_triples(keep))
    return np.array([float(question.strength(output)), question.probability(output) or 0.0])
