"""Compare the speed of two versions of this package: the same steps, in turn, in separate processes.

    git worktree add /tmp/before 1ce5de2
    python benchmarks/two_trees.py --before /tmp/before/src --out results/two-trees.json

Every round times each version once; the result is the median over rounds of the time of one step, and the ratio is that
of the medians, after over before. Graphs are drawn at random, so that no data are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

AFTER = Path(__file__).parents[1] / "src"
# name: (nodes, relations, triples, estimator, settings)
CASES = {
    "nc aifb-sized rgcn": (8285, 45, 29043, "node", {"model": "rgcn"}),
    "nc aifb-sized e-rgcn": (8285, 45, 29043, "node", {"model": "e-rgcn"}),
    "nc mutag-sized rgcn, 30 bases": (
        23644, 23, 74227, "node", {"model": "rgcn", "decomposition": "basis", "bases": 30},
    ),
    "lp fb-toy-sized rgcn, blocks": (
        280, 112, 4565, "link",
        {"model": "rgcn", "embedding": 500, "decomposition": "block", "blocks": 100, "batch_edges": 300},
    ),
    "lp world-sized c-rgcn": (2363, 31, 30000, "link", {"model": "c-rgcn", "embedding": 64, "bottleneck": 16}),
    "lp wn18-sized rgcn, bases": (
        40943, 18, 141442, "link",
        {"model": "rgcn", "embedding": 200, "decomposition": "basis", "bases": 2, "batch_edges": 30000},
    ),
    "rank wn18-sized": (40943, 18, 141442, "rank", {"model": "distmult", "embedding": 200}),
    "top-k wn18-sized, 50 questions": (40943, 18, 141442, "top", {"model": "distmult", "embedding": 200}),
}  # fmt: skip


def measure(name: str, device: str, steps: int) -> float:
    """Measure the seconds per step in this process."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before PyTorch is loaded: idle threads sleep
    import numpy as np
    import torch

    from rgcn import LinkPredictor, NodeClassifier  # the same names in every version
    from rgcn.graph import KnowledgeGraph, NodeLabels, Vocabulary

    nodes, relations, triples, kind, settings = CASES[name]
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(0, (nodes, relations, nodes), (triples, 3)), axis=0)
    labeled = np.sort(rng.choice(nodes, 200, replace=False))
    labels = NodeLabels(
        labeled, np.arange(200) % 4, Vocabulary([f"c{i}" for i in range(4)], kind="class"), np.zeros(200, np.int8)
    )
    graph = KnowledgeGraph(
        rows,
        Vocabulary([f"n{i}" for i in range(nodes)], kind="node"),
        Vocabulary([f"r{i}" for i in range(relations)], kind="relation"),
        labels=labels,
        triple_splits=(rng.random(len(rows)) < 0.004).astype(np.int8) if kind == "rank" else None,
    )
    if kind == "node":
        trainer = NodeClassifier(device=device, **settings).prepare(graph).trainer()
        step = getattr(trainer, "step_with_logits", None) or trainer.both
    else:
        model = LinkPredictor(device=device, **settings).prepare(graph)
        if kind == "rank":
            step = lambda: model.ranks(split="valid")  # noqa: E731
        elif kind == "top":
            step = top_of(model)
        else:
            trainer = model.trainer()
            batches, take = trainer.batches(), getattr(trainer, "step_on", trainer.step)
            step = lambda: take(next(batches))  # noqa: E731
    for _ in range(5):
        step()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(steps):
        wait()
        began = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def top_of(model):
    """Return a function that answers fifty questions at once, with either version of the package."""
    import torch

    from rgcn.graph.titles import Titles
    from rgcn.predict import OpenModel

    opened = OpenModel(Path("nowhere"), "timed", model, Titles(model.graph_))
    nodes, relation = torch.arange(50) * 7, torch.arange(50) % 18
    try:
        from rgcn.links.top_k import answer_links
        from rgcn.nn.scorer import Questions
    except ImportError:  # rgcn 0.2.0
        from rgcn.answers.links import answer_links
        from rgcn.scoring import Questions
    return lambda: answer_links(opened, Questions(nodes, relation, nodes % 2 == 0), 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder src of the other version")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(arguments.one, arguments.device, arguments.steps))
        return
    found = {}
    for name in arguments.only:
        times: dict[str, list[float]] = {"before": [], "after": []}
        for _ in range(arguments.rounds):
            for which, place in (("before", arguments.before), ("after", AFTER)):
                line = [sys.executable, __file__, "--one", name, "--device", arguments.device]
                others = os.environ.get("PYTHONPATH", "")
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), others])}
                done = subprocess.run(
                    [*line, "--steps", str(arguments.steps)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    raise SystemExit(f"{which} {name}: {done.stderr[-2000:]}")
                times[which].append(float(done.stdout.split()[-1]))
        medians = {which: statistics.median(values) for which, values in times.items()}
        found[name] = {"ratio": medians["after"] / medians["before"], "median_s": medians, "rounds_s": times}
        spread = ", ".join(f"{which} {1e3 * min(v):.2f} to {1e3 * max(v):.2f} ms" for which, v in times.items())
        print(f"{name:<34} {found[name]['ratio']:.2f} times as long ({spread})", flush=True)
    if arguments.out is not None:
        about = {
            "command": "python " + " ".join(sys.argv),
            "date": time.strftime("%Y-%m-%d"),
            "device": arguments.device,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        }
        arguments.out.write_text(json.dumps({**about, "steps": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
