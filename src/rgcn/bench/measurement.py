"""Measure one side, our training step or the same with PyG's layers, in a process of its own.

No side inherits the other's memory, caches or thread pools. The process at rest has imported everything, has taken a
few steps on a tiny graph, so that kernels are compiled and threads are running, and has loaded the graph. Memory and
time beyond that are those of the step.
"""

from __future__ import annotations

import gc
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch.nn import functional

from rgcn.bench import MODELS, PEERS
from rgcn.bench.floor import Speeds, measure_speeds, step_work, synchronizer
from rgcn.bench.graphs import graph_from_npz, random_graph, random_shape
from rgcn.errors import ConfigError, RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.models import Estimator, NodeClassifier
from rgcn.system.lazy import import_extra
from rgcn.system.memory import PROCESS_STATUS_FILE, read_proc_bytes, release_memory

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CLEAR = Path("/proc/self/clear_refs")
TINY_EDGES = 200
MIN_STEPS = 3
WARM_STEPS = {"cpu": 3, "cuda": 10}
NO_PEERS = "torch-geometric is not installed, so there is no peer to compare with: pip install 'rgcn[bench]'"
# A first layer with full matrices has num_relations · num_nodes rows; with more than this, PyG's layers need gigabytes.
MAX_ROWS_WITHOUT_BASES = 1_000_000

Step = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """A network and its training. `hidden`, `bases` and `l2_penalty` are for rgcn, the last two for e-rgcn."""

    model: str
    hidden: int = 16
    bases: int | None = None
    l2_penalty: float = 0.0
    embedding: int = 32
    weight_decay: float = 0.0

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `rgcn.NodeClassifier`."""
        if self.model == "e-rgcn":
            return {"model": self.model, "embedding": self.embedding, "weight_decay": self.weight_decay}
        decomposition = {} if self.bases is None else {"decomposition": "basis", "bases": self.bases}
        return {"model": self.model, "hidden": self.hidden, "l2_penalty": self.l2_penalty, **decomposition}


PUBLISHED = {
    "aifb": Workload("rgcn", hidden=16),
    "mutag": Workload("rgcn", hidden=16, bases=30, l2_penalty=5e-4),
    "bgs": Workload("rgcn", hidden=16, bases=40, l2_penalty=5e-4),
    "am": Workload("rgcn", hidden=10, bases=40, l2_penalty=5e-4),
}
EMBEDDED = Workload("e-rgcn", embedding=32, weight_decay=0.005)


def default_workload(
    graph: str, model: str, num_nodes: int, num_relations: int, hidden: int | None = None, bases: int | None = None
) -> Workload:
    """Return the settings published for a graph and model, or a guess by size.

    >>> default_workload("am-shaped", "rgcn", 246_728, 122)
    Workload(model='rgcn', hidden=10, bases=40, l2_penalty=0.0005, embedding=32, weight_decay=0.0)

    Args:
        graph: The name of the graph.
        model: "rgcn" or "e-rgcn".
        num_nodes: How many nodes the graph has.
        num_relations: How many relations it has.
        hidden: Overrides the width.
        bases: Overrides the number of bases; 0: no basis decomposition.
    """
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}: choose from {', '.join(MODELS)}")
    if model == "e-rgcn":
        return EMBEDDED
    large = 2 * num_nodes * num_relations > MAX_ROWS_WITHOUT_BASES
    guess = Workload("rgcn", bases=40 if large else None)
    workload = PUBLISHED.get(graph.removesuffix("-shaped").removesuffix("-full"), guess)
    return replace(
        workload,
        hidden=workload.hidden if hidden is None else hidden,
        bases=workload.bases if bases is None else bases or None,
    )


def has_peers() -> bool:
    """Return True if PyG is installed."""
    return find_spec("torch_geometric") is not None


def rgcn_training_step(graph: KnowledgeGraph, workload: Workload, device: str) -> tuple[Step, NodeClassifier]:
    """Return a function that takes one of our training steps, and the classifier that it trains."""
    classifier = NodeClassifier(seed=0, device=device, **workload.settings()).prepare(graph)
    return classifier.trainer().step_with_logits, classifier


def peer_training_step(graph: KnowledgeGraph, workload: Workload, device: str, peer: str) -> Step:
    """Return a function that takes a training step of the same network with PyG's layers, as its users write it.

    It uses the whole graph, with inverse relations. PyG's layers have a root weight, a full matrix, where ours have a
    self-loop among the relations.
    """
    if workload.model != "rgcn":
        raise ConfigError(f"PyG has no layer for the model {workload.model}: choose the peer none")
    layer = getattr(import_extra("torch_geometric", "bench", "torch_geometric.nn"), PEERS[peer])
    assert graph.labels is not None
    triples = torch.tensor(graph.triples, device=device)
    subject, relation, object_ = triples.unbind(1)
    index = torch.stack([torch.cat([object_, subject]), torch.cat([subject, object_])])
    kind = torch.cat([relation, relation + graph.num_relations])
    nodes, classes = (torch.from_numpy(np.array(part)).to(device) for part in graph.labels.of("train"))
    torch.manual_seed(0)
    relations = 2 * graph.num_relations
    first = layer(graph.num_nodes, workload.hidden, relations, num_bases=workload.bases).to(device)
    second = layer(workload.hidden, graph.labels.num_classes, relations, num_bases=workload.bases).to(device)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        logits = second(first(None, index, kind).relu(), index, kind)
        loss = functional.cross_entropy(logits[nodes], classes)
        if workload.l2_penalty:
            loss = loss + workload.l2_penalty * first.weight.pow(2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


@dataclass(frozen=True)
class StepJob:
    """What to measure.

    Attributes:
        graph: An .npz file (see `graph_to_npz`).
        side: "ours", or a peer: "fast" or "plain".
        workload: The network.
        device: Where to train.
        steps: How many steps to time.
        budget: Seconds for all timed steps: slow ones are taken fewer times, but at least three times.
        max_seconds: Give up if a step takes longer.
        max_bytes: Give up if more memory is needed, beyond that of the process at rest.
        floor: Also compute the least work of a step, for our side.
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


def measure_in_subprocess(job: StepJob) -> dict[str, Any]:
    """Call `measure` in a new process; a process that dies gives {"failed": reason}."""
    try:
        return _run(asdict(job), timeout_s=600 + 10 * job.budget + 10 * (job.max_seconds or 0))
    except RgcnError as error:
        return {"failed": str(error)}


def measure_speeds_in_subprocess(device: str) -> Speeds:
    """Call `measure_speeds` in a new process."""
    return Speeds(**_run({"speeds": device}, timeout_s=600))


def measure_in_process(job: StepJob) -> dict[str, Any]:
    """Call `measure` in this process, which is faster, and fair on a GPU, whose memory PyTorch counts."""
    if not job.device.startswith("cuda"):
        raise ConfigError("--same-process is for GPUs: on a CPU the memory of the whole process would be measured")
    return measure(replace(job, max_bytes=None))  # a limit would stay after the measurement


def _run(job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-c", "from rgcn.bench.measurement import child; child()", json.dumps(job)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise RgcnError(f"ran out of time: no result after {timeout_s:.0f} s") from None
    if done.returncode:
        raise RgcnError(_failure_reason(done.returncode, done.stderr))
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _failure_reason(code: int, stderr: str) -> str:
    if code == -signal.SIGKILL:
        return "ran out of memory: the system ended the process"
    last = stderr.strip().splitlines()[-1] if stderr.strip() else f"exit status {code}"
    return f"ran out of memory: {last}" if "bad_alloc" in stderr or "MemoryError" in last else last


def child() -> None:
    """Entry point of a measuring process: do a job, or {"speeds": DEVICE}, and print the result as a line of JSON."""
    job = json.loads(sys.argv[1])
    speeds = measure_speeds(job["speeds"])._asdict() if "speeds" in job else None
    print(json.dumps(speeds or measure(TypeAdapter(StepJob).validate_python(job))))


def measure(job: StepJob) -> dict[str, Any]:
    """Return the median time of a step, memory and more; or {"failed": reason} if time or memory was not enough."""
    try:
        return _measure(job)
    except TimeoutError as error:
        return {"failed": f"ran out of time: {error}"}
    except (MemoryError, RuntimeError) as error:
        text = str(error) or type(error).__name__
        if not isinstance(error, MemoryError) and not any(sign in text.lower() for sign in ("memory", "alloc")):
            raise
        return {"failed": f"ran out of memory: {text.strip().splitlines()[0][:160]}"}


def _measure(job: StepJob) -> dict[str, Any]:
    gpu, wait = torch.device(job.device).type == "cuda", synchronizer(job.device)
    step, _ = _prepare(job, random_graph(random_shape(TINY_EDGES)))
    for _ in range(MIN_STEPS):
        step()
    wait()
    del step
    graph = graph_from_npz(Path(job.graph))
    memory = DeviceMemory(job.device) if gpu else HostMemory()
    if job.max_bytes is not None and gpu:
        total = torch.cuda.get_device_properties(job.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, job.max_bytes / total), torch.device(job.device))
    elif job.max_bytes is not None:
        limit_memory(job.max_bytes)

    start = time.perf_counter()
    step, classifier = _prepare(job, graph)
    wait()
    prepare_seconds = time.perf_counter() - start
    warm = _warm_up(step, wait, job)
    preparing_peak = memory.peak()
    memory.restart()
    count = max(MIN_STEPS, min(job.steps, int(job.budget / max(warm[-1], 1e-9)))) if job.steps > 2 else job.steps
    seconds = [_timed(step, wait, job.max_seconds) for _ in range(count)]
    step_peak = memory.peak()
    result: dict[str, Any] = {
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
        result["trained_parameters"] = classifier.num_parameters_
        try:
            result["work"] = step_work(classifier)._asdict()
        except ConfigError as error:  # report the other results without a floor
            result["no_floor"] = str(error)
    return result


def _prepare(job: StepJob, graph: KnowledgeGraph) -> tuple[Step, Estimator | None]:
    if job.side == "ours":
        return rgcn_training_step(graph, job.workload, job.device)
    return peer_training_step(graph, job.workload, job.device, job.side), None


def _warm_up(step: Step, wait: Callable[[], Any], job: StepJob) -> list[float]:
    """Take steps that are not counted: three, ten on a GPU, fewer if they would use up the budget."""
    num_steps = WARM_STEPS[job.device.split(":")[0]]
    # The first step prepares what later ones reuse, so it may take twice the time.
    seconds = [_timed(step, wait, None if job.max_seconds is None else 2 * job.max_seconds)]
    while len(seconds) < num_steps and sum(seconds) < job.budget:
        seconds.append(_timed(step, wait, job.max_seconds))
    return seconds


def _timed(step: Step, wait: Callable[[], Any], max_seconds: float | None) -> float:
    start = time.perf_counter()
    step()
    wait()
    seconds = time.perf_counter() - start
    if max_seconds is not None and seconds > max_seconds:
        raise TimeoutError(f"a step took {seconds:.3g} s")
    return seconds


class HostMemory:
    """Measure peaks of this process's memory beyond what it uses when this object is created, the process at rest.

    Only Linux can reset the peak; elsewhere a peak below an earlier one reads as zero.
    """

    def __init__(self) -> None:
        """Measure the process at rest."""
        gc.collect()
        release_memory()  # otherwise the next allocations would reuse freed pages unnoticed
        self.method = "VmHWM" if _reset_peak() else "ru_maxrss"
        self.bytes_at_rest = self._bytes("VmRSS")

    def _bytes(self, name: str) -> int:
        if self.method == "VmHWM":
            return read_proc_bytes(PROCESS_STATUS_FILE, name) or 0
        unit = 1 if sys.platform == "darwin" else 1024
        return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def peak(self) -> int:
        """Return the peak, in bytes beyond the process at rest, since creation or `restart`."""
        return max(self._bytes("VmHWM") - self.bytes_at_rest, 0)

    def restart(self) -> None:
        """Reset the peak, but not the process at rest."""
        if self.method == "VmHWM":
            _reset_peak()


class DeviceMemory:
    """Measure peaks of a GPU's memory: the bytes of PyTorch's tensors, nothing subtracted."""

    method = "cuda"

    def __init__(self, device: str) -> None:
        """Free cached memory."""
        self._device = torch.device(device)
        gc.collect()
        torch.cuda.empty_cache()
        self.restart()

    def peak(self) -> int:
        """Return the peak in bytes since creation or `restart`."""
        return int(torch.cuda.max_memory_allocated(self._device))

    def restart(self) -> None:
        """Reset the peak."""
        torch.cuda.reset_peak_memory_stats(self._device)


def limit_memory(num_bytes: int) -> None:
    """Limit this process to this many bytes more than it has now, so that an allocation fails, not the machine."""
    size = read_proc_bytes(PROCESS_STATUS_FILE, "VmSize")
    if size is not None:
        resource.setrlimit(resource.RLIMIT_AS, (size + num_bytes, resource.RLIM_INFINITY))


def _reset_peak() -> bool:
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return read_proc_bytes(PROCESS_STATUS_FILE, "VmHWM") is not None
