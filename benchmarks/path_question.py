"""Time single questions and batches of questions to a path network on the CPU.

    RGCN_MIRROR=FOLDER python benchmarks/path_question.py world fb15k-237 [--json results/path-question.json]
    python benchmarks/path_question.py world --model universal --json results/universal-question.json

Questions are drawn from the test triples. The network has the built-in configuration and random weights. Times are
medians per question, for batches of 1, 8 and 64. `reached` is the share of the edges that the layers of one question
compute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
from _about import write_result

from rgcn.nn.path_layers import reached_layer_edges
from rgcn.nn.path_network import PathScorer
from rgcn.nn.scorer import Questions
from rgcn.runs import load_configuration, load_data
from rgcn.runs.assembly import make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--model", choices=("path", "universal"), default="path")
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rows = [measure(f"{options.model}/lp-{name}", name, options.questions) for name in options.datasets]
    if options.json:
        write_result(options.json, {"threads": torch.get_num_threads(), "rows": rows})


def measure(configuration: str, name: str, count: int) -> dict[str, object]:
    config = load_configuration(configuration)
    graph = load_data(config.data)
    model = make_model(config).prepare(graph)
    scorer = model.scorer()
    assert isinstance(scorer, PathScorer)
    triples = torch.tensor(graph.split_triples("test"))
    chosen = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))[: max(count, 64)]]
    every = Questions(chosen[:, 0], chosen[:, 1])
    row: dict[str, object] = {"dataset": name, "nodes": graph.num_nodes, "edges": model.adjacency_.num_edges}
    for size in (1, 8, 64):
        parts = list(every.take(slice(0, count if size == 1 else 64)).parts(size))
        scorer.scores(parts[0])
        seconds = []
        for part in parts:
            start = time.perf_counter()
            scorer.scores(part)
            seconds.append((time.perf_counter() - start) / part.size)
        row[f"ms_a_question_{size}_at_once"] = 1000 * statistics.median(seconds)
    hops, _ = reached_layer_edges(scorer.whole, every.node[:1], scorer.network.num_layers)
    row["reached"] = sum(hop.operator.num_edges for hop in hops) / len(hops) / model.adjacency_.num_edges
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    main()
