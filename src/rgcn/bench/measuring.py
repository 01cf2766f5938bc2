"""One measurement of a side, our training step or the same with PyG's layers, in a process of its own: no side inherits
the other's memory, caches or thread pools.

The process at rest has imported everything, has taken a few steps on a tiny graph (so that compiled kernels and thread
pools are there) and has loaded the graph. Memory and time beyond that are the step's own.
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

from rgcn.bench.floor import Speeds, measure_speeds, step_work, waiting_for
from rgcn.bench.graphs import graph_from_npz, random_shape, shaped
from rgcn.errors import ConfigError, RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.models import Estimator, NodeClassifier
from rgcn.system.lazy import import_extra
from rgcn.system.memory import STATUS, give_back, size_in

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CLEAR = Path("/proc/self/clear_refs")
TINY_EDGES = 200
FEWEST_STEPS = 3
WARM_STEPS = {"cpu": 3, "cuda": 10}
MODELS = ("rgcn", "e-rgcn")
PEERS = {"fast": "FastRGCNConv", "plain": "RGCNConv"}
NO_PEERS = "torch-geometric is not installed, so there is no peer to compare with: pip install 'rgcn[bench]'"
# A first layer of full matrices has relations · nodes rows; beyond this many other people's layers need gigabytes.
MOST_ROWS_WITHOUT_BASES = 1_000_000

Step = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """One network and how it learns. `hidden`, `bases` and `l2_penalty` are rgcn's, the other two e-rgcn's."""

    model: str
    hidden: int = 16
    bases: int | None = None
    l2_penalty: float = 0.0
    embedding: int = 32
    weight_decay: float = 0.0

    def settings(self) -> dict[str, Any]:
        """As arguments of `rgcn.NodeClassifier`."""
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


def workload_for(
    graph: str, model: str, num_nodes: int, num_relations: int, hidden: int | None = None, bases: int | None = None
) -> Workload:
    """The settings published for a graph and model, or a guess by size; `hidden` and `bases` override (bases 0: none).

    >>> workload_for("am-shaped", "rgcn", 246_728, 122)
    Workload(model='rgcn', hidden=10, bases=40, l2_penalty=0.0005, embedding=32, weight_decay=0.0)
    """
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    if model == "e-rgcn":
        return EMBEDDED
    large = 2 * num_nodes * num_relations > MOST_ROWS_WITHOUT_BASES
    guess = Workload("rgcn", bases=40 if large else None)
    workload = PUBLISHED.get(graph.removesuffix("-shaped").removesuffix("-full"), guess)
    return replace(
        workload,
        hidden=workload.hidden if hidden is None else hidden,
        bases=workload.bases if bases is None else bases or None,
    )


def peers_installed() -> bool:
    return find_spec("torch_geometric") is not None


def our_step(graph: KnowledgeGraph, workload: Workload, device: str) -> tuple[Step, NodeClassifier]:
    """A function that takes one of our training steps, and the classifier it trains."""
    classifier = NodeClassifier(seed=0, device=device, **workload.settings()).prepare(graph)
    return classifier.training_step(), classifier


def peer_step(graph: KnowledgeGraph, workload: Workload, device: str, peer: str) -> Step:
    """The same network of two layers from PyG, as its users write it: the whole graph, inverses as relations.

    PyG's layers have a root weight, a full matrix, where ours have a self-loop among the relations.
    """
    if workload.model != "rgcn":
        raise ConfigError(f"PyG has no {workload.model}")
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
    graph: str  # an .npz file (see `graph_to_npz`)
    side: str  # "ours", or a peer: "fast", "plain"
    workload: Workload
    device: str = "cpu"
    steps: int = 20
    budget: float = 20.0  # seconds that timed steps may take together; slow ones are taken fewer times, at least three
    max_seconds: float | None = None  # give up where a step takes longer
    max_bytes: int | None = None  # give up where more memory is needed, counted from the process at rest
    floor: bool = False  # also count the least a step must do (ours only)


def measure_apart(job: StepJob) -> dict[str, Any]:
    """`measure` in a new process; one that dies is reported as {"failed": why}."""
    try:
        return _run(asdict(job), patience=600 + 10 * job.budget + 10 * (job.max_seconds or 0))
    except RgcnError as error:
        return {"failed": str(error)}


def speeds_apart(device: str) -> Speeds:
    """What a device can do, measured in a process that ends again."""
    return Speeds(**_run({"speeds": device}, patience=600))


def measure_here(job: StepJob) -> dict[str, Any]:
    """`measure` in this process: saves the start of a new one, and is fair on a GPU, whose memory PyTorch counts."""
    if not job.device.startswith("cuda"):
        raise ConfigError("only a GPU can be measured in one process: a CPU's memory is the process's own")
    return measure(replace(job, max_bytes=None))  # a limit would outlast the measurement


def _run(asked: dict[str, Any], patience: float) -> dict[str, Any]:
    command = [sys.executable, "-c", "from rgcn.bench.measuring import child; child()", json.dumps(asked)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise RgcnError(f"ran out of time: no result after {patience:.0f} s") from None
    if done.returncode:
        raise RgcnError(_why(done.returncode, done.stderr))
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _why(code: int, stderr: str) -> str:
    if code == -signal.SIGKILL:
        return "ran out of memory: the system ended the process"
    last = stderr.strip().splitlines()[-1] if stderr.strip() else f"exit status {code}"
    return f"ran out of memory: {last}" if "bad_alloc" in stderr or "MemoryError" in last else last


def child() -> None:
    """What a measuring process does: a job, or {"speeds": DEVICE}; it says in one line of JSON what it found."""
    given = json.loads(sys.argv[1])
    job = None if "speeds" in given else TypeAdapter(StepJob).validate_python(given)
    print(json.dumps(measure_speeds(given["speeds"])._asdict() if job is None else measure(job)))


def measure(job: StepJob) -> dict[str, Any]:
    """Seconds of a step (the median), memory and more; or {"failed": why} where time or memory did not suffice."""
    try:
        return _measure(job)
    except TimeoutError as error:
        return {"failed": f"ran out of time: {error}"}
    except (MemoryError, RuntimeError) as error:
        words = str(error) or type(error).__name__
        if not isinstance(error, MemoryError) and not any(sign in words.lower() for sign in ("memory", "alloc")):
            raise
        return {"failed": f"ran out of memory: {words.strip().splitlines()[0][:160]}"}


def _measure(job: StepJob) -> dict[str, Any]:
    gpu, wait = torch.device(job.device).type == "cuda", waiting_for(job.device)
    step, _ = _prepare(job, shaped(random_shape(TINY_EDGES)))
    for _ in range(FEWEST_STEPS):
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
        found["trained_parameters"] = classifier.num_parameters_
        try:
            found["work"] = step_work(classifier)._asdict()
        except ConfigError as error:  # a floor is one more figure, no reason to lose the others
            found["no_floor"] = str(error)
    return found


def _prepare(job: StepJob, graph: KnowledgeGraph) -> tuple[Step, Estimator | None]:
    if job.side == "ours":
        return our_step(graph, job.workload, job.device)
    return peer_step(graph, job.workload, job.device, job.side), None


def _warm_up(step: Step, wait: Callable[[], Any], job: StepJob) -> list[float]:
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
        raise TimeoutError(f"a step took {seconds:.3g} s")
    return seconds


class HostMemory:
    """Peaks of this process's memory over what it holds when this is made: the process at rest.

    Only Linux forgets its peak when asked; elsewhere a peak below an earlier one reads as zero.
    """

    def __init__(self) -> None:
        gc.collect()
        give_back()  # lest the next allocations use freed pages unseen
        self.method = "VmHWM" if _forget_peak() else "ru_maxrss"
        self.at_rest = self._held("VmRSS")

    def _held(self, name: str) -> int:
        if self.method == "VmHWM":
            return size_in(STATUS, name) or 0
        unit = 1 if sys.platform == "darwin" else 1024
        return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def peak(self) -> int:
        """Most bytes over the process at rest since it was made or `restart` was called."""
        return max(self._held("VmHWM") - self.at_rest, 0)

    def restart(self) -> None:
        """Forget the peak, not what the process at rest held."""
        if self.method == "VmHWM":
            _forget_peak()


class DeviceMemory:
    """The same of a GPU: bytes that PyTorch's tensors hold, nothing subtracted."""

    method = "cuda"

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        gc.collect()
        torch.cuda.empty_cache()
        self.restart()

    def peak(self) -> int:
        return int(torch.cuda.max_memory_allocated(self._device))

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


def limit_memory(more: int) -> None:
    """Let this process have so many bytes more than it has now; beyond, an allocation fails instead of the machine."""
    size = size_in(STATUS, "VmSize")
    if size is not None:
        resource.setrlimit(resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))


def _forget_peak() -> bool:
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return size_in(STATUS, "VmHWM") is not None
