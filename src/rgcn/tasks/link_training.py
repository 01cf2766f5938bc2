"""Training steps of link prediction: a batch of edges, the edges that carry messages, a loss it knows nothing about."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

import torch
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.axis_tables import OBJECTIVES, SAMPLERS
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.nn.link_network import LinkNetwork
from rgcn.objectives import Objective, ObjectivePlan
from rgcn.sampling import EdgeSampler, prefetched
from rgcn.tasks.fitting import StepRecording, Trainer


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
    ) -> None:
        """triples int64 [T, 3]: the training triples, on the device; adjacency: their operator."""
        self.network: LinkNetwork = network
        self.triples, self.adjacency, self.model, self.training = triples, adjacency, model, training
        self.num_nodes, self.num_relations = adjacency.num_sources, adjacency.structure.num_data_relations
        self.generator = torch.Generator(device=triples.device).manual_seed(seed)
        plan = ObjectivePlan(training, triples, self.num_nodes, self.num_relations)
        objective: type[Objective] = OBJECTIVES.find(training.objective)
        self.objective = objective.build(plan)
        self.sampler: EdgeSampler | None = None  # where every step sees the whole graph
        if training.batch_edges is not None:
            sampler: type[EdgeSampler] = SAMPLERS.find(training.sampler)
            self.sampler = sampler(triples.cpu().numpy(), self.num_nodes, training.batch_edges, seed)
        # Batches are drawn ahead: where the sampler stood after the batch that was handed out last.
        self.sampler_state = {} if self.sampler is None else self.sampler.state()
        # On a GPU the rate is a tensor: a recorded step then reads whatever it holds at the time.
        on_gpu = triples.is_cuda
        self.learning_rate = torch.tensor(training.learning_rate, device=triples.device) if on_gpu else None
        self.optimizer = torch.optim.Adam(
            network.parameters(),
            lr=training.learning_rate if self.learning_rate is None else self.learning_rate,
            weight_decay=training.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        self.steps_taken = 0
        recordable = on_gpu and network.recordable
        self.recording = StepRecording(self._step, self.generator, triples.device) if recordable else None
        self._batches: Generator[Tensor, None, None] | None = None

    def running(self) -> AbstractContextManager[object]:
        self.network.train()
        self._batches = self.batches()
        return closing(self._batches)

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
                yield self.triples
        on_host, on_gpu = self.triples.cpu(), self.triples.is_cuda
        sampler = self.sampler

        def draw() -> tuple[Tensor, dict[str, int]]:
            batch = on_host.index_select(0, torch.from_numpy(sampler.sample()))
            return batch.pin_memory() if on_gpu else batch, sampler.state()

        for batch, state in prefetched(draw):
            self.sampler_state = state
            yield batch.to(self.triples.device, non_blocking=True)

    def step_on(self, positives: Tensor) -> Tensor:
        """One step on these positive triples int64 [n, 3]; returns the loss before it."""
        rate = self.training.learning_rate * learning_rate_factor(self.training, self.steps_taken)
        if self.learning_rate is None:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        else:
            self.learning_rate.fill_(rate)
        self.steps_taken += 1
        if not self.network.training:  # measured in between; what was encoded then is no longer so
            self.network.train()
        return self._step(positives) if self.recording is None else self.recording(positives)

    def _step(self, positives: Tensor) -> Tensor:
        drawn = self.objective.draw(positives, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.objective.loss(self.network, self.message_graph(positives), positives, drawn)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.training.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.training.clip)
        self.optimizer.step()
        return loss.detach()

    def message_graph(self, positives: Tensor) -> RelationalAdjacency | None:
        """The operator of the edges that carry messages in this step.

        Edges are dropped before inverses are added and before normalizing: a dropped edge leaks through neither.
        """
        if not self.network.num_layers:
            return None
        training, on_edges = self.training, self.training.self_loop_dropout_on == "edge"
        loop_rate = training.self_loop_dropout if on_edges else 0.0
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
