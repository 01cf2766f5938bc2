"""Decoders: scores of triples from node vectors, for given triples or for a question against all nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.config.fields import HasOptions
from rgcn.errors import ConfigError
from rgcn.kernels import pair_dot, take_rows
from rgcn.nn.initialization import Initializer
from rgcn.nn.row_tables import NodeTable
from rgcn.placement import NodePartition
from rgcn.sampling.negatives import Negatives, SharedNegatives

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan


MIN_ONE_PASS_SIZE = 1 << 25  # numbers in a table above which the sum of squares gets a gradient made in one pass


class BatchScores(NamedTuple):
    """Scores of a training batch.

    Attributes:
        positive: Scores of the positives `[num_positives]`.
        negative: Scores of their negatives `[num_positives * num_negatives]`.
        squares: mean s² + mean r² + mean o² over all of these triples, a scalar, for the L2 penalty.
    """

    positive: Tensor
    negative: Tensor
    squares: Tensor


class Decoder(nn.Module, HasOptions, ABC):
    """A function f(s, r, o) that scores triples from node vectors and relation ids; higher means more likely.

    Register a decoder in `rgcn.plugins.DECODERS`, or pass the class or its dotted name as `model.decoder`. Node vectors
    come from an encoder and pass through `prepare` once:

        nodes = decoder.prepare(encoder(...))                            # [num_nodes, dim]
        decoder.score(nodes[subject], relation, nodes[object])           # [num_triples]
        decoder.score_objects(nodes[subject], relation, nodes)           # [num_questions, num_nodes]

    Attributes:
        dim: Dimension of a node vector, without columns that `prepare` appends.
    """

    dim: int

    @classmethod
    @abstractmethod
    def build(cls, plan: LinkPlan, dim: int) -> Self:
        """Create a decoder with initial weights for node vectors of this dimension."""

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        """Return the limitations of models with this decoder, as sentences for reports."""
        return ()

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Convert node vectors to the form that the other methods take, for example by appending biases as columns.

        Args:
            nodes: Node vectors `[n, dim]`.
            node_ids: Ids of the nodes, int64 `[n]`; None for all nodes in order.
        """
        return nodes

    @abstractmethod
    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Score triples: subject `[n, dim]`, relation int64 `[n]`, object `[n, dim]` → `[n]`."""

    @abstractmethod
    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        """Score all nodes as objects: subject `[q, dim]`, relation int64 `[q]`, nodes `[n, dim]` → `[q, n]`."""

    @abstractmethod
    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        """Score all nodes as subjects: relation int64 `[q]`, object `[q, dim]`, nodes `[n, dim]` → `[q, n]`."""

    @abstractmethod
    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Return mean s² + mean r² + mean o² over triples and dimensions, a scalar; arguments are as for `score`."""

    # Subclasses may override the following methods by faster ones.

    def score_questions(
        self, node: Tensor, relation: Tensor, for_objects: bool | Tensor, nodes: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Score nodes as answers to questions of either direction.

        Args:
            node: Vectors of the questions' nodes `[q, dim]`, subjects if objects are asked for.
            relation: Relation ids int64 `[q]`.
            for_objects: Whether objects are asked for, for all questions or as bool `[q]`.
            nodes: Vectors of the possible answers `[n, dim]`.
            out: Memory `[q, n]` that may be used for the result.

        Returns:
            Scores `[q, n]`.
        """
        if not isinstance(for_objects, Tensor):
            if for_objects:
                return self.score_objects(node, relation, nodes)
            return self.score_subjects(relation, node, nodes)
        if for_objects.device.type != "cpu":  # in a training step, where selecting rows would wait for the device
            objects = self.score_objects(node, relation, nodes)
            return torch.where(for_objects[:, None], objects, self.score_subjects(relation, node, nodes))
        mask = for_objects.to(node.device)
        scores = node.new_empty(len(node), len(nodes)) if out is None else out
        scores[mask] = self.score_objects(node[mask], relation[mask], nodes)
        scores[~mask] = self.score_subjects(relation[~mask], node[~mask], nodes)
        return scores

    def score_batch(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score positives int64 `[num_positives, 3]` and their negatives, from the vectors of all nodes."""
        triples = torch.cat([positives, negatives.triples(positives)])
        subject, relation, object_ = triples.unbind(1)
        subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
        scores = self.score(subjects, relation, objects)
        squares = self.penalty(subjects, relation, objects)
        return BatchScores(scores[: len(positives)], scores[len(positives) :], squares)

    def relation_table(self) -> tuple[Tensor, Tensor | None] | None:
        """Return relation vectors `[num_relations, dim]` and biases `[num_relations]` or None; None without vectors."""
        return None


class BilinearDecoder(Decoder):
    """A decoder that is linear in each node: f(s, r, o) = ⟨q(s, r), o⟩ = ⟨s, p(r, o)⟩, with optional biases.

    A subclass defines the two query vectors q and p; the rest follows from them. With biases, f gains b_s[s] + b_r[r] +
    b_o[o]. `prepare` appends the biases of the nodes to their vectors as two columns, so that all nodes are still
    scored by one matrix product.

    Args:
        num_relations: Number of relations.
        dim: Dimension of a node vector.
        num_nodes: Number of nodes, needed for biases.
        biases: Whether to add biases, which start at zero.
        init: How the relation vectors are initialized; None for a standard normal distribution.
        generator: Source of the initial weights; None for PyTorch's default.
        partition: Which nodes are local, if nodes are partitioned over processes; only their biases are held.
    """

    @classmethod
    def build(cls, plan: LinkPlan, dim: int) -> Self:
        """Create a decoder with biases if `model.decoder_biases` is set."""
        sizes, biases = (plan.num_relations, dim, plan.num_nodes), plan.model.decoder_biases
        return cls(*sizes, biases, generator=plan.generator, partition=plan.placement.partition)

    @staticmethod
    def relation_dim(dim: int) -> int:
        """Return the dimension of a relation vector for nodes of dimension `dim`."""
        return dim

    def __init__(
        self,
        num_relations: int,
        dim: int,
        num_nodes: int | None = None,
        biases: bool = False,
        init: Initializer | None = None,
        generator: torch.Generator | None = None,
        partition: NodePartition | None = None,
    ) -> None:
        """Draw the initial relation vectors."""
        super().__init__()
        if biases and num_nodes is None:
            raise ConfigError("a decoder with biases needs the number of nodes: pass num_nodes")
        self.dim, size = dim, (num_relations, self.relation_dim(dim))
        draw = (init or Initializer("normal")).draw
        self.relation = nn.Parameter(draw(size, generator or torch.default_generator))
        rows = (num_nodes or 0) if partition is None else len(partition)
        self.node_bias = NodeTable(torch.zeros(rows, 2), partition) if biases else None
        self.relation_bias = nn.Parameter(torch.zeros(num_relations)) if biases else None

    @abstractmethod
    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Compute q(s, r): vectors `[n, dim]` each → `[n, dim]`."""

    @abstractmethod
    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Compute p(r, o): vectors `[n, dim]` each → `[n, dim]`."""

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Append the biases of the nodes as two columns, if there are biases."""
        if self.node_bias is None:
            return nodes
        table = self.node_bias
        bias = table.trained if node_ids is None else table.take(table.rows_of(node_ids))
        return torch.cat([nodes, bias.to(nodes.dtype)], dim=1)

    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Score triples as ⟨q(s, r), o⟩ plus biases; see `Decoder.score`."""
        query = self.object_query(self._vectors(subject), take_rows(self.relation, relation))
        score = (query * self._vectors(object)).sum(dim=1)
        bias = self._relation_biases(relation)
        return score if bias is None else score + subject[:, -2] + object[:, -1] + bias

    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        """Score all nodes as objects by one matrix product; see `Decoder.score_objects`."""
        return self.score_questions(subject, relation, True, nodes)

    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        """Score all nodes as subjects by one matrix product; see `Decoder.score_subjects`."""
        return self.score_questions(object, relation, False, nodes)

    def score_questions(
        self, node: Tensor, relation: Tensor, for_objects: bool | Tensor, nodes: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Score nodes as answers to questions of either direction, by one matrix product for both."""
        if isinstance(for_objects, Tensor):
            # Most of the cost of a product with few rows is reading all node vectors, so it is made once.
            mask = for_objects.to(node.device)
            (query, constant), (other, other_constant) = self._queries(relation, node, node)
            query = torch.where(mask[:, None], query, other)
            if constant is not None and other_constant is not None:
                constant = torch.where(mask, constant, other_constant)
        else:
            ends = (node, None) if for_objects else (None, node)
            [(query, constant)] = self._queries(relation, *ends)
        # query [q, dim] · nodesᵀ [dim, n] + constant [q] → [q, n]
        if out is None:
            return query @ nodes.T if constant is None else torch.addmm(constant[:, None], query, nodes.T)
        torch.mm(query, nodes.T, out=out)
        return out if constant is None else out.add_(constant[:, None])

    def score_batch(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score a batch without writing out its triples.

        A negative shares two of its three parts with its positive. The product of those two, the query, is computed
        once for each positive and side; a negative's score is then the dot product of a query and a node.
        """
        if isinstance(negatives, SharedNegatives):
            return self._score_shared(nodes, positives, negatives)
        subject, relation, object_ = positives.unbind(1)
        subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
        (for_object, constant_object), (for_subject, constant_subject) = self._queries(relation, subjects, objects)
        positive = (for_object * objects).sum(1)
        queries = torch.cat([for_object, for_subject])
        negative = pair_dot(queries, nodes, negatives.question_pattern(len(positives), len(nodes)))
        if constant_object is not None and constant_subject is not None:
            positive = positive + constant_object
            which = negatives.positive + negatives.is_subject * len(positives)
            constants = torch.cat([constant_object, constant_subject]).unsqueeze(1)
            negative = negative + take_rows(constants, which).squeeze(1)
        return BatchScores(positive, negative, self._mean_squares(nodes, positives, negatives))

    def _score_shared(self, nodes: Tensor, positives: Tensor, negatives: SharedNegatives) -> BatchScores:
        """Score negatives that positives share, as a matrix product for each chunk of positives and each side."""
        (subject, relation, object_), shared, n = positives.unbind(1), negatives.shared, len(positives)
        rows = take_rows(nodes, torch.cat([subject, object_, shared.flatten()]))
        subjects, objects, *others = torch.split(rows, [n, n, *[shared[0].numel()] * 2])
        queries, scores = self._queries(relation, subjects, objects), []
        positive = (queries[0][0] * objects).sum(1)
        for (query, constant), other in zip(queries, others, strict=True):
            product = negatives.split_chunks(query) @ other.view(*shared.shape[1:], -1).transpose(1, 2)
            score = product.view(-1, shared.shape[2])[:n]
            scores.append(score if constant is None else score + constant[:, None])
        positive = positive if queries[0][1] is None else positive + queries[0][1]
        # mean s² + mean r² + mean o²: a positive's nodes occur 1 + rate times, a drawn node with each of its chunk
        rate = shared.shape[2]
        counts = torch.full(shared.shape, negatives.chunk, device=nodes.device, dtype=nodes.dtype)
        counts[:, -1] = n - negatives.chunk * (shared.shape[1] - 1)
        weight = torch.cat([counts.new_full((2 * n,), 1 + rate), counts.flatten()])
        ends = _weighted_squares(rows[:, : self.dim], weight)
        weight = counts.new_zeros(len(self.relation)).index_add_(0, relation, counts.new_full((n,), 1 + 2 * rate))
        relations = _weighted_squares(self.relation, weight) / self.relation.shape[1]
        squares = (ends / self.dim + relations) / (n * (1 + 2 * rate))
        return BatchScores(positive, torch.cat(scores).flatten(), squares)

    def _mean_squares(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> Tensor:
        """Return mean s² + mean r² + mean o² over all scored triples, without writing them out.

        The sum over triples of |s|² is the sum over nodes of |v|² times how often each occurs.
        """
        rate, vectors = len(negatives) // max(len(positives), 1), nodes[:, : self.dim]
        heads = negatives.is_subject.view(len(positives), rate).sum(1)  # negatives with another subject
        counts, relation_counts = nodes.new_zeros(len(nodes)), nodes.new_zeros(len(self.relation))
        counts.index_add_(0, positives[:, 0], (1 + rate - heads).to(nodes.dtype))
        counts.index_add_(0, positives[:, 2], (1 + heads).to(nodes.dtype))
        counts.index_add_(0, negatives.node, torch.ones_like(negatives.node, dtype=nodes.dtype))
        relation_counts.index_add_(0, positives[:, 1], torch.full_like(counts[:1], 1.0 + rate).expand(len(positives)))
        is_large = vectors.numel() > MIN_ONE_PASS_SIZE
        ends = _weighted_squares(vectors, counts) if is_large else (counts @ vectors.square()).sum()
        ends = ends / vectors.shape[1]
        relations = (relation_counts @ self.relation.square()).sum() / self.relation.shape[1]
        return (ends + relations) / (len(positives) + len(negatives))

    def relation_table(self) -> tuple[Tensor, Tensor | None]:
        """Return the relation vectors and biases."""
        return self.relation, self.relation_bias

    def _queries(
        self, relation: Tensor, subject: Tensor | None, object: Tensor | None
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Return (query `[n, dim]`, constant `[n]` or None) for each end that is not None.

        They satisfy f(s, r, o) = ⟨query, vector of the other end⟩ + constant.
        """
        vectors, biases, queries = take_rows(self.relation, relation), self._relation_biases(relation), []
        for node, is_subject in ((subject, True), (object, False)):
            if node is None:
                continue
            vector, constant = self._vectors(node), None
            query = self.object_query(vector, vectors) if is_subject else self.subject_query(vectors, vector)
            if biases is not None:
                # The last two columns of a query select the bias of the answer's side.
                side = query.new_zeros(len(query), 2)
                side[:, 1 if is_subject else 0] = 1.0
                query = torch.cat([query, side], dim=1)
                constant = node[:, -2 if is_subject else -1] + biases
            queries.append((query, constant))
        return queries

    def _relation_biases(self, relation: Tensor) -> Tensor | None:
        bias = self.relation_bias
        return None if bias is None else take_rows(bias.unsqueeze(1), relation).squeeze(1)

    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Return the mean squares without writing out a relation vector for each triple; see `Decoder.penalty`."""
        relation_square = self.relation.square().mean(dim=1).index_select(0, relation).mean()
        return self._vectors(subject).square().mean() + relation_square + self._vectors(object).square().mean()

    def _vectors(self, nodes: Tensor) -> Tensor:
        return nodes if self.node_bias is None else nodes[:, : self.dim]


def _weighted_squares(x: Tensor, weight: Tensor) -> Tensor:
    """Return Σ_i weight_i |x_i|² for x `[n, dim]`, with a gradient made in one pass instead of PyTorch's four."""
    total = torch.dot(x.flatten(), (x.detach() * weight[:, None]).flatten())
    return 2 * total - total.detach()


class DistMult(BilinearDecoder):
    """The decoder f(s, r, o) = Σ_i s_i r_i o_i (+ b_s[s] + b_r[r] + b_o[o] with biases).

    Yang et al., "Embedding entities and relations for learning and inference in knowledge bases", 2015. It is
    symmetric, f(s, r, o) = f(o, r, s), unless biases distinguish subjects from objects.

    Args: as for `BilinearDecoder`.

    Shapes: node vectors `[n, dim]`, relation ids int64 `[n]` → scores `[n]`.

    >>> decoder = DistMult(num_relations=1, dim=2, generator=torch.Generator().manual_seed(0))
    >>> _ = decoder.relation.data.copy_(torch.tensor([[1.0, 10.0]]))
    >>> nodes = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> decoder.score(nodes[:1], torch.tensor([0]), nodes[1:]).tolist()  # 1·1·3 + 2·10·4
    [83.0]
    >>> decoder.score_objects(nodes[:1], torch.tensor([0]), nodes).tolist()
    [[41.0, 83.0]]
    """

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Return s ⊙ r."""
        return subject * relation

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Return r ⊙ o."""
        return relation * object

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        """Name the symmetry of DistMult without biases."""
        text = "DistMult gives (a, relation, b) and (b, relation, a) the same score: it ignores a relation's direction."
        return () if model.decoder_biases else (text,)
