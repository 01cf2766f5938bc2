"""An explanation: plain values, and the same as text, JSON, a picture or a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from rgcn.explain.question import LOG_ODDS, Question
from rgcn.system.formatting import percent
from rgcn.system.progress import Budget, Timer

Named = dict[str, Any]
"""A node, relation or class as `OpenModel` describes it: at least its name and its title."""

Numbers = NDArray[np.float64]

PROBABILITY = "the probability"
MEANING = {LOG_ODDS: "Log-odds weigh the answer against all others together: above 0, it is likelier than they are."}
WIDEST_BAR = 12
SHOWN_AGAINST, SHOWN_NEIGHBORS, SHOWN_PATHS = 3, 5, 5
# Fields that programs are not told.
FOR_PEOPLE = ("title", "asked", "notes", "known", "found_by", "model", "connections")
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
class Change:
    """How far the answer falls when triples go; negative where it rises."""

    named: float  # the triples of the explanation
    random: float | None  # as many, drawn from all in reach; None where there was no time to draw
    random_near: float | None  # as many, drawn from those that touch an asked node: harder to beat


@dataclass(frozen=True)
class Measure:
    """A number that tells how sure the answer is, and what becomes of it."""

    name: str  # the probability, the score, the log-odds
    full: float  # of the full answer, where the changes begin
    without: Change  # the full answer less the one without the named triples: large where they were needed
    only: Change  # the full answer less the one with only them: small where they suffice

    @property
    def title(self) -> str:
        return self.name.removeprefix("the ")

    @property
    def scale(self) -> str:
        """What a number on its own does not say, in a few words."""
        return "above 0: likelier than all others together; " if self.name == LOG_ODDS else ""

    def left(self, change: float) -> float:
        return self.full - change

    def words(self, value: float) -> str:
        return percent(value) if self.name == PROBABILITY else f"{value:.3g}"


@dataclass(frozen=True)
class Fidelity:
    """What the named triples change, in what the network itself counts and, where it is calibrated, in probability.

    The graph is normalized again as if the other triples had never been; self-loops stay.
    """

    edges: int
    draws: int
    strength: Measure
    probability: Measure | None  # None where there was nothing to calibrate on
    evidence: float  # the strength all triples bring together
    # Whether the answer itself is given another probability, since examples rule it out: no triple that is left out
    # changes that, so that here it is the one its score alone would have.
    by_score: bool = False

    @property
    def shown(self) -> Measure:
        """What people are told: the probability, where there is one."""
        return self.strength if self.probability is None else self.probability

    @property
    def words(self) -> str:
        if not self.edges:
            return "No triple speaks for this answer, so there is none to leave out."
        these = "this triple" if self.edges == 1 else f"these {self.edges} triples"
        others = "one drawn at random" if self.edges == 1 else f"{self.edges} drawn at random"
        shown, evidence = self.shown, self.strength.without
        left, alone = shown.left(shown.without.named), shown.left(shown.only.named)
        lead, it, without_others = "", shown.name, ""
        pronoun, be = ("they", "are") if shown.name.endswith("odds") else ("it", "is")
        if self.by_score:
            lead = f"By its score alone the triple would have a probability of {shown.words(shown.full)}. "
            it = "that"
        if shown.without.random is not None:
            moves = _moves(shown, shown.left(shown.without.random), brief=True)
            without_others = f"; without {others} {pronoun} {moves}"
        said = (
            f"{lead}Without {these} {it} {_moves(shown, left)}{without_others}. "
            f"With {these} and no other {pronoun} {be} {shown.words(alone)}."
        )
        said = " ".join([said, *filter(None, [MEANING.get(shown.name)])])
        if shown.words(left) != shown.words(shown.full) or evidence.named <= 0 or self.evidence <= 0:
            return said
        if evidence.random is None:
            return f"{said} Other triples would have sufficed too."
        ours, theirs = (percent(change / self.evidence) for change in (evidence.named, evidence.random))
        return (
            f"{said} Other triples would have sufficed too: of the evidence, {ours} goes with {these}, {theirs} with "
            f"{others}."
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "words": self.words}


@dataclass(frozen=True)
class Explanation:
    """Why a model answers as it does."""

    question: dict[str, Any]  # {"kind": "class", "node", "class", "predicted"} or {"kind": "link", "subject", ...}
    title: str  # the question for people
    asked: tuple[Named, ...]  # the nodes that it is about
    notes: tuple[str, ...]  # on what the answer rests on beside its triples, in sentences
    known: bool  # whether the answer is in the data
    method: str  # how the importances were found
    found_by: str  # the same in words
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
    def sure(self) -> str:
        """On the scale on which `fidelity` says what becomes of it."""
        if self.known:
            return "in the data"
        if self.probability is None:
            shown = self.fidelity.shown
            return f"{shown.title} {shown.words(shown.full)}; no probability"
        return f"probability {percent(self.probability)}"

    def as_dict(self) -> dict[str, Any]:
        plain = {key: value for key, value in asdict(self).items() if key not in FOR_PEOPLE}
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

        content = parts("explanation.html", why=self, remarks=remarks(self), percent=percent)
        return page(self.title, content, footer=f"Explained by rgcn from {self.model}.")


def _answer(explanation: Explanation) -> list[str]:
    found = f"{explanation.considered:,} triples could have a say; by {explanation.found_by}:"
    found = found if explanation.considered else _nothing_reaches(explanation)
    return [f"{explanation.sure.capitalize()}.", *remarks(explanation), found]


def remarks(explanation: Explanation) -> list[str]:
    """Sentences on what the probability rests on, where that is not the score and its calibration alone."""
    said = list(explanation.notes)
    if explanation.hidden:
        said.append("The triple itself was hidden while asking.")
    if explanation.added and explanation.probability is not None:
        names = " and ".join(node["title"] for node in explanation.added)
        verb = "was" if len(explanation.added) == 1 else "were"
        said.append(f"{names} {verb} added after training: nothing was calibrated on nodes added later.")
    if explanation.probability is None and not explanation.known:
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


def fidelity(
    question: Question,
    named: NDArray[np.int64],
    draws: int,
    seed: int,
    timer: Timer | None = None,
    on_draw: Callable[[], object] = lambda: None,
) -> Fidelity:
    """Measured for the triples `named` (places in reach), and for `draws` random choices of as many.

    timer  of how long draws may take; fewer are made where it is over before
    """
    rng, everywhere = np.random.default_rng(seed), np.arange(len(question.reach))
    near, timer = np.flatnonzero(question.reach.hop == 1), timer or Budget().started()
    choices = [
        [rng.choice(pool, min(len(named), len(pool)), replace=False) for _ in range(draws)]
        for pool in (everywhere, near)
    ]

    def changes(chosen: NDArray[np.int64]) -> Numbers:
        """[2, 2]: what strength and probability lose without the chosen triples, and with them alone."""
        keep = np.isin(everywhere, chosen, invert=True)
        return np.stack([full - _without(question, kept) for kept in (keep, ~keep)])

    with torch.no_grad():
        full, bare = (
            _measured(question, question.full),
            _without(question, np.zeros(len(question.reach), dtype=np.bool_)),
        )
        began = timer.elapsed
        of_named, drawn = changes(named), list[list[Numbers]]()
        needed = 2 * (timer.elapsed - began)  # a draw asks twice as much
        for pair in zip(*choices, strict=True):
            if timer.is_over(needed):
                break
            drawn.append([changes(chosen) for chosen in pair])
            on_draw()
    of_drawn = np.mean(drawn, axis=0) if drawn else None  # [pool, without or only, measure]

    def change(kept: int, measure: int) -> Change:
        means = [None, None] if of_drawn is None else of_drawn[:, kept, measure].tolist()
        return Change(float(of_named[kept, measure]), *means)

    strength, probability = (
        Measure(name, float(full[i]), change(0, i), change(1, i))
        for i, name in enumerate((question.strength_name, PROBABILITY))
    )
    calibrated = probability if question.calibration.fitted else None
    return Fidelity(len(named), len(drawn), strength, calibrated, float(full[0] - bare[0]), question.by_score)


def _without(question: Question, keep: NDArray[np.bool_]) -> Numbers:
    """`_measured` where only the triples that are kept are heard."""
    return _measured(question, question.output(question.reach.keeping(keep)))


def _measured(question: Question, output: Tensor) -> Numbers:
    """[2]: how strongly the network gives the answer, and its probability, where there is one (else 0)."""
    return np.array([float(question.strength(output)), question.probability(output) or 0.0])


def _moves(shown: Measure, after: float, brief: bool = False) -> str:
    """Falls, rises or stays, as the rounded figures say it: brief leaves out where it began."""
    start, end = shown.words(shown.full), shown.words(after)
    # Log-odds are many.
    falls, rises, stays = ("fall", "rise", "stay") if shown.name.endswith("odds") else ("falls", "rises", "stays")
    if start == end:
        return f"{stays} at {end}"
    verb = falls if after < shown.full else rises
    return f"{verb} to {end}" if brief else f"{verb} from {start} to {end}"
