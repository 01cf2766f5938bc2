"""Train one model with 1, 2 and 4 processes; compare losses, bytes sent per step, and memory per process.

python benchmarks/processes.py [--nodes 500000] [--edges 4000000] [--width 64] [--processes 1 2 4]
                               [--steps 5] [--threads 1] [--only NAME] [--json FILE]

On a machine with fewer cores than processes more of them are not faster, and the seconds show just that. What
counts here: losses agree, bytes per step are near the least possible, and tables and edges of each process fall as
1 / processes. The graph is drawn (objects have hubs), stored once, and mapped by every process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import write_result

import rgcn
from rgcn.data.graph_store import load_graph, save_graph
from rgcn.distributed.rendezvous import is_rank, join, leave
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.graph.vocabulary import Vocabulary
from rgcn.placement import current
from rgcn.system.memory import resident_bytes

CLASSES, LABELED = 10, 0.1


def models(width: int, steps: int) -> dict[str, Any]:
    sampled = {"batch_edges": 30_000, "sampler": "scattered", "shared_by": 1000, "negatives": 100}
    shared = {"epochs": steps, "sharded": True, "evaluate_every": 0}
    rgcn_links = {"layers": 2, "bases": 2, "decomposition": "basis", "edge_dropout": 0.5}
    return {
        "DistMult, row-wise Adagrad, batches of 30,000": rgcn.LinkPredictor(
            "distmult", embedding=width, optimizer="row-adagrad", learning_rate=0.1, **sampled, **shared
        ),
        "RGCN for links, 30,000 edges a step": rgcn.LinkPredictor(
            "rgcn", embedding=width // 2, negatives=1, batch_edges=30_000, **rgcn_links, **shared
        ),
        "e-RGCN, whole graph a step": rgcn.NodeClassifier("e-rgcn", embedding=32, epochs=steps, sharded=True),
        "e-RGCN, 10,000 labels a step, fan-out 5": rgcn.NodeClassifier(
            "e-rgcn", embedding=32, epochs=1, batch_labels=10_000, fan_out=5, sharded=True
        ),
    }


def draw(nodes: int, edges: int, folder: Path) -> None:
    """Return a random graph with uniform subjects and objects by a power law."""
    random = np.random.default_rng(0)
    ends = random.integers(nodes, size=edges), random.integers(20, size=edges)
    objects = np.minimum((random.random(edges) ** 3 * nodes).astype(np.int64), nodes - 1)
    key = np.unique((ends[0] * 20 + ends[1]) * nodes + objects)
    triples = np.stack([key // nodes // 20, key // nodes % 20, key % nodes], axis=1)[random.permutation(len(key))]
    labeled = np.sort(random.choice(nodes, int(LABELED * nodes), replace=False))
    names, kinds = [f"n{number}" for number in range(nodes)], [f"c{number}" for number in range(CLASSES)]
    vocabulary = Vocabulary(kinds, kind="class")
    labels = NodeLabels(labeled, labeled % CLASSES, vocabulary, np.zeros(len(labeled), dtype=np.int8))
    relations = Vocabulary([f"r{number}" for number in range(20)], kind="relation")
    save_graph(KnowledgeGraph(triples, Vocabulary(names, kind="node"), relations, labels=labels), folder)


def work(folder: Path, name: str, width: int, steps: int) -> dict[str, Any]:
    """Train, and return the losses and the memory of this process."""
    placement, graph = current(), load_graph(folder)
    before = resident_bytes()
    model = models(width, steps)[name]
    with model.fitting(graph) as fitting:
        losses, clock = [], [time.perf_counter()]
        for _ in range(min(steps, fitting.steps)):
            losses.append(float(fitting.trainer.step()))
            clock.append(time.perf_counter())
        seconds = float(np.median(np.diff(clock)[1:]))  # in the first, loops are compiled and edges put in order
        tables = [p for p in model.network_.parameters() if len(p) >= graph.num_nodes // placement.size // 2]
        moments = [t for p in tables for t in fitting.optimizer.state[p].values() if t.ndim]
        structure = model.adjacency_.structure
        edges = [getattr(structure, part) for part in ("target", "relation", "source", "origin")]
        edges += [model.adjacency_.weight]
        traffic = placement.traffic
        return {
            "losses": losses,
            "sent_a_step": traffic.sent_bytes // len(losses),
            "least_a_step": traffic.min_bytes // len(losses),
            "table_bytes": sum(t.nbytes for t in (*tables, *moments)),
            "edge_bytes": sum(t.nbytes for t in edges) if model.adjacency_.num_edges else 0,
            "held_bytes": resident_bytes() - before,
            "seconds_a_step": seconds,
        }


def worker(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    if is_rank():
        join()
    rank = current().rank
    found = work(arguments.graph, arguments.worker, arguments.width, arguments.steps)
    (arguments.out / f"{rank}.json").write_text(json.dumps(found))
    leave()


def measure(name: str, size: int, graph: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        own = [__file__, "--worker", name, "--graph", str(graph), "--out", out]
        own += ["--width", str(arguments.width), "--steps", str(arguments.steps), "--threads", str(arguments.threads)]
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)] if size > 1 else []
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
        subprocess.run([sys.executable, *launch, *own], check=True, env=environment)
        found = [json.loads((Path(out) / f"{rank}.json").read_text()) for rank in range(size)]
    most = {key: max(each[key] for each in found) for key in found[0] if key != "losses"}
    total = {key: sum(each[key] for each in found) for key in ("sent_a_step", "least_a_step")}
    return {"model": name, "processes": size, "losses": found[0]["losses"], **most, **total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=4_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--only", help="models whose names contain this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--graph", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph"
        draw(arguments.nodes, arguments.edges, graph)
        for name in models(arguments.width, arguments.steps):
            for size in arguments.processes:
                if arguments.only and arguments.only not in name:
                    continue
                row = measure(name, size, graph, arguments)
                rows.append(row)
                mib = {key: f"{row[key] / 2**20:.1f}" for key in row if "bytes" in key or "a_step" in key}
                print(
                    f"{name}, {size} processes: loss {row['losses'][-1]:.8f}; a process holds {mib['table_bytes']} MiB "
                    f"of tables, {mib['edge_bytes']} of edges, {mib['resident_bytes']} in all; all sent "
                    f"{mib['sent_a_step']} MiB a step, least {mib['least_a_step']}; {row['seconds_a_step']:.2f} s",
                    flush=True,
                )
    if arguments.json:
        sizes = {key: getattr(arguments, key) for key in ("nodes", "edges", "width", "threads")}
        write_result(arguments.json, sizes, rows)


if __name__ == "__main__":
    main()
