"""A training in progress: what takes its steps; and how it is stopped after any of them, written down, and continued
to the very same end. On a GPU a step that waits for nothing is recorded, and replayed."""

from __future__ import annotations

import gc
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rgcn.conversion import converted_optimizer_state
from rgcn.errors import ConfigError, DataError
from rgcn.nn.row_tables import arranged, copy_beside, moved_rows, partitions_by_name, rows_at
from rgcn.placement import LOCAL, NodePartition, Placement, Traffic
from rgcn.sampling.edges import seed_word
from rgcn.training.history import Epoch, Metric

# cuBLAS sums in a fixed order only with one of these sizes of its work memory, by this variable.
CUBLAS_WORKSPACE, FIXED_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG", (":4096:8", ":16:8")
# Steps taken as they are before recording: libraries and the optimizer set themselves up in the first ones.
WARM_UP = 3

Result = TypeVar("Result")


class Trainer(ABC):
    """Takes the steps of a task; everything random in it comes from `generator`.

    placement           which part of each batch is local
    step_bytes          about how much memory a step takes beside the weights; 0: little
    steps_an_epoch      how many steps are one of what the configuration counts in `epochs`
    shares_dropout_mask True if all processes must draw the same dropout mask: of nodes that each of them, or one of
                        them, computes
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step_bytes = 0
    steps_an_epoch = 1
    placement: Placement = LOCAL
    shares_dropout_mask = False

    @abstractmethod
    def step(self) -> Tensor:
        """Take one step; its loss before it, on the device, not waited for."""

    def running(self) -> AbstractContextManager[object]:
        """Held while steps are taken; batches may be made ahead meanwhile."""
        return nullcontext()

    def figures(self) -> dict[str, float]:
        """What is known of the last step besides its loss; asked only where it is reported."""
        return {}

    def state(self) -> dict[str, Any]:
        """Plain values that the next steps depend on, besides weights, optimizer and generator."""
        return {}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue as another trainer would after so many steps; called before the first step."""


@dataclass(frozen=True)
class TrainingState:
    """Everything the steps to come depend on, besides configuration and data.

    tensors     by name: network/…, optimizer/…, best/…, random/…
    values      plain ones, ready for JSON
    partitions  of tensors that are the rows of this process's local nodes alone, by name: which nodes these are
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    partitions: dict[str, NodePartition] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix/`, without it."""
        cut = len(prefix) + 1
        return {name[cut:]: tensor for name, tensor in self.tensors.items() if name.startswith(f"{prefix}/")}

    def local(self, part: str) -> set[str]:
        """What of network/… or best/… is the rows of local nodes alone."""
        return {name.removeprefix(f"{part}/") for name in self.partitions if name.startswith(f"{part}/")}

    def weights(self, part: str, network: nn.Module) -> dict[str, Tensor]:
        """Of network/… or best/…, as this network holds them, however many processes wrote them."""
        try:
            return arranged(network, self.part(part), self.local(part))
        except ValueError as error:
            raise DataError(f"the checkpoint is of another model or other data: {error}") from error


@dataclass(frozen=True)
class Schedule:
    """When a training reports and measures, and what it keeps.

    steps         how many there are at most
    watch         the figure that tells which weights are best, to which training goes back in the end
    patience      measurements without a better one after which to stop
    report_every  steps between reports; a measurement is always reported, and so is the last step
    measure       validation figures by name, {"mrr": 0.4}; None where there is nothing to validate on
    measure_every steps between measurements
    """

    steps: int
    watch: Metric
    patience: int | None = None
    report_every: int = 1
    measure: Callable[[], dict[str, float]] | None = None
    measure_every: int = 1


@dataclass
class BestWeights:
    """The weights with the best validation figure so far, its step, and how many measurements ago that was."""

    figure: float | None = None
    step: int = 0
    waited: int = 0
    weights: dict[str, Tensor] | None = None


class Fitting:
    """Takes a model's training steps one at a time, whatever its task.

        with model.fitting(graph) as fitting:
            for epoch in fitting:       # None after most steps, where there is nothing to say
                ...                     # fitting.state() here is enough to go on from here
            fitting.finish()

    Everything random comes from generators of its own or, within `with`, from PyTorch's global one, which is seeded on
    entering and given back as it was on leaving.
    """

    def __init__(
        self, trainer: Trainer, schedule: Schedule, seed: int, history: list[Epoch], deterministic: bool = False
    ) -> None:
        self.trainer, self.schedule, self.seed, self.history = trainer, schedule, seed, history
        self.network, self.optimizer, self.generator = trainer.network, trainer.optimizer, trainer.generator
        self.deterministic, self.steps, self.steps_taken = deterministic, schedule.steps, 0
        self.best = BestWeights()
        self.exchanged, self.steps_here = Traffic(), 0  # by the steps of this session
        self.stopped = False
        self.seconds_before, self.start = 0.0, time.perf_counter()
        self.since_report: list[Tensor] = []
        self._open = ExitStack()

    def step(self) -> Epoch | None:
        """Take one step; a report after it, if it is time for one."""
        stream = self.trainer.placement.mask_stream(self.trainer.shares_dropout_mask)
        if stream is not None:  # what is dropped follows from the step
            torch.manual_seed(int(seed_word((self.seed, self.steps_taken, stream))[0]) >> 1)
        traffic = self.trainer.placement.traffic
        before = traffic.sent, traffic.least
        self.since_report.append(self.trainer.step())
        self.exchanged.count(traffic.sent - before[0], traffic.least - before[1])
        self.steps_here += 1
        self.steps_taken += 1
        schedule, number = self.schedule, self.steps_taken
        last = number == self.steps
        measure = schedule.measure if last or number % schedule.measure_every == 0 else None
        if not (measure or last or number % schedule.report_every == 0):
            return None
        loss = float(torch.stack(self.since_report).mean())
        self.since_report.clear()
        if not math.isfinite(loss):
            raise DataError(
                f"the loss is not finite by epoch {self.epochs_taken}: lower the learning rate, clip gradients, or "
                "check features"
            )
        figures = self.trainer.figures()
        if measure:
            measured = measure()
            figures |= {f"valid_{name}": value for name, value in measured.items()}
            if schedule.watch.name in measured:
                self._offer(measured[schedule.watch.name])
        self.history.append(Epoch(self.epochs_taken, loss, self.seconds, figures))
        return self.history[-1]

    def _offer(self, figure: float) -> None:
        """Remember the network as it is, if this is its best figure."""
        best = self.best
        if best.figure is None or self.schedule.watch.better(figure, best.figure):
            weights = {name: copy_beside(tensor, tensor) for name, tensor in self.network.state_dict().items()}
            self.best = BestWeights(figure, self.steps_taken, 0, weights)
        else:
            best.waited += 1

    @property
    def epochs_taken(self) -> int:
        """Whole ones, of what the configuration counts in `epochs`."""
        return self.steps_taken // self.trainer.steps_an_epoch

    @property
    def seconds(self) -> float:
        """Spent training so far, in every session."""
        return self.seconds_before + time.perf_counter() - self.start

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def stop(self) -> None:
        """Take no further step, as if the last one had been taken."""
        self.stopped = True

    @property
    def finished(self) -> bool:
        patience = self.schedule.patience
        exhausted = patience is not None and self.best.waited >= patience
        return self.stopped or exhausted or self.steps_taken >= self.steps

    def __iter__(self) -> Iterator[Epoch | None]:
        while not self.finished:
            yield self.step()

    def finish(self) -> None:
        """The best weights, where a validation figure told which they are, ready to be used."""
        if self.best.weights is not None:
            self.network.load_state_dict(self.best.weights)
        self.network.eval()

    def __enter__(self) -> Fitting:
        cuda = [self.device] if self.device.type == "cuda" else []
        self._open.enter_context(torch.random.fork_rng(devices=cuda))
        torch.manual_seed(self.seed)
        if self.deterministic and cuda:
            self._open.enter_context(_fixed_order())
        self._open.enter_context(self.trainer.running())
        self.start = time.perf_counter()
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def state(self) -> TrainingState:
        """What `restore` needs, in a fresh fitting of the same model and data, to take the same steps from here on.

        Nothing is copied: write it down, or copy it, before the next step.
        """
        best, tensors, partitions = self.best, dict[str, Tensor](), dict[str, NodePartition]()
        local = partitions_by_name(self.network)
        left_out = {name.removesuffix("trained") + part for name in local for part in ("still", "position")}
        for part, weights in (("network", self.network.state_dict()), ("best", best.weights or {})):
            tensors |= {f"{part}/{name}": tensor for name, tensor in weights.items() if name not in left_out}
            partitions |= {f"{part}/{name}": local[name] for name in local if name in weights}
        for name, parameter in self._parameters().items():
            for kind, tensor in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{name}/{kind}"] = tensor
                if name in local and tensor.ndim and len(tensor) == len(parameter):
                    partitions[f"optimizer/{name}/{kind}"] = local[name]
        tensors["random/own"] = self.generator.get_state()
        tensors["random/global"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self.device)
        if self.since_report:
            tensors["losses"] = torch.stack(self.since_report)
        values = {
            "steps_taken": self.steps_taken,
            "epochs_taken": self.epochs_taken,
            "device": self.device.type,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "trainer": self.trainer.state(),
            "best": {"figure": best.figure, "step": best.step, "waited": best.waited},
        }
        return TrainingState(tensors, values, partitions)

    def restore(self, state: TrainingState) -> None:
        """Go on from where `state` was taken; within `with`, before the first step."""
        parameters = self._parameters()
        tensors, values = converted_optimizer_state(state.tensors, list(parameters)), state.values
        state = replace(state, tensors=tensors)
        if values["device"] != self.device.type:
            raise DataError(
                f"the checkpoint was taken on {values['device']}, and this is {self.device.type}: its random numbers "
                "cannot go on here; choose the same device"
            )
        try:
            self.network.load_state_dict(state.weights("network", self.network))
        except RuntimeError as error:
            raise DataError(f"the checkpoint is of another model or other data: {error}") from error
        # Not the optimizer's `load_state_dict`: that also replaces the groups, and with them the tensor a recorded step
        # reads its rate from.
        kept = state.part("network")
        moved = moved_rows(self.network, kept, state.local("network"))
        for key, tensor in state.part("optimizer").items():
            name, _, kind = key.rpartition("/")
            if name not in parameters:
                raise DataError(f"the checkpoint's optimizer has a parameter that this model lacks: {name}")
            parameter = parameters[name]
            if name in moved and tensor.ndim and len(tensor) == len(kept[name]):
                tensor = rows_at(moved[name][: len(parameter)], tensor)
            self.optimizer.state[parameter][kind] = copy_beside(parameter, tensor)
        self.generator.set_state(tensors["random/own"].cpu())
        torch.set_rng_state(tensors["random/global"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random/cuda"].cpu(), self.device)
        weights = state.weights("best", self.network) if state.part("best") else {}
        best = {name: tensor.to(self.device) for name, tensor in weights.items()}
        self.best = BestWeights(**values["best"], weights=best or None)
        self.steps_taken, self.seconds_before = values["steps_taken"], values["seconds"]
        self.stopped = values["stopped"]
        self.since_report = list(tensors["losses"].to(self.device).unbind()) if "losses" in tensors else []
        self.trainer.restore(self.steps_taken, values["trainer"])

    def _parameters(self) -> dict[str, Tensor]:
        """The optimizer's parameters by their names in the network."""
        names = {parameter: name for name, parameter in self.network.named_parameters()}
        moved = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        return {names[parameter]: parameter for parameter in moved if parameter in names}


@contextmanager
def _fixed_order() -> Iterator[None]:
    """PyTorch's deterministic algorithms while it lasts; then whatever was chosen before."""
    if os.environ.get(CUBLAS_WORKSPACE) not in FIXED_WORKSPACES:  # cuBLAS reads it once, so it is too late to set it
        found = os.environ.get(CUBLAS_WORKSPACE, "not set")
        raise ConfigError(
            f"training.deterministic on a GPU needs {CUBLAS_WORKSPACE}={FIXED_WORKSPACES[0]} in the environment, and "
            f"there it is {found}: set it before Python starts, or in Python before anything computes on the GPU; "
            "commands of rgcn set it where it is missing"
        )
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class StepRecording(Generic[Result]):
    """Calls `step(*batch)` a few times, then records it as a CUDA graph and replays it from there on: hundreds of small
    launches become one.

    Every call is a real step, so that a recorded training takes exactly the steps an unrecorded one does. The step must
    wait for nothing, must treat every batch of the same shape alike, and returns a tensor or several. A batch of
    another shape is stepped as it is.
    """

    def __init__(self, step: Callable[..., Result], generator: torch.Generator, device: torch.device) -> None:
        self.step, self.generator, self.device = step, generator, device
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: tuple[Tensor, ...] = ()
        self.result: Result | None = None

    def __call__(self, *batch: Tensor) -> Result:
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside(batch)
        if self.graph is None:
            self._record(batch)
        assert self.graph is not None
        assert self.result is not None
        if [given.shape for given in batch] != [kept.shape for kept in self.batch]:
            return self.step(*batch)
        for given, kept in zip(batch, self.batch, strict=True):
            if given.data_ptr() != kept.data_ptr():
                kept.copy_(given, non_blocking=True)
        self.graph.replay()
        # Copied, or each of several: the next replay writes over what this one gave.
        found: Any = self.result
        several = not isinstance(found, Tensor)
        return tuple(part.clone() for part in found) if several else found.clone()  # type: ignore[return-value]

    def _aside(self, batch: tuple[Tensor, ...]) -> Result:
        """A step on a stream of its own, as recording wants it."""
        stream = _side_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            result = self.step(*batch)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return result

    def _record(self, batch: tuple[Tensor, ...]) -> None:
        self.batch = tuple(given.clone() for given in batch)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        # Other threads go on meanwhile, such as the one that draws batches ahead: their work is no part of this. What
        # is thrown away meanwhile may be another recording, which must not be touched now.
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, stream=_side_stream(self.device), capture_error_mode="thread_local"):
                self.result = self.step(*self.batch)
        finally:
            if collects:
                gc.enable()
        self.graph = graph

    def forget(self) -> None:
        """Give the recording and its memory back; the next step is as the first was."""
        if self.graph is not None:
            torch.cuda.synchronize(self.device)  # it may still be running
        self.calls, self.graph, self.batch, self.result = 0, None, (), None


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings: libraries keep tens of megabytes of workspace for every stream they meet."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
