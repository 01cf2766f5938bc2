"""Training steps of node classification, on all training labels or on batches of them."""

import itertools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeTrainingConfig
from rgcn.graph import NodeLabels
from rgcn.kernels.dispatch import single_threaded_torch
from rgcn.nn.decompositions import OneHotBasisWeights
from rgcn.nn.relational_encoder import NodeNetwork
from rgcn.nn.row_tables import NodeEmbedding
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.edges import FieldSampler, prefetched, seed_words
from rgcn.training.fitting import StepRecording, Trainer
from rgcn.training.optimizers import Adam


class NodeTrainer(Trainer):
    """Takes steps on the training labels: on all of them, or on batches of them with their receptive fields.

    All randomness but that of dropout comes from its own generator. That of batches (the order of an epoch, which is
    cut into equal parts, and the edges drawn and dropped) depends on the seed and the number of the step alone.

    Args:
        network: The network.
        adjacency: The operator of all edges that carry messages.
        labels: The labels with their splits.
        training: The settings of the training.
        seed: Seed of all randomness.
        placement: Which nodes and which share of a batch are local.

    Attributes:
        step_with_logits: Takes one step and returns the loss and the logits before it.
    """

    network: NodeNetwork
    optimizer: Adam

    def __init__(
        self,
        network: NodeNetwork,
        adjacency: RelationalAdjacency,
        labels: NodeLabels,
        training: NodeTrainingConfig,
        seed: int,
        placement: Placement = LOCAL,
    ) -> None:
        self.network, self.adjacency, self.training, self.seed = network, adjacency, training, seed
        self.placement, device, depth = placement, adjacency.device, len(network.layers)
        self.shares_dropout_mask = placement.partition is not None
        (nodes, self.target), (valid, self.valid_target) = (
            [torch.from_numpy(part.copy()).to(device) for part in labels.of(split)] for split in ("train", "valid")
        )
        balanced = training.class_weights != "none"
        self.class_weight = _class_weights(self.target, labels.num_classes) if balanced else None
        self.num_valid = len(valid)
        local_valid = placement.local_targets(valid)
        valid, self.valid_target = valid[local_valid], self.valid_target[local_valid]
        self.valid: ReceptiveField | Tensor | None = valid if self.num_valid else None
        self.optimizer = _optimizer(network, training)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.step_with_logits: Callable[[], tuple[Tensor, Tensor]] = self._step
        self.field: ReceptiveField | None = None  # of all training labels; None with batches
        self._logits: Tensor | None = None
        self.nodes, self.steps_taken, self._local_target, self._whole_target = nodes.cpu(), 0, self.target, self.target
        if training.is_batched(len(nodes)):
            self.steps_per_unit = -(-len(nodes) // (training.batch_labels or len(nodes)))
            rates = training.edge_dropout, training.self_loop_dropout
            self.sampler = FieldSampler(adjacency, depth, training.fan_out, rates, placement)
            self._batches, self._order = self.batches(), (-1, nodes)
            return
        local = placement.local_targets(nodes)
        nodes, self._local_target = nodes[local], self.target[local]
        self.field = ReceptiveField.of(adjacency, nodes, depth, placement)
        source = network.source
        if placement.partition is None and isinstance(source, NodeEmbedding) and source.rows.all_trained:
            # Every row is updated anyway, so none are copied.
            self.field = self.field.with_all_inputs(adjacency.num_sources)
        self.valid = ReceptiveField.of(adjacency, valid, depth, placement) if self.num_valid else None
        if device.type == "cuda" and not placement.is_distributed:
            # The edges never change, so the GPU replays the step from the fourth on.
            self.step_with_logits = StepRecording(self._step, self.generator, device)
        elif self.optimizer.tables and not placement.is_distributed:
            self.step_with_logits = self._on_own_threads

    def running(self) -> AbstractContextManager[object]:
        """Return a context in which steps are taken."""
        return nullcontext() if self.field is not None else closing(self._batches)

    def batches(self) -> Generator[tuple[ReceptiveField, Tensor, Tensor], None, None]:
        """Yield the next batches without end, drawn ahead on the CPU unless nodes are sharded."""
        numbered = (self.batch(number) for number in itertools.count(self.steps_taken))
        yield from prefetched(numbered) if self.placement.partition is None else numbered

    def batch(self, number: int) -> tuple[ReceptiveField, Tensor, Tensor]:
        """Return the receptive field of a step, the classes of its local nodes, and the classes of all its nodes."""
        epoch, part = divmod(number, self.steps_per_unit)
        if self._order[0] != epoch:
            shuffling = torch.Generator().manual_seed(int(seed_words((self.seed, epoch, 1))[0]) >> 1)
            self._order = epoch, torch.randperm(len(self.nodes), generator=shuffling)
        labels = self._order[1].tensor_split(self.steps_per_unit)[part]
        whole = self.target[labels.to(self.target.device)]
        labels = labels[self.placement.local_targets(self.nodes[labels])]
        nodes, order = torch.sort(self.nodes[labels])  # rows that are neighbors are read together
        field, device = self.sampler.field(nodes, (self.seed, number, 2)), self.target.device
        field = field if device.type == "cpu" else field.to(device)
        return field, self.target[labels[order].to(device)], whole

    def step(self) -> Tensor:
        """Take one step; return the loss before it."""
        self.network.train()
        loss, self._logits = self.step_with_logits()
        return loss

    def metrics(self) -> dict[str, float]:
        """Return the accuracy on the labels of the last step, before it."""
        assert self._logits is not None
        return {"train_accuracy": self._accuracy(self._logits, self._local_target, len(self._whole_target))}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        """Resume after `steps_taken` steps, which decide the next batches."""
        self.steps_taken = steps_taken

    def validate(self) -> dict[str, float]:
        """Compute loss and accuracy on the validation labels, with all edges."""
        assert self.valid is not None
        self.network.eval()
        with torch.no_grad():
            if isinstance(self.valid, ReceptiveField):
                logits = self.network(self.valid)
            elif self.placement.partition is not None:
                depth = len(self.network.layers)
                logits = self.network(ReceptiveField.of(self.adjacency, self.valid, depth, self.placement))
            else:
                logits = self.network.head(self.network.node_states(self.adjacency, self.valid))
        loss = F.cross_entropy(logits, self.valid_target, reduction="sum").double()
        self.placement.all_reduce(loss)
        accuracy = self._accuracy(logits, self.valid_target, self.num_valid)
        return {"loss": float(loss) / self.num_valid, "accuracy": accuracy}

    def _on_own_threads(self) -> tuple[Tensor, Tensor]:
        with single_threaded_torch():
            return self._step()

    def _step(self) -> tuple[Tensor, Tensor]:
        rates = self.training.edge_dropout, self.training.self_loop_dropout
        field = self.field
        if field is None:
            field, self._local_target, self._whole_target = next(self._batches)
        elif any(rates):
            field = field.masked(self.adjacency.draw_mask(*rates, generator=self.generator))
        self.optimizer.zero_grad(set_to_none=True)
        with nullcontext() if self.placement.is_distributed else self.optimizer.factoring():
            logits = self.network(field)
        whole, weight = self._whole_target, self.class_weight
        is_mean = weight is None and logits.shape[0] == whole.shape[0]  # spares two operations
        loss = F.cross_entropy(logits, self._local_target, weight, reduction="mean" if is_mean else "sum")
        if not is_mean:  # the local part of the mean over all labels of the step
            loss = loss / (len(whole) if weight is None else weight[whole].sum())
        loss.backward()  # type: ignore[no-untyped-call]
        loss = self.placement.all_reduce_gradients(self.network, self.optimizer, loss)
        self.optimizer.update()
        return loss, logits.detach()

    def _accuracy(self, logits: Tensor, target: Tensor, count: int) -> float:
        """Return the accuracy over all processes, which have `count` labels together."""
        right = (logits.argmax(1) == target).sum()
        self.placement.all_reduce(right)
        return int(right) / count


def _optimizer(network: NodeNetwork, settings: NodeTrainingConfig) -> Adam:
    """Return Adam with the L2 penalty λ Σ w² as weight decay, since its gradient is 2 λ w."""
    decay, penalty = settings.weight_decay, settings.l2_penalty
    first = {id(p) for name, p in network.layers[0].named_parameters() if penalty and not name.endswith("bias")}
    penalized = [p for p in network.parameters() if id(p) in first]
    others = [p for p in network.parameters() if id(p) not in first]
    groups = [{"params": penalized, "weight_decay": decay + 2 * penalty}, {"params": others, "weight_decay": decay}]
    tables = [module.rows for module in network.modules() if isinstance(module, OneHotBasisWeights)]
    return Adam([group for group in groups if group["params"]], lr=settings.learning_rate, tables=tables)


def _class_weights(classes: Tensor, num_classes: int) -> Tensor:
    """Return the weight of each class, n / (num_classes · count), [num_classes]; 0 without training labels."""
    counts = np.bincount(classes.cpu().numpy(), minlength=num_classes)
    weights = np.where(counts > 0, len(classes) / (num_classes * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.get_default_dtype(), device=classes.device)
