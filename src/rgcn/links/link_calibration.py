"""The curve of answers to questions: how likely one is right, by its score among the others and by its relation.

    p = σ(w · [u, e^u, log(1 + known)] + offset of the place + slope of the place · u),  u = score - level

e^u is the share that the model itself gives the answer among all new ones. Offsets and slopes lean on zero: a relation
with few examples has the curve of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.links.reliability import Floats

FIRST = 50  # answers to a question that are looked at
LOWEST = -30.0  # of u: below, all are alike
# How far from zero offsets and slopes of a relation usually are; what is known of them beforehand.
OFFSETS, SLOPES, WEIGHTS = 1.0, 0.3, 10.0
STEPS = 200  # at most


class LinkExamples(NamedTuple):
    """First new answers to questions, [n] each."""

    score: Floats
    level: Floats  # log Σ exp(score) over all new answers to the same question
    known: NDArray[np.int64]  # how many answers to it are known
    place: NDArray[np.int64]  # where the answer stands: as object of relation r at r + R, as subject at r
    true: Floats
    out: int = 0  # answers that rules forbid; they are not among these
    out_true: int = 0  # how many of those were right

    @classmethod
    def together(cls, parts: Sequence[LinkExamples]) -> LinkExamples:
        columns: list[Any] = [np.concatenate(column) for column in zip(*(part[:5] for part in parts), strict=True)]
        return cls._make([*columns, sum(part.out for part in parts), sum(part.out_true for part in parts)])


@dataclass(frozen=True)
class LinkCurve:
    """As fitted; see above."""

    weights: list[float]  # of u, e^u and log(1 + known)
    bias: float
    offset: list[float]  # [2R]
    slope: list[float]  # [2R]

    @classmethod
    def fitted(cls, examples: LinkExamples, places: int) -> LinkCurve:
        """The curve that makes what was right most likely, and what was not least, with a prior on every number."""
        true, place = examples.true, examples.place
        features = _features(*(torch.from_numpy(of) for of in examples[:3])).numpy()
        u, start = features[:, 0], float(np.clip(true.mean(), 1e-6, 1 - 1e-6))
        shared = np.column_stack([features, np.ones(len(true))])
        weights, ends = np.array([0.0, 0.0, 0.0, np.log(start / (1 - start))]), np.zeros((2, places))
        prior, own = np.array([*[WEIGHTS**-2] * 3, 0.0]), np.array([[OFFSETS**-2], [SLOPES**-2]])

        def logits(weights: Floats, ends: Floats) -> Floats:
            return np.asarray(shared @ weights + ends[0, place] + ends[1, place] * u)

        def loss(weights: Floats, ends: Floats) -> float:
            z = logits(weights, ends)
            unlikely = (prior * weights**2).sum() + (own * ends**2).sum()
            return float((np.logaddexp(0.0, z) - true * z).sum() + unlikely / 2)

        now = loss(weights, ends)
        for _ in range(STEPS):  # Newton's, for what all share and for each place in turn: what is minimized is convex
            before = now
            for is_shared in (True, False):
                p = 1 / (1 + np.exp(-logits(weights, ends)))
                wrong, bend = p - true, p * (1 - p)
                if is_shared:
                    curved = shared.T @ (shared * bend[:, None]) + np.diag(prior + 1e-9)
                    step = (np.linalg.solve(curved, shared.T @ wrong + prior * weights), np.zeros_like(ends))
                else:
                    g = np.stack([np.bincount(place, of, places) for of in (wrong, wrong * u)]) + own * ends
                    a, b, c = (np.bincount(place, bend * u**power, places) for power in range(3))
                    a, c = a + own[0], c + own[1]
                    towards = np.stack([c * g[0] - b * g[1], a * g[1] - b * g[0]]) / (a * c - b * b)
                    step = (np.zeros_like(weights), towards)
                size = 1.0
                while (after := loss(weights - size * step[0], ends - size * step[1])) > now and size > 1e-6:
                    size /= 2
                if after <= now:
                    weights, ends, now = weights - size * step[0], ends - size * step[1], after
            if before - now < 1e-9 * (1 + abs(now)):
                break
        weights[:2] = np.maximum(weights[:2], 0.0)  # a higher score is never less likely
        ends[1] = np.maximum(ends[1], -weights[0])
        return cls(weights[:3].tolist(), float(weights[3]), *ends.tolist())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinkCurve:
        """Of plain values; TypeError or ValueError where they are no curve."""
        made = cls(**values)
        lists = [made.weights, made.offset, made.slope]
        numbers = [number for of in (*lists, [made.bias]) for number in of]
        finite = all(type(number) is float and np.isfinite(number) for number in numbers)
        sizes = [len(of) for of in lists if isinstance(of, list)]
        if sizes != [3, len(made.slope), len(made.slope)] or not finite:
            raise ValueError("this is no curve of answers")
        return made

    def probabilities(self, score: Tensor, level: Tensor, known: Tensor, place: Tensor) -> Tensor:
        """[q, k], of scores [q, k] of answers to q questions, each with a level, known answers and a place."""
        features = _features(score, level[:, None].expand_as(score), known[:, None].expand_as(score))
        offset, slope = (torch.tensor(of, dtype=torch.float64)[place][:, None] for of in (self.offset, self.slope))
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return torch.sigmoid(features @ weights + self.bias + offset + slope * features[..., 0]).float()

    def of(self, examples: LinkExamples) -> Floats:
        score, level, known, place = (torch.from_numpy(of) for of in examples[:4])
        return self.probabilities(score[:, None], level, known, place).squeeze(1).double().numpy()


def _features(score: Tensor, level: Tensor, known: Tensor) -> Tensor:
    """[..., 3]"""
    u = (score - level).clamp(LOWEST, 0.0).double()
    return torch.stack([u, u.exp(), torch.log1p(known.double())], dim=-1)
