"""Measure time and peak memory of building a graph on disk, in comparison with pyoxigraph and polars.

python benchmarks/building.py --rows 1e7 --out results/building.json
python benchmarks/building.py --rows 1e8 --only tsv     # about 20 GB of disk; no peers, which need more memory
python benchmarks/building.py --shape hub --only tsv    # an object of 10 million edges; --shape relations: 100,000

Each number is of a separate process: wall time, CPU time and peak memory (mapped files
count). The peers: pyoxigraph parses the file and counts its triples, which is not yet a graph; polars reads the table
and numbers its names, without removing duplicates. There are a quarter as many nodes as rows, with degrees by a power
law.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _about import write_result

BLOCK_ROWS = 1_000_000
LINES = {
    "nt": "<http://example.org/resource/Entity_{}> <http://example.org/ontology/relation{}> "
    "<http://example.org/resource/Entity_{}> .",
    "tsv": "Q{}\tP{}\tQ{}",
}
# VmHWM rather than getrusage, whose peak a process inherits from the one that started it.
MEASURED = """
import json, pathlib, sys, time
path, out = sys.argv[1:]
start, cpu = time.perf_counter(), time.process_time()
{work}
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
lines = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
peak = int(lines["VmHWM"].split()[0]) / 2**20
print(json.dumps({{"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3), "peak_gib": round(peak, 3),
                  "result": str(result)}}))
"""
WORK = {
    # Compile the loops now, even for a small file, so that compilation is not measured.
    "warm": """
from rgcn.data import reading, triple_rows
reading.MIN_LARGE_BYTES, triple_rows.MIN_LOOP_ROWS = 0, -1
result = reading.read(path, out=out)
""",
    "build": "import rgcn; result = rgcn.read(path, out=out)",
    "open": """
import rgcn.data.reading
start, cpu = time.perf_counter(), time.process_time()
graph = rgcn.read(out)
result = graph.nodes[graph.num_nodes // 2]
""",
    "ask": """
import rgcn.data.reading
graph, result = rgcn.read(out), {}
hub = int(graph.degrees().argmax())
asked = {
    "neighbors": lambda: graph.neighbors(hub, limit=20),
    "statistics": graph.statistics,
    "find": lambda: graph.names.find("entity_12" if path.endswith("nt") else "q12"),
    "relation": lambda: graph.names.relation(graph.relations[graph.num_relations // 2].swapcase()),
    "misspelled": lambda: graph.names.nodes("Q1 2345"),
}
for what, ask in asked.items():
    begun = time.perf_counter()
    ask()
    result[what] = round(time.perf_counter() - begun, 4)
""",
    "read": "import rgcn; result = rgcn.read(path)",
    "pyoxigraph": "import pyoxigraph; result = sum(1 for _ in pyoxigraph.parse(path=path))",
    "polars": """
import polars as pl
table = pl.read_csv(path, separator="\\t", has_header=False, quote_char=None, new_columns=["s", "r", "o"])
names = pl.concat([table["s"].rename("name"), table["o"].rename("name")]).unique(maintain_order=True)
nodes = names.to_frame().with_row_index("id")
relations = table.select(name=pl.col("r").unique(maintain_order=True)).with_row_index("id")
for column, known in (("s", nodes), ("r", relations), ("o", nodes)):
    table = table.join(known, left_on=column, right_on="name", maintain_order="left").drop(column)
    table = table.rename({"id": column})
result = table.shape
""",
}


# How many relations there are, and how ids are drawn: the number of them times a random number to these powers.
SHAPES = {"usual": (1000, (2, 3, 3)), "hub": (1000, (2, 3, np.inf)), "relations": (100_000, (2, 1, 3))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--shape", choices=SHAPES, default="usual", help="hub: one object; relations: 100,000 of them")
    parser.add_argument("--only", choices=sorted(LINES), help="one format instead of both")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=None, help="default: up to 2e7 rows")
    parser.add_argument("--folder", type=Path, help="where to draw and build; default: a temporary one")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    rows = int(options.rows)
    peers = rows <= 2e7 if options.peers is None else options.peers
    results: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for kind in LINES:
            path = drawn(Path(folder, "warm"), kind, 1000, "usual")
            measure("warm", path, Path(f"{path}.graph"))
        for kind in [options.only] if options.only else LINES:
            path, out = drawn(Path(folder), kind, rows, options.shape), Path(folder, f"{kind}.graph")
            turns = ["build", "open", "ask", *(["pyoxigraph" if kind == "nt" else "polars", "read"] if peers else [])]
            for what in turns:
                results[f"{kind}: {what}"] = measure(what, path, out)
                print(f"{kind:<4} {what:<11}", results[f"{kind}: {what}"], flush=True)
            size = sum(part.stat().st_size for part in out.iterdir())
            results[f"{kind}: build"] |= {"input_bytes": path.stat().st_size, "graph_bytes": size}
            path.unlink()
    if options.out:
        write_result(options.out, {"rows": rows, "shape": options.shape, "figures": results})


def drawn(folder: Path, kind: str, rows: int, shape: str) -> Path:
    """Write a file with this number of triples; the same number gives the same file."""
    import polars as pl

    folder.mkdir(exist_ok=True)
    path, rng, nodes = folder / f"drawn.{kind}", np.random.default_rng(0), max(rows // 4, 1)
    start = time.perf_counter()
    with path.open("wb") as file:
        for first in range(0, rows, BLOCK_ROWS):
            size = min(BLOCK_ROWS, rows - first)
            relations, powers = SHAPES[shape]
            numbers = zip("sro", (nodes, min(relations, nodes), nodes), powers, strict=True)
            ids = {name: (number * rng.random(size) ** power).astype(np.int64) for name, number, power in numbers}
            lines = pl.DataFrame(ids).select(pl.format(LINES[kind], "s", "r", "o")).to_series()
            file.write(lines.str.join("\n").item().encode() + b"\n")
    print(f"drawn: {path.stat().st_size / 1e9:.2f} GB of {kind} in {time.perf_counter() - start:.0f} s", flush=True)
    return path


def measure(what: str, path: Path, out: Path) -> dict[str, object]:
    """Run one function in its own process."""
    import json

    command = [sys.executable, "-c", MEASURED.format(work=WORK[what]), str(path), str(out)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"{what} of {path.name} failed:\n{found.stderr}")
    return dict(json.loads(found.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
