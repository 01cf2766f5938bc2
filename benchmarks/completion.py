"""Measure `rgcn complete` on all (subject, relation) pairs: time, memory, and the share of its triples that are true.

    python benchmarks/completion.py RUN [--out results/completion.json]
    python benchmarks/completion.py world --nodes fitting --out results/completion-world.json

RUN is a link-prediction run, such as `rgcn train rgcn/lp-wn18` makes, or a graph, for the pretrained model.
The share of true triples is measured by hiding the validation split and counting the proposed triples that are in it.
Test triples stay known.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import write_result

from rgcn.links.completion import complete
from rgcn.links.relation_constraints import AnswerFilter
from rgcn.links.top_k import answer_links
from rgcn.nn.scorer import Questions
from rgcn.predict import OpenModel, open_model

BINS = ((0.4, 1.01), (0.3, 0.4), (0.2, 0.3), (0.1, 0.2), (0.01, 0.1), (0.0, 0.01))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--nodes", nargs="*", choices=("any", "fitting", "seen"), default=["any", "fitting", "seen"])
    parser.add_argument("--out", type=Path, default=Path("results/completion.json"))
    arguments = parser.parse_args()
    began = time.perf_counter()
    opened = open_model(arguments.run, accept_changed_data=True)
    opened.scorer()
    loaded, before = time.perf_counter() - began, _peak()
    began = time.perf_counter()
    assert opened.calibration is not None
    calibrated = time.perf_counter() - began
    result: dict[str, Any] = {
        "run": opened.name,
        "graph": {"nodes": opened.graph.num_nodes, "relations": opened.graph.num_relations},
        "threads": torch.get_num_threads(),
        "other load before": os.getloadavg()[0],
        "seconds to open": round(loaded, 2),
        "seconds to calibrate": round(calibrated, 2),
        "memory before, MiB": round(before),
        "calibration": opened.calibration.as_dict(),
        "hidden validation triples": _hidden(opened),
        "completions": [_timed(opened, nodes) for nodes in arguments.nodes],
        **({"fifty questions": _fifty(opened)} if hasattr(opened.scorer(), "nodes") else {}),
    }
    write_result(arguments.out, result)
    print(json.dumps({key: value for key, value in result.items() if key != "calibration"}, indent=2))


def _timed(opened: OpenModel, nodes: Any) -> dict[str, Any]:
    began = time.perf_counter()
    found = complete(opened, answer_filter=AnswerFilter(nodes))
    seconds = time.perf_counter() - began
    return {
        "nodes": nodes,
        "pairs": found.num_asked,
        "triples": len(found),
        "seconds": round(seconds, 1),
        "pairs a second": round(found.num_asked / seconds),
        "peak memory, MiB": round(_peak()),
    }


def _hidden(opened: OpenModel) -> dict[str, Any]:
    """Return the share of proposed triples that are in the hidden validation split, by their probability.

    Test triples stay known, so that they do not count as wrong proposals.
    """
    graph = opened.graph
    found = complete(opened, known=("train", "test"), min_probability=0.0)
    probability = found.probability
    assert probability is not None
    hidden = _keys(graph.split_triples("valid"), graph.num_relations, graph.num_nodes)
    right = np.isin(_keys(found.triples, graph.num_relations, graph.num_nodes), hidden)
    rows = []
    for low, high in BINS:
        chosen = (probability >= low) & (probability < high)
        rows.append(
            {
                "probability": f"{low} to {min(high, 1.0):g}",
                "triples": int(chosen.sum()),
                "in the validation split": int(right[chosen].sum()),
                "share": round(float(right[chosen].mean()), 4) if chosen.any() else None,
            }
        )
    best = {str(number): round(float(right[:number].mean()), 4) for number in (100, 1000, 10_000)}
    return {"validation triples": len(hidden), "by probability": rows, "the best": best}


def _keys(triples: Any, num_relations: int, num_nodes: int) -> Any:
    return (triples[:, 0] * num_relations + triples[:, 1]) * num_nodes + triples[:, 2]


def _fifty(opened: OpenModel) -> dict[str, Any]:
    """Return the median times of answering fifty questions in one call, and of their matrix product alone."""
    nodes = opened.model.scorer().nodes
    subject = torch.randint(len(nodes), (50,), generator=torch.Generator().manual_seed(0))
    relation = subject % opened.graph.num_relations
    query, transposed = nodes[subject].contiguous(), nodes.T

    def product() -> None:
        torch.mm(query, transposed)

    def asking() -> None:
        answer_links(opened, Questions(subject, relation), 10)

    return {name: f"{_median(call):.2f} ms" for name, call in (("product", product), ("answers", asking))}


def _median(call: Any) -> float:
    times = []
    for _ in range(100):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1000 * float(np.median(times))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
