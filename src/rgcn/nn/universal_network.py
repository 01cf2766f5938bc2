"""A path network for any graph: it computes its relations' vectors from how they meet; and its pretrained weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.adjacency import EdgeStructure
from rgcn.config import LinkModelConfig
from rgcn.config.fields import Description
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.link_network import LinkPlan
from rgcn.nn.path_layers import Told, drawn_weight
from rgcn.nn.path_network import PathEncoder, PathNetwork

FOLDER = Path(__file__).parent / "weights"
WEIGHTS, CARD = FOLDER / "universal.safetensors", FOLDER / "universal.json"


@cache
def shipped_weights() -> dict[str, Tensor]:
    """By name; they are shared, so that nobody may write to them."""
    from safetensors.torch import load_file

    return load_file(WEIGHTS)


@cache
def shipped_card() -> dict[str, Any]:
    """What is known of them: the settings they need (`settings`), the graphs they learned from, how, and how well."""
    return json.loads(CARD.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


# Up to so many relations, inverses among them, a matrix between them is written out: one product is then fastest.
# Beyond, it is applied through what the relations have in common, and pairs of relations are never written.
WRITTEN_OUT, WRITTEN_OUT_ON_GPU = 1024, 4096
COLUMNS, NUMBERS = 128, 1 << 26  # of that matrix at a time, while it is made; of all that they have in common
FEATURES = 5


class SharedThings:
    """S[r, s] = share of r's things that s has, too, over the root of its row's sum: through things, or written out.

    Things are nodes at a relation's head, or pairs of nodes. A relation has itself in common with all its things, so
    that no row is empty but that of a relation without triples.
    """

    def __init__(self, relation: Tensor, thing: Tensor, relations: int, things: int) -> None:
        """relation, thing int64 [n]: who has what; the same may stand there more than once."""
        key = torch.unique(relation * things + thing)
        relation, thing = key // things, key % things
        self.count = torch.bincount(relation, minlength=relations)
        self.has = SparsePattern.from_sorted_rows(relation, thing, (relations, things))
        self.size, self.things, self.device = relations, things, thing.device
        self.scale = 1.0 / self.count.clamp(min=1).float()
        total = self._shares(torch.ones(relations, 1, device=self.device)).squeeze(1)
        self.scale = self.scale / total.clamp(min=1.0).sqrt()
        most = WRITTEN_OUT_ON_GPU if self.device.type == "cuda" else WRITTEN_OUT
        self.written = self._written_out() if relations <= most else None

    def times(self, x: Tensor) -> Tensor:
        """S x for x [relations, k]."""
        return self._shares(x) if self.written is None else self.written.to(x.dtype) @ x

    def _shares(self, x: Tensor) -> Tensor:
        return self.scale.to(x.dtype)[:, None] * gather_sum(self.has, None, gather_sum(self.has.transpose, None, x))

    def _written_out(self) -> Tensor:
        unit, columns = torch.eye(self.size, device=self.device), max(1, min(COLUMNS, NUMBERS // self.things))
        return torch.cat([self._shares(part.contiguous()) for part in torch.split(unit, columns, dim=1)], dim=1)


@dataclass(frozen=True, eq=False)
class RelationMeetings:
    """How the relations of a graph meet, each and its inverse a relation of its own: 2R of them.

    heads     the nodes they begin at in common; with inverses that also tells which share a tail, and where the tail of
              one is the head of another
    pairs     the pairs of nodes they connect in common: one follows from the other
    opposite  int64 [2R]: each relation's inverse
    features  [2R, FEATURES]: how many objects a subject has, subjects an object; how much of the graph they are
    """

    heads: SharedThings
    pairs: SharedThings
    opposite: Tensor
    features: Tensor

    @property
    def size(self) -> int:
        return len(self.opposite)

    @property
    def states(self) -> int:
        """Vectors that are made for a relation asked for: of all relations, and of what they share if unwritten."""
        return self.size + sum(each.things for each in (self.heads, self.pairs) if each.written is None)

    def __deepcopy__(self, memo: object) -> RelationMeetings:
        return self  # it never changes

    @classmethod
    def of(cls, edges: EdgeStructure) -> RelationMeetings:
        size, nodes = 2 * edges.num_data_relations, max(edges.num_nodes, 1)
        real = edges.relation < size  # the self-loop meets everything, and tells nothing
        relation, source, target = (of[real].long() for of in (edges.relation, edges.source, edges.target))
        which, pair = torch.unique(source * nodes + target, return_inverse=True)
        heads = SharedThings(relation, source, size, nodes)
        pairs = SharedThings(relation, pair, size, max(len(which), 1))
        opposite = (torch.arange(size, device=relation.device) + size // 2) % max(size, 1)
        begins, triples = heads.count.clamp(min=1).float(), pairs.count.clamp(min=1).float()
        ends = begins[opposite]
        # Logarithms, each a number of about one.
        features = [triples / begins, triples / ends, begins / nodes, ends / nodes, triples / nodes]
        return cls(heads, pairs, opposite, torch.stack([torch.log(each) for each in features], dim=1) / 3.0)


class RelationNetwork(nn.Module):
    """z_s ← z_s + ReLU(LayerNorm(W [z_s, Σ over ways k of (A_k (z ⊙ w_k))_s])), for every relation asked for anew

    z⁰_s = F f_s + [s = r] z: what is known of s itself, and a mark on the relation r that is asked for. The ways: heads
    in common, a head that is the other's tail, and back, tails in common; pairs in common, and pairs the other way
    round; a relation's inverse. Galkin et al., "Towards foundation models for knowledge graph reasoning", 2024, has the
    first four, as edges that are there or not; here they are shares, so that relations that all meet still differ.

    No weight has a size that depends on a graph.
    """

    WAYS = 7

    def __init__(self, width: int, depth: int, generator: torch.Generator) -> None:
        super().__init__()
        self.mark = nn.Parameter(torch.randn(width, generator=generator))
        self.of_features = drawn_weight(width, FEATURES, generator)
        ways = (torch.randn(self.WAYS, width, generator=generator) for _ in range(depth))
        self.ways = nn.ParameterList(map(nn.Parameter, ways))
        self.weights = nn.ParameterList(drawn_weight(width, 2 * width, generator) for _ in range(depth))
        self.biases, self.gains, self.shifts = (
            nn.ParameterList(nn.Parameter(torch.full((width,), value)) for _ in range(depth))
            for value in (0.0, 1.0, 0.0)
        )

    def forward(self, meetings: RelationMeetings, asked: Tensor) -> tuple[Tensor, Tensor]:
        """([2R, U, width]: a vector of every relation for each relation that is asked for, int64 [U]; [U, width]: of
        these their own)."""
        numbers = torch.arange(meetings.size, device=asked.device)
        asked_for = (numbers[:, None] == asked).to(self.mark.dtype).unsqueeze(-1)
        known = F.linear(meetings.features.to(self.mark.dtype), self.of_features)
        z = known.unsqueeze(1) + asked_for * self.mark
        for ways, *rest in zip(self.ways, self.weights, self.biases, self.gains, self.shifts, strict=True):
            weight, bias, gain, shift = rest
            heard = self._heard(meetings, z, ways)
            out = F.linear(torch.cat([z, heard], dim=-1), weight, bias)
            z = z + torch.relu(F.layer_norm(out, out.shape[-1:], gain, shift))
        return z, (asked_for * z).sum(0)

    @staticmethod
    def _heard(meetings: RelationMeetings, z: Tensor, ways: Tensor) -> Tensor:
        other = z.index_select(0, meetings.opposite)
        here, there, pairs = (z * ways[k] + other * ways[k + 1] for k in (0, 2, 4))
        both = meetings.heads.times(torch.cat([here.flatten(1), there.flatten(1)], dim=1))
        begins, ends = both.view(len(z), 2, *z.shape[1:]).unbind(1)
        same = meetings.pairs.times(pairs.flatten(1)).view_as(z)
        return begins + ends.index_select(0, meetings.opposite) + same + other * ways[6]


class ComputedRelationTable(nn.Module):
    """w_s of one layer, from the relations' vectors z_s: an MLP that all relations share."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.inner, self.outer = (drawn_weight(width, width, generator) for _ in range(2))
        self.inner_bias, self.outer_bias = (nn.Parameter(torch.zeros(width)) for _ in range(2))

    def forward(self, told: Told) -> Tensor:
        """[R⁺, B · width], or [R⁺, width] where all questions ask for the same relation."""
        assert told.relations is not None
        inside = torch.relu(F.linear(told.relations, self.inner, self.inner_bias))
        table = F.linear(inside, self.outer, self.outer_bias)
        if told.column is not None and table.shape[1] > 1:
            table = table.index_select(1, told.column)
        return table.flatten(1)


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
        """Load the pretrained weights, unless it starts from random ones.

        Settings decide whether they fit, not shapes: weights that were learned for products of messages have the shapes
        of weights for sums, and mean nothing there.
        """
        if model.start != "shipped":
            return
        needs = shipped_card()["settings"]
        wrong = ", ".join(f"{name} {value}" for name, value in needs.items() if getattr(model, name) != value)
        if wrong:
            raise ConfigError(f"the weights that come with rgcn need {wrong}: set so, or model.start to random")
        self.load_state_dict(shipped_weights())

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
