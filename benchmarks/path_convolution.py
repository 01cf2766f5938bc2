"""Time the convolution of a path network on the CPU, in comparison with PyG's `MessagePassing`.

    RGCN_MIRROR=FOLDER python benchmarks/path_convolution.py [--questions 64] [--json results/path-convolution.json]

One layer on fb237-v1: x [nodes, questions · width], mean over the edges of value · w_s ⊙ x_u, forward and backward with
the gradients of x and of the relations' table; a table for each question, and one for all. PyG's `aggr="mean"` needs no
values and is what it does fastest. Both are measured in turn, so that a busy machine slows both. Last, what follows
the sum in a layer, in PyTorch's own operations: Linear [x, a, s · a], LayerNorm, ReLU and the sum with x.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
import torch.nn.functional as F
import torch_geometric
from _about import write_result
from torch import Tensor
from torch_geometric.nn import MessagePassing

import rgcn
from rgcn.adjacency import RelationalAdjacency
from rgcn.kernels import scaled_sum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fb237-v1", help="a data set of the registry, or a folder of triples")
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = rgcn.read(options.data) if Path(options.data).is_dir() else rgcn.load(options.data)
    triples = torch.from_numpy(graph.split_triples("train").copy())
    adjacency = RelationalAdjacency.from_triples(
        triples, graph.num_nodes, graph.num_relations, normalization="node", aggregation="sum"
    )
    rows = [measure(adjacency, table, options) for table in ("one for all", "one for each question")]
    shape = {
        "questions": options.questions,
        "width": options.width,
        "threads": options.threads,
        "rounds": options.rounds,
    }
    sizes = {"nodes": graph.num_nodes, "edges": adjacency.structure.num_edges}
    results = {"torch_geometric": torch_geometric.__version__, **shape, **sizes, "sums": rows}
    results["what_follows"] = milliseconds({"update": what_follows(adjacency, options)}, options.rounds)["update"]
    print(results)
    if options.json:
        write_result(options.json, results)


class Mean(MessagePassing):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(aggr="mean", node_dim=0)

    def forward(self, x: Tensor, edge_index: Tensor, relation: Tensor, table: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x, relation=relation, table=table)
        return out

    def message(self, x_j: Tensor, relation: Tensor, table: Tensor) -> Tensor:
        return x_j * table[relation]


def measure(adjacency: RelationalAdjacency, table: str, options: argparse.Namespace) -> dict[str, object]:
    edges, questions, width = adjacency.structure, options.questions, options.width
    torch.manual_seed(0)
    repeats = 1 if table == "one for all" else questions
    x = torch.randn(edges.num_sources, questions, width, requires_grad=True)
    scale = torch.randn(edges.num_relations, repeats, width, requires_grad=True)
    slope = torch.randn(edges.num_targets, questions, width)
    ends = torch.stack([edges.source, edges.target])
    peer = Mean()

    def ours() -> Tensor:
        out = scaled_sum(edges.triple_index, adjacency.weight, scale.flatten(1), x.flatten(1))
        return out.view_as(slope)

    def theirs() -> Tensor:
        out: Tensor = peer(x, ends, edges.relation, scale)
        return out

    def step(sums: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(sums(), (x, scale), slope)

    torch.testing.assert_close(ours(), theirs(), rtol=1e-4, atol=1e-4)
    for one, other in zip(step(ours), step(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)
    both = {"rgcn": lambda: step(ours), "pyg": lambda: step(theirs)}
    with torch.no_grad():
        forward = milliseconds({"rgcn": ours, "pyg": theirs}, options.rounds)
    whole = milliseconds(both, options.rounds)
    ratio = whole["pyg"]["median_ms"] / whole["rgcn"]["median_ms"]
    return {"table": table, "forward": forward, "forward_and_backward": whole, "times_as_fast": ratio}


def what_follows(adjacency: RelationalAdjacency, options: argparse.Namespace) -> Callable[[], object]:
    nodes, questions, width = adjacency.num_targets, options.questions, options.width
    x, a, slope = (torch.randn(nodes, questions, width) for _ in range(3))
    degree = torch.rand(nodes, 1, 1)
    weights = torch.randn(width, 3 * width), torch.zeros(width), torch.ones(width), torch.zeros(width)
    leaves = [t.requires_grad_() for t in (x, a, *weights)]

    def step() -> object:
        weight, bias, gain, shift = weights
        out = F.linear(torch.cat([x, a, degree * a], -1), weight, bias)
        awake = (a != 0).any(-1, keepdim=True) | (x != 0).any(-1, keepdim=True)
        out = x + torch.relu(F.layer_norm(out, out.shape[-1:], gain, shift)) * awake
        return torch.autograd.grad(out, leaves, slope)

    return step


def milliseconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median and minimum time of each function, called in turn, after one warm-up call."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: {"median_ms": statistics.median(all_of), "least_ms": min(all_of)} for name, all_of in taken.items()}


if __name__ == "__main__":
    main()
