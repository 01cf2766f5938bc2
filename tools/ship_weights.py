"""Copy the weights of a pretraining run into the package and write their model card.

python tools/ship_weights.py runs/first runs/second                  # then measure them, and repeat with the results:
python benchmarks/any_graph.py --split test --out results/any-graph.json
python tools/ship_weights.py runs/first runs/second --commits 1a2b3c4 5d6e7f8 --results results/any-graph.json

With several runs, each started from the weights of the run before it (`model.start: shipped`); the last are used.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save

from rgcn.data.catalog import CATALOG
from rgcn.nn.universal_network import CARD, WEIGHTS
from rgcn.system.atomic_files import write_atomically

MOST_BYTES = 2_000_000
# Settings without which the weights do not fit, or mean nothing.
NEEDED = (
    *("layers", "width", "relation_layers", "messages", "deviation", "degree_scaling", "unreached"),
    *("skip", "layer_norm", "normalization", "aggregation"),
)
LIMITS = [
    "A question costs a pass over the whole graph: milliseconds for thousands of triples, seconds for millions.",
    "Relations are known by the nodes and pairs they share, not by their names: one with a handful of triples is "
    "hardly known at all.",
    "Literals are nodes like others; numbers and texts are not understood.",
    "fb237-v1-ind and wn18rr-v1-ind are cut from FB15k-237 and WN18RR, whose training triples were learned from: their "
    "nodes hold nothing of it, but their kinds of relations do.",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--commits", nargs="*", default=[], help="the code that each run was made with")
    options = parser.parse_args()
    weights = load_file(options.runs[-1] / "model" / "weights.safetensors")
    written = save(weights)
    if len(written) > MOST_BYTES:
        raise SystemExit(f"{len(written):,} bytes are more than the {MOST_BYTES:,} that may be shipped")
    write_atomically(WEIGHTS, written)
    made = card(options.runs, options.commits or [""] * len(options.runs), options.results)
    write_atomically(CARD, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print(f"{WEIGHTS}: {len(written):,} bytes, {sum(tensor.numel() for tensor in weights.values()):,} numbers")


def card(runs: list[Path], commits: list[str], results: Path | None) -> dict[str, Any]:
    parts = [part(run, commit) for run, commit in zip(runs, commits, strict=True)]
    settings = json.loads((runs[-1] / "model" / "model.json").read_text(encoding="utf-8"))["settings"]
    graphs = {
        name: {"title": CATALOG[name].title, "license": CATALOG[name].license, "share": share}
        for name, share in settings["graphs"].items()
    }
    return {
        "settings": {name: settings[name] for name in NEEDED},
        "learned_from": {**graphs, "drawn by rules": {"share": settings["drawn"]}},
        "steps": sum(each["steps"] for each in parts),
        "seconds": round(sum(each["seconds"] for each in parts), 1),
        "parts": parts,
        "license": "the package's own",
        "limits": LIMITS,
        "results": None if results is None else json.loads(results.read_text(encoding="utf-8")),
    }


def part(run: Path, commit: str) -> dict[str, Any]:
    """How one run was made."""
    result, about, sessions = (
        json.loads((run / f"{name}.json").read_text(encoding="utf-8")) for name in ("result", "run", "environment")
    )
    return {
        "command": sessions[0]["command"],
        "commit": commit,
        "date": about["created"][:10],
        "hardware": sessions[-1]["hardware"],
        "versions": sessions[-1]["versions"],
        "steps": result["epochs"],
        "seconds": result["seconds"],
        "seed": result["seed"],
    }


if __name__ == "__main__":
    main()
