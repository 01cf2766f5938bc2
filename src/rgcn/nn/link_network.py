"""The network of link prediction: what it must be able to do, and the kind that gives every node a vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.kernels import take_rows
from rgcn.kernels.sparse import distinct
from rgcn.nn.decoders import BatchScores, Decoder
from rgcn.nn.relational_encoder import Over, RelationalEncoder
from rgcn.nn.row_tables import EmbeddingInput, NodeTable
from rgcn.nn.scorer import PartitionedScorer, Questions, Scorer, VectorScorer
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.negatives import Negatives

# Of a vector, for each triple a step learns from: a million triples with vectors of 200 and ten negatives took 9.2 GB.
BYTES_A_NUMBER = 46
HeardEdges = RelationalAdjacency | None  # that carry messages in a step; None where no messages are passed


@dataclass(frozen=True)
class LinkPlan:
    """What a network of link prediction is built for.

    model, training  its settings
    adjacency        the operator of the training triples
    generator        where initial weights come from
    placement        which nodes are local: the operator has their rows
    """

    model: LinkModelConfig
    training: LinkTrainingConfig
    num_nodes: int
    num_relations: int
    adjacency: RelationalAdjacency
    generator: torch.Generator
    placement: Placement = LOCAL


class Heard(NamedTuple):
    """A triple to be explained, and the edges that may be heard.

    field    the receptive field of the nodes asked int64 [a], in their order
    both     whether it is asked about from both ends; else as an answer to (subject, relation, ?) alone
    """

    field: ReceptiveField
    asked: Tensor
    subject: int
    relation: int
    object: int
    both: bool = True

    def questions(self, num_relations: int) -> list[tuple[int, int, int]]:
        """(node, kind of edge, answer) of each question; the kinds of inverse edges come after the relations."""
        there = (self.subject, self.relation, self.object)
        back = (self.object, self.relation + num_relations, self.subject)
        return [there, back] if self.both else [there]


class LinkNetwork(nn.Module, ABC):
    """Scores triples, and learns to. Whether it compares node vectors or computes each question anew is its own affair.

    num_layers  how many hops away a node can be heard; 0 where no messages are passed
    one_hot     whether its first layer looks rows up by node, so that a node it never saw has none
    recordable  whether a training step waits for nothing, so that a GPU may record and replay it
    hides_asked whether a triple must not be heard while it is asked about: who walks along edges would find it there.
                Training, scores of known triples and explanations then hide it, and with it its inverse
    only_reached whether a node that no walk from the asked one has reached says nothing, so that explanations need hear
                only what lies on walks to the answer
    knows_relations whether it has weights for the relations it was trained with, and none for others
    source      the table of what nodes bring of their own, which new nodes lack; None without one
    placement   which nodes are computed in this process
    """

    num_layers: int
    one_hot: bool = False
    recordable: bool = True
    hides_asked: bool = False
    only_reached: bool = False
    knows_relations: bool = True
    source: EmbeddingInput | None = None
    only_asked: bool = False
    placement: Placement = LOCAL

    def __init__(self) -> None:
        super().__init__()
        self._scorer: Scorer | None = None

    @property
    def knows_nodes(self) -> bool:
        """Whether it holds something for each node, of which it has none for another's: a table, or rows by node.

        Where not, it answers over any graph of the relations it was trained with.
        """
        return self.one_hot or self.source is not None

    def node_tables(self) -> list[NodeTable]:
        """Tables with a row for each node, of which a batch reads those of its own nodes alone (`only_asked`)."""
        return []

    def begin(self, model: LinkModelConfig) -> None:
        """Stand where a training begins, if that is elsewhere than at random. Not called for weights that were kept."""

    @abstractmethod
    def score_batch(self, adjacency: HeardEdges, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Scores of positives int64 [n, 3] and of their negatives, hearing these edges; with gradients."""

    def step_bytes(self, num_nodes: int, questions: int) -> int:
        """About how much memory a training step takes that asks so many questions at once; 0: little."""
        return 0

    def heard_work(self, nodes: int, edges: int) -> int:
        """Multiply-adds of `score_heard` over so many nodes and edges, asked again about the same relation; 0: few."""
        return 0

    def question_work(self, nodes: int, edges: int) -> int:
        """The same of a question that was not asked before."""
        return self.heard_work(nodes, edges)

    @abstractmethod
    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        """[q, N]: every node as the answer to each question, hearing these edges; with gradients."""

    @abstractmethod
    def score_heard(self, heard: Heard) -> Tensor:
        """[1] or [2]: a triple's score, with gradients of the weights of the edges that are heard.

        Two where its score as an answer to (subject, relation, ?) is another than to (?, relation, object), and both
        are asked for (`Heard.both`); in this order.
        """

    def score_unheard(self, heard: Heard) -> Tensor:
        """The same where nothing is known of the nodes either; `heard` holds no message already."""
        return self.score_heard(heard)

    @abstractmethod
    def make_scorer(self, adjacency: RelationalAdjacency) -> Scorer:
        """What answers from the whole graph, nothing dropped; called without gradients, in evaluation mode."""

    def scorer(self, adjacency: RelationalAdjacency) -> Scorer:
        """The same, made once until the network trains again."""
        if self.training:
            self.eval()
        if self._scorer is None:
            with torch.no_grad():
                self._scorer = self.make_scorer(adjacency)
                self._scorer.placement = self.placement
        return self._scorer

    def train(self, mode: bool = True) -> LinkNetwork:
        """Training or not; either way the weights may change, so that what was computed from them is forgotten."""
        self._scorer = None
        super().train(mode)
        return self

    def node_vectors(self, adjacency: RelationalAdjacency) -> Tensor | None:
        """[N, width]: a vector for each node; None where nodes have none."""
        return None

    def relation_vectors(self) -> Tensor | None:
        """[R, width]: a vector for each relation; None where relations have none."""
        return None


class VectorNetwork(LinkNetwork):
    """An encoder that gives every node a vector, and a decoder that scores triples of them.

    only_asked  compute the nodes of a batch alone, not all: where only their rows are to move
    """

    def __init__(self, encoder: RelationalEncoder, decoder: Decoder, placement: Placement = LOCAL) -> None:
        super().__init__()
        self.encoder, self.decoder, self.placement = encoder, decoder, placement
        self.num_layers, self.one_hot = encoder.num_layers, encoder.one_hot

    @property
    def recordable(self) -> bool:  # type: ignore[override]
        # One-hot layers ask which rows a batch's edges use, and wait for the answer; so do receptive fields.
        return not self.one_hot and not (self.only_asked and self.num_layers)

    def node_tables(self) -> list[NodeTable]:
        biases = getattr(self.decoder, "node_bias", None)
        tables: list[NodeTable] = [] if self.source is None else [self.source.rows]
        return [*tables, biases] if isinstance(biases, NodeTable) else tables

    @property
    def source(self) -> EmbeddingInput | None:  # type: ignore[override]
        source = self.encoder.source
        return source if isinstance(source, EmbeddingInput) else None

    def encode(self, over: Over) -> Tensor:
        """[N, d']: vectors of every node, or of those a receptive field gives, ready for the decoder."""
        nodes = over.outputs if isinstance(over, ReceptiveField) else over if isinstance(over, Tensor) else None
        return self.decoder.prepare(self.encoder(over), nodes)

    def vectors_of(self, adjacency: RelationalAdjacency | None, nodes: Tensor) -> Tensor:
        """[n, d']: vectors of these nodes int64 [n], distinct, computed in the processes that hold them."""
        if adjacency is None or not self.num_layers:
            exchange = self.placement.exchange(nodes)
            return exchange(self.encode(exchange.needed))
        if self.placement.partition is None or adjacency.structure.transient:  # a walk costs less than all nodes
            exchange = self.placement.exchange(nodes)
            field = ReceptiveField.of(adjacency, exchange.needed, self.num_layers, self.placement)
            return exchange(self.encode(field))
        return self.placement.exchange(nodes, all_local=True)(self.local_vectors(adjacency))

    def local_vectors(self, adjacency: RelationalAdjacency | None) -> Tensor:
        """[local nodes, d']: vectors of all nodes, or of the local ones, by their rows."""
        partition = self.placement.partition
        if partition is None or adjacency is None:
            return self.encode(adjacency)
        if not self.num_layers:
            return self.encode(partition.nodes.to(adjacency.device))
        return self.encode(ReceptiveField.whole(adjacency, self.num_layers, self.placement))

    def step_bytes(self, num_nodes: int, questions: int) -> int:
        return BYTES_A_NUMBER * self.encoder.width * questions

    def score_batch(self, adjacency: HeardEdges, positives: Tensor, negatives: Negatives) -> BatchScores:
        divided = self.placement.partition is not None
        if not (self.only_asked or divided):
            return self.decoder.score_batch(self.encode(adjacency), positives, negatives)
        # The nodes of the step, and its triples and negatives with nodes numbered among these.
        subject, relation, object_ = positives.unbind(1)
        every, waits = torch.cat([subject, object_, negatives.drawn]), divided or adjacency is not None
        nodes, number = torch.unique(every, return_inverse=True) if waits or not every.is_cuda else distinct(every)
        subject, object_, drawn = torch.split(number, [len(subject), len(object_), len(negatives.drawn)])
        positives = torch.stack([subject, relation, object_], dim=1)
        return self.decoder.score_batch(self.vectors_of(adjacency, nodes), positives, negatives.with_drawn(drawn))

    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        nodes = self.encode(adjacency)
        node, relation, for_objects = questions
        return self.decoder.score_questions(take_rows(nodes, node), relation, for_objects, nodes)

    def score_heard(self, heard: Heard) -> Tensor:
        return self._scored(heard, self.encode(heard.field))

    def score_unheard(self, heard: Heard) -> Tensor:
        nodes, width = self.encode(heard.field), self.decoder.width
        vectors = self.encoder.without_own(nodes[:, :width], heard.asked)
        return self._scored(heard, torch.cat([vectors, torch.zeros_like(nodes[:, width:])], dim=1))

    def _scored(self, heard: Heard, nodes: Tensor) -> Tensor:
        places = heard.asked.tolist()
        subject, object_ = places.index(heard.subject), places.index(heard.object)
        relation = torch.tensor([heard.relation], device=nodes.device)
        return self.decoder.score(nodes[subject : subject + 1], relation, nodes[object_ : object_ + 1])

    def make_scorer(self, adjacency: RelationalAdjacency) -> Scorer:
        vectors = self.local_vectors(adjacency).detach()
        if self.placement.partition is None:
            return VectorScorer(self.decoder, vectors)
        return PartitionedScorer(self.decoder, vectors, self.placement)

    def node_vectors(self, adjacency: RelationalAdjacency) -> Tensor:
        # Behind the vector a decoder may hold a node's biases, which say how frequent it is and not what it is.
        scorer = self.scorer(adjacency)
        assert isinstance(scorer, VectorScorer)
        return scorer.nodes[:, : self.decoder.width]

    def relation_vectors(self) -> Tensor | None:
        table = self.decoder.relation_table()
        return None if table is None else table[0]
