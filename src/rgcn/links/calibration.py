"""Calibration: from scores to probabilities, and how well the probabilities agree with the data.

Classes: p = softmax(logits / T). Guo et al., "On calibration of modern neural networks", 2017. If the weights were
trained on other graphs, the logits are corrected per class first (`ClassCorrection`).

Links: the probability that an answer is right, from its score relative to the other answers, and from its slot (the end
of a relation at which it occurs, see `rgcn.links.relation_constraints`):

    p = σ(w · [u, e^u, log(1 + num_known)] + offset of the slot + slope of the slot · u),  u = score - normalizer

e^u is the share of the softmax over all new answers. Offsets and slopes have a prior around zero, so that a relation
with few examples shares the curve of all. `calibration_fitting` fits both kinds to a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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

CLASS_MEANING = "Of nodes given 0.9, about nine in ten have the class."
LINK_MEANING = (
    "If a question has a further answer: of the answers shown with probability p, about a share p is true. Measured on "
    "{}; in an incomplete graph more answers are true."
)
TENTHS = tuple(i / 10 for i in range(11))
# Nearly all unknown triples are false and have a tiny probability. They get bins of their own below the first tenth.
LINK_EDGES = (0.0, 0.001, 0.01, *TENTHS[1:])
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
# Weight of (scale - 1)² + Σ offset², chosen on the training labels of world, AIFB and MUTAG:
# docs/reference/pretrained-model.md.
RIDGE = 1.0
MAX_CORRECTION_STEPS = 100
NUM_ANSWERS = 50  # answers to a question that the curve is fitted on
MIN_LOG_SHARE = -30.0  # u is clamped here
OFFSET_STD, SLOPE_STD, WEIGHT_STD = 1.0, 0.3, 10.0  # standard deviations of the priors
MAX_NEWTON_STEPS = 200


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions with a probability in [low, high): mean probability (confidence), share that is right (accuracy)."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class CalibrationQuality:
    """Agreement of probabilities with the data: mean log loss, and expected calibration error.

    The calibration error is the mean distance between the probability of a bin and the share of it that is right.
    """

    log_loss: float
    calibration_error: float


def reliability_bins(
    probability: Floats, right: Floats, count: Floats, edges: Sequence[float] = TENTHS
) -> tuple[ReliabilityBin, ...]:
    """Return the bins that are not empty.

    Args:
        probability: [n].
        right: [n]: how many predictions with probability[i] are right.
        count: [n]: how many predictions have probability[i].
        edges: Bounds of the bins.

    >>> reliability_bins(np.array([1.0, 0.9375]), np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    (ReliabilityBin(low=0.9, high=1.0, count=2, confidence=0.96875, accuracy=0.5),)
    """
    index = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, len(edges) - 2)
    sums = [np.bincount(index, values, len(edges) - 1) for values in (count, count * probability, right)]
    rows = (row for row in zip(edges[:-1], edges[1:], *sums, strict=True) if row[2] > 0)
    return tuple(ReliabilityBin(low, high, round(n), float(p / n), float(r / n)) for low, high, n, p, r in rows)


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return Σ count · |confidence - accuracy| / Σ count; 0 without bins."""
    total = sum(row.count for row in bins)
    return sum(row.count * abs(row.confidence - row.accuracy) for row in bins) / total if total else 0.0


def format_reliability(bins: Sequence[ReliabilityBin], width: int = 24) -> str:
    """Return a text chart with one line per bin: the bar shows the accuracy, the mark | shows the confidence.

    >>> print(format_reliability([ReliabilityBin(0.5, 0.6, 4, 0.55, 0.25)], width=8))
     probability    mean   right       count
     0.5 to   0.6   0.55    0.25           4  ██··|···
    """
    lines = [" probability    mean   right       count"]
    for row in bins:
        bar = ["█" if i < round(row.accuracy * width) else "·" for i in range(width)]
        bar[min(int(row.confidence * width), width - 1)] = "|"
        shares = (f"{p:6.2f} " if p >= 0.01 or p == 0 else f"{p:7.1e}" for p in (row.confidence, row.accuracy))
        lines.append(f"{row.low:>5g} to {row.high:>5g} {' '.join(shares)} {row.count:>11,}  {''.join(bar)}")
    return "\n".join(lines)


def fit_temperature(logits: Floats, classes: NDArray[np.int64]) -> float:
    """Return the T between 0.05 and 20 that minimizes Σ -log softmax(logits / T)[class] + (log T)² / 2.

    The last term is a prior. With enough labels it has no effect. With few labels, or if all of them are classified
    correctly, it keeps T away from 0.

    Args:
        logits: [n, C].
        classes: [n]: the true classes.
    """

    def loss(log_temperature: float) -> float:
        return float(_cross_entropy(logits / np.exp(log_temperature), classes).sum() + log_temperature**2 / 2)

    grid = np.linspace(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE), 121)
    best = int(np.argmin([loss(value) for value in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return float(np.exp(_golden_section(loss, float(low), float(high))))


def class_reliability(
    logits: Floats, classes: NDArray[np.int64], temperature: float
) -> tuple[CalibrationQuality, tuple[ReliabilityBin, ...]]:
    """Compare the probability of the predicted class, of logits [n, C], with how often it is right."""
    scaled = logits / temperature
    exponential = np.exp(scaled - scaled.max(1, keepdims=True))
    confidence = (exponential / exponential.sum(1, keepdims=True)).max(1)
    right = (logits.argmax(1) == classes).astype(np.float64)
    bins = reliability_bins(confidence, right, np.ones_like(right))
    return CalibrationQuality(float(_cross_entropy(scaled, classes).mean()), calibration_error(bins)), bins


def _cross_entropy(logits: Floats, classes: NDArray[np.int64]) -> Floats:
    shifted = logits - logits.max(1, keepdims=True)
    own = shifted[np.arange(len(classes)), classes]
    return np.asarray(np.log(np.exp(shifted).sum(1)) - own)


def _golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 40) -> float:
    """Return the minimum of a unimodal function between low and high."""
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


def calibration_quality(probability: Floats, right: Floats) -> CalibrationQuality:
    """Compare probabilities [n] with outcomes [n]: 1 if right, else 0."""
    p = np.clip(probability, 1e-300, 1 - 1e-15)
    loss = -(right * np.log(p) + (1 - right) * np.log1p(-p)).mean()
    return CalibrationQuality(float(loss), calibration_error(reliability_bins(p, right, np.ones_like(p))))


class ClassCorrection(NamedTuple):
    """A correction scale · logits + offset [classes], for models that were not trained on these classes.

    Such a model scores some classes higher for all nodes alike.
    """

    scale: Tensor
    offset: Tensor

    def apply(self, logits: Tensor) -> Tensor:
        """Return the corrected logits [n, classes]."""
        return (logits.double() * self.scale + self.offset).to(logits.dtype)

    @classmethod
    def fit(cls, logits: Tensor, classes: Tensor) -> ClassCorrection:
        """Return the correction that maximizes the likelihood of the known classes, with a ridge penalty.

        Args:
            logits: [n, classes].
            classes: int64 [n]: the known classes.

        >>> logits = torch.tensor([[3.0, 0.0], [3.0, 1.0], [3.0, 2.5], [3.0, 2.6]]).repeat(20, 1)
        >>> correction = ClassCorrection.fit(logits, torch.tensor([0, 0, 1, 1]).repeat(20))
        >>> correction.apply(logits[:4]).argmax(1).tolist()
        [0, 0, 1, 1]
        """
        logits = logits.detach().double().cpu()
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        offset = torch.zeros(logits.shape[1], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([scale, offset], max_iter=MAX_CORRECTION_STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            cross_entropy = F.cross_entropy(logits * scale + offset, classes.cpu(), reduction="sum")
            total = cross_entropy + RIDGE * ((scale - 1.0).square() + offset.square().sum())
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        return cls(scale.detach(), offset.detach())


class LinkExamples(NamedTuple):
    """The best new answers to questions and whether they are right, to fit `LinkCurve` on; columns [n] each.

    Args:
        score: Raw scores.
        normalizer: log Σ exp(score) over all new answers to the same question.
        num_known: How many answers to the question are known.
        slot: Slot of the answer: relation r for subjects, r + R for objects.
        true: 1.0 for answers that are right, else 0.0.
        num_excluded: Answers that the constraints exclude; they are not among the examples.
        num_excluded_true: How many of the excluded answers were right.
    """

    score: Floats
    normalizer: Floats
    num_known: NDArray[np.int64]
    slot: NDArray[np.int64]
    true: Floats
    num_excluded: int = 0
    num_excluded_true: int = 0

    @classmethod
    def concatenate(cls, parts: Sequence[LinkExamples]) -> LinkExamples:
        """Return the examples of several parts."""
        *columns, excluded, excluded_true = zip(*parts, strict=True)
        return cls._make([*map(np.concatenate, columns), sum(excluded), sum(excluded_true)])


@dataclass(frozen=True)
class LinkCurve:
    """The fitted parameters of the formula in the module's docstring.

    Args:
        weights: Of u, e^u and log(1 + num_known).
        bias: Added for all slots.
        offset: [2R].
        slope: [2R].
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)

    weights: list[float]
    bias: float
    offset: list[float]
    slope: list[float]

    def __post_init__(self) -> None:
        """Check the sizes, of curves that were read from a file."""
        if (len(self.weights), len(self.offset)) != (3, len(self.slope)):
            raise ValueError("not a curve of link probabilities: the lists have wrong lengths")

    @classmethod
    def fit(cls, examples: LinkExamples, num_slots: int) -> LinkCurve:
        """Return the curve with the maximum posterior probability, by Newton's method.

        The loss is convex. Its shared weights and the parameters of the slots are updated in turn.

        Args:
            examples: The answers to fit.
            num_slots: Number of slots, 2R: the subjects and the objects of each relation.
        """
        true, slot = examples.true, examples.slot
        features = _features(*(torch.from_numpy(column) for column in examples[:3])).numpy()
        u, start = features[:, 0], float(np.clip(true.mean(), 1e-6, 1 - 1e-6))
        shared = np.column_stack([features, np.ones(len(true))])
        weights, per_slot = np.array([0.0, 0.0, 0.0, np.log(start / (1 - start))]), np.zeros((2, num_slots))
        prior, slot_prior = np.array([*[WEIGHT_STD**-2] * 3, 0.0]), np.array([[OFFSET_STD**-2], [SLOPE_STD**-2]])

        def logits(weights: Floats, per_slot: Floats) -> Floats:
            return np.asarray(shared @ weights + per_slot[0, slot] + per_slot[1, slot] * u)

        def loss(weights: Floats, per_slot: Floats) -> float:
            z = logits(weights, per_slot)
            penalty = (prior * weights**2).sum() + (slot_prior * per_slot**2).sum()
            return float((np.logaddexp(0.0, z) - true * z).sum() + penalty / 2)

        current = loss(weights, per_slot)
        for _ in range(MAX_NEWTON_STEPS):
            before = current
            for is_shared in (True, False):
                p = 1 / (1 + np.exp(-logits(weights, per_slot)))
                residual, curvature = p - true, p * (1 - p)
                if is_shared:
                    hessian = shared.T @ (shared * curvature[:, None]) + np.diag(prior + 1e-9)
                    gradient = shared.T @ residual + prior * weights
                    step = (np.linalg.solve(hessian, gradient), np.zeros_like(per_slot))
                else:
                    sums = [np.bincount(slot, of, num_slots) for of in (residual, residual * u)]
                    g = np.stack(sums) + slot_prior * per_slot
                    a, b, c = (np.bincount(slot, curvature * u**power, num_slots) for power in range(3))
                    a, c = a + slot_prior[0], c + slot_prior[1]
                    slot_step = np.stack([c * g[0] - b * g[1], a * g[1] - b * g[0]]) / (a * c - b * b)
                    step = (np.zeros_like(weights), slot_step)
                size = 1.0
                while (after := loss(weights - size * step[0], per_slot - size * step[1])) > current and size > 1e-6:
                    size /= 2
                if after <= current:
                    weights, per_slot, current = weights - size * step[0], per_slot - size * step[1], after
            if before - current < 1e-9 * (1 + abs(current)):
                break
        weights[:2] = np.maximum(weights[:2], 0.0)  # a higher score never has a lower probability
        per_slot[1] = np.maximum(per_slot[1], -weights[0])
        return cls(weights[:3].tolist(), float(weights[3]), *per_slot.tolist())

    def probabilities(self, score: Tensor, normalizer: Tensor, num_known: Tensor, slot: Tensor) -> Tensor:
        """Return the probabilities of answers to q questions.

        Args:
            score: [q, k]: raw scores of the answers.
            normalizer: [q].
            num_known: int64 [q]: how many answers are known.
            slot: int64 [q]: slot of the answers.

        Returns:
            float32 [q, k].
        """
        features = _features(score, normalizer[:, None].expand_as(score), num_known[:, None].expand_as(score))
        offset, slope = (torch.tensor(of, dtype=torch.float64)[slot][:, None] for of in (self.offset, self.slope))
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return torch.sigmoid(features @ weights + self.bias + offset + slope * features[..., 0]).float()

    def probabilities_of(self, examples: LinkExamples) -> Floats:
        """Return the probabilities of examples, [n]."""
        score, *columns = (torch.from_numpy(column) for column in examples[:4])
        return self.probabilities(score[:, None], *columns).squeeze(1).double().numpy()


def _features(score: Tensor, normalizer: Tensor, num_known: Tensor) -> Tensor:
    """[..., 3]: u, e^u and log(1 + num_known)."""
    u = (score - normalizer).clamp(MIN_LOG_SHARE, 0.0).double()
    return torch.stack([u, u.exp(), torch.log1p(num_known.double())], dim=-1)


@dataclass(frozen=True)
class Calibration:
    """How the scores of a model become probabilities: softmax(logits / T) for classes, a curve for links.

    Args:
        kind: Name of an `AnswerKind`, or "completion".
        fitted: True if it was fitted to data; otherwise there are no probabilities.
        words: How it was fitted, or why it was not; sentences for users.
        temperature: T.
        ruled_out_share: Of new answers that the constraints exclude, the share that is in the validation split.
        examples: Number of nodes or triples it was fitted on.
        before: Quality without calibration.
        after: Quality with calibration.
        reliability: Reliability diagram with calibration.
        hidden: True if it was fitted on known triples or labels, each hidden while it was predicted; False if on
            validation data.
        curve: Curve of link probabilities.
        is_cut: True if the time limit left out examples; `UNLIMITED_BUDGET` uses all of them.
        meaning: What the numbers mean, in one sentence for users.

    >>> Calibration("classes", True, "on nothing", temperature=2.0).class_probabilities(torch.tensor([1.0, 1.0]))
    tensor([0.5000, 0.5000])
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    kind: str
    fitted: bool
    words: str
    temperature: float = 1.0
    ruled_out_share: float | None = None
    examples: int = 0
    before: CalibrationQuality | None = None
    after: CalibrationQuality | None = None
    reliability: tuple[ReliabilityBin, ...] = ()
    hidden: bool = False
    curve: LinkCurve | None = None
    is_cut: bool = False
    meaning: str = "A score is the model's own number: higher is likelier."

    @classmethod
    def unfitted(cls, kind: str, reason: str, **fields: Any) -> Calibration:
        """Return the calibration of a model for which there was nothing to calibrate on."""
        return cls(kind, False, f"No probabilities{', only scores' if kind == 'links' else ''}: {reason}", **fields)

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """Return softmax(logits / T), [n, C], at least in float32."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / self.temperature, dim=-1)

    def answer_probabilities(self, score: Tensor, *columns: Tensor) -> Tensor | None:
        """Return the probabilities of answers, [q, k]; arguments as for `LinkCurve.probabilities`. None without one."""
        return self.curve.probabilities(score, *columns) if self.fitted and self.curve is not None else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Restore a calibration from `as_dict`.

        Raises:
            KeyError: If a value is missing.
            TypeError: If a value has a wrong type.
            ValueError: If a value is invalid.
        """
        stored = json.dumps({field.name: values[field.name] for field in fields(cls)})
        restored = TypeAdapter(cls).validate_json(stored, strict=True)
        lacks_curve = restored.fitted and restored.kind in ("links", "completion") and restored.curve is None
        if restored.temperature <= 0 or lacks_curve:
            raise ValueError("no calibration: the temperature is not positive, or the curve is missing")
        return restored


class AnsweringModel(Protocol):
    """The interface that predictions need, a trained model with its graph; `Estimator` and `OpenModel` implement it."""

    @property
    def graph_(self) -> KnowledgeGraph:
        """The graph whose triples and labels are known."""

    @property
    def calibration_(self) -> Calibration:
        """How scores become probabilities."""

    @property
    def fingerprint_(self) -> str:
        """A hash of weights and graph."""

    @property
    def new_nodes(self) -> tuple[int, ...]:
        """Nodes that were added after training."""

    def scorer(self) -> Scorer:
        """Return the object that scores questions."""

    def logits(self, nodes: Iterable[str | int]) -> Tensor:
        """Return the class scores of nodes, [n, C]."""
