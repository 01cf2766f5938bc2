"""A training that takes its steps one at a time, and can be stopped, saved and resumed with the same result.

On a GPU, steps that do not wait for the device are recorded as CUDA graphs and replayed.
"""

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

from rgcn.conversion import convert_optimizer_state
from rgcn.errors import ConfigError, DataError
from rgcn.nn.row_tables import arrange_weights, copy_stored_like, find_moved_rows, partitions_by_name, take_stored_rows
from rgcn.placement import LOCAL, NodePartition, Placement, Traffic
from rgcn.sampling.edges import seed_words
from rgcn.training.history import Metric, TrainingReport

# cuBLAS sums in a fixed order only if this variable has one of these values.
CUBLAS_WORKSPACE, FIXED_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG", (":4096:8", ":16:8")
WARM_UP = 3  # steps before recording, in which libraries and the optimizer set themselves up

Result = TypeVar("Result")


class Trainer(ABC):
    """Takes the steps of a training.

    Attributes:
        network: The network.
        optimizer: The optimizer.
        generator: The generator of all randomness of the steps.
        placement: Which part of each batch is local.
        step_bytes: About how much memory a step takes besides the weights; 0: little.
        steps_per_unit: Optimizer steps per `unit` of the training section: batches of an epoch, else 1.
        shares_dropout_mask: True if all ranks must draw the same dropout mask.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step_bytes = 0
    steps_per_unit = 1
    placement: Placement = LOCAL
    shares_dropout_mask = False

    @abstractmethod
    def step(self) -> Tensor:
        """Take one step; return the loss before it, on the device, without waiting for it."""

    def running(self) -> AbstractContextManager[object]:
        """Return a context in which steps are taken; batches may be prepared ahead in it."""
        return nullcontext()

    def metrics(self) -> dict[str, float]:
        """Return metrics of the last step besides its loss; called only when they are reported."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what the next steps depend on besides weights, optimizer and generator, as plain values."""
        return {}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:  # noqa: B027
        """Resume from the `state` that another trainer had after `steps_taken` steps; called before the first step."""


@dataclass(frozen=True)
class TrainingState:
    """Everything that the next steps depend on, besides configuration and data.

    Attributes:
        tensors: Tensors by name: network/…, optimizer/…, best/…, random/….
        values: Plain values, ready for JSON.
        partitions: The local nodes of tensors that have rows of local nodes only, by name.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    partitions: dict[str, NodePartition] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix/`, by their names without it."""
        cut = len(prefix) + 1
        return {name[cut:]: tensor for name, tensor in self.tensors.items() if name.startswith(f"{prefix}/")}

    def local(self, part: str) -> set[str]:
        """Return the names in network/… or best/… of tensors that have rows of local nodes only."""
        return {name.removeprefix(f"{part}/") for name in self.partitions if name.startswith(f"{part}/")}

    def weights(self, part: str, network: nn.Module) -> dict[str, Tensor]:
        """Return the weights in network/… or best/…, arranged for this network, whatever the world size was.

        Raises:
            DataError: The weights are of another network.
        """
        try:
            return arrange_weights(network, self.part(part), self.local(part))
        except ValueError as error:
            raise DataError(f"the checkpoint is of another model or other data: {error}") from error


@dataclass(frozen=True)
class Schedule:
    """When a training reports and measures, and which weights it keeps.

    Attributes:
        steps: Maximum number of steps.
        watch: The validation metric that tells which weights are best; these are kept.
        patience: Number of measurements without a better one after which training stops.
        report_every: Steps between reports; measurements and the last step are always reported.
        measure: Returns validation metrics by name, such as {"mrr": 0.4}; None without validation data.
        measure_every: Steps between measurements.
    """

    steps: int
    watch: Metric
    patience: int | None = None
    report_every: int = 1
    measure: Callable[[], dict[str, float]] | None = None
    measure_every: int = 1


@dataclass
class BestWeights:
    """The weights with the best validation metric so far, its step, and how many measurements ago that was."""

    metric: float | None = None
    step: int = 0
    waited: int = 0
    weights: dict[str, Tensor] | None = None


class Fitting:
    """Takes a model's training steps one at a time, whatever its task.

        with model.fitting(graph) as fitting:
            for report in fitting:      # None after most steps
                ...                     # fitting.state() can be saved here, to resume later
            fitting.finish()

    All randomness comes from the trainer's generator or, within `with`, from PyTorch's global one, which is seeded on
    entering and restored on leaving.

    Args:
        trainer: What takes the steps.
        schedule: When to report and measure.
        seed: Seed of PyTorch's global generator.
        history: The list that reports are appended to.
        deterministic: Use only operations that sum in a fixed order.
    """

    def __init__(
        self,
        trainer: Trainer,
        schedule: Schedule,
        seed: int,
        history: list[TrainingReport],
        deterministic: bool = False,
    ) -> None:
        self.trainer, self.schedule, self.seed, self.history = trainer, schedule, seed, history
        self.network, self.optimizer, self.generator = trainer.network, trainer.optimizer, trainer.generator
        self.deterministic, self.steps, self.steps_taken = deterministic, schedule.steps, 0
        self.best = BestWeights()
        self.session_traffic, self.session_steps = Traffic(), 0
        self.stopped = False
        self.seconds_before, self.start = 0.0, time.perf_counter()
        self.since_report: list[Tensor] = []
        self._open = ExitStack()

    def step(self) -> TrainingReport | None:
        """Take one step; return a report if one is due."""
        stream = self.trainer.placement.mask_stream(self.trainer.shares_dropout_mask)
        if stream is not None:  # dropout masks depend on the number of the step
            torch.manual_seed(int(seed_words((self.seed, self.steps_taken, stream))[0]) >> 1)
        traffic = self.trainer.placement.traffic
        before = traffic.sent_bytes, traffic.min_bytes
        self.since_report.append(self.trainer.step())
        self.session_traffic.add(traffic.sent_bytes - before[0], traffic.min_bytes - before[1])
        self.session_steps += 1
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
                f"the loss is not finite at step {self.steps_taken}: lower the learning rate, clip gradients, or "
                "check features"
            )
        metrics = self.trainer.metrics()
        if measure:
            measured = measure()
            metrics |= {f"valid_{name}": value for name, value in measured.items()}
            if schedule.watch.name in measured:
                self._keep_if_best(measured[schedule.watch.name])
        self.history.append(TrainingReport(self.units_taken, loss, self.seconds, metrics))
        return self.history[-1]

    def _keep_if_best(self, metric: float) -> None:
        """Copy the weights if this metric is the best so far."""
        best = self.best
        if best.metric is None or self.schedule.watch.better(metric, best.metric):
            weights = {name: copy_stored_like(tensor, tensor) for name, tensor in self.network.state_dict().items()}
            self.best = BestWeights(metric, self.steps_taken, 0, weights)
        else:
            best.waited += 1

    @property
    def units_taken(self) -> int:
        """Number of complete epochs or steps, whichever the configuration counts (`TrainingSection.unit`)."""
        return self.steps_taken // self.trainer.steps_per_unit

    @property
    def seconds(self) -> float:
        """Time spent training so far, in all sessions."""
        return self.seconds_before + time.perf_counter() - self.start

    @property
    def device(self) -> torch.device:
        """The device of the training."""
        return self.generator.device

    def stop(self) -> None:
        """Take no further steps, as if the last one had been taken."""
        self.stopped = True

    @property
    def finished(self) -> bool:
        """True if no further steps are taken."""
        patience = self.schedule.patience
        exhausted = patience is not None and self.best.waited >= patience
        return self.stopped or exhausted or self.steps_taken >= self.steps

    def __iter__(self) -> Iterator[TrainingReport | None]:
        while not self.finished:
            yield self.step()

    def finish(self) -> None:
        """Load the best weights, if validation told which are best, and end training mode."""
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
        """Return what `restore` needs to take the same next steps in another fitting of the same model and data.

        Nothing is copied: save or copy it before the next step.
        """
        best, tensors, partitions = self.best, dict[str, Tensor](), dict[str, NodePartition]()
        local = partitions_by_name(self.network)
        omitted = {name.removesuffix("trained") + part for name in local for part in ("still", "position")}
        for part, weights in (("network", self.network.state_dict()), ("best", best.weights or {})):
            tensors |= {f"{part}/{name}": tensor for name, tensor in weights.items() if name not in omitted}
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
            "epochs_taken": self.units_taken,
            "device": self.device.type,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "trainer": self.trainer.state(),
            "best": {"figure": best.metric, "step": best.step, "waited": best.waited},
        }
        return TrainingState(tensors, values, partitions)

    def restore(self, state: TrainingState) -> None:
        """Resume from a state; within `with`, before the first step.

        Raises:
            DataError: The state is of another model, other data, or another kind of device.
        """
        parameters = self._parameters()
        tensors, values = convert_optimizer_state(state.tensors, list(parameters)), state.values
        state = replace(state, tensors=tensors)
        if values["device"] != self.device.type:
            raise DataError(
                f"the checkpoint was taken on {values['device']}, and this is {self.device.type}, which draws other "
                "random numbers: choose the same device"
            )
        try:
            self.network.load_state_dict(state.weights("network", self.network))
        except RuntimeError as error:
            raise DataError(f"the checkpoint is of another model or other data: {error}") from error
        # Not by the optimizer's `load_state_dict`: it would replace the tensor from which a recorded step reads its
        # learning rate.
        saved = state.part("network")
        moved = find_moved_rows(self.network, saved, state.local("network"))
        for key, tensor in state.part("optimizer").items():
            name, _, kind = key.rpartition("/")
            if name not in parameters:
                raise DataError(f"the checkpoint is of another model: this one has no parameter {name}")
            parameter = parameters[name]
            if name in moved and tensor.ndim and len(tensor) == len(saved[name]):
                tensor = take_stored_rows(moved[name][: len(parameter)], tensor)
            self.optimizer.state[parameter][kind] = copy_stored_like(parameter, tensor)
        self.generator.set_state(tensors["random/own"].cpu())
        torch.set_rng_state(tensors["random/global"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random/cuda"].cpu(), self.device)
        weights = state.weights("best", self.network) if state.part("best") else {}
        best = {name: tensor.to(self.device) for name, tensor in weights.items()}
        saved_best = values["best"]
        self.best = BestWeights(saved_best["figure"], saved_best["step"], saved_best["waited"], best or None)
        self.steps_taken, self.seconds_before = values["steps_taken"], values["seconds"]
        self.stopped = values["stopped"]
        self.since_report = list(tensors["losses"].to(self.device).unbind()) if "losses" in tensors else []
        self.trainer.restore(self.steps_taken, values["trainer"])

    def _parameters(self) -> dict[str, Tensor]:
        """Return the optimizer's parameters by their names in the network."""
        names = {parameter: name for name, parameter in self.network.named_parameters()}
        optimized = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        return {names[parameter]: parameter for parameter in optimized if parameter in names}


@contextmanager
def _fixed_order() -> Iterator[None]:
    """Use PyTorch's deterministic algorithms within the context."""
    if os.environ.get(CUBLAS_WORKSPACE) not in FIXED_WORKSPACES:  # cuBLAS reads it once, so it is too late to set it
        found = os.environ.get(CUBLAS_WORKSPACE, "not set")
        raise ConfigError(
            f"training.deterministic on a GPU needs {CUBLAS_WORKSPACE}={FIXED_WORKSPACES[0]} in the environment, where "
            f"it is {found}: set it before Python starts, or in Python before anything computes on the GPU; commands "
            "of rgcn set it if it is missing"
        )
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class StepRecording(Generic[Result]):
    """Calls a step a few times, then records it as a CUDA graph and replays it: hundreds of launches become one.

    Every call is a real step, so that a recorded training takes exactly the steps of an unrecorded one. The step must
    not wait for the device, and must do the same for all batches of the same shape. A batch of another shape is not
    replayed.

    Args:
        step: The step; it returns a tensor or several.
        generator: The generator of all randomness of the step.
        device: The GPU.
    """

    def __init__(self, step: Callable[..., Result], generator: torch.Generator, device: torch.device) -> None:
        self.step, self.generator, self.device = step, generator, device
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: tuple[Tensor, ...] = ()
        self.result: Result | None = None

    def __call__(self, *batch: Tensor) -> Result:
        """Take a step on a batch; return a copy of its result."""
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._step_aside(batch)
        if self.graph is None:
            self._record(batch)
        assert self.graph is not None
        assert self.result is not None
        if [new.shape for new in batch] != [recorded.shape for recorded in self.batch]:
            return self.step(*batch)
        for new, recorded in zip(batch, self.batch, strict=True):
            if new.data_ptr() != recorded.data_ptr():
                recorded.copy_(new, non_blocking=True)
        self.graph.replay()
        result: Any = self.result  # copied, since the next replay overwrites it
        is_tensor = isinstance(result, Tensor)
        return result.clone() if is_tensor else tuple(part.clone() for part in result)  # type: ignore[return-value]

    def _step_aside(self, batch: tuple[Tensor, ...]) -> Result:
        """Take a step on a stream of its own, as recording requires."""
        stream = _side_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            result = self.step(*batch)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return result

    def _record(self, batch: tuple[Tensor, ...]) -> None:
        self.batch = tuple(part.clone() for part in batch)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        # Other threads, such as the one that draws batches ahead, are not recorded. The garbage collector must not free
        # another recording meanwhile.
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, stream=_side_stream(self.device), capture_error_mode="thread_local"):
                self.result = self.step(*self.batch)
        finally:
            if is_collecting:
                gc.enable()
        self.graph = graph

    def forget(self) -> None:
        """Free the recording and its memory; the next step is like the first one."""
        if self.graph is not None:
            torch.cuda.synchronize(self.device)  # the last replay may still be running
        self.calls, self.graph, self.batch, self.result = 0, None, (), None


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return one stream for all recordings: libraries keep tens of megabytes of workspace for each stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
