"""Scores as probabilities that mean something: fitted on validation data, never on the test split, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rgcn.answers.class_calibration import class_reliability, fit_temperature
from rgcn.answers.link_calibration import (
    Examples,
    Sigmoid,
    counted,
    fit_sigmoid,
    link_reliability,
    validation_examples,
)
from rgcn.answers.model import AnsweringModel
from rgcn.answers.reliability import Bin, Fit, Floats

FEWEST = 20
MOST_TRIPLES = 1000

MEANING = {
    "classes": "Of nodes given 0.9, about nine in ten have the class.",
    "completion": "A probability is the share of triples with such a score that would be validation triples, had these "
    "been missing; more are true where the graph lacks truths.",
    "links": "A probability is the share of such unknown answers, to a question that has one, that are in the "
    "validation split; more are true where the graph lacks truths.",
}


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities: softmax(logits / T) for classes, c · σ(score / T + b) for links.

    fitted            whether on validation data; else there are no probabilities
    words             how it was fitted, or why it was not
    examples          validation nodes, or triples, it was fitted on
    before, after     how well probabilities agreed with the validation data, as trained and as calibrated
    reliability       the same in bins of probability, as calibrated
    ruled_out_share   of unknown answers that examples rule out (`by_example`), the share in the validation split

    >>> Calibration("links", True, "on nothing").link_probabilities(torch.tensor([0.0]))
    tensor([0.5000])
    """

    kind: Literal["classes", "links", "completion"]
    fitted: bool
    words: str
    temperature: float = 1.0
    bias: float = 0.0
    ceiling: float = 1.0
    ruled_out_share: float | None = None
    examples: int = 0
    before: Fit | None = None
    after: Fit | None = None
    reliability: tuple[Bin, ...] = ()

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / T) [n, C], in float32 at least."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / self.temperature, dim=-1)

    def link_probabilities(self, scores: Tensor) -> Tensor:
        """c · σ(scores / T + b), of any shape."""
        scores = scores if scores.dtype == torch.float64 else scores.float()
        return torch.sigmoid(scores / self.temperature + self.bias) * self.ceiling

    def score_of(self, probability: float) -> float:
        """The score that is given this probability: what a bound on probabilities means for scores."""
        share = probability / self.ceiling
        if share <= 0.0 or share >= 1.0:
            return -np.inf if share <= 0.0 else np.inf
        return float((np.log(share) - np.log1p(-share) - self.bias) * self.temperature)

    @property
    def meaning(self) -> str:
        """What the numbers say, in a sentence."""
        return MEANING[self.kind] if self.fitted else "A score is the model's own number: higher is likelier."

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "reliability": [asdict(row) for row in self.reliability], "meaning": self.meaning}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Of what `as_dict` gave; KeyError, TypeError or ValueError where it is something else."""
        given = {key: values[key] for key in cls.__dataclass_fields__}
        fits = {key: None if given[key] is None else Fit(**given[key]) for key in ("before", "after")}
        made = cls(**{**given, **fits, "reliability": tuple(Bin(**row) for row in given["reliability"])})
        numbers = [
            made.temperature,
            made.bias,
            made.ceiling,
            0.0 if made.ruled_out_share is None else made.ruled_out_share,
        ]
        finite = isinstance(made.words, str) and np.isfinite(numbers).all()
        if made.kind not in MEANING or not finite or made.temperature <= 0 or not 0 < made.ceiling <= 1:
            raise ValueError("this is no calibration")
        return made


def calibrate_classes(model: AnsweringModel) -> Calibration:
    """A temperature from the validation labels."""
    assert model.graph_.labels is not None
    nodes, classes = model.graph_.labels.of("valid")
    if not len(nodes):
        return Calibration(
            "classes",
            False,
            "No probabilities: they are calibrated on validation nodes, and none were held out. Train with "
            "--set training.validation=0.1 to have some; until then scores say which class is likeliest.",
        )
    logits = model.logits(nodes.tolist()).double().numpy()
    before, bins_before = class_reliability(logits, classes, 1.0)
    if len(nodes) < FEWEST:
        words = f"No probabilities: {len(nodes)} validation nodes are too few to calibrate on; {FEWEST} would do."
        return Calibration("classes", False, words, examples=len(nodes), before=before, reliability=bins_before)
    temperature = fit_temperature(logits, classes)
    after, bins = class_reliability(logits, classes, temperature)
    words = (
        f"Calibrated on {len(nodes):,} validation nodes, with temperature {temperature:.3g}: the expected calibration "
        f"error there is {after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    if (logits.argmax(1) == classes).all():
        words += " The model is right about every one of them, so that only a prior keeps probabilities from 1."
    return Calibration(
        "classes", True, words, temperature, examples=len(nodes), before=before, after=after, reliability=bins
    )


def calibrate_links(model: AnsweringModel) -> Calibration:
    """A curve from the validation triples and all unknown answers to the questions they ask."""
    graph = model.graph_
    triples = np.empty((0, 3), np.int64) if graph.triple_splits is None else graph.split_triples("valid")
    if len(triples) < FEWEST:
        few = f"{len(triples)} validation triples are too few to fit three numbers on; {FEWEST} would do"
        why = few if len(triples) else "they are calibrated on validation triples, and the graph has none"
        words = f"No probabilities, only scores: {why}."
        return Calibration("links", False, words, examples=len(triples))
    chosen = triples[np.linspace(0, len(triples) - 1, min(len(triples), MOST_TRIPLES)).round().astype(np.int64)]
    examples = validation_examples(model.scorer(), graph, chosen)
    curve = fit_sigmoid(examples)
    before, _ = link_reliability(examples, Sigmoid(1.0, 0.0, 1.0))
    after, bins = link_reliability(examples, curve)
    words = (
        f"Calibrated on {len(chosen):,} validation triples against all unknown answers to the questions they ask; "
        f"the best is given {_highest(examples, curve):.2g}. The expected calibration error there, over answers of "
        f"0.01 or more, is {after.calibration_error:.3f}, and was {before.calibration_error:.3f} as trained."
    )
    share = (examples.ruled_out_true + 1) / (examples.ruled_out + 2)
    return Calibration(
        "links", True, words, *curve, ruled_out_share=min(share, curve.ceiling), examples=len(chosen), before=before,
        after=after, reliability=bins,
    )  # fmt: skip


def calibrate_completion(held_out: Floats, proposed: Floats, count: Floats) -> Calibration | None:
    """A curve from the scores of validation triples, as if they had been missing, and of the triples proposed.

    proposed, count [m]: scores, and how many triples were proposed at each

    The questions of `calibrate_links` all have an answer to be found; of all subjects and relations, most have none.
    Here validation triples are true, and what is proposed beside them counts as false. None where they are too few.
    """
    if len(held_out) < FEWEST or not len(proposed):
        return None
    examples = counted(held_out, proposed, count)
    curve = fit_sigmoid(examples)
    before, _ = link_reliability(examples, Sigmoid(1.0, 0.0, 1.0))
    after, bins = link_reliability(examples, curve)
    words = (
        f"Calibrated on {len(held_out):,} validation triples that would have been found, had they been missing, beside "
        f"the {int(count.sum()):,} that were; the best is given {_highest(examples, curve):.2g}."
    )
    return Calibration(
        "completion", True, words, *curve, examples=len(held_out), before=before, after=after, reliability=bins
    )


def _highest(examples: Examples, curve: Sigmoid) -> float:
    return float(curve(examples.score).max())
