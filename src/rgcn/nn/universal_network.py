"""A path network that belongs to no graph: its relations' vectors are computed from how the graph's relations meet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.config import LinkModelConfig
from rgcn.config.fields import Description
from rgcn.errors import ConfigError
from rgcn.nn.link_network import LinkPlan
from rgcn.nn.path_layers import Told
from rgcn.nn.path_network import PathEncoder, PathNetwork
from rgcn.nn.pretrained_weights import load_shipped
from rgcn.nn.relation_network import NUMBERS, ComputedRelationTable, RelationMeetings, RelationNetwork

AT_ONCE = 32  # relations whose own vectors are computed together
# How much longer a multiply-add of relations' vectors takes than one of nodes' states: these stay in the nearest cache.
RELATION_WORK = 4


class UniversalEncoder(PathEncoder):
    """Convolutions for every question, whose relations are known by how they meet: weights for any graph."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> UniversalNetwork:
        return UniversalNetwork(plan)

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        found = super().describe_links(model)
        of = f"{model.relation_layers} layers over the graph of relations: heads, tails and pairs they have in common"
        return Description({**found.made_of, "Relations": of}, found.limits)


class UniversalNetwork(PathNetwork):
    """`PathNetwork` with w_s(q) and q_r = z_r from a `RelationNetwork` over the graph's own relations.

    Nothing that is learned belongs to a node or a relation: it answers over any graph.
    """

    knows_relations = False

    def learn_relations(self, plan: LinkPlan) -> None:
        model, generator = plan.model, plan.generator
        if model.surroundings:
            raise ConfigError("surroundings have vectors of relations that are learned: set it to 0 for universal")
        self.relations = RelationNetwork(model.width, model.relation_layers, generator)
        self.stays = nn.Parameter(torch.randn(model.width, generator=generator))  # the self-loop's
        self.meetings = RelationMeetings.of(plan.adjacency.structure)

    def begin(self, model: LinkModelConfig) -> None:
        if model.start == "shipped":
            load_shipped(self, model)

    def relation_table(self, plan: LinkPlan) -> nn.Module:
        return ComputedRelationTable(plan.model.width, plan.generator)

    def told(self, asked: Tensor) -> Told:
        column = None
        if not self.training:  # a wait for the device, so not in a step; but many questions ask for the same relation
            asked, column = torch.unique(asked, return_inverse=True)
        relations, query = self.relations(self.meetings, asked)
        stays = self.stays.expand(1, len(asked), -1)
        return Told(query if column is None else query[column], torch.cat([relations, stays]), column)

    def question_work(self, nodes: int, edges: int) -> int:
        of_a_relation = 2 * self.width**2 * (len(self.relations.weights) + self.num_layers)
        return super().question_work(nodes, edges) + RELATION_WORK * self.meetings.size * of_a_relation

    def states(self, num_nodes: int) -> int:
        return num_nodes + self.meetings.states

    @torch.no_grad()  # gradients would keep what every relation is for every other
    def relation_vectors(self) -> Tensor:
        """Each relation's vector where it is the one asked for."""
        numbers = torch.arange(self.num_relations, device=self.like.device)
        at_once = max(1, min(AT_ONCE, NUMBERS // (self.meetings.states * self.width)))
        return torch.cat([self.relations(self.meetings, part)[1] for part in torch.split(numbers, at_once)])
