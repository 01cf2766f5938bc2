"""Measure the resident memory per triple of a graph's operator, and of an e-RGCN prepared on the graph.

    python benchmarks/bytes_an_edge.py [--edges 1e7] [--out results/bytes-an-edge.json]

The graph is random (four triples per node, fifty relations). A triple has two edges, one of them inverse, and a quarter
of a self-loop. `held` is the memory after the construction, `peak` the largest during construction.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

from _about import write_result

import rgcn
from rgcn.adjacency import RelationalAdjacency
from rgcn.bench.graphs import random_graph, random_shape
from rgcn.system.memory import read_proc_bytes, release_memory, resident_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=1e7)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("results/bytes-an-edge.json"))
    options = parser.parse_args()
    RelationalAdjacency.from_graph(
        random_graph(random_shape(1_000_000))
    )  # loads modules and kernels, so that they are not measured
    graph = random_graph(random_shape(int(options.edges)))
    model = rgcn.NodeClassifier("e-rgcn", embedding=options.width, weight_decay=0.005, epochs=1)
    rows = {
        "operator": measure(lambda: RelationalAdjacency.from_graph(graph), len(graph)),
        "e-rgcn prepared": measure(lambda: model.prepare(graph), len(graph)),
    }
    print(rows)
    write_result(options.out, {"edges": len(graph), "nodes": graph.num_nodes, "width": options.width, "bytes": rows})


def measure(make: Callable[[], Any], edges: int) -> dict[str, float]:
    gc.collect()
    release_memory()
    Path("/proc/self/clear_refs").write_text("5")
    before, began = resident_bytes(), time.perf_counter()
    made = make()
    seconds, held = time.perf_counter() - began, resident_bytes() - before
    peak = (read_proc_bytes(Path("/proc/self/status"), "VmHWM") or 0) - before
    del made
    return {"seconds": round(seconds, 2), "held": round(held / edges, 1), "peak": round(peak / edges, 1)}


if __name__ == "__main__":
    main()
