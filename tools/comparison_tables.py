"""Make the tables of docs/reference/path-networks.md from results of benchmarks/link_comparison.py."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from result_files import ROOT, place, result
from rgcn.system.formatting import format_bytes

MODELS = {
    "popularity": "popularity",
    "distmult": "DistMult",
    "complex": "ComplEx",
    "transe": "TransE",
    "rotate": "RotatE",
    "rgcn": "RGCN",
    "c-rgcn": "c-RGCN",
    "path": "path",
    "universal": "universal, fine-tuned",
}
TITLES = {
    "fb15k-237": "FB15k-237",
    "wn18rr": "WN18RR",
    "codex-s": "CoDEx-S",
    "world": "`world`",
    "fb237-v1": "fb237-v1",
    "wn18rr-v1": "wn18rr-v1",
}
HITS = ("hits@1", "hits@3", "hits@10")
Run = dict[str, Any]


def comparison_tables() -> dict[str, str]:
    """Return {name of a table: its text}; only data sets and models with results have a row."""
    seeds = seeds_together()
    return {"comparison": known_nodes(seeds), "comparison-unseen": new_nodes(seeds)}


def any_graph_table() -> str:
    """Return the zero-shot metrics of the pretrained model (benchmarks/any_graph.py) with those of trained models."""
    content = json.loads((ROOT / "results" / "any-graph.json").read_text(encoding="utf-8"))
    trained: dict[tuple[str, str], float] = {}
    for runs in seeds_together():
        name = runs[0]["dataset"]
        trained[name, runs[0]["model"]] = statistics.fmean(run["metrics"]["test"]["mrr"] for run in runs)
        unseen = [run["unseen"] for run in runs if (run.get("unseen") or {}).get("mrr") is not None]
        if unseen:
            trained[unseen[0]["dataset"], runs[0]["model"]] = statistics.fmean(each["mrr"] for each in unseen)
    lines = [row(["", "without training", "RGCN, trained", "path, trained"]), "|---|---:|---:|---:|"]
    for each in content["rows"]:
        name = TITLES.get(each["dataset"], each["dataset"])
        if each["task"] == "links":
            others = [trained.get((each["dataset"], model)) for model in ("rgcn", "path")]
            cells = [f"{name}, missing links, MRR", f"**{each['mrr']:.3f}**"]
            cells += ["" if other is None else f"{other:.3f}" for other in others]
        else:
            data = result(f"rgcn/nc-{each['dataset']}")
            runs = [] if data is None else [run["metrics"]["test"]["accuracy"] for run in data["runs"]]
            cells = [f"{name}, classes, %", f"**{100 * each['accuracy']:.1f}**"]
            cells += [f"{100 * statistics.fmean(runs):.1f}" if runs else "", ""]
        lines.append(row(cells))
    return "\n".join(lines) + "\n"


def seeds_together() -> list[list[Run]]:
    """Return groups of test runs that differ only in their seeds, ordered by data set and model."""
    groups: dict[tuple[int, int, str, str], list[Run]] = defaultdict(list)
    data, models = list(TITLES), list(MODELS)
    for path in sorted((ROOT / "results").glob("link-comparison-*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for run in content["runs"]:
            if run["split"] != "test" or run["changes"]:
                continue
            run = {**run, "on": place(content["calls"][run["call"]])}
            order = data.index(run["dataset"]), models.index(run["model"])
            groups[(*order, run["configuration"], run["on"])].append(run)
    return [groups[key] for key in sorted(groups)]


def known_nodes(seeds: Iterable[Sequence[Run]]) -> str:
    head = ["", "MRR", *(name.capitalize() for name in HITS), "runs", "trained in", "memory", "parameters", "on"]
    lines = [row(head), f"|---|{'---:|' * (len(head) - 2)}---|"]
    for runs in seeds:
        metrics = [run["metrics"]["test"] for run in runs]
        seconds = statistics.median(run["seconds"] for run in runs)
        largest = max(run["peak_gpu_bytes"] or run["peak_bytes"] for run in runs)
        cells = [f"{TITLES[runs[0]['dataset']]}, {called(runs[0])}", spread(each["mrr"] for each in metrics)]
        cells += [f"{statistics.fmean(each[name] for each in metrics):.3f}" for name in HITS]
        cells += [
            str(len(runs)),
            f"{seconds:,.0f} s",
            format_bytes(largest),
            f"{runs[0]['parameters']:,}",
            runs[0]["on"],
        ]
        lines.append(row(cells))
    return "\n".join(lines) + "\n"


def new_nodes(seeds: Iterable[Sequence[Run]]) -> str:
    head = ["", "MRR", "Hits@1", "Hits@10", "Hits@10 of 50", "runs", "the new nodes"]
    lines = [row(head), f"|---|{'---:|' * (len(head) - 2)}---|"]
    for runs in seeds:
        there = [run["unseen"] for run in runs if "unseen" in run]
        if not there:
            continue
        name = f"{TITLES[runs[0]['dataset']]} → {there[0]['dataset']}, {called(runs[0])}"
        if there[0]["how"] is None:
            lines.append(row([name, "", "", "", "", str(len(there)), "cannot answer"]))
            continue
        means = [statistics.fmean(each[name] for each in there) for name in ("hits@1", "hits@10", "hits@10_of_50")]
        shown = [spread(each["mrr"] for each in there), *(f"{mean:.3f}" for mean in means)]
        seconds = statistics.median(each["seconds"] for each in there)
        how = {"folded in": f"fitted in {seconds:.1f} s", "as it is": "nothing to fit"}[there[0]["how"]]
        lines.append(row([name, *shown, str(len(there)), how]))
    return "\n".join(lines) + "\n"


def called(run: Run) -> str:
    """Return the name of the model and of its variant, linked to the configuration."""
    folder, name = run["configuration"].split("/")
    variant = name.removeprefix(f"lp-{run['dataset']}").lstrip("-")
    return f"[{MODELS[folder]}{f', {variant}' if variant else ''}](../src/rgcn/configs/{run['configuration']}.yaml)"


def spread(values: Iterable[float]) -> str:
    """Return the mean and the standard error as text."""
    sample = list(values)
    error = statistics.stdev(sample) / len(sample) ** 0.5 if len(sample) > 1 else None
    return f"**{statistics.fmean(sample):.3f}**" + ("" if error is None else f" ± {error:.3f}")


def row(cells: Iterable[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"
