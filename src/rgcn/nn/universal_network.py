"""`UniversalNetwork`, a path network that computes relation vectors from the graph, and its pretrained weights."""

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
from rgcn.nn.path_layers import RelationStates, uniform_weight
from rgcn.nn.path_network import PathEncoder, PathNetwork

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
WEIGHTS, CARD = WEIGHTS_FOLDER / "universal.safetensors", WEIGHTS_FOLDER / "universal.json"

# With up to so many relations (with inverses) a matrix between them is stored, since one product is then fastest.
# With more it is applied through what the relations share, so that pairs of relations are never stored.
MAX_STORED_RELATIONS, MAX_STORED_RELATIONS_ON_GPU = 1024, 4096
MAX_COLUMNS, MAX_NUMBERS = 128, 1 << 26  # columns of that matrix, and numbers of a product, computed at once
NUM_FEATURES = 5
MAX_RELATIONS_AT_ONCE = 32
# Time of a multiply-add on relation vectors relative to one on node states, which stay in the nearest cache.
RELATION_WORK = 4


@cache
def pretrained_weights() -> dict[str, Tensor]:
    """Return the pretrained weights by name. They are shared, so callers must not change them."""
    from safetensors.torch import load_file

    return load_file(WEIGHTS)


@cache
def pretrained_card() -> dict[str, Any]:
    """Return the description of the pretrained weights: required `settings`, training graphs, and results."""
    return json.loads(CARD.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


class OverlapMatrix:
    """A matrix S[r, s] = share of r's items that s has too, divided by the root of its row's sum.

    Items are nodes at a relation's head, or pairs of nodes. A relation shares all items with itself, so only relations
    without triples have an empty row.

    Args:
        relation: The relation of each (relation, item) pair, int64 `[n]`; pairs may repeat.
        item: The item of each pair, int64 `[n]`.
        num_relations: Number of relations.
        num_items: Number of items.
    """

    def __init__(self, relation: Tensor, item: Tensor, num_relations: int, num_items: int) -> None:
        """Find the distinct pairs; store the matrix if there are few relations."""
        key = torch.unique(relation * num_items + item)
        relation, item = key // num_items, key % num_items
        self.count = torch.bincount(relation, minlength=num_relations)
        self.pattern = SparsePattern.from_sorted_rows(relation, item, (num_relations, num_items))
        self.num_items, device = num_items, item.device
        self.scale = 1.0 / self.count.clamp(min=1).float()
        total = self._multiply_by_items(torch.ones(num_relations, 1, device=device)).squeeze(1)
        self.scale = self.scale / total.clamp(min=1.0).sqrt()
        self.stored: Tensor | None = None
        if num_relations <= (MAX_STORED_RELATIONS_ON_GPU if device.type == "cuda" else MAX_STORED_RELATIONS):
            unit, columns = torch.eye(num_relations, device=device), max(1, min(MAX_COLUMNS, MAX_NUMBERS // num_items))
            parts = torch.split(unit, columns, dim=1)
            self.stored = torch.cat([self._multiply_by_items(part.contiguous()) for part in parts], dim=1)

    def multiply(self, x: Tensor) -> Tensor:
        """Return S x for x `[num_relations, k]`."""
        return self._multiply_by_items(x) if self.stored is None else self.stored.to(x.dtype) @ x

    def _multiply_by_items(self, x: Tensor) -> Tensor:
        items = gather_sum(self.pattern.transpose, None, x)
        return self.scale.to(x.dtype)[:, None] * gather_sum(self.pattern, None, items)


@dataclass(frozen=True, eq=False)
class RelationGraph:
    """How the 2R relations of a graph, inverses included, overlap.

    Attributes:
        heads: Overlap of the nodes that relations start at. With inverses it also has shared tails, and heads of one
            relation that are tails of another.
        pairs: Overlap of the node pairs that relations connect, as if one implies the other.
        inverse: Each relation's inverse, int64 `[2R]`.
        features: Logarithms of objects per subject, subjects per object, and frequencies, `[2R, NUM_FEATURES]`.
    """

    heads: OverlapMatrix
    pairs: OverlapMatrix
    inverse: Tensor
    features: Tensor

    @property
    def size(self) -> int:
        """Number of relations with inverses."""
        return len(self.inverse)

    @property
    def num_states(self) -> int:
        """Number of vectors in memory for each relation asked for: of relations, and of items if S is not stored."""
        return self.size + sum(matrix.num_items for matrix in (self.heads, self.pairs) if matrix.stored is None)

    def __deepcopy__(self, memo: object) -> RelationGraph:
        """Return the same object, since it never changes."""
        return self

    @classmethod
    def of(cls, edges: EdgeStructure) -> RelationGraph:
        """Compute the overlaps of the relations of a graph; self-loops are ignored."""
        size, num_nodes = 2 * edges.num_data_relations, max(edges.num_nodes, 1)
        mask = edges.relation < size
        relation, source, target = (values[mask].long() for values in (edges.relation, edges.source, edges.target))
        distinct_pairs, pair = torch.unique(source * num_nodes + target, return_inverse=True)
        heads = OverlapMatrix(relation, source, size, num_nodes)
        pairs = OverlapMatrix(relation, pair, size, max(len(distinct_pairs), 1))
        inverse = (torch.arange(size, device=relation.device) + size // 2) % max(size, 1)
        num_heads, num_pairs = heads.count.clamp(min=1).float(), pairs.count.clamp(min=1).float()
        num_tails = num_heads[inverse]
        ratios = [num_pairs / num_heads, num_pairs / num_tails]
        ratios += [count / num_nodes for count in (num_heads, num_tails, num_pairs)]
        return cls(heads, pairs, inverse, torch.stack([torch.log(each) for each in ratios], dim=1) / 3.0)


class RelationNetwork(nn.Module):
    """Vectors of all relations of a graph, computed for each relation that is asked for.

        z⁰_s = F f_s + [s = r] m
        z_s ← z_s + ReLU(LayerNorm(W [z_s, Σ over kinds k of (A_k (z ⊙ w_k))_s]))

    f_s are the features of s, and m marks the relation r that is asked for. The kinds of connections are: shared heads;
    a head that is the other's tail, and vice versa; shared tails; shared pairs, and inverse pairs; a relation's
    inverse. Galkin et al., "Towards foundation models for knowledge graph reasoning", 2024, has the first four, as
    edges without weights; here they are shares, so that relations still differ if all are connected.

    No weight has a size that depends on a graph.

    Args:
        dim: Dimension of a vector.
        depth: Number of layers.
        generator: Source of the initial weights.
    """

    NUM_KINDS = 7

    def __init__(self, dim: int, depth: int, generator: torch.Generator) -> None:
        """Draw the initial weights."""
        super().__init__()
        self.mark = nn.Parameter(torch.randn(dim, generator=generator))
        self.of_features = uniform_weight(dim, NUM_FEATURES, generator=generator)
        ways = (torch.randn(self.NUM_KINDS, dim, generator=generator) for _ in range(depth))
        self.ways = nn.ParameterList(map(nn.Parameter, ways))
        self.weights = nn.ParameterList(uniform_weight(dim, 2 * dim, generator=generator) for _ in range(depth))
        self.biases, self.gains, self.shifts = (
            nn.ParameterList(nn.Parameter(torch.full((dim,), value)) for _ in range(depth)) for value in (0.0, 1.0, 0.0)
        )

    def forward(self, graph: RelationGraph, relations: Tensor) -> tuple[Tensor, Tensor]:
        """Compute vectors for each relation that is asked for.

        Args:
            graph: The overlaps of the relations.
            relations: Relations that are asked for, int64 `[n]`.

        Returns:
            Vectors of all relations, `[2R, n, dim]`, and of those asked for, `[n, dim]`.
        """
        ids = torch.arange(graph.size, device=relations.device)
        is_asked = (ids[:, None] == relations).to(self.mark.dtype).unsqueeze(-1)
        z = F.linear(graph.features.to(self.mark.dtype), self.of_features).unsqueeze(1) + is_asked * self.mark
        for ways, *update in zip(self.ways, self.weights, self.biases, self.gains, self.shifts, strict=True):
            weight, bias, gain, shift = update
            out = F.linear(torch.cat([z, self._messages(graph, z, ways)], dim=-1), weight, bias)
            z = z + torch.relu(F.layer_norm(out, out.shape[-1:], gain, shift))
        return z, (is_asked * z).sum(0)

    @staticmethod
    def _messages(graph: RelationGraph, z: Tensor, ways: Tensor) -> Tensor:
        """Return the sums of messages, `[2R, n, dim]`. A tail is the head of the inverse, so S serves for both."""
        inverse = z.index_select(0, graph.inverse)
        to_heads, to_tails, to_pairs = (z * ways[k] + inverse * ways[k + 1] for k in (0, 2, 4))
        sums = graph.heads.multiply(torch.cat([to_heads.flatten(1), to_tails.flatten(1)], dim=1))
        heads, tails = sums.view(len(z), 2, *z.shape[1:]).unbind(1)
        pairs = graph.pairs.multiply(to_pairs.flatten(1)).view_as(z)
        return heads + tails.index_select(0, graph.inverse) + pairs + inverse * ways[6]


class ComputedRelationTable(nn.Module):
    """Relation vectors w_s of one path layer: an MLP over the vectors z_s, with the same weights for all relations."""

    def __init__(self, dim: int, generator: torch.Generator) -> None:
        """Draw the initial weights."""
        super().__init__()
        self.inner, self.outer = (uniform_weight(dim, dim, generator=generator) for _ in range(2))
        self.inner_bias, self.outer_bias = (nn.Parameter(torch.zeros(dim)) for _ in range(2))

    def forward(self, states: RelationStates) -> Tensor:
        """Compute `[num_relations, num_questions * dim]`, or `[num_relations, dim]` if all ask for one relation."""
        assert states.relations is not None
        inner = torch.relu(F.linear(states.relations, self.inner, self.inner_bias))
        table = F.linear(inner, self.outer, self.outer_bias)
        if states.distinct is not None and table.shape[1] > 1:
            table = table.index_select(1, states.distinct)
        return table.flatten(1)


class UniversalEncoder(PathEncoder):
    """`universal`: a convolution for each question, with relation vectors computed from the graph, for any graph."""

    @classmethod
    def build_link_network(cls, plan: LinkPlan) -> UniversalNetwork:
        """Build the network."""
        return UniversalNetwork(plan)

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        """Describe the network for reports."""
        found = super().describe_links(model)
        layers = (
            f"{model.relation_layers} layers over the graph of relations, connected by shared heads, tails and pairs"
        )
        return Description({**found.parts, "Relations": layers}, found.limits)


class UniversalNetwork(PathNetwork):
    """A `PathNetwork` whose relation vectors w_s(q) and q_r = z_r come from a `RelationNetwork` over the same graph.

    It has no weights for nodes or relations, so it answers over any graph.

    Args:
        plan: The configuration, the adjacency and the random generator.
    """

    has_relation_weights = False

    def init_relations(self, plan: LinkPlan) -> None:
        """Create the relation network, and find the overlaps of the relations."""
        model, generator = plan.model, plan.generator
        if model.surroundings:
            raise ConfigError("model.surroundings needs weights for relations, which universal lacks: set it to 0")
        self.relations = RelationNetwork(self.dim, model.relation_layers, generator)
        self.stays = nn.Parameter(torch.randn(self.dim, generator=generator))  # of the self-loop
        self.relation_graph = RelationGraph.of(plan.adjacency.structure)

    def load_initial_weights(self, model: LinkModelConfig) -> None:
        """Load the pretrained weights, unless `model.start` is random.

        Raises:
            ConfigError: If the settings are not those of the weights. Shapes do not tell: weights learned for products
                of messages have the shapes of weights for sums.
        """
        if model.start != "shipped":
            return
        needs = pretrained_card()["settings"]
        wrong = ", ".join(f"{name} {value}" for name, value in needs.items() if getattr(model, name) != value)
        if wrong:
            raise ConfigError(f"the pretrained weights need {wrong}: set these, or set model.start to random")
        self.load_state_dict(pretrained_weights())

    def relation_table(self, plan: LinkPlan) -> nn.Module:
        """Create the module that computes one layer's relation vectors."""
        return ComputedRelationTable(self.dim, plan.generator)

    def relation_states(self, relations: Tensor) -> RelationStates:
        """Compute the relation vectors of questions; once for each distinct relation, outside training."""
        index = None
        if not self.training:  # it waits for the device, which a training step must not
            relations, index = torch.unique(relations, return_inverse=True)
        vectors, query = self.relations(self.relation_graph, relations)
        stays = self.stays.expand(1, len(relations), -1)
        return RelationStates(query if index is None else query[index], torch.cat([vectors, stays]), index)

    def question_work(self, nodes: int, edges: int) -> int:
        """Estimate the multiply-adds of a question, with those of relation vectors."""
        relation_work = 2 * self.dim**2 * (len(self.relations.weights) + self.num_layers)
        return super().question_work(nodes, edges) + RELATION_WORK * self.relation_graph.size * relation_work

    def num_states(self, num_nodes: int) -> int:
        """Return how many states a question has in memory, those of relations included."""
        return num_nodes + self.relation_graph.num_states

    @torch.no_grad()  # gradients would keep all vectors of each part
    def relation_vectors(self) -> Tensor:
        """Compute each relation's vector when it is asked for, `[num_relations, dim]`."""
        relations = torch.arange(self.num_relations, device=self.reference_weight.device)
        part_size = max(1, min(MAX_RELATIONS_AT_ONCE, MAX_NUMBERS // (self.relation_graph.num_states * self.dim)))
        parts = torch.split(relations, part_size)
        return torch.cat([self.relations(self.relation_graph, part)[1] for part in parts])
