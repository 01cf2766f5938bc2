"""Decoders that compare a query, computed from one node and the relation, with the other node: most known decoders."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.errors import ConfigError
from rgcn.kernels import pair_dot, take_rows
from rgcn.nn.decoders.base import BatchScores, Decoder
from rgcn.nn.initialization import Initializer
from rgcn.nn.row_tables import NodeTable
from rgcn.placement import NodePartition
from rgcn.sampling.negatives import Negatives, SharedNegatives

if TYPE_CHECKING:
    from rgcn.nn.link_network import LinkPlan

MIN_ONE_PASS_SIZE = 1 << 25  # numbers in a table above which the sum of squares gets a gradient made in one pass


class QueryDecoder(Decoder):
    """A decoder whose scores follow from dot products of queries and nodes: f(s, r, o) = g(⟨q(s, r), o⟩ + c).

    A subclass defines the two query vectors q(s, r), which is compared with objects, and p(r, o), which is compared
    with subjects. All nodes are then scored by one matrix product.

    With reciprocal relations, each relation r has a second vector r⁻¹, and a question for subjects (?, r, o) is asked
    as (o, r⁻¹, ?): f has a value for each direction, and p is not used (Lacroix et al. 2018; Kazemi and Poole 2018).

    Args:
        num_relations: Number of relations, without reciprocal ones.
        dim: Dimension of a node vector.
        init: How the relation vectors are initialized; None for a standard normal distribution.
        generator: Source of the initial weights; None for PyTorch's default.
        reciprocal: Whether to give each relation a second vector for questions about subjects.
    """

    is_complex = False
    """True if a vector `[2 k]` stands for k complex numbers: all real parts, then all imaginary parts."""

    def __init__(
        self,
        num_relations: int,
        dim: int,
        init: Initializer | None = None,
        generator: torch.Generator | None = None,
        reciprocal: bool = False,
    ) -> None:
        """Draw the initial relation vectors."""
        super().__init__()
        if self.is_complex and dim % 2:
            raise ConfigError(f"{type(self).__name__} takes pairs of numbers for complex ones: {dim} is odd")
        self.dim, self.num_relations, self.scores_directions_apart = dim, num_relations, reciprocal
        size = num_relations * (1 + reciprocal), self.relation_dim(dim)
        self.relation = nn.Parameter(self.draw_relations(size, init, generator or torch.default_generator))

    @staticmethod
    def relation_dim(dim: int) -> int:
        """Return the number of parameters of a relation for nodes of dimension `dim`."""
        return dim

    def draw_relations(self, size: tuple[int, int], init: Initializer | None, generator: torch.Generator) -> Tensor:
        """Draw the initial parameters of the relations."""
        return (init or Initializer("normal")).draw(size, generator)

    def relation_vectors(self) -> Tensor:
        """Return the vectors of relations, then of reciprocal ones, `[num_rows, relation_dim]`."""
        return self.relation

    @abstractmethod
    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Compute q(s, r): vectors `[n, dim]` each → `[n, dim]`."""

    @abstractmethod
    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Compute p(r, o): vectors `[n, dim]` each → `[n, dim]`."""

    def extend_query(
        self, query: Tensor, node: Tensor, relation: Tensor, as_subject: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Append to a query what matches the columns that `prepare` appends to node vectors.

        Args:
            query: q or p `[n, dim]`.
            node: Vectors of the questions' nodes, as `prepare` returns them.
            relation: Row of each relation in `relation_vectors`, int64 `[n]`.
            as_subject: True if the questions' nodes are in the place of the subject.

        Returns:
            The longer query, and the constant c of each question `[n]` or None.
        """
        return query, None

    def finish(self, product: Tensor) -> Tensor:
        """Return the scores g(x) from x = ⟨query, node⟩ + c, of any shape."""
        return product

    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Score triples, with reciprocal relations by the mean of both directions; see `Decoder.score`."""
        scores = self.score_directions(subject, relation, object)
        return scores.mean(0) if self.scores_directions_apart else scores[0]

    def score_directions(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Score triples in each direction: `[2, n]` with reciprocal relations, else `[1, n]`."""
        queries = self._queries(relation, subject, object if self.scores_directions_apart else None)
        return self.finish(_dot_products(queries, (object, subject)))

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
        if isinstance(for_objects, Tensor) and self.scores_directions_apart:
            inverse = ~for_objects.to(node.device)
            query, constant = self._object_query(relation + inverse.long() * self.num_relations, node)
        elif isinstance(for_objects, Tensor):
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
            product = query @ nodes.T if constant is None else torch.addmm(constant[:, None], query, nodes.T)
        else:
            product = torch.mm(query, nodes.T, out=out)
            product = out if constant is None else out.add_(constant[:, None])
        return self.finish(product)

    def score_batch(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score a batch without writing out its triples.

        A negative shares two of its three parts with its positive. The product of those two, the query, is computed
        once for each positive and side; a negative's score is then the dot product of a query and a node.
        """
        if isinstance(negatives, SharedNegatives):
            return self._score_shared(nodes, positives, negatives)
        subject, relation, object_ = positives.unbind(1)
        subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
        both = self._queries(relation, subjects, objects)
        (for_object, constant_object), (for_subject, constant_subject) = both
        positive, directions = self._positives(both, subjects, objects)
        queries = torch.cat([for_object, for_subject])
        negative = pair_dot(queries, nodes, negatives.question_pattern(len(positives), len(nodes)))
        if constant_object is not None and constant_subject is not None:
            which = negatives.positive + negatives.is_subject * len(positives)
            constants = torch.cat([constant_object, constant_subject]).unsqueeze(1)
            negative = negative + take_rows(constants, which).squeeze(1)
        squares = self._mean_squares(nodes, positives, negatives)
        return BatchScores(positive, self.finish(negative), squares, directions)

    def _positives(
        self, queries: list[tuple[Tensor, Tensor | None]], subjects: Tensor, objects: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return the scores of positives, and those of each direction if they differ."""
        if not self.scores_directions_apart:
            return self.finish(_dot_products(queries[:1], (objects, subjects))[0]), None
        directions = self.finish(_dot_products(queries, (objects, subjects)))
        return directions.mean(0), directions

    def _score_shared(self, nodes: Tensor, positives: Tensor, negatives: SharedNegatives) -> BatchScores:
        """Score negatives that positives share, as a matrix product for each chunk of positives and each side."""
        (subject, relation, object_), shared, n = positives.unbind(1), negatives.shared, len(positives)
        rows = take_rows(nodes, torch.cat([subject, object_, shared.flatten()]))
        subjects, objects, *others = torch.split(rows, [n, n, *[shared[0].numel()] * 2])
        queries, scores = self._queries(relation, subjects, objects), []
        positive, directions = self._positives(queries, subjects, objects)
        for (query, constant), other in zip(queries, others, strict=True):
            product = negatives.split_chunks(query) @ other.view(*shared.shape[1:], -1).transpose(1, 2)
            score = product.view(-1, shared.shape[2])[:n]
            scores.append(score if constant is None else score + constant[:, None])
        # mean s² + mean r² + mean o²: a positive's nodes occur 1 + rate times, a drawn node with each of its chunk
        rate = shared.shape[2]
        counts = torch.full(shared.shape, negatives.chunk, device=nodes.device, dtype=nodes.dtype)
        counts[:, -1] = n - negatives.chunk * (shared.shape[1] - 1)
        weight = torch.cat([counts.new_full((2 * n,), 1 + rate), counts.flatten()])
        ends = _weighted_squares(rows[:, : self.dim], weight)
        vectors = self.relation_vectors()
        relations = _weighted_squares(vectors, self._relation_counts(relation, 1 + 2 * rate)) / vectors.shape[1]
        squares = (ends / self.dim + relations) / (n * (1 + 2 * rate))
        return BatchScores(positive, self.finish(torch.cat(scores).flatten()), squares, directions)

    def _mean_squares(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> Tensor:
        """Return mean s² + mean r² + mean o² over all scored triples, without writing them out.

        The sum over triples of |s|² is the sum over nodes of |v|² times how often each occurs.
        """
        rate, vectors = len(negatives) // max(len(positives), 1), nodes[:, : self.dim]
        heads = negatives.is_subject.view(len(positives), rate).sum(1)  # negatives with another subject
        counts = nodes.new_zeros(len(nodes))
        counts.index_add_(0, positives[:, 0], (1 + rate - heads).to(nodes.dtype))
        counts.index_add_(0, positives[:, 2], (1 + heads).to(nodes.dtype))
        counts.index_add_(0, negatives.node, torch.ones_like(negatives.node, dtype=nodes.dtype))
        is_large = vectors.numel() > MIN_ONE_PASS_SIZE
        ends = _weighted_squares(vectors, counts) if is_large else (counts @ vectors.square()).sum()
        ends, relations = ends / vectors.shape[1], self.relation_vectors()
        relation_counts = self._relation_counts(positives[:, 1], 1.0 + rate)
        relations = (relation_counts @ relations.square()).sum() / relations.shape[1]
        return (ends + relations) / (len(positives) + len(negatives))

    def _relation_counts(self, relation: Tensor, count: float) -> Tensor:
        """Return how often each row of `relation_vectors` is used if each triple uses its relation `count` times."""
        counts = self.relation.new_zeros(len(self.relation))
        if not self.scores_directions_apart:
            return counts.index_add_(0, relation, torch.full_like(counts[:1], count).expand(len(relation)))
        half = torch.full_like(counts[:1], count / 2).expand(2 * len(relation))
        return counts.index_add_(0, torch.cat([relation, relation + self.num_relations]), half)

    def relation_table(self) -> tuple[Tensor, Tensor | None]:
        """Return the relation vectors, those of reciprocal relations last, and no biases."""
        return self.relation_vectors(), None

    def _object_query(self, row: Tensor, subject: Tensor) -> tuple[Tensor, Tensor | None]:
        query = self.object_query(self._vectors(subject), take_rows(self.relation_vectors(), row))
        return self.extend_query(query, subject, row, True)

    def _queries(
        self, relation: Tensor, subject: Tensor | None, object: Tensor | None
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Return (query, constant `[n]` or None) for each end that is not None.

        They satisfy f(s, r, o) = g(⟨query, vector of the other end⟩ + constant).
        """
        if self.scores_directions_apart:
            found = [] if subject is None else [self._object_query(relation, subject)]
            return found if object is None else [*found, self._object_query(relation + self.num_relations, object)]
        vectors, queries = take_rows(self.relation_vectors(), relation), []
        for node, is_subject in ((subject, True), (object, False)):
            if node is not None:
                vector = self._vectors(node)
                query = self.object_query(vector, vectors) if is_subject else self.subject_query(vectors, vector)
                queries.append(self.extend_query(query, node, relation, is_subject))
        return queries

    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """Return the mean squares without writing out a relation vector for each triple; see `Decoder.penalty`."""
        vectors = self.relation_vectors()
        counts = self._relation_counts(relation, 1.0)
        relation_square = (counts @ vectors.square().mean(dim=1)) / len(relation)
        return self._vectors(subject).square().mean() + relation_square + self._vectors(object).square().mean()

    def factor_penalty(self, power: int, node: Tensor, relation: Tensor, answer: Tensor, counts: Tensor) -> Tensor:
        """Return the mean squares or N3 of a batch's factors; see `Decoder.factor_penalty`."""
        row = relation if self.scores_directions_apart else relation % self.num_relations
        vectors = take_rows(self.relation_vectors(), row)
        total = answer.new_zeros(())
        for factor, weight in ((self._vectors(node), counts), (vectors, counts), (self._vectors(answer), None)):
            powers = self._powers(factor, power)
            total = total + (powers.sum() if weight is None else (weight.to(powers.dtype) @ powers))
        return total / len(answer)

    def _powers(self, factor: Tensor, power: int) -> Tensor:
        """Return the sum over dimensions of |x|³, complex numbers by their modulus, or the mean of x²: `[n]`."""
        if power == 2:
            return factor.square().mean(1)
        if not self.is_complex:
            return (factor.square() * factor.abs()).sum(1)
        real, imaginary = factor.tensor_split(2, dim=1)
        return (real.square() + imaginary.square()).pow(1.5).sum(1)

    def _vectors(self, nodes: Tensor) -> Tensor:
        return nodes if nodes.shape[1] == self.dim else nodes[:, : self.dim]


class BilinearDecoder(QueryDecoder):
    """A decoder that is linear in each node: f(s, r, o) = ⟨q(s, r), o⟩ = ⟨s, p(r, o)⟩, with optional biases.

    With biases, f gains b_s[s] + b_r[r] + b_o[o]. `prepare` appends the biases of the nodes to their vectors as two
    columns, so that all nodes are still scored by one matrix product.

    Args:
        num_relations: Number of relations, without reciprocal ones.
        dim: Dimension of a node vector.
        num_nodes: Number of nodes, needed for biases.
        biases: Whether to add biases, which start at zero.
        init: How the relation vectors are initialized; None for a standard normal distribution.
        generator: Source of the initial weights; None for PyTorch's default.
        partition: Which nodes are local, if nodes are partitioned over processes; only their biases are held.
        reciprocal: Whether to give each relation a second vector for questions about subjects.
    """

    @classmethod
    def build(cls, plan: LinkPlan, dim: int) -> Self:
        """Create a decoder with biases if `model.decoder_biases` is set."""
        model, partition = plan.model, plan.placement.partition
        sizes, init = (plan.num_relations, dim, plan.num_nodes), relation_initializer(plan)
        return cls(*sizes, model.decoder_biases, init, plan.generator, partition, **_reciprocal(plan))

    def __init__(
        self,
        num_relations: int,
        dim: int,
        num_nodes: int | None = None,
        biases: bool = False,
        init: Initializer | None = None,
        generator: torch.Generator | None = None,
        partition: NodePartition | None = None,
        reciprocal: bool = False,
    ) -> None:
        """Draw the initial relation vectors."""
        super().__init__(num_relations, dim, init, generator, reciprocal)
        if biases and num_nodes is None:
            raise ConfigError("a decoder with biases needs the number of nodes: pass num_nodes")
        rows = (num_nodes or 0) if partition is None else len(partition)
        self.node_bias = NodeTable(torch.zeros(rows, 2), partition) if biases else None
        self.relation_bias = nn.Parameter(torch.zeros(len(self.relation))) if biases else None

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Append the biases of the nodes as two columns, if there are biases."""
        if self.node_bias is None:
            return nodes
        table = self.node_bias
        bias = table.trained if node_ids is None else table.take(table.rows_of(node_ids))
        return torch.cat([nodes, bias.to(nodes.dtype)], dim=1)

    def prepare_unknown(self, nodes: Tensor) -> Tensor:
        """Append biases of zero, if there are biases."""
        return nodes if self.node_bias is None else torch.nn.functional.pad(nodes, (0, 2))

    def extend_query(
        self, query: Tensor, node: Tensor, relation: Tensor, as_subject: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Append columns that select the bias of the answer's side; the constant is the other two biases."""
        if self.relation_bias is None:
            return query, None
        side = query.new_zeros(len(query), 2)
        side[:, 1 if as_subject else 0] = 1.0
        biases = take_rows(self.relation_bias.unsqueeze(1), relation).squeeze(1)
        return torch.cat([query, side], dim=1), node[:, -2 if as_subject else -1] + biases

    def relation_table(self) -> tuple[Tensor, Tensor | None]:
        """Return the relation vectors and biases, those of reciprocal relations last."""
        return self.relation_vectors(), self.relation_bias


def relation_initializer(plan: LinkPlan) -> Initializer | None:
    """Return the initializer of relation vectors: normal with `model.relation_deviation`, if that is set."""
    deviation = plan.model.relation_deviation
    return None if deviation is None else Initializer("normal", deviation)


def _reciprocal(plan: LinkPlan) -> dict[str, bool]:
    # Decoders of other packages may have constructors without this argument.
    return {"reciprocal": True} if plan.model.reciprocal else {}


def _dot_products(queries: list[tuple[Tensor, Tensor | None]], nodes: tuple[Tensor, Tensor]) -> Tensor:
    """Return ⟨query, node⟩ + constant for each query, `[num_queries, n]`; the first query is compared with nodes[0]."""
    products = []
    for (query, constant), node in zip(queries, nodes, strict=False):
        product = (query * node).sum(1)
        products.append(product if constant is None else product + constant)
    return torch.stack(products)


def _weighted_squares(x: Tensor, weight: Tensor) -> Tensor:
    """Return Σ_i weight_i |x_i|² for x `[n, dim]`, with a gradient made in one pass instead of PyTorch's four."""
    total = torch.dot(x.flatten(), (x.detach() * weight[:, None]).flatten())
    return 2 * total - total.detach()
