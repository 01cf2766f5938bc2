"""Write the result tables of README.md and of pages in docs/ from the files under results/.

    python tools/readme_tables.py           # rewrite the tables
    python tools/readme_tables.py --check   # exit with code 1 if a table is out of date

A table stands between the lines `<!-- results: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import statistics
import sys
from typing import Any

from comparison_tables import any_graph_table, comparison_tables
from result_files import ROOT, place, result, result_file
from rgcn.paper.published import ACCURACY, RANKING, format_published
from rgcn.runs.run_record import Spread
from rgcn.system.formatting import format_bytes, format_duration

# configuration: title of its row
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
        "docs/reference/performance.md": performance,
        "docs/reference/results.md": {"node": node_table(), "link": link_table(), "spread": spread_table()},
        "docs/reference/path-networks.md": comparison_tables(),
        "docs/reference/pretrained-model.md": {"any-graph": any_graph_table()},
    }
    for page, tables in pages.items():
        path, to_root = ROOT / page, "../" * page.count("/")
        before = after = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            table = table.replace("](../", f"]({to_root}")
            pattern = re.compile(rf"(<!-- results: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            after = pattern.sub(lambda match, table=table: match[1] + table + match[2], after)
        if "--check" in sys.argv and after != before:
            sys.exit(f"{path.name}: its tables differ from results/; run `python tools/readme_tables.py`")
        if "--check" not in sys.argv:
            path.write_text(after, encoding="utf-8")


def headline_table() -> str:
    """Return the table of the README: zero-shot metrics, comparison with the paper, speed and memory."""
    lines = ["| | rgcn | compared with |", "|---|---:|---|"]
    zero_shot = {f"{graph}, missing links, MRR" for graph in ("fb237-v1-ind", "wn18rr-v1-ind")}
    zero_shot |= {"aifb, classes, %", "mutag, classes, %"}
    for row in any_graph_table().splitlines()[2:]:
        name, ours, trained, _ = (cell.strip() for cell in row.strip("|").split("|"))
        if name in zero_shot:
            lines.append(f"| without training: {name} | {ours} | {trained}, RGCN trained |")
    for config, title in {**NODE, **LINK}.items():
        data, published = result(config), (ACCURACY.get(config) or RANKING.get(config))
        if data is None or published is None:
            continue
        if config in ACCURACY:
            spread = Spread.of(accuracies(data))
            ours, theirs = (
                f"{spread.mean:.2f} ± {spread.standard_error:.2f}",
                format_published(published[0], "percent", 2),
            )
            metric = "accuracy, %"
        else:
            mrr = data["test_mrr"]
            ours, theirs = (
                f"{mrr['mean']:.3f} ± {mrr['standard_error']:.3f}",
                format_published(published[0]["mrr"], "number", 3),
            )
            metric = "MRR"
        lines.append(f"| {title}, {metric} ({len(data['runs'])} seeds) | **{ours}** | {theirs}, the paper |")
    for row in step_table("bench-cpu", with_floor=False).splitlines()[2:]:
        name, ours, theirs, faster, memory_ours, memory_theirs = (cell.strip() for cell in row.strip("|").split("|"))
        if faster and name.startswith(("aifb", "am-")):
            peer = f"{theirs}, {memory_theirs}, PyG's FastRGCNConv"
            lines.append(
                f"| one training step of {name.replace(', rgcn', '')}, 2 cores | **{ours}**, {memory_ours} | {peer} |"
            )
    return "\n".join(lines) + "\n"


def node_table() -> str:
    """Return the accuracies of node classification with those of the paper."""
    head = ["", "the paper, %", "ours, %", "deviation", "lowest to highest", "runs"]
    head += ["parameters (as the paper counts)", "seconds a run", "results"]
    lines = [f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in head)}|", f"|---|{'---:|' * 7}---|"]
    for name, title in NODE.items():
        published = format_published(ACCURACY[name][0], "percent", 2) if name in ACCURACY else ""
        data = result(name)
        if data is None:
            continue
        runs, values = data["runs"], accuracies(data)
        spread = Spread.of(values)
        seconds = statistics.median(run["seconds"] for run in runs)
        lines.append(
            f"| {title} | {published} | **{spread.mean:.2f}** ± {spread.standard_error:.2f} "
            f"| {spread.standard_deviation:.2f} | {min(values):.1f} to {max(values):.1f} | {len(runs)} "
            f"| {runs[0]['parameters']:,} | {seconds:.1f} | {link(name)} |"
        )
    return "\n".join(lines) + "\n"


def accuracies(data: dict[str, Any]) -> list[float]:
    """Return the test accuracy of each run in percent, in the order of the seeds."""
    return [100 * run["metrics"]["test"]["accuracy"] for run in sorted(data["runs"], key=lambda run: run["seed"])]


def spread_table() -> str:
    """Return the quartiles of the accuracy of each node classifier over its seeds, and the range of ten-seed means."""
    head = ["lowest", "quarter", "median", "three quarters", "highest", "means of ten seeds", "of 0 to 9"]
    lines = [f"| | {' | '.join(head)} | test nodes right (runs) |", f"|---|{'---:|' * len(head)}---|"]
    for name, title in NODE.items():
        data = result(name)
        if data is None:
            continue
        values, num_nodes = accuracies(data), data["runs"][0]["test_nodes"]
        points = [min(values), *statistics.quantiles(values, n=4, method="inclusive"), max(values)]
        tens = [statistics.fmean(values[start : start + 10]) for start in range(0, len(values), 10)]
        correct = [round(value * num_nodes / 100) for value in values]
        counts = ", ".join(f"{k} ({correct.count(k)})" for k in sorted(set(correct)))
        lines.append(
            f"| {title} | {' | '.join(f'{point:.1f}' for point in points)} "
            f"| {min(tens):.2f} to {max(tens):.2f} | {tens[0]:.2f} | {counts}, of {num_nodes} |"
        )
    return "\n".join(lines) + "\n"


def link_table() -> str:
    """Return the ranking metrics of link prediction with the MRR of the paper."""
    lines = ["| | the paper, MRR | ours, MRR | Hits@1 | Hits@3 | Hits@10 | runs | on | results |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---|---|")
    for name, title in LINK.items():
        published = format_published(RANKING[name][0]["mrr"], "number", 3) if name in RANKING else ""
        data = result(name)
        if data is None:
            continue
        runs, error = data["runs"], data["test_mrr"]["standard_error"]
        hits = [sum(run["metrics"]["test"][f"hits@{k}"] for run in runs) / len(runs) for k in (1, 3, 10)]
        shown = f"**{data['test_mrr']['mean']:.3f}**" + (f" ± {error:.3f}" if error else "")
        lines.append(
            f"| {title} | {published} | {shown} | {' | '.join(f'{h:.3f}' for h in hits)} | {len(runs)} | {place(data)} "
            f"| {link(name)} |"
        )
    return "\n".join(lines) + "\n"


def step_table(name: str, with_floor: bool = True) -> str:
    """Return a table that compares the training steps of rgcn and PyG's FastRGCNConv, from a file of `rgcn bench`.

    Args:
        name: Name of the result file.
        with_floor: Add a column with the share of the least possible time.
    """
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
        cells = [f"{graph}, {model}", format_duration(ours["seconds"])]
        if peer is None or "seconds" not in peer:
            cells += ["", "", format_bytes(ours["peak_bytes"]), ""]
        else:
            ratio = f"**{peer['seconds'] / ours['seconds']:.0f}**"
            cells += [
                format_duration(peer["seconds"]),
                ratio,
                format_bytes(ours["peak_bytes"]),
                format_bytes(peer["peak_bytes"]),
            ]
        if with_floor:
            cells.append(f"{ours['floor']['reached']:.0%}" if "floor" in ours else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def link_step_table() -> str:
    """Return the time and memory of a training step of link prediction on the GPU."""
    data = result("link-step-h200")
    if data is None:
        return ""
    lines = ["| | a step | peak memory |", "|---|---:|---:|"]
    lines += [
        f"| {row['configuration']} | {format_duration(row['flowing_ms'] / 1e3)} | "
        f"{format_bytes(row['peak_gpu_mib'] * 2**20)} |"
        for row in data["rows"]
    ]
    return "\n".join(lines) + "\n"


def kernel_table() -> str:
    """Return the time of each GPU kernel and its share of the bandwidth of a copy."""
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
    """Return a Markdown link to a result file, from a page in docs/ itself; `main` adapts it to other folders."""
    return f"[{name}](../{result_file(name)})"


if __name__ == "__main__":
    main()
