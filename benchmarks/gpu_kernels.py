"""Check the Triton kernels against the reference, and measure their share of the memory bandwidth.

    PYTHONPATH=src python3 benchmarks/gpu_kernels.py [--graph am.npz] [--json results/gpu-kernels.json]

First every kernel is compared with the plain-PyTorch reference in float64, on random graphs with a hub of 100,000
entries, empty relations, isolated nodes and repeated edges, in three precisions, and run twice: both results must be
equal bit for bit. Then each is timed (CUDA events, median of 30 after 5 to warm up; the memory results are put in is
filled with NaN before each) on a graph of AM's size, and compared with the reference and with a copy of 1 GiB (read +
write).

Bytes are what a kernel must at least move: every index, value and result once, and of gathered tables
    gathered a row for each entry that reads it
    distinct   each requested row once, as if all repetition came from a cache
Bytes that a kernel's own intermediate results cost are not counted: they are its overhead.

--graph is a file that shaped_graph.py writes (triples, nodes, relations); without it one of AM's size is drawn.
--tiny runs everything at a size Triton's interpreter can bear, on the CPU. Exit code 1 if any check failed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _about import write_result
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton

from rgcn.kernels import gpu, reference
from rgcn.kernels.sparse import Pairs, SparsePattern

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BOUND = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1e-2}
AM_NODES, AM_RELATIONS, AM_EDGES = 246_728, 122, 875_946


class Graph(NamedTuple):
    """Edges with inverses and self-loops, and the sparse structures of message passing."""

    num_nodes: int
    num_relations: int
    pattern: SparsePattern  # [nodes, nodes]: an entry for each edge, in the order of the targets
    mix: SparsePattern  # [nodes, source pairs]
    by_node: Pairs  # (relation, source) pairs, sorted by node
    by_relation: Pairs


def make_graph(triples: Tensor, num_nodes: int, num_relations: int) -> Graph:
    """All of an R-GCN's edges: triples, their inverses and self-loops, of 2 R + 1 relations."""
    s, r, o = triples.unbind(1)
    nodes = torch.arange(num_nodes, device=triples.device)
    total = 2 * num_relations + 1
    source, target = torch.cat([s, o, nodes]), torch.cat([o, s, nodes])
    relation = torch.cat([r, r + num_relations, torch.full_like(nodes, total - 1)])
    order = torch.argsort(target, stable=True)
    source, relation, target = source[order], relation[order], target[order]
    pattern = SparsePattern.from_sorted_rows(target, source, (num_nodes, num_nodes))
    by_node = make_pairs(relation, source, num_nodes, total, node_major=True)
    mix = SparsePattern(pattern.pointer, by_node.edge_pair, len(by_node))
    by_relation = make_pairs(relation, source, num_nodes, total, node_major=False)
    return Graph(num_nodes, total, pattern, mix, by_node, by_relation)


def make_pairs(relation: Tensor, node: Tensor, num_nodes: int, num_relations: int, node_major: bool) -> Pairs:
    key = node * num_relations + relation if node_major else relation * num_nodes + node
    key, edge_pair = torch.unique(key, return_inverse=True)
    major, minor = (key // num_relations, key % num_relations) if node_major else (key // num_nodes, key % num_nodes)
    node, relation = (major, minor) if node_major else (minor, major)
    return Pairs.of(relation, node, edge_pair, num_nodes, num_relations, node_major)


class Case(NamedTuple):
    """One call of a kernel; bytes are (gathered, distinct)."""

    name: str
    label: str
    arguments: tuple[Any, ...]
    moved: Callable[[], tuple[int, int]]


def numbers(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=kind)


def ids(size: int, high: int) -> Tensor:
    return torch.randint(high, (size,), device=DEVICE, dtype=torch.int32)


def size_of(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def gather_bytes(table: Tensor, index: Tensor) -> tuple[int, int]:
    """Return the bytes of the rows of a table that an index reads: with repetitions, and each row once."""
    row = size_of(table) // max(1, table.shape[0])
    return index.numel() * row, torch.unique(index).numel() * row


def added(fixed: int, *gathers: tuple[int, int]) -> tuple[int, int]:
    return fixed + sum(g for g, _ in gathers), fixed + sum(d for _, d in gathers)


def cases(
    graph: Graph, width: int, bases: int, kind: torch.dtype, blocks: list[tuple[int, int, int]]
) -> Iterator[Case]:
    """Return a case for every kernel on this graph."""
    n, relations = graph.num_nodes, graph.num_relations
    pattern, mix, by_node, by_relation = graph.pattern, graph.mix, graph.by_node, graph.by_relation
    entries, pairs, item = pattern.num_entries, len(by_node), kind.itemsize
    value, x, wide = numbers(entries, kind=kind), numbers(n, width, kind=kind), numbers(pairs, width, kind=kind)
    out = n * width * item

    yield Case(
        "gather_sum",
        f"{width}: nodes from pairs",
        (mix, value, wide),
        lambda: added(size_of(mix.pointer, mix.column, value) + out, gather_bytes(wide, mix.column)),
    )
    yield Case(
        "gather_sum",
        f"{width}: nodes from nodes, no values",
        (pattern, None, x),
        lambda: added(size_of(pattern.pointer, pattern.column) + out, gather_bytes(x, pattern.column)),
    )
    back = mix.transpose
    yield Case(
        "gather_sum",
        f"{width}: pairs from nodes",
        (back, value, x),
        lambda: added(size_of(back.pointer, back.column, value, wide), gather_bytes(x, back.column)),
    )
    index = ids(entries, relations)
    left = numbers(relations, width, kind=kind)
    yield Case(
        "gather_product_sum",
        f"{width}",
        (pattern, value, index, left, x),
        lambda: added(
            size_of(pattern.pointer, pattern.column, value, index) + out,
            gather_bytes(x, pattern.column),
            gather_bytes(left, index),
        ),
    )
    row = pattern.row
    yield Case(
        "entry_product",
        f"{width}, of two",
        (row, x, None, None, mix.column, wide),
        lambda: added(size_of(row, mix.column, value), gather_bytes(x, row), gather_bytes(wide, mix.column)),
    )
    yield Case(
        "entry_product",
        f"{width}",
        (row, x, index, left, pattern.column, x),
        lambda: added(
            size_of(row, index, pattern.column, value),
            gather_bytes(x, row),
            gather_bytes(left, index),
            gather_bytes(x, pattern.column),
        ),
    )
    coefficients, table = numbers(relations, bases, kind=kind), numbers(n, bases, width, kind=kind)
    label = f"{width}, {bases} bases"
    yield Case(
        "combine_bases",
        label,
        (coefficients, table, by_node),
        lambda: added(size_of(by_node.relation, by_node.node, coefficients, wide), gather_bytes(table, by_node.node)),
    )
    yield Case(
        "spread_bases",
        label,
        (coefficients, wide, by_node),
        lambda: added(size_of(by_node.relation, by_node.pointer, coefficients, wide, table)),
    )
    yield Case(
        "coefficient_gradient",
        label,
        (table, wide, by_node),
        lambda: added(size_of(by_node.relation, by_node.node, coefficients, wide), gather_bytes(table, by_node.node)),
    )
    for k, i, o in blocks:
        a, b = numbers(pairs, k, i, kind=kind), numbers(pairs, k, o, kind=kind)
        weight = numbers(relations, k, i, o, kind=kind)
        yield Case(
            "grouped_product",
            f"{k} blocks {i} x {o}",
            (a, weight, by_relation),
            lambda a=a, b=b, weight=weight: added(size_of(by_relation.pointer, a, b, weight)),
        )
        if i != o or k > 1:
            yield Case(
                "grouped_product",
                f"{k} blocks {o} x {i}, transposed",
                (b, weight.transpose(2, 3), by_relation),
                lambda a=a, b=b, weight=weight: added(size_of(by_relation.pointer, a, b, weight)),
            )
        yield Case(
            "grouped_outer",
            f"{k} blocks {i} x {o}",
            (a, b, by_relation),
            lambda a=a, b=b, weight=weight: added(size_of(by_relation.pointer, a, b, weight)),
        )


def random_graph(nodes: int, relations: int, edges: int, hub: int) -> Graph:
    """Repeated edges, relations that do not occur, nodes with nothing but their self-loop, and one hub."""
    triples = torch.stack([ids(edges, nodes) // 2 * 2, ids(edges, relations) // 2 * 2, ids(edges, nodes) // 2 * 2], 1)
    into = torch.stack([ids(hub, nodes), torch.zeros_like(ids(hub, 1)), torch.full_like(ids(hub, 1), 2)], 1)
    return make_graph(torch.cat([triples, triples[: edges // 4], into]).long(), nodes, relations)


def exactly(case: Case) -> Tensor:
    """Compute the reference in float64 on the inputs of the kernel."""
    arguments = (a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in case.arguments)
    result: Tensor = getattr(reference, case.name)(*arguments)
    return result


def check(case: Case, kind: torch.dtype) -> dict[str, Any]:
    """Compare one kernel; a failure is reported, and the other kernels still run."""
    row: dict[str, Any] = {"kernel": case.name, "case": case.label, "type": str(kind).removeprefix("torch.")}
    try:
        exact = exactly(case)
        kernel = getattr(gpu, case.name)
        out, again = kernel(*case.arguments), kernel(*case.arguments)
        if out.shape != exact.shape or out.dtype != kind:
            raise AssertionError(f"{out.dtype} {list(out.shape)} where {kind} {list(exact.shape)} was expected")
        error = float((out.double() - exact).norm() / exact.norm().clamp(min=1e-300))
        same = torch.equal(out, again)
        row |= {"error": error, "bound": BOUND[kind], "same_bits": same, "ok": error < BOUND[kind] and same}
    except Exception as problem:
        traceback.print_exc()
        row |= {"ok": False, "problem": f"{type(problem).__name__}: {problem}"[:500]}
    mark = "ok  " if row["ok"] else "FAIL"
    status = row.get("problem") or f"error {row['error']:.2e}{'' if row['same_bits'] else ', two runs differ'}"
    print(f"{mark} {case.name:22} {row['type']:9} {case.label:36} {status}", flush=True)
    return row


def check_ranks(kind: torch.dtype, num_nodes: int) -> dict[str, Any]:
    row: dict[str, Any] = {"kernel": "count_ranks", "case": f"{num_nodes} nodes", "type": str(kind)[6:]}
    try:
        scores = (numbers(20, num_nodes) * 50).round().to(kind)
        scores[3, 5] = torch.nan
        which, target = ids(64, 20).long(), ids(64, num_nodes).long()
        answers = torch.stack([torch.randperm(num_nodes, device=DEVICE)[:40] for _ in range(64)])
        answers[0, 0] = target[0]
        begin = torch.arange(64, device=DEVICE) * 40
        out = gpu.count_ranks(scores, which, target, begin, begin + 40, answers.reshape(-1))
        values = scores[which]
        own = values.gather(1, target[:, None])
        known = values.gather(1, answers)
        other = answers != target[:, None]
        expected = torch.stack(
            [
                (values > own).sum(1),
                (values == own).sum(1),
                ((known > own) & other).sum(1),
                ((known == own) & other).sum(1),
                values.isnan().sum(1),
            ],
            1,
        )
        row["ok"] = torch.equal(out, expected)
        if not row["ok"]:
            row["problem"] = "counts differ"
    except Exception as problem:
        traceback.print_exc()
        row |= {"ok": False, "problem": f"{type(problem).__name__}: {problem}"[:500]}
    print(f"{'ok  ' if row['ok'] else 'FAIL'} count_ranks {row['type']} {row.get('problem', '')}", flush=True)
    return row


def all_checks(tiny: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    found = []
    for width in (1, 3, 10) if tiny else (1, 3, 10, 16, 200, 500):
        hub = 200 if tiny else 100_000 if width <= 16 else 5_000
        nodes = 24 if tiny else 120_000 if width <= 16 else 3_000
        graph = random_graph(nodes, 5, 30 if tiny else 20_000 if width <= 16 else 3_000, hub)
        if width == 3:
            graph = isolated(graph)
        blocks = [(1, width, 16), (5, 4, 3)] if tiny else [(1, width, 16), (1, width, width), (20, 5, 5), (200, 1, 1)]
        for kind in BOUND:
            bases = 3 if tiny else 40 if width <= 16 else 7
            found += [check(case, kind) for case in cases(graph, width, bases, kind, blocks)]
    found += [check_ranks(kind, 300 if tiny else 15_000) for kind in BOUND]
    return found


def isolated(graph: Graph) -> Graph:
    """The same with pairs of the lower half of the nodes only: the others have none, not even a self-loop."""
    keep = graph.by_node.node < graph.num_nodes // 2
    relation, node = graph.by_node.relation[keep].long(), graph.by_node.node[keep].long()
    by_node = make_pairs(relation, node, graph.num_nodes, graph.num_relations, node_major=True)
    by_relation = make_pairs(relation, node, graph.num_nodes, graph.num_relations, node_major=False)
    column = torch.randint(len(by_node), (graph.pattern.num_entries,), device=DEVICE)
    mix = SparsePattern(graph.pattern.pointer, column.int(), len(by_node))
    return graph._replace(mix=mix, by_node=by_node, by_relation=by_relation)


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call. The last result is freed and its memory filled with NaN before the next
    call."""
    for _ in range(min(5, repeats)):
        work()
    times = []
    for _ in range(repeats):
        out = work()
        if isinstance(out, Tensor) and out.is_floating_point():
            out.fill_(torch.nan)
        del out
        if DEVICE == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / 1000)
        else:
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def copy_bandwidth(tiny: bool) -> float:
    """Return the bytes per second of a copy, counting reads and writes."""
    source = torch.zeros((1 << 20) if tiny else (1 << 30), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source), 3 if tiny else 30)


def device_seconds(work: Callable[[], Any], repeats: int) -> float | None:
    """Return the time inside a CUDA graph, without the launch overhead of short kernels."""
    if DEVICE != "cuda":
        return None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    taken = seconds(graph.replay, repeats)
    del kept
    return taken


def measure(case: Case, bandwidth: float, tiny: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"kernel": case.name, "case": case.label}
    repeats = 2 if tiny else 30
    try:
        kernel = getattr(gpu, case.name)
        gathered, distinct = case.moved()
        taken = seconds(lambda: kernel(*case.arguments), repeats)
        replayed = device_seconds(lambda: kernel(*case.arguments), repeats)
        best = taken if replayed is None else replayed
        row |= {
            "seconds": taken,
            "seconds_in_graph": replayed,
            "bytes_gathered": gathered,
            "bytes_distinct": distinct,
            "gathered_GBps": gathered / best / 1e9,
            "distinct_GBps": distinct / best / 1e9,
            "gathered_share_of_copy": gathered / best / bandwidth,
            "distinct_share_of_copy": distinct / best / bandwidth,
        }
    except Exception as problem:
        traceback.print_exc()
        row |= {"problem": f"{type(problem).__name__}: {problem}"[:500]}
        print(f"FAIL {case.name} {case.label}: {row['problem']}", flush=True)
        return row
    try:
        row["reference_seconds"] = seconds(lambda: getattr(reference, case.name)(*case.arguments), min(repeats, 5))
    except Exception as problem:  # such as a lack of memory, which is not an error of the kernel
        row["reference_seconds"], row["reference_problem"] = None, f"{type(problem).__name__}: {problem}"[:200]
    theirs = f"{row['reference_seconds'] * 1e6:11.1f}" if row["reference_seconds"] else "          -"
    print(
        f"{case.name:21} {case.label:34} {taken * 1e6:9.1f} {best * 1e6:9.1f} {theirs}"
        f" {gathered / 1e6:9.1f} {distinct / 1e6:9.1f} {row['gathered_GBps']:8.0f} {row['distinct_GBps']:8.0f}"
        f" {row['gathered_share_of_copy']:7.0%} {row['distinct_share_of_copy']:7.0%}",
        flush=True,
    )
    return row


def read_graph(path: Path | None, tiny: bool) -> Graph:
    if path is not None:
        with np.load(path) as file:
            triples, nodes, relations = torch.from_numpy(file["triples"]), int(file["nodes"]), int(file["relations"])
        return make_graph(triples.to(DEVICE).long(), nodes, relations)
    nodes, relations, edges = (60, 4, 100) if tiny else (AM_NODES, AM_RELATIONS, AM_EDGES)
    rng = np.random.default_rng(0)
    popular = np.minimum((rng.pareto(0.9, edges) * 3).astype(np.int64), nodes - 1)
    target = np.where(rng.random(edges) < 0.5, popular, rng.integers(nodes, size=edges))
    frequency = 1 / np.arange(1, relations + 1) ** 1.1
    relation = rng.choice(relations, edges, p=frequency / frequency.sum())
    triples = np.unique(np.stack([rng.integers(nodes, size=edges), relation, target], 1), axis=0)
    return make_graph(torch.from_numpy(triples).to(DEVICE), nodes, relations)


def all_times(graph: Graph, bandwidth: float, tiny: bool) -> list[dict[str, Any]]:
    print(
        f"\n{'kernel':21} {'case':34} {'µs':>9} {'in graph':>9} {'reference':>11} {'MB gath.':>9} {'MB dist.':>9}"
        f" {'GB/s g.':>8} {'GB/s d.':>8} {'copy g.':>7} {'copy d.':>7}"
    )
    found = []
    for width in (10,) if tiny else (10, 16, 32):
        blocks = [(1, width, width)] + ([] if tiny or width != 10 else [(1, 16, 10), (100, 5, 5), (500, 1, 1)])
        of_width = cases(graph, width, 4 if tiny else 40, torch.float32, blocks)
        found += [measure(case, bandwidth, tiny) for case in of_width]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, help="an .npz that shaped_graph.py wrote")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--tiny", action="store_true", help="sizes for Triton's interpreter")
    parser.add_argument("--no-checks", action="store_true", help="only measure")
    parser.add_argument("--no-times", action="store_true", help="only check")
    options = parser.parse_args()
    if DEVICE == "cpu" and not options.tiny:
        parser.error("there is no GPU here: only --tiny can run, in Triton's interpreter")
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU, Triton's interpreter"
    report: dict[str, Any] = {
        "device": name,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "tiny": options.tiny,
    }
    print(f"{name}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    report["checks"] = [] if options.no_checks else all_checks(options.tiny)
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    report["times"] = []
    if not options.no_times:
        bandwidth = copy_bandwidth(options.tiny)
        graph = read_graph(options.graph, options.tiny)
        report |= {
            "copy_GBps": bandwidth / 1e9,
            "graph": {
                "file": options.graph.name if options.graph else "drawn here",
                "nodes": graph.num_nodes,
                "relations": graph.num_relations,
                "edges": graph.pattern.num_entries,
                "pairs": len(graph.by_node),
            },
        }
        print(f"\ncopy {bandwidth / 1e9:.0f} GB/s; {report['graph']}", flush=True)
        report["times"] = all_times(graph, bandwidth, options.tiny)
    if options.json is not None:
        write_result(options.json, report)
    failed = sum(not row["ok"] for row in report["checks"]) + sum("problem" in row for row in report["times"])
    print(f"\n{len(report['checks'])} checks and {len(report['times'])} measurements, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
