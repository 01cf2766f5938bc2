"""Popularity: how often a node is seen with a relation. What every model of links must be better than."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.nn.decoders import BatchScores
from rgcn.nn.encoders import Encoder
from rgcn.nn.link_network import Heard, HeardEdges, LinkNetwork, LinkPlan
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.negatives import Negatives


class PopularityEncoder(Encoder):
    """popularity: an answer is as likely as it was seen often with the relation, whoever asks. Nothing is learned."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> PopularityNetwork:
        if plan.model.normalization != "none" or not plan.model.inverse:
            raise ConfigError("popularity counts edges in both directions: set normalization to none, inverse to true")
        return PopularityNetwork(plan.num_relations)


class PopularityNetwork(LinkNetwork):
    """f(·, r, v) = log(1 + edges of r into v) + b, and for subjects the same with the inverse of r.

    One convolution over ones, W_s = [s = r]: it counts the triples of whatever graph it hears, so that a graph it never
    saw has popular nodes too. b, all that training moves, is the same for every answer and changes no rank.
    """

    num_layers = 1
    recordable = False  # which nodes were seen with a relation is asked anew for every batch

    def __init__(self, num_relations: int) -> None:
        super().__init__()
        self.num_relations, self.bias = num_relations, nn.Parameter(torch.zeros(()))

    def score_batch(self, adjacency: HeardEdges, positives: Tensor, negatives: Negatives) -> BatchScores:
        assert adjacency is not None
        _, relation, object_ = positives.unbind(1)
        turned = relation[negatives.positive] + negatives.is_head.long() * self.num_relations
        counts = _Counts(adjacency)
        positive, negative = counts.of(relation, object_), counts.of(turned, negatives.node)
        nothing = self.bias.new_zeros(())
        return BatchScores(torch.log1p(positive) + self.bias, torch.log1p(negative) + self.bias, nothing)

    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        assert adjacency is not None
        return torch.log1p(_Counts(adjacency).of_all(questions.edge_kind(self.num_relations))) + self.bias

    def score_heard(self, heard: Heard) -> Tensor:
        layer, asked = heard.field.layers[-1], heard.asked.tolist()
        counts = []
        for _, kind, answer in heard.questions(self.num_relations):
            counted = (layer.structure.target == asked.index(answer)) & (layer.structure.relation == kind)
            counts.append((layer.weight * counted).sum())
        return torch.log1p(torch.stack(counts)) + self.bias

    def make_scorer(self, adjacency: RelationalAdjacency) -> PopularityScorer:
        return PopularityScorer(self, adjacency)


class PopularityScorer(Scorer):
    """Looks up what was counted once."""

    def __init__(self, network: PopularityNetwork, adjacency: RelationalAdjacency) -> None:
        self.network, self.counts = network, _Counts(adjacency)
        self.num_nodes, self.device = adjacency.num_targets, adjacency.device

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        counts = self.counts.of_all(questions.to(self.device).edge_kind(self.network.num_relations))
        counts = counts if candidates is None else counts[:, candidates.to(self.device)]
        return torch.log1p(counts) + self.network.bias

    @torch.no_grad()
    def answer_scores(self, questions: Questions, answers: Tensor) -> Tensor:
        kind = questions.to(self.device).edge_kind(self.network.num_relations)
        return torch.log1p(self.counts.of(kind, answers.to(self.device))) + self.network.bias


class _Counts:
    """Edges by (relation, target), of the pairs that occur alone: relations × nodes would not fit for a large graph."""

    def __init__(self, adjacency: RelationalAdjacency) -> None:
        structure, weight = adjacency.structure, adjacency.weight
        self.pairs, self.num_nodes = structure.target_pairs, structure.num_targets
        self.keys = self.pairs.relation.long() * self.num_nodes + self.pairs.node
        ones = weight.new_ones(structure.num_sources, 1)
        self.count = gather_sum(structure.mix_target_pairs, weight, ones).squeeze(1)

    def of(self, relation: Tensor, node: Tensor) -> Tensor:
        """[n]: edges of relation[i] into node[i]."""
        key = relation * self.num_nodes + node
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return self.count[place] * (self.keys[place] == key)

    def of_all(self, relation: Tensor) -> Tensor:
        """[q, N]: edges of relation[i] into every node."""
        asked, row = torch.unique(relation, return_inverse=True)
        counts, bounds = self.count.new_zeros(len(asked), self.num_nodes), self.pairs.bounds
        for place, kind in enumerate(asked.tolist()):
            mine = slice(bounds[kind], bounds[kind + 1])
            counts[place, self.pairs.node[mine].long()] = self.count[mine]
        return counts[row]
