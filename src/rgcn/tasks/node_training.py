"""Training steps of node classification: one loss over all training labels, on the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig, NodeTrainingConfig
from rgcn.graph import NodeLabels
from rgcn.kernels.dispatch import own_threads
from rgcn.nn.decompositions import BasisRows
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.node_network import NodeNetwork
from rgcn.optim import Adam
from rgcn.tasks.recording import StepRecording


class NodeTrainer:
    """Takes steps on the training labels. All randomness but that of dropout follows from its own generator."""

    def __init__(
        self,
        network: NodeNetwork,
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
        self.both = self._fastest()
        self._logits: Tensor | None = None
        valid, valid_classes = labels.of("valid")
        self.valid = self.field_of(valid) if len(valid) else None
        self.valid_target = torch.from_numpy(valid_classes.copy()).to(adjacency.device)

    def field_of(self, nodes: NDArray[np.int64]) -> ReceptiveField:
        """What the network must compute for these nodes."""
        wanted = torch.from_numpy(np.array(nodes)).to(self.adjacency.device)
        return ReceptiveField.of(self.adjacency, wanted, self.layers)

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def step(self) -> Tensor:
        self.network.train()
        loss, self._logits = self.both()
        return loss

    def figures(self) -> dict[str, float]:
        assert self._logits is not None
        return {"train_accuracy": float((self._logits.argmax(1) == self.target).float().mean())}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        return None

    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the validation labels."""
        assert self.valid is not None
        self.network.eval()
        with torch.no_grad():
            logits = self.network(self.valid)
        target = self.valid_target
        accuracy = float((logits.argmax(1) == target).float().mean())
        return {"loss": float(F.cross_entropy(logits, target)), "accuracy": accuracy}

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


def _optimizer(network: NodeNetwork, settings: NodeTrainingConfig) -> Adam:
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
