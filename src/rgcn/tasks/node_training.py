"""Training steps of node classification: one loss over all training labels, on the whole graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig, NodeTrainingConfig
from rgcn.graph import NodeLabels
from rgcn.kernels.dispatch import own_threads
from rgcn.nn.decompositions import BasisRows
from rgcn.nn.heads import NodeNetwork
from rgcn.nn.inputs import EmbeddingInput
from rgcn.optim import Adam
from rgcn.tasks.fitting import StepRecording, Trainer


class NodeTrainer(Trainer):
    """Takes steps on the training labels. All randomness but that of dropout follows from its own generator.

    both  takes one step and returns (loss, logits) from before it
    """

    network: NodeNetwork
    optimizer: Adam

    def __init__(
        self,
        network: NodeNetwork,
        adjacency: RelationalAdjacency,
        labels: NodeLabels,
        model: NodeModelConfig,
        training: NodeTrainingConfig,
        seed: int,
    ) -> None:
        self.network, self.adjacency, self.training = network, adjacency, training
        device = adjacency.device
        (nodes, self.target), (valid, self.valid_target) = (
            [torch.from_numpy(part.copy()).to(device) for part in labels.of(split)] for split in ("train", "valid")
        )
        self.class_weight = (
            _class_weights(self.target, labels.num_classes) if training.class_weights != "none" else None
        )
        self.field = ReceptiveField.of(adjacency, nodes, model.layers)
        if isinstance(network.source, EmbeddingInput) and network.source.rows.all_trained:
            # Every row is updated anyway: no copy of some of them.
            self.field = self.field.reading_all(adjacency.num_sources)
        self.valid = ReceptiveField.of(adjacency, valid, model.layers) if len(valid) else None
        self.optimizer = _optimizer(network, training)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.both: Callable[[], tuple[Tensor, Tensor]] = self._step
        if device.type == "cuda":
            # The graph never changes, so that from the fourth step on the GPU replays the step as a whole.
            self.both = StepRecording(self._step, self.generator, device)
        elif self.optimizer.tables:
            self.both = self._on_own_threads
        self._logits: Tensor | None = None

    def step(self) -> Tensor:
        self.network.train()
        loss, self._logits = self.both()
        return loss

    def figures(self) -> dict[str, float]:
        assert self._logits is not None
        return {"train_accuracy": _accuracy(self._logits, self.target)}

    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the validation labels."""
        assert self.valid is not None
        self.network.eval()
        with torch.no_grad():
            logits = self.network(self.valid)
        return {
            "loss": float(F.cross_entropy(logits, self.valid_target)),
            "accuracy": _accuracy(logits, self.valid_target),
        }

    def _on_own_threads(self) -> tuple[Tensor, Tensor]:
        with own_threads():
            return self._step()

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


def _accuracy(logits: Tensor, target: Tensor) -> float:
    return float((logits.argmax(1) == target).float().mean())


def _optimizer(network: NodeNetwork, settings: NodeTrainingConfig) -> Adam:
    """Adam. λ Σ w² has the gradient 2 λ w, which is what Adam's own decay adds: no pass over the weights for it."""
    decay, penalty = settings.weight_decay, settings.l2_penalty
    first = (
        {id(p) for name, p in network.layers[0].named_parameters() if not name.endswith("bias")} if penalty else set()
    )
    penalized = [p for p in network.parameters() if id(p) in first]
    others = [p for p in network.parameters() if id(p) not in first]
    groups = [{"params": penalized, "weight_decay": decay + 2 * penalty}, {"params": others, "weight_decay": decay}]
    tables = [module.rows for module in network.modules() if isinstance(module, BasisRows)]
    return Adam([group for group in groups if group["params"]], lr=settings.learning_rate, tables=tables)


def _class_weights(classes: Tensor, num_classes: int) -> Tensor:
    """[classes]: n / (classes · count); a class without training labels weighs nothing."""
    counts = np.bincount(classes.cpu().numpy(), minlength=num_classes)
    weights = np.where(counts > 0, len(classes) / (num_classes * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.float32, device=classes.device)
