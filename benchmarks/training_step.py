"""One training step of node classification, ours beside PyG's layers, in one run on one machine: `rgcn bench`.

    python benchmarks/training_step.py --json results/training-step.json

AIFB and MUTAG on the CPU with rgcn and FastRGCNConv unless other words are given; see `python -m rgcn.bench --help`.
"""

from __future__ import annotations

import sys

from rgcn.bench.__main__ import main

DEFAULTS = ("--model", "rgcn", "--device", "cpu", "--peer", "fast")

if __name__ == "__main__":
    given = sys.argv[1:]
    defaults = [word for i in (0, 2, 4) if DEFAULTS[i] not in given for word in DEFAULTS[i : i + 2]]
    sys.exit(main([*given, *defaults]))
