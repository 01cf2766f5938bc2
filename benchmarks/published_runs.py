"""Full runs of shipped configurations, a result file each: metrics, seeds, seconds, memory, hardware, configuration.

    python benchmarks/published_runs.py rgcn/nc-aifb e-rgcn/nc-aifb --seeds 10
    python benchmarks/published_runs.py rgcn/lp-wn18 c-rgcn/lp-wn18
    python benchmarks/published_runs.py rgcn/lp-fb-toy --seeds 10 --jobs 2

Every seed that runs is reported. A test split is read once, after the last step; which weights are kept is decided on
validation data. `--graphs FOLDER` reads graphs saved there by `--save-graphs` instead of asking the registry, for
machines that have neither a network nor the readers' libraries.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _about import write_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configurations", nargs="+", help="shipped names or YAML files")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 .. SEEDS - 1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; timings are fair only with one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs")
    parser.add_argument("--save-graphs", type=Path, help="save the graphs there and stop")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--tag", default="", help="added to the result files' names")
    given = parser.parse_args()
    if given.save_graphs:
        save_graphs(given)
        return
    pool = ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"))
    waiting = {
        name: [pool.submit(one_run, name, seed, given.changes, given.graphs) for seed in range(given.seeds)]
        for name in given.configurations
    }
    for name, runs in waiting.items():
        rows = [run.result() for run in runs]
        write_runs(name, rows, given)


def save_graphs(given: argparse.Namespace) -> None:
    from rgcn.data.graph_store import save_graph
    from rgcn.runs import load_configuration, load_data

    for name in given.configurations:
        config = load_configuration(name)
        save_graph(load_data(config.data), given.save_graphs / str(config.data.dataset))


def one_run(name: str, seed: int, changes: list[str], graphs: Path | None) -> dict[str, Any]:
    import torch

    from rgcn.data.graph_store import load_graph
    from rgcn.runs import load_configuration, load_data
    from rgcn.runs.training import train

    config = load_configuration(name, changes, {"seed": seed})
    graph = load_data(config.data) if graphs is None else load_graph(graphs / str(config.data.dataset))
    result = train(config, graph)
    row = result.as_dict()
    model: Any = result.model
    if config.task == "link-prediction":
        row["history"] = [[e.number, round(e.loss, 5), e.valid_mrr] for e in model.history_ if e.valid_mrr is not None]
    if torch.cuda.is_available():
        row["peak_gpu_bytes"] = torch.cuda.max_memory_allocated()
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row["configuration"] = config.model_dump(mode="json")
    metric, value = measured(row)
    print(f"{name} seed {seed}: {metric} {value:.4f} in {row['seconds']:.1f} s", file=sys.stderr)
    return row


def measured(row: dict[str, Any]) -> tuple[str, float]:
    """Name and value of a run's main test metric."""
    name = "accuracy" if row["task"] == "node-classification" else "mrr"
    return f"test_{name}", row["metrics"]["test"][name]


def write_runs(name: str, rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    configuration = rows[0].pop("configuration")
    for row in rows[1:]:
        row.pop("configuration")
    metric, values = measured(rows[0])[0], [measured(row)[1] for row in rows]
    spread = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    content = {
        "runs_at_a_time": given.jobs,
        metric: {"mean": statistics.mean(values), "standard_error": spread, "runs": len(values)},
        "configuration": configuration,
        "runs": rows,
    }
    path = given.out / f"{name.replace('/', '-')}{given.tag}.json"
    write_result(path, content)
    mean = statistics.mean(values)
    print(f"{name}: {metric} {mean:.4f} ± {spread or 0:.4f} over {len(values)} → {path.name}", flush=True)


if __name__ == "__main__":
    main()
