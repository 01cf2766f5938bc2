"""Training steps of link prediction: a batch of triples, the edges that carry messages, and any objective."""

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from rgcn.adjacency.operator import RelationalAdjacency, edge_options
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.link_network import LinkNetwork, VectorNetwork
from rgcn.plugins import OBJECTIVES, OPTIMIZERS, SAMPLERS
from rgcn.sampling.edges import EdgeSampler, ScatteredEdges, prefetched
from rgcn.sampling.negatives import HiddenTriples
from rgcn.system.formatting import format_bytes
from rgcn.system.memory import available_bytes
from rgcn.training.fitting import StepRecording, Trainer
from rgcn.training.objectives import (
    AmongAllNodes,
    Objective,
    ObjectivePlan,
    SelfAdversarial,
    both_directions,
    without_directions,
)
from rgcn.training.optimizers import RowOptimizer
from rgcn.training.plan import choose_device

DEFAULT_BATCH = 64  # triples of a step, for a network that must hide them, if no setting says how many
# A step computes only the nodes of its batch if the graph has at least so many nodes for each triple of the batch.
MIN_NODES_PER_TRIPLE = 10


class WeightUpdates:
    """The optimizer, its learning rates and the generator of all randomness of a training.

    Args:
        network: The network.
        training: The settings of the training.
        device: The device of the training.
        seed: Seed of the generator.
    """

    def __init__(self, network: LinkNetwork, training: LinkTrainingConfig, device: torch.device, seed: int) -> None:
        self.generator = torch.Generator(device=device).manual_seed(seed)
        kind: type[Any] = OPTIMIZERS.resolve(training.optimizer or "adam")
        options: dict[str, Any] = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
        if issubclass(kind, RowOptimizer):
            options["tables"] = network.node_tables()
        self.optimizer = kind(network.parameters(), **options)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]  # before any schedule
        if device.type == "cuda":  # a recorded step reads each rate from a tensor
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = torch.tensor(rate, device=device)

    def scale_rates(self, factor: float) -> None:
        """Set the learning rate of each parameter group to its initial rate times a factor."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor


class StoredTriples:
    """The triples of a stored graph, of which each batch reads its own from disk.

    Args:
        graph: The graph.
    """

    is_cuda = False

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, self.device = graph, torch.device("cpu")

    def __len__(self) -> int:
        return len(self.graph)

    def __getitem__(self, numbers: Tensor) -> Tensor:
        return torch.from_numpy(self.graph.triples_at(numbers.numpy()))

    @classmethod
    def suit(cls, graph: KnowledgeGraph, network: LinkNetwork, training: LinkTrainingConfig) -> bool:
        """Return whether the steps of a training need no triples besides their batches."""
        looks_up = training.filtered_negatives or issubclass(OBJECTIVES.resolve(training.objective), AmongAllNodes)
        scattered = training.batch_edges is not None and issubclass(SAMPLERS.resolve(training.sampler), ScatteredEdges)
        is_possible = graph.is_stored and graph.triple_splits is None and choose_device(training.device).type == "cpu"
        known = issubclass(OBJECTIVES.resolve(training.objective), SelfAdversarial) and training.shared_by is None
        hides = network.must_hide_triples or (network.num_layers > 0 and training.message_edges != "batch")
        return is_possible and scattered and not (looks_up or known or hides)


class LinkTrainer(Trainer):
    """Draws batches and takes steps. All randomness depends on the seed; no step waits for the device.

    Args:
        network: The network.
        triples: The training triples on the device, int64 [num_triples, 3], or `StoredTriples`.
        adjacency: Their operator.
        model: The settings of the network.
        training: The settings of the training.
        seed: Seed of all randomness.
        updates: Optimizer and generator, if several trainers share the same weights.
        queries: Triples that steps ask about, int64 [num_queries, 3], some perhaps repeatedly; None: all.
    """

    def __init__(
        self,
        network: LinkNetwork,
        triples: Any,
        adjacency: RelationalAdjacency,
        model: LinkModelConfig,
        training: LinkTrainingConfig,
        seed: int,
        updates: WeightUpdates | None = None,
        queries: Tensor | None = None,
    ) -> None:
        self.network: LinkNetwork = network
        self.placement = network.placement
        self.shares_dropout_mask = isinstance(network, VectorNetwork)
        self.queries: Any = triples if queries is None else queries
        self.triples: Any = triples
        self.adjacency, self.model, self.training = adjacency, model, training
        self.num_nodes, self.num_relations = adjacency.num_sources, adjacency.structure.num_data_relations
        self.updates = updates or WeightUpdates(network, training, triples.device, seed)
        self.generator, self.optimizer = self.updates.generator, self.updates.optimizer
        min_nodes = MIN_NODES_PER_TRIPLE * (training.batch_edges or 0)
        is_small_part = 0 < min_nodes < self.num_nodes and triples.device.type == "cpu"
        network.encodes_batch_only = isinstance(self.optimizer, RowOptimizer) or is_small_part
        objective: type[Objective] = OBJECTIVES.resolve(training.objective)
        self.objective = objective.build(ObjectivePlan(training, self.triples, self.num_nodes, self.num_relations))
        if self.objective.is_directed:
            self.queries = both_directions(self.queries, self.num_relations)
        self.hidden: HiddenTriples | None = None  # for networks that must hide the triples they are asked about
        batch = training.batch_edges
        hides = training.message_edges == "graph-without-batch" and network.num_layers > 0 and batch is not None
        if network.must_hide_triples or hides:
            kind = training.hidden if network.must_hide_triples else "triple"
            self.hidden = HiddenTriples(self.triples, self.num_nodes, self.num_relations, kind)
        if network.must_hide_triples:
            # Hidden triples carry no messages, so some must be left.
            batch = max(1, min(batch or DEFAULT_BATCH, len(self.queries) // 2))
        most, size = self.objective.max_positives, min(batch or len(self.queries), len(self.queries))
        if most is not None and size > most:
            raise ConfigError(
                f"{training.objective} scores all {self.num_nodes:,} nodes for each of {size:,} triples a step, which "
                f"does not fit: set training.batch_edges to {most:,} or less, or training.objective to self-adversarial"
            )
        self.step_bytes = need = network.step_bytes(self.num_nodes, -(-size // self.placement.size))
        available = available_bytes(adjacency.device)
        if available is not None and need > available:
            fits = int(size * available / need)
            advice = f"set training.batch_edges to {fits:,} or less" if fits else "train with a smaller model.width"
            raise ConfigError(
                f"a step of {size:,} questions about {self.num_nodes:,} nodes needs about {format_bytes(need)}, and "
                f"{format_bytes(available)} are free: {advice}, or on a machine with more"
            )
        self.sampler: EdgeSampler | None = None  # None: every step takes all triples
        if batch is not None:
            sampler: type[EdgeSampler] = SAMPLERS.resolve(training.sampler)
            rows = self.queries.cpu().numpy() if isinstance(self.queries, Tensor) else self.queries.graph._rows
            options = sampler.read_options(training.objective_options).model_dump()
            self.sampler = sampler(rows, self.num_nodes, batch, seed, **options)
        # Batches are drawn ahead: this is the sampler's state after the last batch that a step took.
        self.sampler_state = {} if self.sampler is None else self.sampler.state()
        self.steps_taken = 0
        is_capturable = triples.is_cuda and network.is_capturable and not self.placement.is_distributed
        self.recording = StepRecording(self._step, self.generator, triples.device) if is_capturable else None
        self._batches: Generator[Tensor, None, None] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context in which steps are taken, and batches are drawn ahead."""
        self.network.train()
        self._batches = self.batches()
        try:
            yield
        finally:
            self._batches.close()
            if self.recording is not None:
                self.recording.forget()

    def losses(self) -> Iterator[Tensor]:
        """Take `training.steps` steps, and yield the loss of each."""
        with self.running():
            for _ in range(self.training.steps):
                yield self.step()

    def step(self) -> Tensor:
        """Take a step on the next batch; return the loss before it."""
        if self._batches is None:
            self._batches = self.batches()
        return self.step_on(next(self._batches))

    def state(self) -> dict[str, Any]:
        """Return the sampler's state."""
        return dict(self.sampler_state)

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        """Resume from the state that another trainer had after `steps_taken` steps."""
        self.steps_taken, self.sampler_state = steps_taken, dict(state)
        if self.sampler is not None:
            self.sampler.set_state(state)

    def batches(self) -> Generator[Tensor, None, None]:
        """Yield batches of triples on the device, int64 [num_positives, 3], without end."""
        if self.sampler is None:
            while True:
                yield self.queries
        sampler, device = self.sampler, self.queries.device
        # Batches that the GPU draws itself need not be drawn ahead. Of others, only the row numbers are sent to it.
        on_gpu = sampler if device.type != "cpu" and isinstance(sampler, ScatteredEdges) else None

        def draw() -> tuple[Tensor, dict[str, int]]:
            if on_gpu is not None:
                return on_gpu.on(device), sampler.state()
            numbers = torch.from_numpy(sampler.sample())
            return self.queries[numbers] if device.type == "cpu" else numbers.pin_memory(), sampler.state()

        for batch, self.sampler_state in prefetched(draw) if on_gpu is None else iter(draw, None):
            yield batch if batch.ndim == 2 else self.queries[batch.to(device, non_blocking=True)]

    def step_on(self, positives: Tensor) -> Tensor:
        """Take a step on triples int64 [num_positives, 3]; return the loss before it."""
        self.updates.scale_rates(learning_rate_factor(self.training, self.steps_taken))
        self.steps_taken += 1
        if not self.network.training:  # a measurement left it in evaluation mode
            self.network.train()
        return self._step(positives) if self.recording is None else self.recording(positives)

    def _step(self, positives: Tensor) -> Tensor:
        drawn = self.objective.draw(positives, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        row_optimizer = self.optimizer if isinstance(self.optimizer, RowOptimizer) else None
        adjacency, count = self.message_graph(positives), len(positives)
        positives, drawn = self.objective.share(positives, drawn, self.placement)
        with row_optimizer.factoring() if row_optimizer else nullcontext():
            loss = self.objective.loss(self.network, adjacency, positives, drawn)
        loss = loss if len(positives) == count else loss * (len(positives) / count)
        loss.backward()  # type: ignore[no-untyped-call]
        total = self.placement.all_reduce_gradients(self.network, self.optimizer, loss)
        if self.training.clip is not None:
            leaves = row_optimizer.leaves() if row_optimizer else []
            self.placement.clip_gradients(self.network, leaves, self.training.clip)
        self.optimizer.step()
        return total

    def message_graph(self, positives: Tensor) -> RelationalAdjacency | None:
        """Return the operator of the edges that carry messages in a step, or None if the network passes no messages.

        These are the edges of the batch or all edges (`training.message_edges`); if the triples of the batch must be
        hidden, all others. Edges are dropped before inverses are added and before normalization, so that a dropped edge
        leaks through neither.

        Args:
            positives: The batch, int64 [num_positives, 3].
        """
        if not self.network.num_layers:
            return None
        training, on_edges = self.training, self.training.self_loop_dropout_on == "edge"
        loop_rate = training.self_loop_dropout if on_edges else 0.0
        if self.hidden is None and self.sampler is None and not (training.edge_dropout or loop_rate):
            return self.adjacency
        if self.objective.is_directed:
            positives = without_directions(positives, self.num_relations)
        if self.hidden is not None or self.sampler is None or training.message_edges != "batch":
            mask = self.adjacency.draw_mask(training.edge_dropout, loop_rate, self.generator)
            if self.hidden is not None:
                mask[: len(self.triples)] *= self.hidden.visibility(positives)
            return self.adjacency.masked(mask)
        if self.objective.is_directed:
            positives = torch.unique(positives, dim=0)
        keep = max(1, round(len(positives) * (1.0 - training.edge_dropout)))
        order = torch.rand(len(positives), generator=self.generator, device=positives.device).argsort()
        options = {**edge_options(self.model), "transient": True, "targets": self.placement.partition}
        options["checked"] = True  # a check would wait for the device in every step
        edges = positives.index_select(0, order[:keep])
        sampled = RelationalAdjacency.from_triples(edges, self.num_nodes, self.num_relations, **options)
        return sampled.masked(sampled.draw_mask(0.0, loop_rate, self.generator)) if loop_rate else sampled


def learning_rate_factor(training: LinkTrainingConfig, step: int) -> float:
    """Return the factor on the learning rate at a step, counted from 0.

    >>> cosine = LinkTrainingConfig(steps=100, schedule="cosine", warmup=10)
    >>> [round(learning_rate_factor(cosine, step), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if step < training.warmup:
        return (step + 1) / training.warmup
    if training.schedule == "cosine":
        done = (step - training.warmup) / max(1, training.steps - training.warmup)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    if training.schedule == "step":
        return float(training.step_factor ** ((step - training.warmup) // training.step_every))
    return 1.0
