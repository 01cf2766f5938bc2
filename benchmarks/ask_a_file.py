"""Time the command `rgcn predict` on a file of triples, with the pretrained model.

    python benchmarks/ask_a_file.py --triples 100000 --json results/ask-a-file.json

The file is random: N-Triples with 60 relations between 20,000 nodes, objects by a power law. The first call calibrates
the model and caches the calibration, later calls read it from the cache. Each call is a new process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
from _about import write_result

NODES, RELATIONS = 20_000, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=5, help="after the first")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.nt"
        write_triples(path, options.triples)
        command = [sys.executable, "-m", "rgcn", "predict", str(path), "--subject", "n5", "--relation", "r3", "-k", "3"]
        seconds = []
        for _ in range(1 + options.calls):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, "RGCN_CACHE": folder})
            seconds.append(round(time.perf_counter() - start, 2))
            print(seconds[-1], flush=True)
    if options.json:
        found = {"triples": options.triples, "first_seconds": seconds[0], "later_seconds": seconds[1:]}
        write_result(options.json, found)


def write_triples(path: Path, count: int) -> None:
    random = np.random.default_rng(0)
    drawn = np.empty((0, 3), dtype=np.int64)
    while len(drawn) < count:
        size = 2 * count
        objects = random.zipf(1.6, size) % NODES
        new = np.stack([random.integers(NODES, size=size), random.integers(RELATIONS, size=size), objects], axis=1)
        drawn = np.unique(np.concatenate([drawn, new]), axis=0)
    chosen = drawn[random.permutation(len(drawn))[:count]].tolist()
    base = "http://example.org/"
    path.write_text("".join(f"<{base}n{s}> <{base}r{r}> <{base}n{o}> .\n" for s, r, o in chosen), encoding="utf-8")


if __name__ == "__main__":
    main()
