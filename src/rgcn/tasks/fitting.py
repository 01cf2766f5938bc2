"""A training in progress: stopped after any step, written down, and continued to the very same end."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from rgcn.config import LinkTrainingConfig, NodeTrainingConfig
from rgcn.errors import DataError

Report = TypeVar("Report")


@dataclass(frozen=True)
class TrainingState:
    """Everything the steps to come depend on, besides configuration and data.

    tensors  by name: network/…, optimizer/…, best/…, random/…
    values   plain ones, ready for JSON
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix/`, without it."""
        cut = len(prefix) + 1
        return {name[cut:]: tensor for name, tensor in self.tensors.items() if name.startswith(f"{prefix}/")}


class Trainer(Protocol):
    """What takes the steps, of either task."""

    @property
    def network(self) -> nn.Module: ...

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def generator(self) -> torch.Generator: ...

    @property
    def training(self) -> NodeTrainingConfig | LinkTrainingConfig: ...


class BestWeights:
    """The weights with the best validation figure so far, and how long ago that was.

    score: higher is better. Without offers nothing is remembered and nothing stops.
    """

    def __init__(self, network: nn.Module, patience: int | None) -> None:
        self.network, self.patience = network, patience
        self.score, self.step, self.waited = float("-inf"), 0, 0
        self.weights: dict[str, Tensor] | None = None

    def offer(self, score: float, step: int) -> None:
        """Remember the network as it is, if this is its best score."""
        if score > self.score:
            self.score, self.step, self.waited = score, step, 0
            self.weights = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        else:
            self.waited += 1

    @property
    def exhausted(self) -> bool:
        return self.patience is not None and self.waited >= self.patience

    def put_back(self) -> None:
        if self.weights is not None:
            self.network.load_state_dict(self.weights)

    def state(self) -> TrainingState:
        tensors = {f"best/{name}": tensor for name, tensor in (self.weights or {}).items()}
        score = None if self.weights is None else self.score
        return TrainingState(tensors, {"best": {"score": score, "step": self.step, "waited": self.waited}})

    def restore(self, state: TrainingState) -> None:
        kept = state.values["best"]
        self.score = float("-inf") if kept["score"] is None else kept["score"]
        self.step, self.waited = kept["step"], kept["waited"]
        weights = state.part("best")
        device = next(self.network.parameters()).device
        self.weights = {name: tensor.to(device) for name, tensor in weights.items()} or None


class Fitting(ABC, Generic[Report]):
    """Takes a model's training steps one at a time.

        with model.fitting(graph) as fitting:
            for report in fitting:      # None after most steps, where there is nothing to say
                ...                     # fitting.state() here is enough to go on from here
            fitting.finish()

    Everything random comes from generators of its own or, within `with`, from PyTorch's global one, which is seeded on
    entering and given back as it was on leaving.
    """

    def __init__(self, trainer: Trainer, seed: int) -> None:
        self.network, self.optimizer, self.generator = trainer.network, trainer.optimizer, trainer.generator
        self.seed, self.steps = seed, trainer.training.epochs
        self.deterministic = trainer.training.deterministic
        self.steps_taken = 0
        self.best = BestWeights(self.network, trainer.training.patience)
        self._open = ExitStack()

    @abstractmethod
    def step(self) -> Report | None:
        """Take one step; what is to be reported after it, if anything."""

    @property
    def device(self) -> torch.device:
        return self.generator.device

    @property
    def finished(self) -> bool:
        return self.steps_taken >= self.steps or self.best.exhausted

    def __iter__(self) -> Iterator[Report | None]:
        while not self.finished:
            yield self.step()

    def finish(self) -> None:
        """The best weights, where a validation figure told which they are, ready to be used."""
        self.best.put_back()
        self.network.eval()

    def __enter__(self) -> Fitting[Report]:
        cuda = [self.device] if self.device.type == "cuda" else []
        self._open.enter_context(torch.random.fork_rng(devices=cuda))
        torch.manual_seed(self.seed)
        if self.deterministic and cuda:
            self._open.enter_context(_FixedOrder())
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def state(self) -> TrainingState:
        """What `restore` needs, in a fresh fitting of the same model and data, to take the same steps from here on.

        Nothing is copied: write it down, or copy it, before the next step.
        """
        best = self.best.state()
        tensors = {f"network/{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"optimizer/{name}": tensor for name, tensor in optimizer_tensors(self.optimizer).items()}
        tensors["random/own"] = self.generator.get_state()
        tensors["random/global"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self.device)
        values = {"steps_taken": self.steps_taken, "device": self.device.type, **best.values}
        return TrainingState(tensors | best.tensors, values)

    def restore(self, state: TrainingState) -> None:
        """Go on from where `state` was taken; within `with`, before the first step."""
        if state.values["device"] != self.device.type:
            raise DataError(
                f"the checkpoint was taken on {state.values['device']}, and this is {self.device.type}: its random "
                "numbers cannot go on here; choose the same device"
            )
        try:
            self.network.load_state_dict(state.part("network"))
        except RuntimeError as error:
            raise DataError(f"the checkpoint is of another model or other data: {error}") from error
        load_optimizer(self.optimizer, state.part("optimizer"))
        self.generator.set_state(state.tensors["random/own"].cpu())
        torch.set_rng_state(state.tensors["random/global"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state.tensors["random/cuda"].cpu(), self.device)
        self.best.restore(state)
        self.steps_taken = state.values["steps_taken"]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """{"NUMBER/NAME": tensor}: what the optimizer remembers of each parameter, numbered over all groups."""
    return {
        f"{number}/{name}": tensor
        for number, parameter in enumerate(_parameters(optimizer))
        for name, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give back what `optimizer_tensors` took.

    Not `load_state_dict`: that also replaces the groups, and with them the tensor a recorded step reads its rate from.
    """
    parameters = list(_parameters(optimizer))
    for key, tensor in tensors.items():
        number, _, name = key.partition("/")
        if int(number) >= len(parameters):
            raise DataError("the checkpoint's optimizer has more parameters than this model")
        parameter = parameters[int(number)]
        optimizer.state[parameter][name] = tensor.to(parameter.device, copy=True)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


class _FixedOrder:
    """PyTorch's deterministic algorithms while it lasts; then whatever was chosen before."""

    def __enter__(self) -> None:
        # Read when cuBLAS makes its first handle: without it, its split sums may differ from call to call.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *failure: object) -> None:
        torch.use_deterministic_algorithms(self.before)
