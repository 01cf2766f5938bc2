"""Time a training step of link prediction, and find operations in it that wait for the device.

python benchmarks/link_step.py rgcn/lp-wn18 c-rgcn/lp-wn18 rgcn/lp-fb-toy [--graphs FOLDER] [--profile]
                               [--json results/link-step.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import _about  # isort: skip  # noqa: F401  before PyTorch

import torch
from _about import write_result

from rgcn.data.graph_store import load_graph
from rgcn.runs import load_configuration, load_data
from rgcn.runs.assembly import make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configurations", nargs="+")
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs instead of the registry")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rows = []
    for name in options.configurations:
        config = load_configuration(name)
        graph = (
            load_data(config.data) if options.graphs is None else load_graph(options.graphs / str(config.data.dataset))
        )
        rows.append({"configuration": name, **measure(make_model(config).prepare(graph).trainer(), options)})
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        write_result(options.json, {"rows": rows})


def measure(trainer, options) -> dict[str, object]:  # type: ignore[no-untyped-def]
    cuda = trainer.triples.is_cuda
    wait = torch.cuda.synchronize if cuda else lambda: None
    batches = trainer.batches()
    for _ in range(5):
        trainer.step_on(next(batches))
    wait()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(options.steps):
        start = time.perf_counter()
        trainer.step_on(next(batches))
        wait()
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(options.steps):
        trainer.step_on(next(batches))
    wait()
    flowing = (time.perf_counter() - start) / options.steps
    results: dict[str, object] = {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "median_ms": 1e3 * statistics.median(seconds),
        "flowing_ms": 1e3 * flowing,
    }
    if cuda:
        results["peak_gpu_mib"] = torch.cuda.max_memory_allocated() / 2**20
        results["waits_for_device"] = waits(trainer, next(batches))
    if options.profile:
        with torch.profiler.profile() as profile:
            for _ in range(5):
                trainer.step_on(next(batches))
            wait()
        key = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        print(profile.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))
    batches.close()
    return results


def waits(trainer, batch) -> str | None:  # type: ignore[no-untyped-def]
    """Return the first operation of a step that waits for the device, or None."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.step_on(batch)
    except RuntimeError as error:
        import traceback

        frames = [f for f in traceback.extract_tb(error.__traceback__) if "rgcn" in f.filename]
        return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None


if __name__ == "__main__":
    main()
