"""Whether the named triples really decided: ask again without them, and with nothing but them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.explain.question import LOG_ODDS, Question
from rgcn.system.formatting import percent
from rgcn.system.progress import Budget, Timer

Numbers = NDArray[np.float64]

PROBABILITY = "the probability"
MEANING = {LOG_ODDS: "Log-odds weigh the answer against all others together: above 0, it is likelier than they are."}


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


def fidelity(
    question: Question,
    output: Tensor,
    named: NDArray[np.int64],
    draws: int,
    seed: int,
    by_score: bool = False,
    timer: Timer | None = None,
    on_draw: Callable[[], object] = lambda: None,
) -> Fidelity:
    """Measured for the triples `named` (places in reach), and for `draws` random choices of as many.

    output  what the network gives when it hears everything in reach
    timer   of how long draws may take; fewer are made where it is over before
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
        full, bare = _measured(question, output), _without(question, np.zeros(len(question.reach), dtype=np.bool_))
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
    return Fidelity(len(named), len(drawn), strength, calibrated, float(full[0] - bare[0]), by_score)


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
