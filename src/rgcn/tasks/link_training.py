"""One training step of link prediction: edges, negatives, scores, loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.kernels import pair_dot, take_rows
from rgcn.nn.decoders import BilinearDecoder
from rgcn.sampling import EdgeSampler, KnownTriples, Negatives, NeighborhoodEdges, UniformEdges, corrupt, prefetched
from rgcn.tasks.link_network import LinkNetwork
from rgcn.tasks.recording import StepRecording


class Scores(NamedTuple):
    """Scores of the positives [n] and of their negatives [n · rate], and the mean squares of what was scored."""

    positive: Tensor
    negative: Tensor
    squares: Tensor


def score_batch(decoder: BilinearDecoder, nodes: Tensor, positives: Tensor, negatives: Negatives) -> Scores:
    """Scores of positives int64 [n, 3] and negatives, given all nodes' vectors [N, d'].

    A negative shares two of its three parts with its positive, so the product of those two, the query, is made once for
    each positive and side; a negative's score is then the dot product of a query and a node.
    """
    subject, relation, object_ = positives.unbind(1)
    subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
    (for_object, constant_object), (for_subject, constant_subject) = decoder.both_queries(subjects, relation, objects)
    positive = (for_object * objects).sum(1)
    queries = torch.cat([for_object, for_subject])
    negative = pair_dot(queries, nodes, negatives.by_query(len(positives), len(nodes)))
    if constant_object is not None and constant_subject is not None:
        positive = positive + constant_object
        which = negatives.positive + negatives.is_head * len(positives)
        constants = torch.cat([constant_object, constant_subject]).unsqueeze(1)
        negative = negative + take_rows(constants, which).squeeze(1)
    return Scores(positive, negative, _mean_squares(decoder, nodes, positives, negatives))


def _mean_squares(decoder: BilinearDecoder, nodes: Tensor, positives: Tensor, negatives: Negatives) -> Tensor:
    """mean s² + mean r² + mean o² over all scored triples, from how often each node and relation was scored.

    The sum over triples of |s|² is the sum over nodes of their count times |v|²: no triple is written out for it.
    """
    rate = len(negatives) // max(len(positives), 1)
    # In each negative one of the two ends is the positive's own.
    kept_object = rate - (~negatives.is_head).view(-1, rate).sum(1) if rate else torch.zeros_like(positives[:, 0])
    kept_subject = rate - kept_object
    counts = torch.zeros(len(nodes), dtype=nodes.dtype, device=nodes.device)
    counts.index_add_(0, positives[:, 0], (1 + kept_subject).to(nodes.dtype))
    counts.index_add_(0, positives[:, 2], (1 + kept_object).to(nodes.dtype))
    counts.index_add_(0, negatives.node, torch.ones_like(negatives.node, dtype=nodes.dtype))
    total = len(positives) + len(negatives)
    vectors = nodes[:, : decoder.width]
    relation_counts = torch.zeros(len(decoder.relation), dtype=nodes.dtype, device=nodes.device)
    relation_counts.index_add_(0, positives[:, 1], torch.full_like(counts[:1], 1.0 + rate).expand(len(positives)))
    ends = (counts @ vectors.square()).sum() / vectors.shape[1]
    relations = (relation_counts @ decoder.relation.square()).sum() / decoder.relation.shape[1]
    return (ends + relations) / total


class LinkTrainer:
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
        self.network, self.triples, self.adjacency = network, triples, adjacency
        self.model, self.training = model, training
        self.num_nodes, self.num_relations = adjacency.num_sources, adjacency.structure.num_data_relations
        self.generator = torch.Generator(device=triples.device).manual_seed(seed)
        self.known = None
        if training.filtered_negatives:
            self.known = KnownTriples.of(triples, self.num_nodes, self.num_relations)
        self.sampler = _sampler(training, triples, self.num_nodes, seed)
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
        self.factor = learning_rate_factor(training)
        self.steps_taken = 0
        # One-hot layers ask which rows a batch's edges use, and wait for the answer: such a step cannot be recorded.
        recordable = on_gpu and not (model.name == "rgcn" and model.input == "one-hot")
        self.recording = StepRecording(self._step, self.generator, triples.device) if recordable else None

    def losses(self) -> Iterator[Tensor]:
        """Take a step at a time, `epochs` of them, and yield each one's loss (on the device, not waited for)."""
        with closing(self.batches()) as batches:
            for _ in range(self.training.epochs):
                yield self.step(next(batches))

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

    def go_on(self, steps_taken: int, sampler_state: Mapping[str, int]) -> None:
        """Stand where another trainer stood; before the first batch is asked for."""
        self.steps_taken, self.sampler_state = steps_taken, dict(sampler_state)
        if self.sampler is not None:
            self.sampler.set_state(sampler_state)

    def step(self, positives: Tensor) -> Tensor:
        """One step on these positive triples int64 [n, 3]; returns the loss before it."""
        rate = self.training.learning_rate * self.factor(self.steps_taken)
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
        training, network = self.training, self.network
        negatives = corrupt(
            positives,
            self.num_nodes,
            rate=training.negatives,
            head_probability=training.head_probability,
            generator=self.generator,
            known=self.known,
        )
        self.optimizer.zero_grad(set_to_none=True)
        nodes = network.encode(self.message_graph(positives))
        scores = score_batch(network.decoder, nodes, positives, negatives)
        loss = batch_loss(scores) + training.penalty * scores.squares
        loss.backward()  # type: ignore[no-untyped-call]
        if training.clip is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), training.clip)
        self.optimizer.step()
        return loss.detach()

    def message_graph(self, positives: Tensor) -> RelationalAdjacency | None:
        """The operator of the edges that carry messages in this step.

        Edges are dropped before inverses are added and before normalizing: a dropped edge leaks through neither.
        """
        if self.model.name == "distmult":
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


def batch_loss(scores: Scores) -> Tensor:
    """Binary cross-entropy, the mean over positives and negatives alike."""
    logits = torch.cat([scores.positive, scores.negative])
    truth = torch.zeros_like(logits)
    truth[: len(scores.positive)] = 1.0
    return F.binary_cross_entropy_with_logits(logits, truth)


def learning_rate_factor(training: LinkTrainingConfig) -> Callable[[int], float]:
    """Factor on the learning rate at each step (from 0).

    >>> cosine = learning_rate_factor(LinkTrainingConfig(epochs=100, schedule="cosine", warmup=10))
    >>> [round(cosine(step), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """

    def factor(step: int) -> float:
        if step < training.warmup:
            return (step + 1) / training.warmup
        if training.schedule == "cosine":
            done = (step - training.warmup) / max(1, training.epochs - training.warmup)
            return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
        if training.schedule == "step":
            return float(training.step_factor ** ((step - training.warmup) // training.step_every))
        return 1.0

    return factor


def _sampler(training: LinkTrainingConfig, triples: Tensor, num_nodes: int, seed: int) -> EdgeSampler | None:
    """None where every step sees the whole graph."""
    if training.batch_edges is None:
        return None
    array = triples.cpu().numpy()
    if training.sampling == "uniform":
        return UniformEdges(array, training.batch_edges, seed)
    return NeighborhoodEdges(array, num_nodes, training.batch_edges, seed)
