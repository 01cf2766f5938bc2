"""What every decoder offers: scores of given triples, and of a query against all nodes as one matrix product."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rgcn.errors import ConfigError
from rgcn.kernels import take_rows


class Decoder(nn.Module, ABC):
    """Scores f(s, r, o) of triples, from node vectors and relation numbers; higher means more likely.

    The node vectors come from an encoder, through `prepare`, once after each encoding:

        nodes = decoder.prepare(encoder(...))                            # [N, d']
        decoder.score(nodes[subject], relation, nodes[object])           # [n]
        decoder.score_objects(nodes[subject], relation, nodes)           # [q, N]
    """

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


class BilinearDecoder(Decoder):
    """A decoder linear in each node, f(s, r, o) = ⟨q(s, r), o⟩ = ⟨s, p(r, o)⟩, with optional biases.

    relation [R, relation_width] are the relations' vectors. A subclass says what the two queries are; the rest follows.

    With biases, f gains b_s[s] + b_r[r] + b_o[o]. The nodes' biases travel as two columns behind their vectors, which
    `prepare` appends, so that all nodes are still scored by one product.
    """

    def __init__(self, relation: Tensor, width: int, num_nodes: int | None = None, biases: bool = False) -> None:
        super().__init__()
        if biases and num_nodes is None:
            raise ConfigError("a decoder with biases needs to know the number of nodes")
        self.width = width
        self.relation = nn.Parameter(relation)
        self.node_bias = nn.Parameter(torch.zeros(num_nodes or 0, 2)) if biases else None
        self.relation_bias = nn.Parameter(torch.zeros(len(relation))) if biases else None

    @abstractmethod
    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """q(s, r): vectors [n, width] each → [n, width]."""

    @abstractmethod
    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """p(r, o): vectors [n, width] each → [n, width]."""

    def relation_vectors(self, relation: Tensor) -> Tensor:
        """[n, relation_width]"""
        return take_rows(self.relation, relation)

    def prepare(self, nodes: Tensor, node_ids: Tensor | None = None) -> Tensor:
        if self.node_bias is None:
            return nodes
        bias = self.node_bias if node_ids is None else self.node_bias.index_select(0, node_ids)
        return torch.cat([nodes, bias.to(nodes.dtype)], dim=1)

    def score(self, subject: Tensor, relation: Tensor, object: Tensor) -> Tensor:
        query = self.object_query(self._vectors(subject), self.relation_vectors(relation))
        score = (query * self._vectors(object)).sum(dim=1)
        bias = self._relation_biases(relation)
        return score if bias is None else score + subject[:, -2] + object[:, -1] + bias

    def score_objects(self, subject: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
        return _against_all(*self.object_queries(subject, relation), nodes)

    def score_subjects(self, relation: Tensor, object: Tensor, nodes: Tensor) -> Tensor:
        return _against_all(*self.subject_queries(relation, object), nodes)

    def object_queries(self, subject: Tensor, relation: Tensor) -> tuple[Tensor, Tensor | None]:
        """(query [n, d'], constant [n] or None): f(s, r, o) = ⟨query, o⟩ + constant for any object row o [d']."""
        query = self.object_query(self._vectors(subject), self.relation_vectors(relation))
        return self._with_biases(query, self._relation_biases(relation), subject, is_subject=True)

    def subject_queries(self, relation: Tensor, object: Tensor) -> tuple[Tensor, Tensor | None]:
        """(query [n, d'], constant [n] or None): f(s, r, o) = ⟨query, s⟩ + constant for any subject row s [d']."""
        query = self.subject_query(self.relation_vectors(relation), self._vectors(object))
        return self._with_biases(query, self._relation_biases(relation), object, is_subject=False)

    def both_queries(
        self, subject: Tensor, relation: Tensor, object: Tensor
    ) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
        """`object_queries` and `subject_queries` of the same triples, their relations looked up once."""
        vectors, biases = self.relation_vectors(relation), self._relation_biases(relation)
        for_object = self.object_query(self._vectors(subject), vectors)
        for_subject = self.subject_query(vectors, self._vectors(object))
        return (
            self._with_biases(for_object, biases, subject, is_subject=True),
            self._with_biases(for_subject, biases, object, is_subject=False),
        )

    def _with_biases(
        self, query: Tensor, relation_bias: Tensor | None, node: Tensor, is_subject: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The query with columns for the nodes' biases, and the biases of its own node [n, d'] and relation [n]."""
        if relation_bias is None:
            return query, None
        # A query's last two numbers pick, of a node's two biases, the one of the side it stands on.
        chosen = query.new_zeros(len(query), 2)
        chosen[:, 1 if is_subject else 0] = 1.0
        own = node[:, -2 if is_subject else -1]
        return torch.cat([query, chosen], dim=1), own + relation_bias

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


def _against_all(query: Tensor, constant: Tensor | None, nodes: Tensor) -> Tensor:
    """query [q, d'] · nodesᵀ [d', N] + constant [q] → [q, N], as one product."""
    return query @ nodes.T if constant is None else torch.addmm(constant[:, None], query, nodes.T)
