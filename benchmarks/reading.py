"""Time reading a million generated triples from N-Triples, gzipped N-Triples and TSV.

python benchmarks/reading.py [--triples 1000000]
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np

import rgcn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", type=int, default=1_000_000)
    count = parser.parse_args().triples
    rng = np.random.default_rng(0)
    columns = [rng.integers(high, size=count).tolist() for high in (count // 4, 50, count // 4, 5)]
    with tempfile.TemporaryDirectory() as folder:
        literal = '"{}"'.format
        iri = "<http://example.org/{}/{}>".format
        lines = "".join(
            f"{iri('node', s)} {iri('relation', r)} {literal(o) if k == 0 else iri('node', o)} .\n"
            for s, r, o, k in zip(*columns, strict=True)
        )
        Path(folder, "g.nt").write_text(lines)
        Path(folder, "g.nt.gz").write_bytes(gzip.compress(lines.encode(), 1))
        table = "".join(f"node{s}\trelation{r}\tnode{o}\n" for s, r, o, _ in zip(*columns, strict=True))
        Path(folder, "g.tsv").write_text(table)
        for name in ("g.nt", "g.nt.gz", "g.tsv", "g.nt", "g.nt.gz", "g.tsv"):
            start = time.perf_counter()
            graph = rgcn.read(Path(folder, name))
            print(f"{name:<8} {time.perf_counter() - start:6.2f} s  {graph!r}", flush=True)


if __name__ == "__main__":
    main()
