"""Write the README's result tables from the files under results/.

    python tools/readme_tables.py           # rewrite README.md
    python tools/readme_tables.py --check   # exit 1 if README.md is not what the results say

The tables stand between lines `<!-- results: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# configuration: (what, the paper's figure)
NODE = {
    "rgcn/nc-aifb": ("AIFB, RGCN", "95.56 ± 0.61"),
    "e-rgcn/nc-aifb": ("AIFB, e-RGCN", "89.17 ± 0.28"),
    "rgcn/nc-mutag": ("MUTAG, RGCN", "73.38 ± 0.60"),
    "rgcn/nc-mutag-node": ("MUTAG, RGCN normalized per node", ""),
    "e-rgcn/nc-mutag": ("MUTAG, e-RGCN", "71.03 ± 0.58"),
    "rgcn/nc-world": ("world, RGCN", ""),
    "e-rgcn/nc-world": ("world, e-RGCN", ""),
}
LINK = {
    "rgcn/lp-fb-toy": ("FB-Toy, RGCN", "0.486 ± 0.009"),
    "c-rgcn/lp-fb-toy": ("FB-Toy, c-RGCN", ""),
    "rgcn/lp-wn18": ("WN18, RGCN", "0.749"),
    "c-rgcn/lp-wn18": ("WN18, c-RGCN", "0.717"),
    "distmult/lp-wn18": ("WN18, DistMult", ""),
}


def main() -> None:
    readme = ROOT / "README.md"
    before = readme.read_text(encoding="utf-8")
    after = before
    for name, table in (("node", node_table()), ("link", link_table()), ("step", step_table())):
        pattern = re.compile(rf"(<!-- results: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        after = pattern.sub(lambda match, table=table: match[1] + table + match[2], after)
    if "--check" in sys.argv:
        sys.exit("README.md does not show what results/ holds: run tools/readme_tables.py" if after != before else 0)
    readme.write_text(after, encoding="utf-8")


def result(name: str) -> dict[str, Any] | None:
    path = ROOT / "results" / f"{name.replace('/', '-')}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def node_table() -> str:
    lines = ["| | the paper, % | ours, % | runs | parameters (as the paper counts) | seconds a run | results |"]
    lines.append("|---|---:|---:|---:|---:|---:|---|")
    for name, (what, published) in NODE.items():
        data = result(name)
        if data is None:
            continue
        mean, error = 100 * data["test_accuracy"]["mean"], 100 * data["test_accuracy"]["standard_error"]
        runs = data["runs"]
        seconds = sorted(run["seconds"] for run in runs)[len(runs) // 2]
        lines.append(
            f"| {what} | {published} | **{mean:.2f}** ± {error:.2f} | {len(runs)} | {runs[0]['parameters']:,} "
            f"| {seconds:.1f} | {link(name)} |"
        )
    return "\n".join(lines) + "\n"


def link_table() -> str:
    lines = ["| | the paper, MRR | ours, MRR | Hits@1 | Hits@3 | Hits@10 | runs | on | results |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---|---|")
    for name, (what, published) in LINK.items():
        data = result(name)
        if data is None:
            continue
        runs, error = data["runs"], data["test_mrr"]["standard_error"]
        hits = [sum(run["metrics"]["test"][f"hits@{k}"] for run in runs) / len(runs) for k in (1, 3, 10)]
        shown = f"**{data['test_mrr']['mean']:.3f}**" + (f" ± {error:.3f}" if error else "")
        place = data["hardware"]["gpu"] or f"{data['hardware']['cores']} cores"
        lines.append(
            f"| {what} | {published} | {shown} | {' | '.join(f'{h:.3f}' for h in hits)} | {len(runs)} | {place} "
            f"| {link(name)} |"
        )
    return "\n".join(lines) + "\n"


def step_table() -> str:
    path = ROOT / "results" / "training-step.json"
    if not path.exists():
        return ""
    data = json.loads(path.read_text(encoding="utf-8"))
    lines = ["| one training step | ours | PyG's FastRGCNConv | times faster | memory, ours / theirs |"]
    lines.append("|---|---:|---:|---:|---:|")
    by_graph: dict[str, dict[str, Any]] = {}
    for row in data["rows"]:
        by_graph.setdefault(row["graph"], {})[row["side"]] = row
    for graph, sides in by_graph.items():
        ours, peer = sides["rgcn"], sides["FastRGCNConv"]
        lines.append(
            f"| {graph} | {1e3 * ours['seconds']:.1f} ms | {1e3 * peer['seconds']:.0f} ms "
            f"| **{peer['seconds'] / ours['seconds']:.0f}** "
            f"| {ours['peak_bytes'] / 2**20:.0f} / {peer['peak_bytes'] / 2**20:.0f} MiB |"
        )
    return "\n".join(lines) + "\n"


def link(name: str) -> str:
    file = f"results/{name.replace('/', '-')}.json"
    return f"[{name}]({file})"


if __name__ == "__main__":
    main()
