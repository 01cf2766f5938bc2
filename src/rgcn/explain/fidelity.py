"""Whether the named triples really decided: ask again without them, and with nothing but them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.explain.phrases import percent
from rgcn.explain.question import Question


class Asked(NamedTuple):
    """An answer: its probability, and how strongly the network gives it."""

    probability: float
    strength: float


@dataclass(frozen=True)
class Change:
    """How far the answer falls when triples go; negative where it rises.

    named        the triples of the explanation
    random       as many, drawn from all in reach
    random_near  as many, drawn from those that touch an asked node: harder to beat
    """

    named: float
    random: float
    random_near: float


@dataclass(frozen=True)
class Fidelity:
    """The full answer less the one without the named triples, and less the one with only them.

    Large `without` means that the named triples were needed, small `only` that they suffice. The graph is normalized
    again as if the other triples had never been; self-loops stay. Probabilities, and in `strength` what the network
    itself counts: log-odds for a class, the score for a triple. `evidence` is the strength all triples bring together.

    probability  of the full answer, where the changes begin
    by_score     whether the answer itself is given another one, since examples rule it out: no triple that is left out
                 changes that, so that here it is the one its score alone would have
    """

    edges: int
    draws: int
    probability: float
    evidence: float
    without: Change
    only: Change
    without_strength: Change
    only_strength: Change
    by_score: bool = False

    @property
    def words(self) -> str:
        """A few sentences for people."""
        if not self.edges:
            return "No triple speaks for this answer, so there is none to leave out."
        these = "this triple" if self.edges == 1 else f"these {self.edges} triples"
        others = "one drawn at random" if self.edges == 1 else f"{self.edges} drawn at random"
        left, alone = self.probability - self.without.named, self.probability - self.only.named
        lead, it = "", "the probability"
        if self.by_score:
            lead = f"By its score alone the triple would have a probability of {percent(self.probability)}. "
            it = "that"
        said = (
            f"{lead}Without {these} {it} {_moves(self.probability, left)}; without {others} it "
            f"{_moves(self.probability, self.probability - self.without.random, brief=True)}. "
            f"With {these} and no other it is {percent(alone)}."
        )
        if percent(left) != percent(self.probability) or self.without_strength.named <= 0 or self.evidence <= 0:
            return said
        ours, theirs = (
            percent(change / self.evidence) for change in (self.without_strength.named, self.without_strength.random)
        )
        return (
            f"{said} Other triples would have sufficed too: of the evidence, {ours} goes with {these}, {theirs} with "
            f"{others}."
        )

    def as_dict(self) -> dict[str, Any]:
        strength = {
            "evidence": self.evidence,
            "without": asdict(self.without_strength),
            "only": asdict(self.only_strength),
        }
        return {
            "edges": self.edges,
            "draws": self.draws,
            "probability": self.probability,
            "by_score": self.by_score,
            "without": asdict(self.without),
            "only": asdict(self.only),
            "strength": strength,
            "words": self.words,
        }


def fidelity(question: Question, named: NDArray[np.int64], draws: int, seed: int, by_score: bool = False) -> Fidelity:
    """Measured for the triples `named` (places in reach), and for `draws` random choices of as many."""
    rng = np.random.default_rng(seed)
    reach = question.reach
    near = np.flatnonzero(reach.hop == 1)
    with torch.no_grad():
        full, bare = (_asked(question, np.full(len(reach), kept)) for kept in (True, False))
        ours = _changes(question, full, named)
        from_all, from_near = (
            np.mean([_changes(question, full, _drawn(rng, pool, len(named))) for _ in range(draws)], axis=0)
            for pool in (np.arange(len(reach)), near)
        )
    columns = zip(ours.tolist(), from_all.tolist(), from_near.tolist(), strict=True)
    without, without_strength, only, only_strength = (Change(*column) for column in columns)
    evidence = full.strength - bare.strength
    changes = without, only, without_strength, only_strength
    return Fidelity(len(named), draws, full.probability, evidence, *changes, by_score)


def _drawn(rng: np.random.Generator, pool: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return rng.choice(pool, min(size, len(pool)), replace=False)


def _changes(question: Question, full: Asked, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """[4]: what the answer loses without the chosen triples, in probability and strength, and with them alone."""
    keep = np.ones(len(question.reach), dtype=bool)
    keep[chosen] = False
    return np.concatenate([np.subtract(full, _asked(question, kept)) for kept in (keep, ~keep)])


def _asked(question: Question, keep: NDArray[np.bool_]) -> Asked:
    output = question.output(question.reach.keeping(keep))
    return Asked(question.probability(output), float(question.strength(output)))


def _moves(before: float, after: float, brief: bool = False) -> str:
    """Falls, rises or stays, as the rounded figures say it: brief leaves out where it began."""
    start, end = percent(before), percent(after)
    if start == end:
        return f"stays at {end}"
    verb = "falls" if after < before else "rises"
    return f"{verb} to {end}" if brief else f"{verb} from {start} to {end}"
