"""Train built-in configurations with several seeds and write a result file for each configuration.

    python benchmarks/published_runs.py rgcn/nc-aifb e-rgcn/nc-aifb --seeds 100
    python benchmarks/published_runs.py rgcn/lp-wn18 c-rgcn/lp-wn18
    python benchmarks/published_runs.py rgcn/lp-fb-toy --seeds 10 --jobs 2

Every seed that runs is reported. A test split is read once, after the last step; which weights are kept is decided on
validation data. What all runs of a file have in common stands in it once, under "every_run". `--graphs FOLDER` reads
graphs saved there by `--save-graphs` instead of asking the registry, for machines that have neither a network nor the
readers' libraries.
"""

from __future__ import annotations

import argparse
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import lru_cache
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
    options = parser.parse_args()
    if options.save_graphs:
        save_graphs(options)
        return
    pool = ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"))
    waiting = {
        name: [pool.submit(one_run, name, seed, options.changes, options.graphs) for seed in range(options.seeds)]
        for name in options.configurations
    }
    for name, runs in waiting.items():
        rows = [run.result() for run in runs]
        write_runs(name, rows, options)


def save_graphs(options: argparse.Namespace) -> None:
    from rgcn.data.graph_store import save_graph
    from rgcn.runs import load_configuration, load_data

    for name in options.configurations:
        config = load_configuration(name)
        save_graph(load_data(config.data), options.save_graphs / str(config.data.dataset))


def one_run(name: str, seed: int, changes: list[str], graphs: Path | None) -> dict[str, Any]:
    import torch

    from rgcn.models.task import task_of
    from rgcn.runs import load_configuration
    from rgcn.runs.training import train

    config = load_configuration(name, changes, {"seed": seed})
    graph = read_graph(name, tuple(changes), graphs)
    result = train(config, graph)
    row = result.as_dict()
    task = task_of(config.task)
    if "classes" in task.answers:
        row["test_nodes"] = row["metrics"]["test"]["count"]
    column = f"valid_{task.headline.name}"
    reports = [[e.number, round(e.loss, 5), e[column]] for e in result.model.history_ if e[column] is not None]
    if reports:
        row["history"] = reports
    if torch.cuda.is_available():
        row["peak_gpu_bytes"] = torch.cuda.max_memory_allocated()
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row["configuration"] = config.model_dump(mode="json")
    metric, value = measure(row)
    print(f"{name} seed {seed}: {metric} {value:.4f} in {row['seconds']:.1f} s", file=sys.stderr)
    return row


@lru_cache(maxsize=1)
def read_graph(name: str, changes: tuple[str, ...], graphs: Path | None) -> Any:
    """Return the graph of a configuration, cached for its other seeds."""
    from rgcn.data.graph_store import load_graph
    from rgcn.runs import load_configuration, load_data

    data = load_configuration(name, changes).data
    return load_data(data) if graphs is None else load_graph(graphs / str(data.dataset))


def measure(row: dict[str, Any]) -> tuple[str, float]:
    """Return the name and value of a run's main test metric."""
    from rgcn.models.task import task_of

    name = task_of(row["task"]).headline.name
    return f"test_{name}", row["metrics"]["test"][name]


def write_runs(name: str, rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    configuration = rows[0].pop("configuration")
    for row in rows[1:]:
        row.pop("configuration")
    from rgcn.runs.run_record import Spread

    metric, spread = measure(rows[0])[0], Spread.of([measure(row)[1] for row in rows])
    common = {key: value for key, value in rows[0].items() if all(row.get(key) == value for row in rows)}
    common = {key: value for key, value in common.items() if key not in ("seed", "seconds", "metrics")}
    content = {
        "runs_at_a_time": options.jobs,
        metric: asdict(spread),
        "configuration": configuration,
        "every_run": common,
    }
    path = options.out / f"{name.replace('/', '-')}{options.tag}.json"
    write_result(path, content, [{key: row[key] for key in row if key not in common} for row in rows])
    error = spread.standard_error or 0
    print(f"{name}: {metric} {spread.mean:.4f} ± {error:.4f} over {spread.runs} → {path.name}", flush=True)


if __name__ == "__main__":
    main()
