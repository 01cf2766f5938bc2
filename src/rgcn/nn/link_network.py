"""`LinkNetwork`, the interface of networks that score triples, and `VectorNetwork`: an encoder with a decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.kernels import take_rows
from rgcn.kernels.sparse import padded_unique
from rgcn.nn.decoders import BatchScores, Decoder
from rgcn.nn.relational_encoder import EncoderInput, RelationalEncoder
from rgcn.nn.row_tables import NodeEmbedding, NodeTable
from rgcn.nn.scorer import Questions, Scorer, VectorScorer
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.negatives import Negatives

# Memory of a training step for each number of a scored triple's vector: measured, a million triples with vectors of
# width 200 and ten negatives took 9.2 GB.
BYTES_PER_VALUE = 46
MessageAdjacency = RelationalAdjacency | None  # the edges that carry messages in a step; None without message passing


@dataclass(frozen=True)
class LinkPlan:
    """What an encoder needs to build a network for link prediction.

    Attributes:
        model: The model's configuration.
        training: The training configuration.
        num_nodes: Number of nodes.
        num_relations: Number of relations, without inverses.
        adjacency: The operator of the training triples.
        generator: Source of the initial weights.
        placement: Which nodes are local; the operator has their rows.
    """

    model: LinkModelConfig
    training: LinkTrainingConfig
    num_nodes: int
    num_relations: int
    adjacency: RelationalAdjacency
    generator: torch.Generator
    placement: Placement = LOCAL


class ExplainedTriple(NamedTuple):
    """A triple whose score is explained, and the edges that carry messages while it is scored.

    Attributes:
        field: The receptive field of `nodes`.
        nodes: Ids of the nodes whose states are computed, int64 `[num_nodes]`, in the order of the field's outputs.
        subject: The triple's subject.
        relation: The triple's relation.
        object: The triple's object.
        both: True to score it in both directions, False to score it as an answer to (subject, relation, ?) only.
    """

    field: ReceptiveField
    nodes: Tensor
    subject: int
    relation: int
    object: int
    both: bool = True

    def questions(self, num_relations: int) -> list[tuple[int, int, int]]:
        """Return (node, edge relation, answer) of each direction; ids of inverses follow those of the relations."""
        forward = (self.subject, self.relation, self.object)
        backward = (self.object, self.relation + num_relations, self.subject)
        return [forward, backward] if self.both else [forward]


class Factors(NamedTuple):
    """The vectors of a batch of directed triples that a penalty is on, as their ids.

    Attributes:
        power: 2 or 3, as for `Decoder.factor_penalty`.
        relation: Edge relation of each question, int64 `[num_questions]`.
        num_triples: Number of triples of each question, float `[num_questions]`.
        answer: The answers of the triples, int64 `[num_triples]`.
    """

    power: int
    relation: Tensor
    num_triples: Tensor
    answer: Tensor


class LinkNetwork(nn.Module, ABC):
    """A network that scores triples and can be trained to do so.

    Subclasses decide whether to compute a vector for each node once (`VectorNetwork`) or to run a computation for each
    question (`PathNetwork`).

    Attributes:
        num_layers: Number of hops that messages travel; 0 without message passing.
        is_one_hot: True if the first layer looks up rows by node id, so that it has none for new nodes.
        is_capturable: True if a training step never waits for the device, so that a GPU can record and replay it.
        must_hide_triples: True if a triple has to be hidden while it is asked about, because the network would find it
            on its way. Training, scores of known triples and explanations then hide the triple and its inverse.
        ignores_unreached_nodes: True if nodes that no walk from the question's node reaches send no messages, so that
            explanations need only the edges on walks to the answer.
        has_relation_weights: True if it has weights for each relation it was trained with, and none for others.
        encodes_batch_only: Set to compute only the nodes of a batch, when only their rows of a table change.
        placement: Which nodes this process computes.
    """

    num_layers: int
    is_one_hot: bool = False
    is_capturable: bool = True
    must_hide_triples: bool = False
    ignores_unreached_nodes: bool = False
    has_relation_weights: bool = True
    source: NodeEmbedding | None = None
    """Embeddings of the nodes, which new nodes lack; None if it has none."""
    encodes_batch_only: bool = False
    placement: Placement = LOCAL

    def __init__(self) -> None:
        """Create a network without weights."""
        super().__init__()
        self._scorer: Scorer | None = None

    @property
    def has_node_weights(self) -> bool:
        """True if it holds weights for each node; if False, it answers over any graph with its relations."""
        return self.is_one_hot or self.source is not None

    def node_tables(self) -> list[NodeTable]:
        """Return the tables with a row for each node, of which a step reads few if `encodes_batch_only` is set."""
        return []

    def load_initial_weights(self, model: LinkModelConfig) -> None:
        """Load the initial weights, for models that do not start from random ones. Called before training."""

    @abstractmethod
    def score_batch(self, adjacency: MessageAdjacency, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score positives int64 `[num_positives, 3]` and their negatives, with gradients; messages use `adjacency`."""

    def step_bytes(self, num_nodes: int, questions: int) -> int:
        """Estimate the memory of a training step with this number of questions; 0 if negligible."""
        return 0

    def explained_work(self, nodes: int, edges: int) -> int:
        """Estimate the multiply-adds of `score_explained` by numbers of nodes and edges, for a relation seen before."""
        return 0

    def question_work(self, nodes: int, edges: int) -> int:
        """Estimate the multiply-adds of a new question by numbers of nodes and edges; 0 if negligible."""
        return self.explained_work(nodes, edges)

    @abstractmethod
    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        """Score all nodes as answers to each question, with gradients: `[num_questions, num_nodes]`."""

    def score_with_penalty(
        self, adjacency: RelationalAdjacency | None, questions: Questions, factors: Factors
    ) -> tuple[Tensor, Tensor | None]:
        """Score all nodes as answers to each question, and compute the penalty on the factors of the batch.

        Args:
            adjacency: The edges that carry messages.
            questions: The distinct questions.
            factors: What the penalty is on.

        Returns:
            Scores `[num_questions, num_nodes]`, and the penalty, or None if triples have no factors.
        """
        return self.score_nodes(adjacency, questions), None

    @abstractmethod
    def score_explained(self, triple: ExplainedTriple) -> Tensor:
        """Score a triple with gradients for the weights of its edges.

        Returns:
            `[2]`, the scores as an answer to (subject, relation, ?) and to (?, relation, object), if they differ and
            both are wanted (`ExplainedTriple.both`); else `[1]`.
        """

    def score_baseline(self, triple: ExplainedTriple) -> Tensor:
        """Score a triple as if nothing were known of its nodes; the edges of `triple` carry no messages already."""
        return self.score_explained(triple)

    @abstractmethod
    def make_scorer(self, adjacency: RelationalAdjacency) -> Scorer:
        """Make a scorer over the whole graph. Called without gradients, in evaluation mode."""

    def scorer(self, adjacency: RelationalAdjacency) -> Scorer:
        """Return the scorer, made once until the network is trained again."""
        if self.training:
            self.eval()
        if self._scorer is None:
            with torch.no_grad():
                self._scorer = self.make_scorer(adjacency)
                self._scorer.placement = self.placement
        return self._scorer

    def train(self, mode: bool = True) -> LinkNetwork:
        """Switch to training or evaluation mode; either way weights may change, so the scorer is dropped."""
        self._scorer = None
        super().train(mode)
        return self

    def node_vectors(self, adjacency: RelationalAdjacency) -> Tensor | None:
        """Return a vector for each node, `[num_nodes, dim]`; None if the network has none."""
        return None

    def relation_vectors(self) -> Tensor | None:
        """Return a vector for each relation, `[num_relations, dim]`; None if the network has none."""
        return None


class VectorNetwork(LinkNetwork):
    """An encoder that computes a vector for each node, and a decoder that scores triples of them.

    Args:
        encoder: Computes node vectors.
        decoder: Scores triples.
        placement: Which nodes this process computes.
    """

    def __init__(self, encoder: RelationalEncoder, decoder: Decoder, placement: Placement = LOCAL) -> None:
        """Combine an encoder and a decoder."""
        super().__init__()
        self.encoder, self.decoder, self.placement = encoder, decoder, placement
        self.num_layers, self.is_one_hot = encoder.num_layers, encoder.is_one_hot

    @property
    def source(self) -> NodeEmbedding | None:  # type: ignore[override]
        """The encoder's node embeddings; None if its input is something else."""
        return self.encoder.source if isinstance(self.encoder.source, NodeEmbedding) else None

    @property
    def is_capturable(self) -> bool:  # type: ignore[override]
        """False where a step has to wait for node ids: in one-hot layers and receptive fields."""
        return not self.is_one_hot and not (self.encodes_batch_only and self.num_layers)

    def node_tables(self) -> list[NodeTable]:
        """Return the tables of embeddings and of the decoder's node biases."""
        biases = getattr(self.decoder, "node_bias", None)
        tables = [None if self.source is None else self.source.rows, biases]
        return [table for table in tables if isinstance(table, NodeTable)]

    def encode(self, over: EncoderInput) -> Tensor:
        """Compute vectors `[num_nodes, dim]` for the decoder, of all nodes or of those that `over` names."""
        nodes = over.outputs if isinstance(over, ReceptiveField) else over if isinstance(over, Tensor) else None
        return self.decoder.prepare(self.encoder(over), nodes)

    def encode_nodes(self, adjacency: RelationalAdjacency | None, nodes: Tensor) -> Tensor:
        """Compute vectors `[n, dim]` of distinct nodes int64 `[n]`, on the ranks that hold them."""
        if adjacency is None or not self.num_layers:
            exchange = self.placement.exchange(nodes)
            return exchange(self.encode(exchange.needed))
        # A receptive field costs less than all nodes if the edges are used only once.
        if self.placement.partition is None or adjacency.structure.transient:
            exchange = self.placement.exchange(nodes)
            field = ReceptiveField.of(adjacency, exchange.needed, self.num_layers, self.placement)
            return exchange(self.encode(field))
        return self.placement.exchange(nodes, all_local=True)(self.encode_local_nodes(adjacency))

    def encode_local_nodes(self, adjacency: RelationalAdjacency | None) -> Tensor:
        """Compute vectors `[num_local_nodes, dim]` of all local nodes, in the order of their rows."""
        partition = self.placement.partition
        if partition is None or adjacency is None:
            return self.encode(adjacency)
        if not self.num_layers:
            return self.encode(partition.nodes.to(adjacency.device))
        return self.encode(ReceptiveField.whole(adjacency, self.num_layers, self.placement))

    def step_bytes(self, num_nodes: int, questions: int) -> int:
        """Estimate the memory of a training step from the vectors of its triples."""
        return BYTES_PER_VALUE * self.encoder.dim * questions

    def score_batch(self, adjacency: MessageAdjacency, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Encode the nodes of the batch, or all nodes, and score with the decoder."""
        is_partitioned = self.placement.partition is not None
        if not (self.encodes_batch_only or is_partitioned):
            return self.decoder.score_batch(self.encode(adjacency), positives, negatives)
        # Renumber the batch by its distinct nodes.
        subject, relation, object_ = positives.unbind(1)
        nodes, can_wait = torch.cat([subject, object_, negatives.drawn_nodes]), is_partitioned or adjacency is not None
        is_padded = nodes.is_cuda and not can_wait
        nodes, index = padded_unique(nodes) if is_padded else torch.unique(nodes, return_inverse=True)
        subject, object_, drawn = torch.split(index, [len(subject), len(object_), len(negatives.drawn_nodes)])
        positives = torch.stack([subject, relation, object_], dim=1)
        return self.decoder.score_batch(self.encode_nodes(adjacency, nodes), positives, negatives.with_nodes(drawn))

    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        """Encode all nodes and score them with the decoder."""
        nodes = self.encode(adjacency)
        node, relation, for_objects = questions
        return self.decoder.score_questions(take_rows(nodes, node), relation, for_objects, nodes)

    def score_with_penalty(
        self, adjacency: RelationalAdjacency | None, questions: Questions, factors: Factors
    ) -> tuple[Tensor, Tensor | None]:
        """Encode all nodes once, for the scores and for the penalty."""
        nodes = self.encode(adjacency)
        node, relation, for_objects = questions
        # Taken together, so that one gradient of the size of all nodes is made instead of two.
        both = take_rows(nodes, torch.cat([node, factors.answer]))
        rows, answers = torch.split(both, [len(node), len(factors.answer)])
        scores = self.decoder.score_questions(rows, relation, for_objects, nodes)
        return scores, self.decoder.factor_penalty(factors.power, rows, factors.relation, answers, factors.num_triples)

    def score_explained(self, triple: ExplainedTriple) -> Tensor:
        """Encode the triple's nodes and score it: `[2]` if the decoder scores directions apart, else `[1]`."""
        return self._decode(triple, self.encode(triple.field))

    def score_baseline(self, triple: ExplainedTriple) -> Tensor:
        """Score vectors of nodes without embeddings and without biases."""
        vectors = self.encoder.remove_inputs(self.encode(triple.field)[:, : self.decoder.dim], triple.nodes)
        return self._decode(triple, self.decoder.prepare_unknown(vectors))

    def _decode(self, triple: ExplainedTriple, nodes: Tensor) -> Tensor:
        ids = triple.nodes.tolist()
        subject, object_ = ids.index(triple.subject), ids.index(triple.object)
        relation = torch.tensor([triple.relation], device=nodes.device)
        ends = nodes[subject : subject + 1], relation, nodes[object_ : object_ + 1]
        return self.decoder.score_directions(*ends)[: 1 + triple.both, 0]

    def make_scorer(self, adjacency: RelationalAdjacency) -> Scorer:
        """Compute the vectors of the local nodes once."""
        vectors = self.encode_local_nodes(adjacency).detach()
        return VectorScorer(self.decoder, vectors, self.placement)

    def node_vectors(self, adjacency: RelationalAdjacency) -> Tensor:
        """Return the vectors without the decoder's node biases, which say how frequent a node is, not what it is."""
        scorer = self.scorer(adjacency)
        assert isinstance(scorer, VectorScorer)
        assert scorer.partition is None
        return scorer.nodes[:, : self.decoder.dim]

    def relation_vectors(self) -> Tensor | None:
        """Return the decoder's relation vectors, without those of reciprocal relations."""
        table = self.decoder.relation_table()
        return None if table is None else table[0][: len(table[0]) // (1 + self.decoder.scores_directions_apart)]
