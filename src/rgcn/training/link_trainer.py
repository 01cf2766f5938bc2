"""Training steps of link prediction: on a batch of triples, with the edges that carry messages, under any objective."""

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.link_network import LinkNetwork, VectorNetwork
from rgcn.nn.relational_encoder import edge_options
from rgcn.plugins import OBJECTIVES, OPTIMIZERS, SAMPLERS
from rgcn.sampling.edges import EdgeSampler, ScatteredEdges, prefetched
from rgcn.sampling.negatives import HiddenTriples
from rgcn.system.formatting import memory
from rgcn.system.memory import available_bytes
from rgcn.training.fitting import StepRecording, Trainer
from rgcn.training.objectives import AmongAllNodes, Objective, ObjectivePlan, SelfAdversarial
from rgcn.training.optimizers import RowOptimizer
from rgcn.training.plan import choose_device

# Triples a step where a network hides what it is asked about, and no number is set.
ASKED_AT_ONCE = 64
FEW = 10  # times the edges of a batch


class Stepping:
    """How weights are moved: the optimizer, its rates, and where everything random of a step comes from."""

    def __init__(self, network: LinkNetwork, training: LinkTrainingConfig, device: torch.device, seed: int) -> None:
        self.generator = torch.Generator(device=device).manual_seed(seed)
        kind: type[Any] = OPTIMIZERS.find(training.optimizer or "adam")
        how: dict[str, Any] = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
        if issubclass(kind, RowOptimizer):
            how["node_tables"] = network.node_tables()
        self.optimizer = kind(network.parameters(), **how)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]  # before any schedule
        if device.type == "cuda":  # a recorded step reads each rate from a tensor, whatever it holds at the time
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
    """The triples of a stored graph where they lie: a batch reads its own, and nobody holds them all."""

    is_cuda = False

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, self.device = graph, torch.device("cpu")

    def __len__(self) -> int:
        return len(self.graph)

    def __getitem__(self, numbers: Tensor) -> Tensor:
        return torch.from_numpy(self.graph.triples_at(numbers.numpy()))

    @classmethod
    def suit(cls, graph: KnowledgeGraph, network: LinkNetwork, training: LinkTrainingConfig) -> bool:
        """Whether steps look at nothing but their batches: no list is kept of all triples, none is asked for others."""
        asks = training.filtered_negatives or issubclass(OBJECTIVES.find(training.objective), AmongAllNodes)
        scattered = training.batch_edges is not None and issubclass(SAMPLERS.find(training.sampler), ScatteredEdges)
        here = graph.stored and graph.triple_splits is None and choose_device(training.device).type == "cpu"
        known = issubclass(OBJECTIVES.find(training.objective), SelfAdversarial) and training.shared_by is None
        return here and scattered and not (asks or known or network.hides_asked)


class LinkTrainer(Trainer):
    """Draws batches and takes steps. All randomness follows from the seed; nothing waits for the device in a step."""

    def __init__(
        self,
        network: LinkNetwork,
        triples: Any,
        adjacency: RelationalAdjacency,
        model: LinkModelConfig,
        training: LinkTrainingConfig,
        seed: int,
        stepping: Stepping | None = None,
        asked: Tensor | None = None,
    ) -> None:
        """triples int64 [T, 3]: the training triples, on the device, or `StoredTriples`; adjacency: their operator.

        stepping  what several trainers of the same weights share
        asked     int64 [A, 3]: triples that steps ask about, one as often as it stands there; None: all of them
        """
        self.network: LinkNetwork = network
        self.placement = network.placement
        self.shares_dropout_mask = isinstance(network, VectorNetwork)
        self.asked: Any = triples if asked is None else asked
        self.triples: Any = triples  # read by what needs all of them, or not at all
        self.adjacency, self.model, self.training = adjacency, model, training
        self.num_nodes, self.num_relations = adjacency.num_sources, adjacency.structure.num_data_relations
        self.stepping = stepping or Stepping(network, training, triples.device, seed)
        self.generator, self.optimizer = self.stepping.generator, self.stepping.optimizer
        # To compute all nodes costs more than to find those of a batch, where these are few of a large graph.
        few = 0 < FEW * (training.batch_edges or 0) < self.num_nodes and triples.device.type == "cpu"
        network.only_asked = isinstance(self.optimizer, RowOptimizer) or few
        objective: type[Objective] = OBJECTIVES.find(training.objective)
        self.objective = objective.build(ObjectivePlan(training, self.triples, self.num_nodes, self.num_relations))
        self.hidden: HiddenTriples | None = None  # where a triple may be heard while it is asked about
        batch = training.batch_edges
        if network.hides_asked:
            self.hidden = HiddenTriples(self.triples, self.num_nodes, self.num_relations, training.hidden)
            # What is asked about is not heard: something must be left.
            batch = max(1, min(batch or ASKED_AT_ONCE, len(self.asked) // 2))
        most, size = self.objective.most_positives, min(batch or len(self.asked), len(self.asked))
        if most is not None and size > most:
            raise ConfigError(
                f"{training.objective} scores all {self.num_nodes:,} nodes for each of {size:,} triples a step, which "
                f"does not fit: set training.batch_edges to {most:,} or less, or training.objective to self-adversarial"
            )
        self.step_bytes = need = network.step_bytes(self.num_nodes, -(-size // self.placement.size))
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
            every = self.asked.cpu().numpy() if isinstance(self.asked, Tensor) else self.asked.graph._rows
            options = sampler.read_options(training.objective_options).model_dump()
            self.sampler = sampler(every, self.num_nodes, batch, seed, **options)
        # Batches are drawn ahead: where the sampler stood after the batch that was handed out last.
        self.sampler_state = {} if self.sampler is None else self.sampler.state()
        self.steps_taken = 0
        recordable = triples.is_cuda and network.recordable and not self.placement.is_distributed
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
        self.stepping.scale_rates(learning_rate_factor(self.training, self.steps_taken))
        self.steps_taken += 1
        if not self.network.training:  # measured in between; what was encoded then is no longer so
            self.network.train()
        return self._step(positives) if self.recording is None else self.recording(positives)

    def _step(self, positives: Tensor) -> Tensor:
        drawn = self.objective.draw(positives, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        by_rows = self.optimizer if isinstance(self.optimizer, RowOptimizer) else None
        heard, count = self.message_graph(positives), len(positives)
        positives, drawn = self.objective.share(positives, drawn, self.placement)
        with by_rows.factoring() if by_rows else nullcontext():
            loss = self.objective.loss(self.network, heard, positives, drawn)
        loss = loss if len(positives) == count else loss * (len(positives) / count)
        loss.backward()  # type: ignore[no-untyped-call]
        total = self.placement.all_reduce_gradients(self.network, self.optimizer, loss)
        if self.training.clip is not None:
            self.placement.clip_gradients(self.network, by_rows.leaves() if by_rows else [], self.training.clip)
        self.optimizer.step()
        return total

    def message_graph(self, positives: Tensor) -> RelationalAdjacency | None:
        """The operator of the edges that carry messages in this step.

        Edges are dropped before inverses are added and before normalizing: a dropped edge leaks through neither. They
        are those of the batch; or, where what is asked about must not be heard, all others.
        """
        if not self.network.num_layers:
            return None
        training, on_edges = self.training, self.training.self_loop_dropout_on == "edge"
        loop_rate = training.self_loop_dropout if on_edges else 0.0
        if self.hidden is None and self.sampler is None and not (training.edge_dropout or loop_rate):
            return self.adjacency
        if self.hidden is not None or self.sampler is None:
            mask = self.adjacency.draw_mask(training.edge_dropout, loop_rate, self.generator)
            if self.hidden is not None:
                mask[: len(self.triples)] *= self.hidden.heard(positives)
            return self.adjacency.masked(mask)
        keep = max(1, round(len(positives) * (1.0 - training.edge_dropout)))
        order = torch.rand(len(positives), generator=self.generator, device=positives.device).argsort()
        options = {**edge_options(self.model), "transient": True, "targets": self.placement.partition}
        options["checked"] = True  # rows of the training triples; to ask again would wait for the device in every step
        heard = positives.index_select(0, order[:keep])
        sampled = RelationalAdjacency.from_triples(heard, self.num_nodes, self.num_relations, **options)
        return sampled.masked(sampled.draw_mask(0.0, loop_rate, self.generator)) if loop_rate else sampled


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
