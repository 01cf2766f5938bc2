"""How many bytes an edge takes: the operator of a graph, and an e-RGCN prepared over it, in resident memory.

    python benchmarks/bytes_an_edge.py [--edges 1e7] [--out results/bytes-an-edge.json]

The graph is drawn (four triples a node, fifty relations); bytes are those of a triple, whose edges are one along it,
one against it and a quarter of a self-loop. `held` stays, `peak` was held while it was made.
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
from rgcn.bench.graphs import random_shape, shaped
from rgcn.system.memory import give_back, held_bytes, size_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=1e7)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("results/bytes-an-edge.json"))
    given = parser.parse_args()
    RelationalAdjacency.from_graph(shaped(random_shape(1_000_000)))  # loads what is loaded once
    graph = shaped(random_shape(int(given.edges)))
    model = rgcn.NodeClassifier("e-rgcn", embedding=given.width, weight_decay=0.005, epochs=1)
    rows = {
        "operator": measured(lambda: RelationalAdjacency.from_graph(graph), len(graph)),
        "e-rgcn prepared": measured(lambda: model.prepare(graph), len(graph)),
    }
    print(rows)
    write_result(given.out, {"edges": len(graph), "nodes": graph.num_nodes, "width": given.width, "bytes": rows})


def measured(make: Callable[[], Any], edges: int) -> dict[str, float]:
    gc.collect()
    give_back()
    Path("/proc/self/clear_refs").write_text("5")
    before, began = held_bytes(), time.perf_counter()
    made = make()
    seconds, held = time.perf_counter() - began, held_bytes() - before
    peak = (size_in(Path("/proc/self/status"), "VmHWM") or 0) - before
    del made
    return {"seconds": round(seconds, 2), "held": round(held / edges, 1), "peak": round(peak / edges, 1)}


if __name__ == "__main__":
    main()
