"""Write the result tables of the README, docs/performance.md, docs/results.md and docs/paths.md from results/.

    python tools/readme_tables.py           # rewrite them
    python tools/readme_tables.py --check   # exit 1 if they are not what the results say

The tables stand between lines `<!-- results: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import statistics
import sys
from typing import Any

from comparison_tables import any_graph_table, comparison_tables
from result_files import ROOT, place, result, result_file
from rgcn.paper.published import ACCURACY, RANKING, published_text
from rgcn.runs.run_record import Spread
from rgcn.system.formatting import duration, memory

# configuration: what it is
NODE = {
    "rgcn/nc-aifb": "AIFB, RGCN",
    "e-rgcn/nc-aifb": "AIFB, e-RGCN",
    "rgcn/nc-mutag": "MUTAG, RGCN",
    "rgcn/nc-mutag-node": "MUTAG, RGCN normalized per node",
    "e-rgcn/nc-mutag": "MUTAG, e-RGCN",
    "rgcn/nc-world": "world, RGCN",
    "e-rgcn/nc-world": "world, e-RGCN",
}
LINK = {
    "rgcn/lp-fb-toy": "FB-Toy, RGCN",
    "c-rgcn/lp-fb-toy": "FB-Toy, c-RGCN",
    "rgcn/lp-wn18": "WN18, RGCN",
    "c-rgcn/lp-wn18": "WN18, c-RGCN",
    "distmult/lp-wn18": "WN18, DistMult",
}


def main() -> None:
    performance = {
        "bench-cpu": step_table("bench-cpu"),
        "bench-h200": step_table("bench-h200"),
        "link-h200": link_step_table(),
        "kernels-h200": kernel_table(),
    }
    pages = {
        "README.md": {"headline": headline_table()},
        "docs/performance.md": performance,
        "docs/results.md": {"node": node_table(), "link": link_table(), "spread": spread_table()},
        "docs/paths.md": comparison_tables(),
        "docs/any-graph.md": {"any-graph": any_graph_table()},
    }
    for path, tables in ((ROOT / name, tables) for name, tables in pages.items()):
        before = after = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            pattern = re.compile(rf"(<!-- results: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            after = pattern.sub(lambda match, table=table: match[1] + table + match[2], after)
        if "--check" in sys.argv and after != before:
            sys.exit(f"{path.name} does not show what results/ holds: run tools/readme_tables.py")
        if "--check" not in sys.argv:
            path.write_text(after, encoding="utf-8")


def headline_table() -> str:
    """Write a line for each thing that the README claims: zero-shot answers, the paper's results, speed."""
    lines = ["| | rgcn | compared with |", "|---|---:|---|"]
    zero_shot = {f"{graph}, missing links, MRR" for graph in ("fb237-v1-ind", "wn18rr-v1-ind")}
    zero_shot |= {"aifb, classes, %", "mutag, classes, %"}
    for row in any_graph_table().splitlines()[2:]:
        name, ours, trained, _ = (cell.strip() for cell in row.strip("|").split("|"))
        if name in zero_shot:
            lines.append(f"| without training: {name} | {ours} | {trained}, RGCN trained |")
    for config, what in {**NODE, **LINK}.items():
        data, published = result(config), (ACCURACY.get(config) or RANKING.get(config))
        if data is None or published is None:
            continue
        if config in ACCURACY:
            spread = Spread.of(accuracies(data))
            ours, theirs = (
                f"{spread.mean:.2f} ± {spread.standard_error:.2f}",
                published_text(published[0], "percent", 2),
            )
            metric = "accuracy, %"
        else:
            mrr = data["test_mrr"]
            ours, theirs = (
                f"{mrr['mean']:.3f} ± {mrr['standard_error']:.3f}",
                published_text(published[0]["mrr"], "number", 3),
            )
            metric = "MRR"
        lines.append(f"| {what}, {metric} ({len(data['runs'])} seeds) | **{ours}** | {theirs}, the paper |")
    for row in step_table("bench-cpu", with_floor=False).splitlines()[2:]:
        name, ours, theirs, faster, memory_ours, memory_theirs = (cell.strip() for cell in row.strip("|").split("|"))
        if faster and name.startswith(("aifb", "am-")):
            peer = f"{theirs}, {memory_theirs}, PyG's FastRGCNConv"
            lines.append(
                f"| one training step of {name.replace(', rgcn', '')}, 2 cores | **{ours}**, {memory_ours} | {peer} |"
            )
    return "\n".join(lines) + "\n"


def node_table() -> str:
    head = ["", "the paper, %", "ours, %", "deviation", "lowest to highest", "runs"]
    head += ["parameters (as the paper counts)", "seconds a run", "results"]
    lines = [f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in head)}|", f"|---|{'---:|' * 7}---|"]
    for name, what in NODE.items():
        published = published_text(ACCURACY[name][0], "percent", 2) if name in ACCURACY else ""
        data = result(name)
        if data is None:
            continue
        runs, values = data["runs"], accuracies(data)
        spread = Spread.of(values)
        seconds = statistics.median(run["seconds"] for run in runs)
        lines.append(
            f"| {what} | {published} | **{spread.mean:.2f}** ± {spread.standard_error:.2f} "
            f"| {spread.standard_deviation:.2f} | {min(values):.1f} to {max(values):.1f} | {len(runs)} "
            f"| {runs[0]['parameters']:,} | {seconds:.1f} | {link(name)} |"
        )
    return "\n".join(lines) + "\n"


def accuracies(data: dict[str, Any]) -> list[float]:
    """Percent of the test nodes right, a figure a run, in the order of the seeds."""
    return [100 * run["metrics"]["test"]["accuracy"] for run in sorted(data["runs"], key=lambda run: run["seed"])]


def spread_table() -> str:
    """How the runs of each node classifier are spread, and how far ten of them can be from all."""
    head = ["lowest", "quarter", "median", "three quarters", "highest", "means of ten seeds", "of 0 to 9"]
    lines = [f"| | {' | '.join(head)} | test nodes right (runs) |", f"|---|{'---:|' * len(head)}---|"]
    for name, what in NODE.items():
        data = result(name)
        if data is None:
            continue
        values, nodes = accuracies(data), data["runs"][0]["test_nodes"]
        points = [min(values), *statistics.quantiles(values, n=4, method="inclusive"), max(values)]
        tens = [statistics.fmean(values[at : at + 10]) for at in range(0, len(values), 10)]
        right = [round(value * nodes / 100) for value in values]
        counts = ", ".join(f"{k} ({right.count(k)})" for k in sorted(set(right)))
        lines.append(
            f"| {what} | {' | '.join(f'{point:.1f}' for point in points)} "
            f"| {min(tens):.2f} to {max(tens):.2f} | {tens[0]:.2f} | {counts}, of {nodes} |"
        )
    return "\n".join(lines) + "\n"


def link_table() -> str:
    lines = ["| | the paper, MRR | ours, MRR | Hits@1 | Hits@3 | Hits@10 | runs | on | results |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---|---|")
    for name, what in LINK.items():
        published = published_text(RANKING[name][0]["mrr"], "number", 3) if name in RANKING else ""
        data = result(name)
        if data is None:
            continue
        runs, error = data["runs"], data["test_mrr"]["standard_error"]
        hits = [sum(run["metrics"]["test"][f"hits@{k}"] for run in runs) / len(runs) for k in (1, 3, 10)]
        shown = f"**{data['test_mrr']['mean']:.3f}**" + (f" ± {error:.3f}" if error else "")
        lines.append(
            f"| {what} | {published} | {shown} | {' | '.join(f'{h:.3f}' for h in hits)} | {len(runs)} | {place(data)} "
            f"| {link(name)} |"
        )
    return "\n".join(lines) + "\n"


def step_table(name: str, with_floor: bool = True) -> str:
    """Ours beside FastRGCNConv for each graph and model of a file that `rgcn bench` wrote."""
    data = result(name)
    if data is None:
        return ""
    head = ["one training step", "ours", "FastRGCNConv", "times faster", "memory, ours", "theirs"]
    head += ["share of the floor"] if with_floor else []
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in data["rows"]:
        groups.setdefault((row["graph"], row["model"]), {})[row["side"]] = row
    for (graph, model), sides in groups.items():
        ours, peer = sides[model], sides.get("FastRGCNConv")
        cells = [f"{graph}, {model}", duration(ours["seconds"])]
        if peer is None or "seconds" not in peer:
            cells += ["", "", memory(ours["peak_bytes"]), ""]
        else:
            ratio = f"**{peer['seconds'] / ours['seconds']:.0f}**"
            cells += [duration(peer["seconds"]), ratio, memory(ours["peak_bytes"]), memory(peer["peak_bytes"])]
        if with_floor:
            cells.append(f"{ours['floor']['reached']:.0%}" if "floor" in ours else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def link_step_table() -> str:
    data = result("link-step-h200")
    if data is None:
        return ""
    lines = ["| | a step | peak memory |", "|---|---:|---:|"]
    lines += [
        f"| {row['configuration']} | {duration(row['flowing_ms'] / 1e3)} | {memory(row['peak_gpu_mib'] * 2**20)} |"
        for row in data["rows"]
    ]
    return "\n".join(lines) + "\n"


def kernel_table() -> str:
    data = result("gpu-kernels-h200")
    if data is None:
        return ""
    lines = ["| kernel | case | µs | share of copy, gathered | distinct |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| {row['kernel']} | {row['case']} | {row['microseconds_in_graph']:.0f} "
        f"| {row['share_of_copy_gathered']:.0%} | {row['share_of_copy_distinct']:.0%} |"
        for row in data["rows"]
    ]
    return "\n".join(lines) + "\n"


def link(name: str) -> str:
    return f"[{name}](../{result_file(name)})"


if __name__ == "__main__":
    main()
