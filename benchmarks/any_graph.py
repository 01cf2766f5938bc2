"""How well weights for any graph answer graphs they never learned from, without training.

    python benchmarks/any_graph.py --split valid                         # the weights that come with rgcn
    python benchmarks/any_graph.py runs/universal --split valid          # those of a pretraining
    python benchmarks/any_graph.py --split test --out results/any-graph.json

Links: filtered ranks of all triples of the split among all nodes, both directions, ties at the middle. Classes:
training labels are heard as edges; `--split valid` asks for the training labels themselves, each hidden while its node
is asked about, so that choices need no test label.
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
    parser.add_argument("run", nargs="?", type=Path, help="a pretraining; by default the weights that come with rgcn")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    parser.add_argument("--links", nargs="*", default=LINKS)
    parser.add_argument("--classes", nargs="*", default=CLASSES)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    trained = None if given.run is None else rgcn.load_model(given.run)
    rows: list[dict[str, Any]] = []
    for name in given.links:
        kg, began = rgcn.load(name), time.perf_counter()
        model = LinkPredictor.pretrained(kg) if trained is None else trained.over(kg)
        found = model.evaluate(split=given.split)
        rows.append({"dataset": name, "task": "links", **{k: found[k] for k in ("mrr", "hits@1", "hits@10", "count")}})
        tell(rows[-1], began, "mrr")
    for name in given.classes:
        kg, began = rgcn.load(name), time.perf_counter()
        model = LinkClassifier.pretrained(kg)
        if trained is not None:
            model.network_.load_state_dict(trained.network_.state_dict())
            model.leveled()
        nodes, classes = kg.labels.of("test" if given.split == "test" else "train")
        right = model.logits(nodes).argmax(1) == torch.from_numpy(np.array(classes))
        rows.append({"dataset": name, "task": "classes", "accuracy": float(right.float().mean()), "count": len(nodes)})
        tell(rows[-1], began, "accuracy")
    if given.out is not None:
        found = {**about(), "split": given.split, "weights": str(given.run or "shipped"), "rows": rows}
        write_atomically(given.out, json.dumps(found, indent=1) + "\n")


def tell(row: dict[str, Any], began: float, figure: str) -> None:
    row["seconds"] = round(time.perf_counter() - began, 2)
    print(f"{row['dataset']:16} {row['task']:8} {row[figure]:.3f}  {row['count']:,} in {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
