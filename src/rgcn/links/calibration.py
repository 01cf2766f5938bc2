"""Scores as probabilities that mean something, and how well they agree with what was right.

Classes: p = softmax(logits / T). Guo et al., "On calibration of modern neural networks", 2017. Where weights come from
other graphs, the scores of each class are first set right by an offset (`ClassLevel`).

Links: how likely an answer to a question is right, by its score among the others and by its relation (`LinkCurve`):

    p = σ(w · [u, e^u, log(1 + known)] + offset of the place + slope of the place · u),  u = score - level

e^u is the share that the model itself gives the answer among all new ones. Offsets and slopes lean on zero: a relation
with few examples has the curve of all. `calibration_fitting` fits both kinds to a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.nn.scorer import Scorer

Floats = NDArray[np.float64]

OF_CLASSES = "Of nodes given 0.9, about nine in ten have the class."
OF_LINKS = (
    "A probability is the share of such new answers, to a question that has one, that are {}; more are true where the "
    "graph lacks truths."
)
TENTHS = tuple(i / 10 for i in range(11))
# Nearly all unknown triples are false and given next to nothing: bins of their own keep them out of the first tenth.
LINK_EDGES = (0.0, 0.001, 0.01, *TENTHS[1:])
COLDEST, HOTTEST = 0.05, 20.0
# Of (scale - 1)² + Σ offset²; chosen on the training labels of world, AIFB and MUTAG, five folds: docs/any-graph.md.
RIDGE = 1.0
LEVEL_STEPS = 100
FIRST = 50  # answers to a question that are looked at
LOWEST = -30.0  # of u: below, all are alike
# How far from zero offsets and slopes of a relation usually are; what is known of them beforehand.
OFFSETS, SLOPES, WEIGHTS = 1.0, 0.3, 10.0
STEPS = 200  # at most


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability in [low, high): their mean probability, and the share of them that was right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Fit:
    """How well probabilities agree with what was right: mean log loss, and expected calibration error, the mean
    distance between a probability and the share that was right."""

    log_loss: float
    calibration_error: float


def bins_of(probability: Floats, right: Floats, count: Floats, edges: Sequence[float] = TENTHS) -> tuple[Bin, ...]:
    """The bins that hold anything.

    right, count [n]  how many predictions have probability[i], and how many of these were right

    >>> bins_of(np.array([1.0, 0.9375]), np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    (Bin(low=0.9, high=1.0, count=2, confidence=0.96875, accuracy=0.5),)
    """
    place = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, len(edges) - 2)
    sums = [np.bincount(place, values, len(edges) - 1) for values in (count, count * probability, right)]
    return tuple(
        Bin(low, high, round(n), float(p / n), float(r / n))
        for low, high, n, p, r in zip(edges[:-1], edges[1:], *sums, strict=True)
        if n > 0
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    """Σ count · |confidence - accuracy| / Σ count; 0 without any."""
    total = sum(row.count for row in bins)
    return sum(row.count * abs(row.confidence - row.accuracy) for row in bins) / total if total else 0.0


def as_text(bins: Sequence[Bin], width: int = 24) -> str:
    """A line a bin: a bar as long as the share that was right, a mark where the probability says it should end.

    >>> print(as_text([Bin(0.5, 0.6, 4, 0.55, 0.25)], width=8))
     probability    said   right       count
     0.5 to   0.6   0.55    0.25           4  ██··|···
    """
    lines = [" probability    said   right       count"]
    for row in bins:
        bar = ["█" if i < round(row.accuracy * width) else "·" for i in range(width)]
        bar[min(int(row.confidence * width), width - 1)] = "|"
        span = f"{row.low:>5g} to {row.high:>5g}"
        numbers = f"{_short(row.confidence)} {_short(row.accuracy)} {row.count:>11,}"
        lines.append(f"{span} {numbers}  {''.join(bar)}")
    return "\n".join(lines)


def _short(share: float) -> str:
    return f"{share:6.2f} " if share >= 0.01 or share == 0 else f"{share:7.1e}"


def fit_temperature(logits: Floats, classes: NDArray[np.int64]) -> float:
    """argmin over T of Σ -log softmax(logits / T)[class] + (log T)² / 2, of logits [n, C].

    The last term is a prior: log T is hardly ever larger than 1 or 2. With labels enough it is not felt; with few, or
    with all of them classified rightly, it keeps T from 0. T lies in 0.05 .. 20.
    """

    def loss(log_temperature: float) -> float:
        return float(_cross_entropy(logits / np.exp(log_temperature), classes).sum() + log_temperature**2 / 2)

    grid = np.linspace(np.log(COLDEST), np.log(HOTTEST), 121)
    near = int(np.argmin([loss(value) for value in grid]))
    low, high = grid[max(near - 1, 0)], grid[min(near + 1, len(grid) - 1)]
    return float(np.exp(_golden_section(loss, float(low), float(high))))


def class_reliability(logits: Floats, classes: NDArray[np.int64], temperature: float) -> tuple[Fit, tuple[Bin, ...]]:
    """How well the predicted class's probability agrees with how often it is right."""
    scaled = logits / temperature
    exponential = np.exp(scaled - scaled.max(1, keepdims=True))
    confidence = (exponential / exponential.sum(1, keepdims=True)).max(1)
    right = (logits.argmax(1) == classes).astype(np.float64)
    bins = bins_of(confidence, right, np.ones_like(right))
    return Fit(float(_cross_entropy(scaled, classes).mean()), calibration_error(bins)), bins


def _cross_entropy(logits: Floats, classes: NDArray[np.int64]) -> Floats:
    shifted = logits - logits.max(1, keepdims=True)
    own = shifted[np.arange(len(classes)), classes]
    return np.asarray(np.log(np.exp(shifted).sum(1)) - own)


def _golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 40) -> float:
    """The least of a function with one valley between low and high."""
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return float((low + high) / 2.0)


def fit_of(probability: Floats, right: Floats) -> Fit:
    """How well probabilities [n] agree with what was right [n]."""
    p = np.clip(probability, 1e-300, 1 - 1e-15)
    loss = -(right * np.log(p) + (1 - right) * np.log1p(-p)).mean()
    return Fit(float(loss), calibration_error(bins_of(p, right, np.ones_like(p))))


class ClassLevel(NamedTuple):
    """scale · score + offset [classes]: a model that never met these classes prefers some for no reason of theirs."""

    scale: Tensor
    offset: Tensor

    def of(self, logits: Tensor) -> Tensor:
        return (logits.double() * self.scale + self.offset).to(logits.dtype)

    @classmethod
    def fitted(cls, logits: Tensor, classes: Tensor) -> ClassLevel:
        """What makes the known classes int64 [n] likeliest, of logits [n, classes]; few nodes move it little.

        >>> logits = torch.tensor([[3.0, 0.0], [3.0, 1.0], [3.0, 2.5], [3.0, 2.6]]).repeat(20, 1)
        >>> level = ClassLevel.fitted(logits, torch.tensor([0, 0, 1, 1]).repeat(20))
        >>> level.of(logits[:4]).argmax(1).tolist()
        [0, 0, 1, 1]
        """
        logits = logits.detach().double().cpu()
        scale, offset = torch.ones((), dtype=torch.float64), torch.zeros(logits.shape[1], dtype=torch.float64)
        parts = [scale.requires_grad_(), offset.requires_grad_()]
        optimizer = torch.optim.LBFGS(parts, max_iter=LEVEL_STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            wrong = F.cross_entropy(logits * scale + offset, classes.cpu(), reduction="sum")
            total = wrong + RIDGE * ((scale - 1.0).square() + offset.square().sum())
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        return cls(scale.detach(), offset.detach())


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

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    weights: list[float]  # of u, e^u and log(1 + known)
    bias: float
    offset: list[float]  # [2R]
    slope: list[float]  # [2R]

    def __post_init__(self) -> None:
        if (len(self.weights), len(self.offset)) != (3, len(self.slope)):
            raise ValueError("this is no curve of answers")

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

    @property
    def numbers(self) -> list[float]:
        return [*self.weights, self.bias, *self.offset, *self.slope]

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


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities: softmax(logits / T) for classes, a curve that knows the question for links.

    >>> Calibration("classes", True, "on nothing", temperature=2.0).class_probabilities(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 0.5000])
    """

    kind: str  # the name of an `AnswerKind`, or "completion"
    fitted: bool  # on held-out data; else there are no probabilities
    words: str  # how it was fitted, or why it was not
    temperature: float = 1.0
    ruled_out_share: float | None = None  # of unknown answers that rules forbid, those in the validation split
    examples: int = 0  # nodes, or triples, it was fitted on
    before: Fit | None = None  # how well probabilities agreed with these, as trained
    after: Fit | None = None  # and as calibrated
    reliability: tuple[Bin, ...] = ()  # the same in bins of probability
    hidden: bool = False  # fitted on what the model knows, each hidden while asked about; else on validation data
    curve: LinkCurve | None = None  # of answers to questions
    is_cut: bool = False  # whether a `PATIENT` calibration would ask more: there was not time for all
    meaning: str = "A score is the model's own number: higher is likelier."  # what the numbers say, in a sentence

    @classmethod
    def none(cls, kind: str, why: str, **figures: Any) -> Calibration:
        """Where there was nothing to calibrate on."""
        return cls(kind, False, f"No probabilities{', only scores' if kind == 'links' else ''}: {why}", **figures)

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / T) [n, C], in float32 at least."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / self.temperature, dim=-1)

    def answer_probabilities(self, score: Tensor, level: Tensor, known: Tensor, place: Tensor) -> Tensor:
        """[q, k], of the answers to q questions; arguments as for `LinkCurve.probabilities`."""
        assert self.curve is not None
        return self.curve.probabilities(score, level, known, place)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "reliability": [asdict(row) for row in self.reliability]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Of what `as_dict` gave; KeyError, TypeError or ValueError where it is something else."""
        made = TypeAdapter(cls).validate_json(
            json.dumps({key: values[key] for key in cls.__dataclass_fields__}), strict=True
        )
        numbers = [made.temperature, made.ruled_out_share or 0.0, *(() if made.curve is None else made.curve.numbers)]
        lacking = made.fitted and made.kind in ("links", "completion") and made.curve is None
        if not np.isfinite(numbers).all() or made.temperature <= 0 or lacking:
            raise ValueError("this is no calibration")
        return made


class AnsweringModel(Protocol):
    """What answers are made of: a trained model with the graph it knows. Every `Estimator` is one, and `OpenModel`."""

    @property
    def graph_(self) -> KnowledgeGraph: ...

    @property
    def calibration_(self) -> Calibration: ...

    @property
    def fingerprint_(self) -> str: ...

    @property
    def new_nodes(self) -> tuple[int, ...]: ...

    def scorer(self) -> Scorer: ...

    def logits(self, nodes: Iterable[str | int]) -> Tensor: ...
