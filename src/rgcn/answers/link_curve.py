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
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.reliability import Floats, ScoreCounts

FIRST = 50  # answers to a question that are looked at
LOWEST = -30.0  # of u: below, all are alike
# How far from zero offsets and slopes of a relation usually are; what is known of them beforehand.
OFFSETS, SLOPES, WEIGHTS = 1.0, 0.3, 10.0


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

    def counts(self) -> ScoreCounts:
        """By score alone."""
        return ScoreCounts(self.score, self.true, 1.0 - self.true)


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
        true, place = torch.from_numpy(examples.true), torch.from_numpy(examples.place)
        features = _features(*(torch.from_numpy(of) for of in examples[:3]))
        start = float(np.clip(examples.true.mean(), 1e-6, 1 - 1e-6))
        weights, offset, slope = (torch.zeros(size, dtype=torch.float64) for size in (3, places, places))
        bias = torch.tensor([np.log(start / (1 - start))])
        parts = [weights, bias, offset, slope]
        for part in parts:
            part.requires_grad_()
        search = torch.optim.LBFGS(parts, max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            search.zero_grad()
            logit = features @ weights + bias + offset[place] + slope[place] * features[:, 0]
            wrong = F.binary_cross_entropy_with_logits(logit, true, reduction="sum")
            sizes = ((weights, WEIGHTS), (offset, OFFSETS), (slope, SLOPES))
            total: Tensor = wrong + sum((part.square().sum() / (2 * size**2) for part, size in sizes), torch.zeros(()))
            total.backward()  # type: ignore[no-untyped-call]
            return total

        search.step(loss)  # type: ignore[no-untyped-call]
        with torch.no_grad():  # a higher score is never less likely
            weights[:2].clamp_(min=0.0)
            slope.clamp_(min=-float(weights[0]))
        found = [part.detach().tolist() for part in parts]
        return cls(found[0], found[1][0], found[2], found[3])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinkCurve:
        """Of plain values; TypeError or ValueError where they are no curve."""
        made = cls(**values)
        lists = [made.weights, made.offset, made.slope]
        numbers = [number for of in (*lists, [made.bias]) for number in of]
        sizes = [len(of) for of in lists if isinstance(of, list)]
        if sizes != [3, len(made.slope), len(made.slope)] or not all(
            type(number) is float and np.isfinite(number) for number in numbers
        ):
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
