"""Measure the zero-shot metrics of a pretrained model on graphs that it was not trained on.

    python benchmarks/any_graph.py --split valid                         # the pretrained model of rgcn
    python benchmarks/any_graph.py runs/universal --split valid          # the model of a pretraining run
    python benchmarks/any_graph.py --split test --out results/any-graph.json

Links: filtered ranks of all triples of the split among all nodes, in both directions, with realistic ties. Classes:
training labels are edges; `--split valid` predicts the training labels, each hidden while its node is classified, so
that test labels are not needed for choosing a model.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import about

import rgcn
from rgcn.models.link_classifier import LinkClassifier
from rgcn.models.link_predictor import LinkPredictor
from rgcn.system.atomic_files import write_atomically

LINKS = ("fb237-v1-ind", "wn18rr-v1-ind", "umls", "kinship", "nations", "world")
CLASSES = ("world", "aifb", "mutag")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="a pretraining run; by default the pretrained model")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    parser.add_argument("--links", nargs="*", default=LINKS)
    parser.add_argument("--classes", nargs="*", default=CLASSES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    trained = None if options.run is None else rgcn.load_model(options.run)
    rows: list[dict[str, Any]] = []
    for name in options.links:
        kg, began = rgcn.load(name), time.perf_counter()
        model = LinkPredictor.pretrained(kg) if trained is None else trained.over(kg)
        found = model.evaluate(split=options.split)
        rows.append({"dataset": name, "task": "links", **{k: found[k] for k in ("mrr", "hits@1", "hits@10", "count")}})
        print_row(rows[-1], began, "mrr")
    for name in options.classes:
        kg, began = rgcn.load(name), time.perf_counter()
        model = LinkClassifier.pretrained(kg)
        if trained is not None:
            model.network_.load_state_dict(trained.network_.state_dict())
            model.fit_normalizer()
        nodes, classes = kg.labels.of("test" if options.split == "test" else "train")
        right = model.logits(nodes).argmax(1) == torch.from_numpy(np.array(classes))
        rows.append({"dataset": name, "task": "classes", "accuracy": float(right.float().mean()), "count": len(nodes)})
        print_row(rows[-1], began, "accuracy")
    if options.out is not None:
        found = {**about(), "split": options.split, "weights": str(options.run or "shipped"), "rows": rows}
        write_atomically(options.out, json.dumps(found, indent=1) + "\n")


def print_row(row: dict[str, Any], began: float, figure: str) -> None:
    row["seconds"] = round(time.perf_counter() - began, 2)
    print(f"{row['dataset']:16} {row['task']:8} {row[figure]:.3f}  {row['count']:,} in {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
