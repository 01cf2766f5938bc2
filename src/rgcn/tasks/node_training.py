"""Training steps of node classification: one loss over all training labels, on the whole graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig, NodeTrainingConfig
from rgcn.errors import DataError
from rgcn.graph import NodeLabels
from rgcn.kernels.dispatch import own_threads
from rgcn.nn import RelationalEncoder
from rgcn.nn.decompositions import BasisRows
from rgcn.nn.encoder import EmbeddingInput
from rgcn.optim import Adam
from rgcn.tasks.fitting import Fitting
from rgcn.tasks.recording import StepRecording


@dataclass(frozen=True)
class Epoch:
    """What one epoch of training did."""

    number: int
    loss: float
    train_accuracy: float
    valid_loss: float | None
    valid_accuracy: float | None
    seconds: float


class NodeTrainer:
    """Takes steps on the training labels. All randomness but that of dropout follows from its own generator."""

    def __init__(
        self,
        network: RelationalEncoder,
        adjacency: RelationalAdjacency,
        labels: NodeLabels,
        model: NodeModelConfig,
        training: NodeTrainingConfig,
        seed: int,
    ) -> None:
        self.network, self.adjacency, self.labels = network, adjacency, labels
        self.layers, self.training = model.layers, training
        nodes, classes = labels.of("train")
        self.target = torch.from_numpy(classes.copy()).to(adjacency.device)
        self.class_weight = _class_weights(training, classes, labels.num_classes, adjacency.device)
        self.field = self.field_of(nodes)
        if isinstance(network.source, EmbeddingInput) and network.source.rows.all_trained:
            # Every row is updated anyway: no copy of some of them.
            self.field = self.field.reading_all(adjacency.num_sources)
        self.optimizer = _optimizer(network, training)
        self.generator = torch.Generator(device=adjacency.device).manual_seed(seed)
        self.step = self._fastest()

    def field_of(self, nodes: NDArray[np.int64]) -> ReceptiveField:
        """What the network must compute for these nodes."""
        wanted = torch.from_numpy(np.array(nodes)).to(self.adjacency.device)
        return ReceptiveField.of(self.adjacency, wanted, self.layers)

    def _fastest(self) -> Callable[[], tuple[Tensor, Tensor]]:
        """A function that takes one step and returns (loss, logits) from before it."""
        if self.adjacency.device.type == "cuda":
            # The graph never changes, so that from the fourth step on the GPU replays the step as a whole.
            return StepRecording(self._step, self.generator, self.adjacency.device)
        return _on_own_threads(self._step) if self.optimizer.tables else self._step

    def _step(self) -> tuple[Tensor, Tensor]:
        rates = self.training.edge_dropout, self.training.self_loop_dropout
        kept = self.field
        if any(rates):
            kept = self.field.masked(self.adjacency.draw_mask(*rates, generator=self.generator))
        self.optimizer.zero_grad(set_to_none=True)
        with self.optimizer.factoring():
            logits = self.network(kept)
        loss = F.cross_entropy(logits, self.target, weight=self.class_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.update()
        return loss.detach(), logits.detach()


class NodeFitting(Fitting[Epoch]):
    """A training of a node classifier in progress; every step is an epoch and is reported."""

    def __init__(self, trainer: NodeTrainer, seed: int, history: list[Epoch]) -> None:
        super().__init__(trainer, seed)
        self.trainer, self.history = trainer, history
        nodes, classes = trainer.labels.of("valid")
        self.valid = trainer.field_of(nodes) if len(nodes) else None
        self.valid_target = torch.from_numpy(classes.copy()).to(trainer.adjacency.device)

    def step(self) -> Epoch:
        start = time.perf_counter()
        self.network.train()
        loss, logits = self.trainer.step()
        self.steps_taken += 1
        if not torch.isfinite(loss):
            raise DataError(
                f"the loss is not finite in epoch {self.steps_taken}: lower the learning rate or check features"
            )
        accuracy = float((logits.argmax(1) == self.trainer.target).float().mean())
        valid_loss, valid_accuracy = self._validate()
        seconds = time.perf_counter() - start
        epoch = Epoch(self.steps_taken, float(loss), accuracy, valid_loss, valid_accuracy, seconds)
        self.history.append(epoch)
        if valid_loss is not None and self.best.patience is not None:
            self.best.offer(-valid_loss, epoch.number)
        return epoch

    def _validate(self) -> tuple[float | None, float | None]:
        """Validation loss and accuracy, or Nones where there is nothing to validate on."""
        if self.valid is None:
            return None, None
        self.network.eval()
        with torch.no_grad():
            logits = self.network(self.valid)
        target = self.valid_target
        return float(F.cross_entropy(logits, target)), float((logits.argmax(1) == target).float().mean())


def _optimizer(network: RelationalEncoder, settings: NodeTrainingConfig) -> Adam:
    """Adam. λ Σ w² has the gradient 2 λ w, which is what Adam's own decay adds: no pass over the weights for it."""
    first = {id(p) for name, p in network.layers[0].named_parameters() if not name.endswith("bias")}
    penalized = [p for p in network.parameters() if id(p) in first]
    others = [p for p in network.parameters() if id(p) not in first]
    groups = [
        {"params": penalized, "weight_decay": settings.weight_decay + 2 * settings.l2_penalty},
        {"params": others, "weight_decay": settings.weight_decay},
    ]
    if not settings.l2_penalty:
        groups = [{"params": list(network.parameters()), "weight_decay": settings.weight_decay}]
    groups = [group for group in groups if group["params"]]
    tables = [module.rows for module in network.modules() if isinstance(module, BasisRows)]
    return Adam(groups, lr=settings.learning_rate, tables=tables)


def _class_weights(
    settings: NodeTrainingConfig, classes: NDArray[np.int64], num_classes: int, device: torch.device
) -> Tensor | None:
    """[classes]: n / (classes · count), or None; a class without training labels weighs nothing."""
    if settings.class_weights == "none":
        return None
    counts = np.bincount(classes, minlength=num_classes)
    weights = np.where(counts > 0, len(classes) / (num_classes * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.float32, device=device)


def _on_own_threads(step: Callable[[], tuple[Tensor, Tensor]]) -> Callable[[], tuple[Tensor, Tensor]]:
    def wrapped() -> tuple[Tensor, Tensor]:
        with own_threads():
            return step()

    return wrapped
