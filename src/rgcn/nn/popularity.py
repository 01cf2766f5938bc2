"""Popularity, the baseline of link prediction: how often a node occurs with a relation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.nn.decoders import BatchScores
from rgcn.nn.encoders import Encoder
from rgcn.nn.link_network import ExplainedTriple, LinkNetwork, LinkPlan, MessageAdjacency
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.negatives import Negatives


class PopularityEncoder(Encoder):
    """`popularity`: an answer is as likely as it is frequent with the relation, for any node of the question."""

    @classmethod
    def build_link_network(cls, plan: LinkPlan) -> PopularityNetwork:
        """Build the network."""
        if plan.model.normalization != "none" or not plan.model.inverse:
            raise ConfigError("popularity counts edges in both directions: set normalization to none, inverse to true")
        return PopularityNetwork(plan.num_relations)


class PopularityNetwork(LinkNetwork):
    """The score f(·, r, v) = log(1 + number of edges of r into v) + b, with the inverse of r for subjects.

    It counts the triples of the graph that it is applied to, so it works on unseen graphs. Training changes only b,
    which is the same for all answers and changes no rank.

    Args:
        num_relations: Number of relations, without inverses.
    """

    num_layers = 1
    is_capturable = False  # a batch looks up (relation, node) pairs and waits for the device

    def __init__(self, num_relations: int) -> None:
        """Create the bias."""
        super().__init__()
        self.num_relations, self.bias = num_relations, nn.Parameter(torch.zeros(()))

    def score_batch(self, adjacency: MessageAdjacency, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score a batch by its counts."""
        assert adjacency is not None
        _, relation, object_ = positives.unbind(1)
        edge_relation = relation[negatives.positive] + negatives.is_subject.long() * self.num_relations
        counts = PopularityScorer(self, adjacency)
        positive, negative = counts.score(relation, object_), counts.score(edge_relation, negatives.node)
        return BatchScores(positive, negative, self.bias.new_zeros(()))

    def score_nodes(self, adjacency: RelationalAdjacency | None, questions: Questions) -> Tensor:
        """Score all nodes by their counts."""
        assert adjacency is not None
        return PopularityScorer(self, adjacency).score_nodes(questions.edge_relation(self.num_relations))

    def score_explained(self, triple: ExplainedTriple) -> Tensor:
        """Score a triple by the weights of the edges that are counted."""
        layer, nodes = triple.field.layers[-1], triple.nodes.tolist()
        counts = []
        for _, relation, answer in triple.questions(self.num_relations):
            is_counted = (layer.structure.target == nodes.index(answer)) & (layer.structure.relation == relation)
            counts.append((layer.weight * is_counted).sum())
        return torch.log1p(torch.stack(counts)) + self.bias

    def make_scorer(self, adjacency: RelationalAdjacency) -> PopularityScorer:
        """Return a scorer that counts the edges once."""
        return PopularityScorer(self, adjacency)


class PopularityScorer(Scorer):
    """Scores answers by counts of edges, which are stored for (relation, target) pairs that occur: others are many."""

    def __init__(self, network: PopularityNetwork, adjacency: RelationalAdjacency) -> None:
        """Count the edges."""
        structure, weight = adjacency.structure, adjacency.weight
        self.network, self.num_nodes, self.device = network, structure.num_targets, adjacency.device
        self.pairs = structure.target_pairs
        self.keys = self.pairs.relation.long() * self.num_nodes + self.pairs.node
        ones = weight.new_ones(structure.num_sources, 1)
        self.count = gather_sum(structure.mix_target_pairs, weight, ones).squeeze(1)

    def score(self, relation: Tensor, node: Tensor) -> Tensor:
        """Score node[i] by the number of edges of relation[i] into it, `[n]`."""
        key = relation * self.num_nodes + node
        index = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return torch.log1p(self.count[index] * (self.keys[index] == key)) + self.network.bias

    def score_nodes(self, relation: Tensor) -> Tensor:
        """Score every node by the number of edges of relation[i] into it, `[n, num_nodes]`."""
        distinct, row = torch.unique(relation, return_inverse=True)
        counts, bounds = self.count.new_zeros(len(distinct), self.num_nodes), self.pairs.bounds
        for index, number in enumerate(distinct.tolist()):
            pairs = slice(bounds[number], bounds[number + 1])
            counts[index, self.pairs.node[pairs].long()] = self.count[pairs]
        return torch.log1p(counts[row]) + self.network.bias

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Look up the counts of all nodes; see `Scorer.scores`."""
        scores = self.score_nodes(questions.to(self.device).edge_relation(self.network.num_relations))
        return scores if candidates is None else scores[:, candidates.to(self.device)]

    @torch.no_grad()
    def answer_scores(self, questions: Questions, answers: Tensor) -> Tensor:
        """Look up the count of one answer to each question."""
        relation = questions.to(self.device).edge_relation(self.network.num_relations)
        return self.score(relation, answers.to(self.device))
