"""Measure how much a correction of class scores improves zero-shot accuracy, by strength of its ridge penalty.

    python benchmarks/class_level.py world aifb mutag --json results/class-level.json

Only training labels are used, and each is hidden while its node is classified. Five-fold cross-validation, repeated
three times: the correction is fitted on four folds, and accuracy is measured on the fifth.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import write_result

import rgcn
from rgcn.links import calibration
from rgcn.links.calibration import ClassCorrection
from rgcn.models.link_classifier import LinkClassifier

RIDGES, FOLDS, TIMES = (0.01, 0.1, 1.0, 10.0), 5, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rows = [measure(name) for name in options.datasets]
    if options.json:
        write_result(options.json, {"folds": FOLDS, "times": TIMES, "rows": rows})


def measure(name: str) -> dict[str, object]:
    kg = rgcn.load(name)
    model = LinkClassifier.pretrained(kg)
    model.class_normalizer_ = None
    nodes, numbers = kg.labels.of("train")
    classes, logits = torch.from_numpy(numbers.astype(np.int64)), model.logits(nodes)
    row: dict[str, object] = {"dataset": name, "labels": len(nodes), "as_they_are": accuracy(logits, classes)}
    for ridge in RIDGES:
        calibration.RIDGE = ridge
        accuracies = []
        for seed in range(TIMES):
            fold = torch.from_numpy(np.random.default_rng(seed).permutation(len(nodes)) % FOLDS)
            for number in range(FOLDS):
                correction = ClassCorrection.fit(logits[fold != number], classes[fold != number])
                accuracies.append(accuracy(correction.apply(logits[fold == number]), classes[fold == number]))
        row[f"ridge_{ridge:g}"] = float(np.mean(accuracies))
    print(row, flush=True)
    return row


def accuracy(logits: torch.Tensor, classes: torch.Tensor) -> float:
    """Return the share of correct predictions."""
    return float((logits.argmax(1) == classes).float().mean())


if __name__ == "__main__":
    main()
