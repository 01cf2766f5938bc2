"""Training steps: of node classification, one loss over all training labels, on the whole graph; of link prediction, a
batch of edges, the edges that carry messages, and a loss it knows nothing about."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.axis_tables import ENCODERS, OBJECTIVES, OPTIMIZERS, SAMPLERS
from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.kernels.dispatch import own_threads
from rgcn.memory import available_bytes
from rgcn.nn.decompositions import BasisRows
from rgcn.nn.encoders import VectorEncoder
from rgcn.nn.heads import NodeNetwork
from rgcn.nn.inputs import EmbeddingInput
from rgcn.nn.link_network import BYTES_A_NUMBER, LinkNetwork
from rgcn.objectives import Objective, ObjectivePlan
from rgcn.optim import Adam, RowOptimizer
from rgcn.sampling import EdgeSampler, HiddenTriples, ScatteredEdges, prefetched
from rgcn.tasks.estimator import choose_device
from rgcn.tasks.fitting import StepRecording, Trainer
from rgcn.words import memory

# Triples a step where a network hides what it is asked about, and no number is set.
ASKED_AT_ONCE = 64
# Where nodes have vectors and no number is set: a graph of so many triples is learned from as a whole, of a larger one
# as many a step as the original takes.
WHOLE, A_PART = 500_000, 30_000
# Numbers of a node table from which on only rows that a step touches move: Adam reads and writes gigabytes for each.
LARGE_TABLE = 100_000_000


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
        balanced = training.class_weights != "none"
        self.class_weight = _class_weights(self.target, labels.num_classes) if balanced else None
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
    first = {id(p) for name, p in network.layers[0].named_parameters() if penalty and not name.endswith("bias")}
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


class Stepping:
    """How weights are moved: the optimizer, its rate, and where everything random of a step comes from."""

    def __init__(self, network: LinkNetwork, training: LinkTrainingConfig, device: torch.device, seed: int) -> None:
        self.generator = torch.Generator(device=device).manual_seed(seed)
        # On a GPU the rate is a tensor: a recorded step then reads whatever it holds at the time.
        on_gpu = device.type == "cuda"
        self.rate = torch.tensor(training.learning_rate, device=device) if on_gpu else None
        kind: type[Any] = OPTIMIZERS.find(training.optimizer or "adam")
        how: dict[str, Any] = {"lr": training.learning_rate if self.rate is None else self.rate}
        if issubclass(kind, RowOptimizer):
            how["node_tables"] = network.node_tables()
        self.optimizer = kind(network.parameters(), weight_decay=training.weight_decay, **how)

    def set_rate(self, rate: float) -> None:
        if self.rate is not None:
            self.rate.fill_(rate)
            return
        for group in self.optimizer.param_groups:
            group["lr"] = rate


class LinkTrainer(Trainer):
    """Draws batches and takes steps. All randomness follows from the seed; nothing waits for the device in a step."""

    def __init__(
        self,
        network: LinkNetwork,
        triples: Tensor,
        adjacency: RelationalAdjacency,
        model: LinkModelConfig,
        training: LinkTrainingConfig,
        seed: int,
        stepping: Stepping | None = None,
        asked: Tensor | None = None,
    ) -> None:
        """triples int64 [T, 3]: the training triples, on the device; adjacency: their operator.

        stepping  what several trainers of the same weights share
        asked     int64 [A, 3]: triples that steps ask about, one as often as it stands there; None: all of them
        """
        self.network: LinkNetwork = network
        self.asked = triples if asked is None else asked
        self.triples, self.adjacency, self.model, self.training = triples, adjacency, model, training
        self.num_nodes, self.num_relations = adjacency.num_sources, adjacency.structure.num_data_relations
        self.stepping = stepping or Stepping(network, training, triples.device, seed)
        self.generator, self.optimizer = self.stepping.generator, self.stepping.optimizer
        network.only_asked = isinstance(self.optimizer, RowOptimizer)
        plan = ObjectivePlan(training, triples, self.num_nodes, self.num_relations)
        objective: type[Objective] = OBJECTIVES.find(training.objective)
        self.objective = objective.build(plan)
        self.hidden: HiddenTriples | None = None  # where a triple may be heard while it is asked about
        batch = training.batch_edges
        if network.hides_asked:
            self.hidden = HiddenTriples(triples, self.num_nodes, self.num_relations, training.hidden)
            # What is asked about is not heard: something must be left.
            batch = max(1, min(batch or ASKED_AT_ONCE, len(self.asked) // 2))
        most, size = self.objective.most_positives, min(batch or len(self.asked), len(self.asked))
        if most is not None and size > most:
            raise ConfigError(
                f"{training.objective} scores all {self.num_nodes:,} nodes for each of {size:,} triples a step, which "
                f"does not fit: set training.batch_edges to {most:,} or less, or training.objective to self-adversarial"
            )
        self.step_bytes = need = network.step_bytes(self.num_nodes, size)
        available = available_bytes(adjacency.device)
        if available is not None and need > available:
            fits = int(size * available / need)
            raise ConfigError(
                f"a step of {size:,} questions about {self.num_nodes:,} nodes needs about {memory(need)}, and "
                f"{memory(available)} are free: set training.batch_edges to {fits:,} or less"
                if fits
                else f"learning from one question about {self.num_nodes:,} nodes needs about {memory(need // size)}, "
                f"and {memory(available)} are free: train on a machine with more, or with a smaller model.width"
            )
        self.sampler: EdgeSampler | None = None  # where every step sees the whole graph
        if batch is not None:
            sampler: type[EdgeSampler] = SAMPLERS.find(training.sampler)
            self.sampler = sampler(self.asked.cpu().numpy(), self.num_nodes, batch, seed)
        # Batches are drawn ahead: where the sampler stood after the batch that was handed out last.
        self.sampler_state = {} if self.sampler is None else self.sampler.state()
        self.steps_taken = 0
        recordable = triples.is_cuda and network.recordable
        self.recording = StepRecording(self._step, self.generator, triples.device) if recordable else None
        self._batches: Generator[Tensor, None, None] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self.network.train()
        self._batches = self.batches()
        try:
            yield
        finally:
            self._batches.close()
            if self.recording is not None:
                self.recording.forget()

    def losses(self) -> Iterator[Tensor]:
        """Take a step at a time, `epochs` of them, and yield each one's loss: for loops of one's own."""
        with self.running():
            for _ in range(self.training.epochs):
                yield self.step()

    def step(self) -> Tensor:
        if self._batches is None:
            self._batches = self.batches()
        return self.step_on(next(self._batches))

    def state(self) -> dict[str, Any]:
        return dict(self.sampler_state)

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        self.steps_taken, self.sampler_state = steps_taken, dict(state)
        if self.sampler is not None:
            self.sampler.set_state(state)

    def batches(self) -> Generator[Tensor, None, None]:
        """Positive triples int64 [n, 3] on the device, without end: all of them, or drawn ahead on the CPU."""
        if self.sampler is None:
            while True:
                yield self.asked
        sampler, device = self.sampler, self.asked.device
        # What a device draws by itself need not be made ahead. Else its numbers travel: the triples are there.
        at_hand = sampler if device.type != "cpu" and isinstance(sampler, ScatteredEdges) else None

        def draw() -> tuple[Tensor, dict[str, int]]:
            if at_hand is not None:
                return at_hand.on(device), sampler.state()
            numbers = torch.from_numpy(sampler.sample())
            return self.asked[numbers] if device.type == "cpu" else numbers.pin_memory(), sampler.state()

        for batch, self.sampler_state in prefetched(draw) if at_hand is None else iter(draw, None):
            yield batch if batch.ndim == 2 else self.asked[batch.to(device, non_blocking=True)]

    def step_on(self, positives: Tensor) -> Tensor:
        """One step on these positive triples int64 [n, 3]; returns the loss before it."""
        self.stepping.set_rate(self.training.learning_rate * learning_rate_factor(self.training, self.steps_taken))
        self.steps_taken += 1
        if not self.network.training:  # measured in between; what was encoded then is no longer so
            self.network.train()
        return self._step(positives) if self.recording is None else self.recording(positives)

    def _step(self, positives: Tensor) -> Tensor:
        drawn = self.objective.draw(positives, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        by_rows = self.optimizer if isinstance(self.optimizer, RowOptimizer) else None
        with by_rows.factoring() if by_rows else nullcontext():
            loss = self.objective.loss(self.network, self.message_graph(positives), positives, drawn)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.training.clip is not None:
            leaves = by_rows.leaves() if by_rows else []
            torch.nn.utils.clip_grad_norm_([*self.network.parameters(), *leaves], self.training.clip)
        self.optimizer.step()
        return loss.detach()

    def message_graph(self, positives: Tensor) -> RelationalAdjacency | None:
        """The operator of the edges that carry messages in this step.

        Edges are dropped before inverses are added and before normalizing: a dropped edge leaks through neither. They
        are those of the batch; or, where what is asked about must not be heard, all others.
        """
        if not self.network.num_layers:
            return None
        training, on_edges = self.training, self.training.self_loop_dropout_on == "edge"
        loop_rate = training.self_loop_dropout if on_edges else 0.0
        if self.hidden is not None:
            mask = self.adjacency.draw_mask(training.edge_dropout, loop_rate, self.generator)
            mask[: len(self.triples)] *= self.hidden.heard(positives)
            return self.adjacency.masked(mask)
        if self.sampler is None:
            if not (training.edge_dropout or loop_rate):
                return self.adjacency
            mask = self.adjacency.draw_mask(training.edge_dropout, loop_rate, self.generator)
            return self.adjacency.masked(mask)
        keep = max(1, round(len(positives) * (1.0 - training.edge_dropout)))
        order = torch.rand(len(positives), generator=self.generator, device=positives.device).argsort()
        sampled = RelationalAdjacency.from_triples(
            positives.index_select(0, order[:keep]),
            self.num_nodes,
            self.num_relations,
            inverse=self.model.inverse,
            self_loops=self.model.self_loops,
            normalization=self.model.normalization,
            aggregation=self.model.aggregation,
            transient=True,
            checked=True,  # rows of the training triples; to ask again would wait for the device in every step
        )
        return sampled.masked(sampled.draw_mask(0.0, loop_rate, self.generator)) if loop_rate else sampled


def chosen_at_size(model: LinkModelConfig, training: LinkTrainingConfig, kg: KnowledgeGraph) -> dict[str, Any]:
    """Settings of `training` that nobody has set and a large graph wants: batch_edges, optimizer, tables.

    Edges a step: all, or as many as suit the graph and the memory there is. Sampled edges carry no weights, so that a
    graph with weights is heard as a whole; and a network that hides what it is asked about has a number of its own.
    Where a step sees a part of the edges, of a large table only the rows it touches move: by lazy Adam, or by row-wise
    Adagrad where the table, Adam's moments and the best weights so far would not fit; and where a table and its best
    weights do not, they are on disk.
    """
    if not issubclass(ENCODERS.find(model.encoder), VectorEncoder):
        return {}
    device, batch, chosen = choose_device(training.device), training.batch_edges, dict[str, Any]()
    triples, free = len(kg.split_triples("train")), available_bytes(device)
    if batch is None and kg.edge_weights is None:
        fit = triples if free is None else max(1, free // 2 // (BYTES_A_NUMBER * model.embedding))
        if triples > min(fit, WHOLE):
            chosen["batch_edges"] = batch = min(fit, A_PART)
    numbers = kg.num_nodes * model.embedding if model.input == "embedding" else 0
    tables_that_fit = 4.0 if free is None else free / max(1, 4 * numbers)
    if training.tables == "disk" or (batch is not None and numbers >= LARGE_TABLE):
        if training.optimizer is None:
            chosen["optimizer"] = "lazy-adam" if tables_that_fit >= 4 else "adagrad"
        by_rows = chosen.get("optimizer", training.optimizer) in ("lazy-adam", "adagrad")
        if training.tables is None and by_rows and tables_that_fit < 2 and device.type == "cpu":
            chosen["tables"] = "disk"
    return chosen


def learning_rate_factor(training: LinkTrainingConfig, step: int) -> float:
    """Factor on the learning rate at a step (from 0).

    >>> cosine = LinkTrainingConfig(epochs=100, schedule="cosine", warmup=10)
    >>> [round(learning_rate_factor(cosine, step), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if step < training.warmup:
        return (step + 1) / training.warmup
    if training.schedule == "cosine":
        done = (step - training.warmup) / max(1, training.epochs - training.warmup)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    if training.schedule == "step":
        return float(training.step_factor ** ((step - training.warmup) // training.step_every))
    return 1.0
