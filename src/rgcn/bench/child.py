"""What a measuring process does: rest, prepare, take steps, and say in one line of JSON what that took.

    python -m rgcn.bench.child '{"graph": "aifb.npz", "side": "ours", ...}'

The process at rest has imported everything, has taken a few steps on a tiny graph (so that compiled kernels and thread
pools are there) and has loaded the graph. Memory and time beyond that are the step's own.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.bench.memory import DeviceMemory, HostMemory, limit_memory
from rgcn.bench.workloads import Workload
from rgcn.errors import ConfigError

if TYPE_CHECKING:
    from rgcn.bench.sides import Step
    from rgcn.graph import KnowledgeGraph
    from rgcn.tasks import Estimator

TINY_EDGES = 200
FEWEST_STEPS = 3
WARM_STEPS = {"cpu": 3, "cuda": 10}


@dataclass(frozen=True)
class Job:
    """One measurement.

    graph        an .npz file (see `graph_to_npz`)
    side         "ours", or a peer: "fast", "plain"
    budget       seconds that timed steps may take together; slow steps are taken fewer times, but three at least
    max_seconds  give up where a step takes longer
    max_bytes    give up where more memory is needed, counted from the process at rest
    floor        also count the least a step must do (ours only)
    """

    graph: str
    side: str
    workload: Workload
    device: str = "cpu"
    steps: int = 20
    budget: float = 20.0
    max_seconds: float | None = None
    max_bytes: int | None = None
    floor: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        values = json.loads(text)
        return cls(**{**values, "workload": Workload(**values["workload"])})


class TooSlowError(Exception):
    """A step took longer than allowed."""


def measure(job: Job) -> dict[str, Any]:
    """Seconds of a step (the median), memory and more; or {"failed": why} where time or memory did not suffice."""
    try:
        return _measure(job)
    except TooSlowError as error:
        return {"failed": f"ran out of time: {error}"}
    except (MemoryError, RuntimeError) as error:
        if not _about_memory(error):
            raise
        return {"failed": f"ran out of memory: {_first_line(error)}"}


def _measure(job: Job) -> dict[str, Any]:
    import torch

    from rgcn.bench.graphs import graph_from_npz, random_shape, shaped

    gpu = torch.device(job.device).type == "cuda"
    wait: Callable[[], Any] = (lambda: torch.cuda.synchronize(job.device)) if gpu else (lambda: None)
    step, _ = _prepare(job, shaped(random_shape(TINY_EDGES)))
    for _ in range(FEWEST_STEPS):
        step()
    wait()
    del step
    graph = graph_from_npz(Path(job.graph))
    memory = DeviceMemory(job.device) if gpu else HostMemory()
    if job.max_bytes is not None:
        _limit(job.device, job.max_bytes)

    start = time.perf_counter()
    step, classifier = _prepare(job, graph)
    wait()
    prepare_seconds = time.perf_counter() - start
    warm = _warm_up(step, wait, job)
    preparing_peak = memory.peak()
    memory.restart()
    count = max(FEWEST_STEPS, min(job.steps, int(job.budget / max(warm[-1], 1e-9)))) if job.steps > 2 else job.steps
    seconds = [_timed(step, wait, job.max_seconds) for _ in range(count)]
    step_peak = memory.peak()
    found: dict[str, Any] = {
        "seconds": statistics.median(seconds),
        "fastest_seconds": min(seconds),
        "steps": len(seconds),
        "warm_steps": len(warm),
        "prepare_seconds": prepare_seconds,
        "first_step_seconds": warm[0],
        "peak_bytes": max(preparing_peak, step_peak),
        "step_peak_bytes": step_peak if memory.method != "ru_maxrss" else None,
        "memory_by": memory.method,
        "threads": torch.get_num_threads(),
    }
    if job.floor and classifier is not None:
        from rgcn.bench.floor import step_work

        found["trained_parameters"] = classifier.num_parameters_
        try:
            found["work"] = asdict(step_work(classifier))
        except ConfigError as error:  # a floor is one more figure, no reason to lose the others
            found["no_floor"] = str(error)
    return found


def _prepare(job: Job, graph: KnowledgeGraph) -> tuple[Step, Estimator | None]:
    from rgcn.bench.sides import our_step, peer_step

    if job.side == "ours":
        return our_step(graph, job.workload, job.device)
    return peer_step(graph, job.workload, job.device, job.side), None


def _warm_up(step: Step, wait: Callable[[], Any], job: Job) -> list[float]:
    """Steps that do not count: three (on a GPU ten), fewer where they would eat the budget."""
    wanted = WARM_STEPS[job.device.split(":")[0]]
    # The first step prepares what later ones use again, so it is allowed twice the time.
    seconds = [_timed(step, wait, None if job.max_seconds is None else 2 * job.max_seconds)]
    while len(seconds) < wanted and sum(seconds) < job.budget:
        seconds.append(_timed(step, wait, job.max_seconds))
    return seconds


def _timed(step: Step, wait: Callable[[], Any], max_seconds: float | None) -> float:
    start = time.perf_counter()
    step()
    wait()
    seconds = time.perf_counter() - start
    if max_seconds is not None and seconds > max_seconds:
        raise TooSlowError(f"a step took {seconds:.3g} s")
    return seconds


def _limit(device: str, max_bytes: int) -> None:
    if device == "cpu":
        limit_memory(max_bytes)
        return
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, max_bytes / total), torch.device(device))


def _about_memory(error: Exception) -> bool:
    words = str(error).lower()
    return isinstance(error, MemoryError) or "memory" in words or "alloc" in words


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0][:160]


def main() -> None:
    """A job, or {"speeds": DEVICE} to measure what the machine can do."""
    text = sys.argv[1]
    if "speeds" in json.loads(text):
        from rgcn.bench.floor import measure_speeds

        found: dict[str, Any] = measure_speeds(json.loads(text)["speeds"]).as_dict()
    else:
        found = measure(Job.from_json(text))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
