"""How much it helps to make scores of classes level, and how strong a ridge it needs: on training labels alone.

    python benchmarks/class_level.py world aifb mutag --json results/class-level.json

Every training label is hidden while its node is asked about. Then five folds, three times: a level is fitted on four of
them, and the share that is right is counted on the fifth.
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
from rgcn.links.calibration import ClassLevel
from rgcn.models.link_classifier import LinkClassifier

RIDGES, FOLDS, TIMES = (0.01, 0.1, 1.0, 10.0), 5, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    rows = [measured(name) for name in given.datasets]
    if given.json:
        write_result(given.json, {"folds": FOLDS, "times": TIMES, "rows": rows})


def measured(name: str) -> dict[str, object]:
    kg = rgcn.load(name)
    model = LinkClassifier.pretrained(kg)
    model.level_ = None
    nodes, numbers = kg.labels.of("train")
    classes, logits = torch.from_numpy(numbers.astype(np.int64)), model.logits(nodes)
    row: dict[str, object] = {"dataset": name, "labels": len(nodes), "as_they_are": right(logits, classes)}
    for ridge in RIDGES:
        calibration.RIDGE = ridge
        found = []
        for time in range(TIMES):
            fold = torch.from_numpy(np.random.default_rng(time).permutation(len(nodes)) % FOLDS)
            for number in range(FOLDS):
                level = ClassLevel.fitted(logits[fold != number], classes[fold != number])
                found.append(right(level.of(logits[fold == number]), classes[fold == number]))
        row[f"ridge_{ridge:g}"] = float(np.mean(found))
    print(row, flush=True)
    return row


def right(logits: torch.Tensor, classes: torch.Tensor) -> float:
    return float((logits.argmax(1) == classes).float().mean())


if __name__ == "__main__":
    main()
