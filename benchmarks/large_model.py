"""Measure the start-up time and memory of `rgcn serve`, `rgcn predict` and name search with a large model.

    python benchmarks/large_model.py --edges 1000000
    python benchmarks/large_model.py --edges 10000000 --out results/large-model.json

A graph is drawn, a model of each task made over it without training (a step more or less changes no time) and saved.
Then every command runs in a process of its own, on the CPU, and its peak memory is what the system says it was: pages
of mapped files that were read count. Each command runs twice on this folder, and both results are given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from _about import write_result

RGCN = (sys.executable, "-c", "from rgcn.cli import main; main()")
SYLLABLES = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]
WORDS, RELATIONS, CLASSES, LABELED, NODES_AN_EDGE = 50_000, 50, 10, 1000, 0.2
TASKS = ("link-prediction", "node-classification")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64, help="of DistMult's vectors")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where models are, or are made and kept")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place, rows = given.folder or Path(made), []
        for task in given.tasks:
            folder = place / f"{task}-{given.edges}"
            row: dict[str, Any] = {"task": task, "edges": given.edges, "nodes": nodes_of(given.edges)}
            if task == "link-prediction":
                row["width"] = given.width
            if not (folder / "model.json").exists():
                began = time.perf_counter()
                script = [sys.executable, __file__, "--edges", str(given.edges), "--width", str(given.width)]
                subprocess.run([*script, "--make", task, "--folder", str(folder)], check=True)
                row["make_s"] = round(time.perf_counter() - began, 2)
            row["bytes_on_disk"] = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            row["predict"] = [predicted(folder, task) for _ in range(2)]
            row["serve"] = [served(folder, task, given.searches if turn else 0) for turn in range(2)]
            rows.append(row)
            print(json.dumps(row, indent=1))
    if given.out is not None:
        write_result(given.out, {"rows": rows})


def nodes_of(edges: int) -> int:
    return max(20, int(NODES_AN_EDGE * edges))


def make(edges: int, width: int, task: str, folder: Path) -> None:
    """Return an untrained model over a random graph."""
    import numpy as np

    import rgcn
    from rgcn.graph import NodeLabels, Vocabulary

    rng, size = np.random.default_rng(0), nodes_of(edges)
    words = ["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(WORDS)]
    pairs = (rng.zipf(1.3, size=(size, 2)) % WORDS).tolist()
    names = [f"http://example.org/resource/{words[a].capitalize()}_{words[b]}_{n}" for n, (a, b) in enumerate(pairs)]
    # Half of the objects are popular ones, about by rank; nodes that would have no edge get the first edges.
    popular = (np.exp(rng.random(edges) * np.log(size)) - 1).astype(np.int64)
    subject = np.concatenate([np.arange(size), rng.integers(size, size=edges - size)])
    object_ = np.where(rng.random(edges) < 0.5, popular, rng.integers(size, size=edges))
    relation = (np.exp(rng.random(edges) * np.log(RELATIONS + 1)) - 1).astype(np.int64)
    labeled = rng.choice(size, min(LABELED, size // 2), replace=False)
    kinds = Vocabulary([f"class {number}" for number in range(CLASSES)], kind="class")
    splits = np.where(np.arange(len(labeled)) % 10 == 0, 1, 0)
    graph = rgcn.KnowledgeGraph(
        np.stack([subject, relation, object_], axis=1),
        Vocabulary(names, kind="node"),
        Vocabulary([f"http://example.org/relation/{number}" for number in range(RELATIONS)], kind="relation"),
        labels=NodeLabels(labeled, np.arange(len(labeled)) % CLASSES, kinds, splits.astype(np.int8)),
        triple_splits=np.where(rng.random(edges) < 1000 / edges, 1, 0).astype(np.int8),
        name="drawn",
    )
    del names
    model: Any
    if task == "link-prediction":
        model = rgcn.LinkPredictor("distmult", embedding=width)
    else:
        model = rgcn.NodeClassifier("rgcn", hidden=16, decomposition="basis", bases=2)
    model.prepare(graph).network_.eval()
    model.save(str(folder))


def example_question(folder: Path, task: str) -> tuple[str, dict[str, str]]:
    """Return (endpoint, parameters) of a question that the model answers."""
    from rgcn.data.graph_store import load_graph

    nodes = load_graph(folder / "graph").nodes
    if task == "link-prediction":
        return "links", {"subject": nodes[len(nodes) // 2], "relation": "http://example.org/relation/3"}
    return "class", {"node": nodes[len(nodes) // 2]}


def predicted(folder: Path, task: str) -> dict[str, float]:
    """Run `rgcn predict` for one question."""
    _, question = example_question(folder, task)
    options = [f"--{key}={value}" for key, value in question.items()]
    began = time.perf_counter()
    process = subprocess.Popen([*RGCN, "predict", str(folder), *options, "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"rgcn predict {folder} failed")
    return {"s": round(time.perf_counter() - began, 2), "peak_mib": round(usage.ru_maxrss / 1024)}


def served(folder: Path, task: str, searches: int) -> dict[str, Any]:
    """Time `rgcn serve` from its start to its first answer, then some searches."""
    what, question = example_question(folder, task)
    began = time.perf_counter()
    command = [*RGCN, "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        url = next((found[0] for line in process.stdout if (found := re.findall(r"http://\S+:\d+", line))), None)
        if url is None:
            raise SystemExit(f"rgcn serve {folder} failed")
        ready, model = time.perf_counter() - began, f"{url}/api/models/{folder.name}"
        urlopen(f"{model}/{what}?{urlencode(question)}").read()
        results: dict[str, Any] = {"ready_s": round(ready, 2), "first_answer_s": round(time.perf_counter() - began, 2)}
        results["peak_mib"] = peak(process.pid)
        if searches:
            results["search"] = searched(folder, model, searches)
            results["peak_mib_after"] = peak(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return results


def peak(process: int) -> int:
    """MiB."""
    return int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[0]) // 1024


def searched(folder: Path, model: str, count: int) -> dict[str, float]:
    """Return the milliseconds of /search over HTTP: parts of names of all lengths, some without a match."""
    import random

    from rgcn.data.graph_store import load_graph

    nodes, rng, times = load_graph(folder / "graph").nodes, random.Random(0), list[float]()
    for number in range(count):
        last = nodes[rng.randrange(len(nodes))].rpartition("/")[2]
        begin = rng.randrange(len(last))
        query = last[begin : begin + rng.randint(1, 12)] + ("q" if number % 10 == 0 else "")
        began = time.perf_counter()
        urlopen(f"{model}/search?{urlencode({'q': query})}").read()
        times.append(1000 * (time.perf_counter() - began))
    quantiles = statistics.quantiles(times, n=20)
    results = {"median_ms": statistics.median(times), "p95_ms": quantiles[18], "most_ms": max(times)}
    return {name: round(value, 2) for name, value in results.items()}


if __name__ == "__main__":
    if "--make" in sys.argv:
        hidden = argparse.ArgumentParser()
        for option, kind in (("--edges", int), ("--width", int), ("--make", str), ("--folder", Path)):
            hidden.add_argument(option, type=kind, required=True)
        one = hidden.parse_args()
        make(one.edges, one.width, one.make, one.folder)
    else:
        main()
