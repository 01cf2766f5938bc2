"""From scores to the probability that an unknown triple is true: p = c · σ(score / T + b).

The examples are the questions (s, r, ?) and (?, r, o) that validation triples ask, and *all* their unknown answers: the
ones in the validation split count as true, everything else as false. c < 1 says that even the best are not sure. Some
of what counts as false is true in the world and only not in the graph: the probabilities are lower bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.marks import Marks
from rgcn.answers.reliability import TENTHS, Bin, Fit, Floats, bins_of, calibration_error
from rgcn.graph import KnowledgeGraph
from rgcn.known import KnownTriples
from rgcn.scoring import Questions, Scorer

SCORE_BINS = 1 << 15
BLOCK = 32 << 20
# Nearly all unknown triples are false and given next to nothing: bins of their own keep them out of the first tenth.
EDGES = (0.0, 0.001, 0.01, *TENTHS[1:])
# What lies below is told apart by nobody.
WORTH_COUNTING = 0.01


class Examples(NamedTuple):
    """Unknown answers to validation questions, counted by score, float64 [n] each.

    true, false                     how many answers of about this score are in the validation split, and are not
    ruled_out, ruled_out_true       how many answers the training triples rule out by example, and how many of them are
                                    in the validation split; they are not among the others
    """

    score: Floats
    true: Floats
    false: Floats
    ruled_out: int = 0
    ruled_out_true: int = 0


class Sigmoid(NamedTuple):
    """p = ceiling · σ(score / temperature + bias)"""

    temperature: float
    bias: float
    ceiling: float

    def __call__(self, score: Floats) -> Floats:
        return self.ceiling * _sigmoid(score / self.temperature + self.bias)


# -- examples ---------------------------------------------------------------------------------------------


@torch.no_grad()
def validation_examples(scorer: Scorer, graph: KnowledgeGraph, triples: NDArray[np.int64]) -> Examples:
    """The unknown answers to the questions of validation triples int64 [n, 3].

    Unknown is what is not in the training split. Scores are counted in bins as they are computed: memory does not grow.
    """
    asked = torch.from_numpy(np.array(triples)).to(scorer.device)
    count = _Counter(scorer, graph, asked)
    rows = max(1, BLOCK // (4 * scorer.num_nodes))
    for for_objects in (True, False):
        keys = torch.unique(asked[:, 0 if for_objects else 2] * graph.num_relations + asked[:, 1])
        for key in keys.split(rows):
            count(key // graph.num_relations, key % graph.num_relations, for_objects)
    return count.examples()


def counted(true: Floats, false: Floats, count: Floats) -> Examples:
    """Examples of scores [n] of true triples, and of how many false ones have each of the scores [m]."""
    return Examples(
        np.concatenate([true, false]),
        np.concatenate([np.ones(len(true)), np.zeros(len(false))]),
        np.concatenate([np.zeros(len(true)), count]),
    )


class _Counter:
    """Counts of scores, filled a block of questions at a time."""

    def __init__(self, scorer: Scorer, graph: KnowledgeGraph, asked: Tensor) -> None:
        self.graph, self.scorer = graph, scorer
        self.learned = KnownTriples.of_graph(graph, "train", device=scorer.device)
        self.held_out = KnownTriples.of_graph(graph, "valid", device=scorer.device)
        subject, relation, object_ = asked.unbind(1)
        sides = torch.arange(2 * len(asked)) < len(asked)
        both = Questions(torch.cat([subject, object_]), torch.cat([relation, relation]), sides)
        bound = max(scorer.bound(both) * 1.001, 1e-6)
        self.low, self.width = -bound, 2 * bound / SCORE_BINS
        self.counts = torch.zeros(SCORE_BINS, dtype=torch.int64, device=scorer.device)
        self.true: list[Tensor] = []
        self.ruled_out = self.ruled_out_true = 0

    def __call__(self, given: Tensor, relation: Tensor, for_objects: bool) -> None:
        scores = self.scorer.scores(Questions(given, relation, for_objects))
        marks = Marks.of(self.graph, self.learned, given, relation, for_objects)
        answers = Marks.of(self.graph, self.held_out, given, relation, for_objects, by_example=False)
        known, out, true = (
            torch.unique(of * self.scorer.num_nodes + node)
            for of, node in (marks.known_nodes(), marks.ruled_out(), answers.known_nodes())
        )
        true = true[~torch.isin(true, known)]  # a triple of both splits was learned, and proves nothing
        out = out[~torch.isin(out, known)]
        self.ruled_out += len(out)
        self.ruled_out_true += int(torch.isin(true, out).sum())
        true = true[~torch.isin(true, out)]
        self.true.append(scores.flatten()[true].double().cpu())
        place = ((scores.flatten() - self.low) / self.width).int().clamp_(0, SCORE_BINS - 1)
        self.counts += torch.bincount(place, minlength=SCORE_BINS)
        self.counts -= torch.bincount(place[torch.cat([known, out, true])], minlength=SCORE_BINS)

    def examples(self) -> Examples:
        counts, true = self.counts.cpu().numpy(), torch.cat(self.true).numpy()
        filled = np.flatnonzero(counts)
        return Examples(
            np.concatenate([true, self.low + (filled + 0.5) * self.width]),
            np.concatenate([np.ones_like(true), np.zeros(len(filled))]),
            np.concatenate([np.zeros_like(true), counts[filled].astype(np.float64)]),
            self.ruled_out,
            self.ruled_out_true,
        )


# -- the fit ----------------------------------------------------------------------------------------------


def fit_sigmoid(examples: Examples) -> Sigmoid:
    """The curve that makes the true answers most likely and the false ones least, by Fisher scoring from a few starts.

    As Platt proposed, either side has one imaginary example of the other, so that answers which a threshold tells apart
    do not send T to 0. Where scores are worth nothing there is no T > 0 that fits: then all probabilities are alike.
    """
    score, true, false = examples.score, examples.true, examples.false
    weight = true + false
    center = float(np.average(score, weights=weight))
    spread = float(np.sqrt(np.average((score - center) ** 2, weights=weight))) or 1.0
    target = true * (true.sum() + 1) / (true.sum() + 2) + false / (false.sum() + 2)
    x = (score - center) / spread
    rate = target.sum() / weight.sum()
    fits = [_scored_fit(x, weight, target, rate, ceiling) for ceiling in (0.95, 0.5, 0.1)]
    _, (slope, offset, logit) = min(fits, key=lambda fit: fit[0])
    if slope < 1e-6:
        slope, offset, logit = 1e-6, float(np.log(rate / (1 - rate))), 20.0
    return Sigmoid(spread / slope, float(offset - slope * center / spread), float(_sigmoid(np.array(logit))))


def _scored_fit(x: Floats, weight: Floats, target: Floats, rate: float, ceiling: float) -> tuple[float, Floats]:
    """(loss, [slope, offset, logit of the ceiling]), from a flat start at the mean rate."""
    start = min(rate / ceiling, 0.99)
    values = np.array([0.0, np.log(start / (1 - start)), np.log(ceiling / (1 - ceiling))])

    def loss(values: Floats) -> float:
        p = np.clip(_sigmoid(values[2]) * _sigmoid(values[0] * x + values[1]), 1e-300, 1 - 1e-15)
        # The faintest of priors keeps the ceiling where nothing else says what it is.
        return float(-(target * np.log(p) + (weight - target) * np.log1p(-p)).sum() + values[2] ** 2 / 50)

    now, damping = loss(values), 1e-3
    for _ in range(300):
        s, c = _sigmoid(values[0] * x + values[1]), _sigmoid(values[2])
        p = np.clip(c * s, 1e-300, 1 - 1e-15)
        # dp / d(slope, offset, logit); s (1 - s) over p is (1 - s) / c, which does not vanish with p
        towards = np.stack([(1 - s) * x, 1 - s, np.full_like(s, 1 - c)])
        gradient = towards @ ((weight * p - target) / (1 - p)) + np.array([0.0, 0.0, values[2] / 25])
        fisher = (towards * (weight * p / (1 - p))) @ towards.T + np.diag([0.0, 0.0, 1 / 25])
        step = np.linalg.solve(fisher + damping * np.diag(fisher.diagonal() + 1e-12), gradient)
        after = loss(values - step)
        if after > now:
            damping *= 10
            if damping > 1e12:
                break
            continue
        values, damping = values - step, max(damping / 10, 1e-9)
        if now - after < 1e-9 * (1 + abs(now)):
            now = after
            break
        now = after
    return now, values


def link_reliability(examples: Examples, curve: Sigmoid) -> tuple[Fit, tuple[Bin, ...]]:
    """How well probabilities agree with the validation split; the calibration error is over answers of 0.01 or more."""
    p = np.clip(curve(examples.score), 1e-300, 1 - 1e-15)
    weight = examples.true + examples.false
    bins = bins_of(p, examples.true, weight, EDGES)
    loss = -(examples.true * np.log(p) + examples.false * np.log1p(-p)).sum() / weight.sum()
    return Fit(float(loss), calibration_error([row for row in bins if row.low >= WORTH_COUNTING])), bins


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))
