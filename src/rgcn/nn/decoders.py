"""How triples are scored from node vectors: given ones, and a query against all nodes as one matrix product."""

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


LARGE = 1 << 25  # numbers whose squares are not worth several passes


class BatchScores(NamedTuple):
    """Scores of the positives [n] and of their negatives [n · rate], and the mean squares of what was scored."""

    positive: Tensor
    negative: Tensor
    squares: Tensor


class Decoder(nn.Module, HasOptions, ABC):
    """Scores f(s, r, o) of triples, from node vectors and relation numbers; higher means more likely.

    A member of the axis `decoder`. The node vectors come from an encoder, through `prepare`, once after each encoding:

        nodes = decoder.prepare(encoder(...))                            # [N, d']
        decoder.score(nodes[subject], relation, nodes[object])           # [n]
        decoder.score_objects(nodes[subject], relation, nodes)           # [q, N]

    width  numbers a node, without what `prepare` appends
    """

    width: int

    @classmethod
    @abstractmethod
    def build(cls, plan: LinkPlan, width: int) -> Self:
        """A decoder with fresh weights for nodes of this width."""

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        """What no model with it can do, a sentence each, for people."""
        return ()

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        """Node vectors [N, d] as the other methods want them, [N, d']: the same, unless a decoder adds columns.

        node_ids int64 [N] says which nodes the rows are, where they are not simply all nodes in order.
        """
        return nodes

    @abstractmethod
    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """f(s, r, o): subject [n, d'], relation int64 [n], object [n, d'] → [n]."""

    @abstractmethod
    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        """Every node as the object: subject [q, d'], relation int64 [q], nodes [N, d'] → [q, N]."""

    @abstractmethod
    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        """Every node as the subject: relation int64 [q], object [q, d'], nodes [N, d'] → [q, N]."""

    @abstractmethod
    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        """mean s² + mean r² + mean o² over the scored triples and their features → scalar."""

    # What follows is the same for every decoder; those that know a shorter way take it.

    def score_questions(
        self, given: Tensor, relation: Tensor, for_objects: bool | Tensor, nodes: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Nodes given [q, d'] with a relation [q] against nodes [n, d'] → [q, n]; for_objects: given are subjects."""
        if not isinstance(for_objects, Tensor):
            if for_objects:
                return self.score_objects(given, relation, nodes)
            return self.score_subjects(relation, given, nodes)
        if for_objects.device.type != "cpu":  # a training step: to ask which are which would wait for the device
            objects, subjects = self.score_objects(given, relation, nodes), self.score_subjects(relation, given, nodes)
            return torch.where(for_objects[:, None], objects, subjects)
        is_subject = for_objects.to(given.device)
        scores = given.new_empty(len(given), len(nodes)) if out is None else out
        scores[is_subject] = self.score_objects(given[is_subject], relation[is_subject], nodes)
        scores[~is_subject] = self.score_subjects(relation[~is_subject], given[~is_subject], nodes)
        return scores

    def score_batch(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Scores of positives int64 [n, 3] and negatives, given all nodes' vectors [N, d']: here, of every triple."""
        triples = torch.cat([positives, negatives.triples(positives)])
        subject, relation, object_ = triples.unbind(1)
        subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
        scores = self.score(subjects, relation, objects)
        squares = self.penalty(subjects, relation, objects)
        return BatchScores(scores[: len(positives)], scores[len(positives) :], squares)

    def relation_table(self) -> tuple[Tensor, Tensor | None] | None:
        """The relations' vectors [R, d], and their biases [R] if any; None where relations have none."""
        return None


class BilinearDecoder(Decoder):
    """A decoder linear in each node, f(s, r, o) = ⟨q(s, r), o⟩ = ⟨s, p(r, o)⟩, with optional biases.

    relation [R, relation_width] are the relations' vectors. A subclass says what the two queries are; the rest follows.

    With biases, f gains b_s[s] + b_r[r] + b_o[o]. The nodes' biases travel as two columns behind their vectors, which
    `prepare` appends, so that all nodes are still scored by one product.
    """

    @classmethod
    def build(cls, plan: LinkPlan, width: int) -> Self:
        sizes, biases = (plan.num_relations, width, plan.num_nodes), plan.model.decoder_biases
        return cls(*sizes, biases, generator=plan.generator, partition=plan.placement.partition)

    @staticmethod
    def relation_width(width: int) -> int:
        """Numbers a relation, where nodes have `width`."""
        return width

    def __init__(
        self,
        num_relations: int,
        width: int,
        num_nodes: int | None = None,
        biases: bool = False,
        init: Initializer | None = None,
        generator: torch.Generator | None = None,
        partition: NodePartition | None = None,
    ) -> None:
        """partition: where nodes are divided among processes, whose biases are held here."""
        super().__init__()
        if biases and num_nodes is None:
            raise ConfigError("a decoder with biases needs to know the number of nodes")
        self.width, size = width, (num_relations, self.relation_width(width))
        draw = (init or Initializer("normal")).draw
        self.relation = nn.Parameter(draw(size, generator or torch.default_generator))
        rows = (num_nodes or 0) if partition is None else len(partition)
        self.node_bias = NodeTable(torch.zeros(rows, 2), partition) if biases else None
        self.relation_bias = nn.Parameter(torch.zeros(num_relations)) if biases else None

    @abstractmethod
    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """q(s, r): vectors [n, width] each → [n, width]."""

    @abstractmethod
    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """p(r, o): vectors [n, width] each → [n, width]."""

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        if self.node_bias is None:
            return nodes
        table = self.node_bias
        bias = table.trained if node_ids is None else table.take(table.rows_of(node_ids))
        return torch.cat([nodes, bias.to(nodes.dtype)], dim=1)

    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        query = self.object_query(self._vectors(subject), take_rows(self.relation, relation))
        score = (query * self._vectors(object)).sum(dim=1)
        bias = self._relation_biases(relation)
        return score if bias is None else score + subject[:, -2] + object[:, -1] + bias

    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        return self.score_questions(subject, relation, True, nodes)

    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        return self.score_questions(object, relation, False, nodes)

    def score_questions(
        self, given: Tensor, relation: Tensor, for_objects: bool | Tensor, nodes: Tensor, out: Tensor | None = None
    ) -> Tensor:
        if isinstance(for_objects, Tensor):
            # One product for both directions: reading every node's vector is most of what a product of few rows costs.
            is_subject = for_objects.to(given.device)
            (query, constant), (other, other_constant) = self._queries(relation, given, given)
            query = torch.where(is_subject[:, None], query, other)
            if constant is not None and other_constant is not None:
                constant = torch.where(is_subject, constant, other_constant)
        else:
            [(query, constant)] = self._queries(relation, *((given, None) if for_objects else (None, given)))
        # query [q, d'] · nodesᵀ [d', N] + constant [q] → [q, N], as one product
        if out is None:
            return query @ nodes.T if constant is None else torch.addmm(constant[:, None], query, nodes.T)
        torch.mm(query, nodes.T, out=out)
        return out if constant is None else out.add_(constant[:, None])

    def score_batch(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> BatchScores:
        """The same without writing triples out.

        A negative shares two of its three parts with its positive, so the product of those two, the query, is made once
        for each positive and side; a negative's score is then the dot product of a query and a node.
        """
        if isinstance(negatives, SharedNegatives):
            return self._score_shared(nodes, positives, negatives)
        subject, relation, object_ = positives.unbind(1)
        subjects, objects = take_rows(nodes, subject), take_rows(nodes, object_)
        (for_object, constant_object), (for_subject, constant_subject) = self._queries(relation, subjects, objects)
        positive = (for_object * objects).sum(1)
        queries = torch.cat([for_object, for_subject])
        negative = pair_dot(queries, nodes, negatives.by_query(len(positives), len(nodes)))
        if constant_object is not None and constant_subject is not None:
            positive = positive + constant_object
            which = negatives.positive + negatives.is_head * len(positives)
            constants = torch.cat([constant_object, constant_subject]).unsqueeze(1)
            negative = negative + take_rows(constants, which).squeeze(1)
        return BatchScores(positive, negative, self._mean_squares(nodes, positives, negatives))

    def _score_shared(self, nodes: Tensor, positives: Tensor, negatives: SharedNegatives) -> BatchScores:
        """The same as a product for each chunk and side; every row is taken once, and so is its gradient."""
        (subject, relation, object_), shared, n = positives.unbind(1), negatives.shared, len(positives)
        taken = take_rows(nodes, torch.cat([subject, object_, shared.flatten()]))
        subjects, objects, *others = torch.split(taken, [n, n, *[shared[0].numel()] * 2])
        queries, scores = self._queries(relation, subjects, objects), []
        positive = (queries[0][0] * objects).sum(1)
        for (query, constant), other in zip(queries, others, strict=True):
            product = negatives.in_chunks(query) @ other.view(*shared.shape[1:], -1).transpose(1, 2)
            score = product.view(-1, shared.shape[2])[:n]
            scores.append(score if constant is None else score + constant[:, None])
        positive = positive if queries[0][1] is None else positive + queries[0][1]
        # mean s² + mean r² + mean o²: a triple's own ends are scored 1 + K times, a drawn node with its whole chunk
        rate, often = shared.shape[2], torch.full(shared.shape, negatives.chunk, device=nodes.device, dtype=nodes.dtype)
        often[:, -1] = n - negatives.chunk * (shared.shape[1] - 1)
        weight = torch.cat([often.new_full((2 * n,), 1 + rate), often.flatten()])
        ends = _weighted_squares(taken[:, : self.width], weight)
        counts = often.new_zeros(len(self.relation)).index_add_(0, relation, often.new_full((n,), 1 + 2 * rate))
        relations = _weighted_squares(self.relation, counts) / self.relation.shape[1]
        squares = (ends / self.width + relations) / (n * (1 + 2 * rate))
        return BatchScores(positive, torch.cat(scores).flatten(), squares)

    def _mean_squares(self, nodes: Tensor, positives: Tensor, negatives: Negatives) -> Tensor:
        """mean s² + mean r² + mean o² over all scored triples, from how often each node and relation was scored.

        The sum over triples of |s|² is the sum over nodes of their count times |v|²: no triple is written out for it.
        """
        rate, vectors = len(negatives) // max(len(positives), 1), nodes[:, : self.width]
        heads = negatives.is_head.view(len(positives), rate).sum(1)  # else the subject is the positive's own
        counts, relation_counts = nodes.new_zeros(len(nodes)), nodes.new_zeros(len(self.relation))
        counts.index_add_(0, positives[:, 0], (1 + rate - heads).to(nodes.dtype))
        counts.index_add_(0, positives[:, 2], (1 + heads).to(nodes.dtype))
        counts.index_add_(0, negatives.node, torch.ones_like(negatives.node, dtype=nodes.dtype))
        relation_counts.index_add_(0, positives[:, 1], torch.full_like(counts[:1], 1.0 + rate).expand(len(positives)))
        large = vectors.numel() > LARGE
        ends = (_weighted_squares(vectors, counts) if large else (counts @ vectors.square()).sum()) / vectors.shape[1]
        relations = (relation_counts @ self.relation.square()).sum() / self.relation.shape[1]
        return (ends + relations) / (len(positives) + len(negatives))

    def relation_table(self) -> tuple[Tensor, Tensor | None]:
        return self.relation, self.relation_bias

    def _queries(
        self, relation: Tensor, subject: Tensor | None, object: Tensor | None
    ) -> list[tuple[Tensor, Tensor | None]]:
        """For each end that is given [n, d'], with relations [n]: (query [n, d'], constant [n] or None), such that

        f(s, r, o) = ⟨query, row [d'] of the other end⟩ + constant
        """
        vectors, biases, found = take_rows(self.relation, relation), self._relation_biases(relation), []
        for node, is_subject in ((subject, True), (object, False)):
            if node is None:
                continue
            own, constant = self._vectors(node), None
            query = self.object_query(own, vectors) if is_subject else self.subject_query(vectors, own)
            if biases is not None:
                # A query's last two numbers pick, of a node's two biases, the one of the side it stands on.
                chosen = query.new_zeros(len(query), 2)
                chosen[:, 1 if is_subject else 0] = 1.0
                query = torch.cat([query, chosen], dim=1)
                constant = node[:, -2 if is_subject else -1] + biases
            found.append((query, constant))
        return found

    def _relation_biases(self, relation: Tensor) -> Tensor | None:
        """[n], or None without biases."""
        if self.relation_bias is None:
            return None
        return take_rows(self.relation_bias.unsqueeze(1), relation).squeeze(1)

    def penalty(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        # mean r² over the triples, without writing out a vector for each
        relation_square = self.relation.square().mean(dim=1).index_select(0, relation).mean()
        return self._vectors(subject).square().mean() + relation_square + self._vectors(object).square().mean()

    def _vectors(self, nodes: Tensor) -> Tensor:
        return nodes if self.node_bias is None else nodes[:, : self.width]


def _weighted_squares(x: Tensor, weight: Tensor) -> Tensor:
    """Σ_i weight_i |x_i|², x [n, width]. Its gradient is made in one pass: PyTorch's own takes four."""
    total = torch.dot(x.flatten(), (x.detach() * weight[:, None]).flatten())
    return 2 * total - total.detach()


class DistMult(BilinearDecoder):
    """f(s, r, o) = Σ_i s_i r_i o_i  (+ b_s[s] + b_r[r] + b_o[o] with biases, which start at zero)

    Yang et al., "Embedding entities and relations for learning and inference in knowledge bases", 2015. Symmetric:
    f(s, r, o) = f(o, r, s) unless biases tell the sides apart.

    >>> decoder = DistMult(num_relations=1, width=2, generator=torch.Generator().manual_seed(0))
    >>> _ = decoder.relation.data.copy_(torch.tensor([[1.0, 10.0]]))
    >>> nodes = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> decoder.score(nodes[:1], torch.tensor([0]), nodes[1:]).tolist()  # 1·1·3 + 2·10·4
    [83.0]
    >>> decoder.score_objects(nodes[:1], torch.tensor([0]), nodes).tolist()
    [[41.0, 83.0]]
    """

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        return subject * relation

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        return relation * object

    @classmethod
    def limits(cls, model: LinkModelConfig) -> tuple[str, ...]:
        alike = "DistMult scores (a, relation, b) and (b, relation, a) alike: it cannot tell which way a relation goes."
        return () if model.decoder_biases else (alike,)
