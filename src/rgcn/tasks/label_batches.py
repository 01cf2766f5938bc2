"""Training steps of node classification on batches of labels, where a step on all of them would cost too much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig, NodeTrainingConfig
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.memory import available_bytes
from rgcn.nn.heads import NodeNetwork
from rgcn.sampling import FieldSampler, prefetched
from rgcn.sampling.edges import seed_word
from rgcn.tasks.estimator import choose_device
from rgcn.tasks.fitting import Trainer
from rgcn.tasks.trainers import accuracy, class_weights, node_optimizer

# A graph of so many triples is always learned from as a whole. A larger one is, too, where the field of all training
# labels fits into memory and these are not many: a step on all of a million costs as much as hundreds on a few.
WHOLE_TRIPLES, WHOLE_LABELS = 2_000_000, 50_000
BYTES_AN_EDGE = 200  # that an edge of a field takes, with what is prepared for it
LABELS, FAN_OUT = 10_000, 10  # where batches are chosen and no number is set

Batch = tuple[ReceptiveField, Tensor]


class LabelBatchTrainer(Trainer):
    """Takes steps on batches of training labels, each in its receptive field.

    An epoch is a pass over the training labels, in an order of its own, cut into `steps_an_epoch` batches of the same
    size, give or take one. Order and fields follow from the seed and the number of the step alone, so that a training
    that goes on after a stop takes the very same steps.
    """

    network: NodeNetwork

    def __init__(
        self,
        network: NodeNetwork,
        adjacency: RelationalAdjacency,
        labels: NodeLabels,
        model: NodeModelConfig,
        training: NodeTrainingConfig,
        seed: int,
    ) -> None:
        self.network, self.adjacency, self.seed, self.device = network, adjacency, seed, adjacency.device
        (self.nodes, self.target), (valid, valid_target) = (
            [torch.from_numpy(part.copy()) for part in labels.of(split)] for split in ("train", "valid")
        )
        self.valid = valid.to(self.device) if len(valid) else None
        self.valid_target = valid_target.to(self.device)
        self.steps_an_epoch = -(-len(self.nodes) // (training.batch_labels or len(self.nodes)))
        rates = training.edge_dropout, training.self_loop_dropout
        self.sampler = FieldSampler(adjacency, model.layers, training.fan_out, rates)
        balanced = training.class_weights != "none"
        self.class_weight = class_weights(self.target, labels.num_classes).to(self.device) if balanced else None
        self.optimizer = node_optimizer(network, training)
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        self.steps_taken, self._batches = 0, self.batches()
        self._right, self._seen = torch.zeros((), dtype=torch.int64, device=self.device), 0  # since the last report
        self._order: tuple[int, Tensor] = -1, self.nodes

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._batches.close()
            self._batches = self.batches()

    def batches(self) -> Any:
        """(field, classes) of the steps to come, without end, drawn ahead."""
        yield from prefetched(self.batch(number) for number in count(self.steps_taken))

    def batch(self, number: int) -> Batch:
        """The field of a step, and the classes of its nodes."""
        epoch, part = divmod(number, self.steps_an_epoch)
        if self._order[0] != epoch:
            shuffling = torch.Generator().manual_seed(int(seed_word((self.seed, epoch, 1))[0] >> np.uint64(1)))
            self._order = epoch, torch.randperm(len(self.nodes), generator=shuffling)
        size, more = divmod(len(self.nodes), self.steps_an_epoch)
        begin = part * size + min(part, more)
        labels = self._order[1][begin : begin + size + (part < more)]
        labels = labels[torch.argsort(self.nodes[labels])]  # neighbors in a table are read together
        field, classes = self.sampler.field(self.nodes[labels], (self.seed, number, 2)), self.target[labels]
        if self.device.type != "cpu":
            layers = tuple(layer.to(self.device) for layer in field.layers)
            field = replace(field, layers=layers, inputs=field.inputs.to(self.device))
        return field, classes.to(self.device)

    def step(self) -> Tensor:
        return self.both()[0]

    def both(self) -> tuple[Tensor, Tensor]:
        """Take one step; (loss, logits) from before it."""
        field, classes = next(self._batches)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.network(field)
        loss = F.cross_entropy(logits, classes, weight=self.class_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in self.network.parameters():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        self.optimizer.update()
        self.steps_taken += 1
        self._right += (logits.detach().argmax(1) == classes).sum()
        self._seen += len(classes)
        return loss.detach(), logits.detach()

    def figures(self) -> dict[str, float]:
        """Accuracy on the training labels, each before the step on it."""
        share = int(self._right) / max(1, self._seen)
        self._right.zero_()
        self._seen = 0
        return {"train_accuracy": share}

    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the validation labels, with all edges."""
        assert self.valid is not None
        self.network.eval()
        with torch.no_grad():
            states = self.network.states_of(self.adjacency, self.valid, len(self.network.layers))
            logits = self.network.head(states)
        loss = F.cross_entropy(logits, self.valid_target)
        return {"loss": float(loss), "accuracy": accuracy(logits, self.valid_target)}

    def state(self) -> dict[str, Any]:
        return {"right": int(self._right), "seen": self._seen}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        self.steps_taken, self._seen = steps_taken, state["seen"]
        self._right.fill_(state["right"])


def default_batches(model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph) -> dict[str, int]:
    """`batch_labels` and `fan_out` where nobody has set them and the graph wants them; none: a step on all labels."""
    unset = training.batch_labels is None and training.fan_out is None
    if not unset or graph.labels is None or len(graph) <= WHOLE_TRIPLES:
        return {}
    nodes, free = graph.labels.of("train")[0], available_bytes(choose_device(training.device))
    fits = free is None or field_edges(model, graph, nodes) * BYTES_AN_EDGE <= free
    return {} if fits and len(nodes) <= WHOLE_LABELS else {"batch_labels": LABELS, "fan_out": FAN_OUT}


def field_edges(model: NodeModelConfig, graph: KnowledgeGraph, nodes: np.ndarray[Any, Any]) -> int:
    """How many edges all layers of the nodes' receptive field have: counted, nothing is built."""
    wanted, total = np.zeros(graph.num_nodes, dtype=np.bool_), 0
    wanted[nodes] = True
    subject, _, object_ = graph.triples.T
    for _ in range(model.layers):
        along, inverse = wanted[object_], wanted[subject] if model.inverse else np.zeros(0, dtype=np.bool_)
        total += int(along.sum()) + int(inverse.sum()) + model.self_loops * int(wanted.sum())
        wanted = wanted.copy() if model.self_loops else np.zeros_like(wanted)
        wanted[subject[along]] = True
        if model.inverse:
            wanted[object_[inverse]] = True
    return total
