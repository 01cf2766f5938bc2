"""Time two parts of link prediction: sampling a batch of edges, and ranking a test split.

    python benchmarks/sampling_and_ranking.py [--json results/sampling-and-ranking.json]

WN18: 30,000 of 141,442 edges by neighborhood sampling (one core); 10,000 filtered queries against 40,943 nodes with an
untrained RGCN of width 200, the encoding of the graph and the building of the filter included (all cores). Medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from _about import write_result

import rgcn
from rgcn.runs import load_configuration
from rgcn.runs.assembly import make_model
from rgcn.sampling.edges import NeighborhoodEdges


def median_seconds(call: Callable[[], object], times: int) -> float:
    call()  # compiles kernels or loads them from the cache
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kg = rgcn.load("wn18")
    sampler = NeighborhoodEdges(kg.split_triples("train"), kg.num_nodes, 30_000)
    predictor = make_model(load_configuration("rgcn/lp-wn18", (), {"training.device": "cpu"})).prepare(kg)

    def rank_afresh() -> None:
        predictor.network_.train()  # discards the cached encoding
        predictor.evaluate(replace(kg), split="test")  # a new graph object has no cached filter

    results = {
        "sample_30000_edges_ms": 1e3 * median_seconds(sampler.sample, 50),
        "rank_10000_queries_s": median_seconds(rank_afresh, 3),
    }
    print(json.dumps(results))
    if options.json:
        write_result(options.json, results)


if __name__ == "__main__":
    main()
