"""Parts of a path network: the edges that questions can reach, relation vectors, the layer and the head.

States are `[num_nodes, num_questions, dim]`: a batch of questions side by side, each with a convolution of its own over
the same edges. In memory that is one matrix `[num_nodes, num_questions * dim]`, and the convolution H = Σ_r A_r X W_r
with diagonal W_r is one scaled sum over it.

A node that has received no message for a question has the state zero, and keeps it: biases are not added. Computing
only the nodes that a question reaches therefore gives the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.adjacency.structure import entries_of_rows
from rgcn.kernels import gather_sum, scaled_sum
from rgcn.kernels.layer_update import UpdateInputs, UpdateSettings, layer_update
from rgcn.kernels.sparse import pointer_from_sorted

ROUNDING_STEPS = 100  # a difference of fewer steps of the precision than this is considered zero
MAX_EDGE_SHARE = 0.5  # above this share of the edges, selecting them costs more than computing all


class HiddenEdges(NamedTuple):
    """Edges that are hidden from some questions of a batch, while the rest is normalized as if these did not exist.

    For weights that are not normalized, or normalized over all edges of a target.

    Attributes:
        edge: Indices of edges of the operator, int64 `[num_hidden]`.
        question: The question that each edge is hidden from, int64 `[num_hidden]`.
        share: Each edge's share of the weight into its target, `[num_hidden]`.
        num_questions: Number of questions in the batch.
    """

    edge: Tensor
    question: Tensor
    share: Tensor
    num_questions: int

    def hidden_share(self, operator: RelationalAdjacency) -> Tensor:
        """Return the share of the weight into each target that is hidden, `[num_targets, num_questions]`."""
        edges = operator.structure
        none = self.share.new_zeros(edges.num_targets, self.num_questions)
        return none.index_put((edges.target[self.edge].long(), self.question), self.share, accumulate=True)

    def subtract(self, operator: RelationalAdjacency, total: Tensor, messages: Tensor) -> Tensor:
        """Subtract hidden messages `[num_hidden, dim]` from sums, and normalize again.

        Args:
            operator: The edges.
            total: Sums over all edges, `[num_targets, num_questions, dim]`.
            messages: The messages of the hidden edges.
        """
        key = operator.structure.target[self.edge].long() * self.num_questions + self.question
        place, index = torch.unique(key, return_inverse=True)
        sums = total.flatten(0, 1)
        weighted = (operator.weight[self.edge, None] * messages).to(sums.dtype)
        hidden = torch.zeros_like(sums[place]).index_add(0, index, weighted)
        rest = sums[place] - hidden
        if operator.normalization == "node":
            rest = rest / (1.0 - self.hidden_share(operator).flatten()[place]).unsqueeze(-1)
        # Rounding must not look like a message where no other edge has one.
        bound = ROUNDING_STEPS * min(torch.finfo(rest.dtype).eps, torch.finfo(torch.float32).eps)
        rest = torch.where((hidden != 0) & (rest.abs() <= bound * hidden.abs()), 0.0, rest)
        return sums.index_copy(0, place, rest).view_as(total)


class LayerEdges(NamedTuple):
    """The edges along which one layer passes messages.

    Attributes:
        operator: The edges with normalized weights, `[num_targets, num_sources]`.
        own_source: The source that is each target itself, int64 `[num_targets]`; None if both are the same nodes.
        log_degree: Logarithm of each target's degree, relative to the mean of the training graph, `[num_targets]`; or
            `[num_targets, num_questions]`, without the hidden edges.
        hidden: Edges that are hidden from some of the questions; None without any.
    """

    operator: RelationalAdjacency
    own_source: Tensor | None
    log_degree: Tensor
    hidden: HiddenEdges | None = None

    @classmethod
    def along(
        cls, operator: RelationalAdjacency, mean_log_degree: Tensor, hidden: HiddenEdges | None = None
    ) -> LayerEdges:
        """Use an operator with every edge into its targets, whose self-loops say which source each target is."""
        edges = operator.structure
        own_source = None if edges.num_targets == edges.num_sources == edges.num_nodes else edges.target_sources
        # With its self-loop, an isolated node has log 1 = 0.
        log_degree = torch.log(operator.total().clamp(min=1.0)) / mean_log_degree
        if hidden is not None:
            log_degree = log_degree[:, None] + torch.log1p(-hidden.hidden_share(operator)) / mean_log_degree
        return cls(operator, own_source, log_degree, hidden)

    def reached(self, start: Tensor | None, num_layers: int) -> tuple[list[LayerEdges], list[Tensor | None]]:
        """Find what each layer must compute, of these edges of the whole graph, for questions that start at some nodes.

        Weights and degrees are those of the whole graph.

        Args:
            start: Nodes that questions start at, int64 `[num_questions]`; None for all nodes.
            num_layers: Number of layers.

        Returns:
            The edges of each layer, whose sources are its targets; and the nodes that have a state before the first
            layer and after each layer, int64 and ascending, or None for all nodes.
        """
        if start is None:
            return [self] * num_layers, [None] * (num_layers + 1)
        edges, operator = self.operator.structure, self.operator
        by_source, _ = edges.triple_index.view_from("source")
        numbers = by_source.value_id
        assert numbers is not None  # edges are sorted by target
        layers: list[LayerEdges] = []
        nodes: list[Tensor | None] = [torch.unique(start)]
        for _ in range(num_layers):
            entry = None if nodes[-1] is None else entries_of_rows(by_source.pointer, nodes[-1])[0]
            if entry is None or len(entry) > MAX_EDGE_SHARE * edges.num_edges:
                layers.append(self)
                nodes.append(None)
                continue
            edge = torch.sort(numbers[entry]).values.long()
            reached, target = torch.unique_consecutive(edges.target[edge].long(), return_inverse=True)
            source = torch.searchsorted(reached, edges.source[edge].long())  # self-loops make every source a target
            size, pointer = len(reached), pointer_from_sorted(target, len(reached))
            part = operator.select_edges(edge, pointer=pointer, source=source, num_targets=size, num_sources=size)
            layers.append(LayerEdges(part, None, self.log_degree[reached]))
            nodes.append(reached)
        return layers, nodes


class RelationStates(NamedTuple):
    """Vectors of relations for a batch of questions.

    Attributes:
        query: The vector of each question's relation, `[num_questions, dim]`.
        relations: Vectors of all relations, for each distinct relation asked for, `[num_relations, num_distinct, dim]`,
            with inverses and the self-loop; None if layers have their own.
        distinct: Which of the distinct relations each question has, int64 `[num_questions]`; None if all have the only
            one, or each its own.
    """

    query: Tensor
    relations: Tensor | None = None
    distinct: Tensor | None = None


def _has_state(x: Tensor) -> Tensor:
    return (x != 0).any(-1, keepdim=True).to(x.dtype).expand_as(x)


def _scaled_sum(operator: RelationalAdjacency, table: Tensor, x: Tensor, exact: bool = False) -> Tensor:
    """Return Σ over edges of weight · w ⊙ x, of the shape of x; in float32 even for half precision, if `exact`.

    The table of relation vectors w is `[num_relations, dim]`, or `[num_relations, num_questions * dim]` if they depend
    on the question.
    """
    out = scaled_sum(operator.structure.triple_index, operator.weight, table, x.flatten(1), exact=exact)
    return out.view(-1, *x.shape[1:])


def _sum(operator: RelationalAdjacency, x: Tensor) -> Tensor:
    return gather_sum(operator.structure.pattern, operator.weight, x.flatten(1)).view(-1, *x.shape[1:])


def uniform_weight(*shape: int, generator: torch.Generator, fan_in: int | None = None) -> nn.Parameter:
    """Draw a parameter uniformly from ± 1 / √fan_in, by default the size of the last dimension."""
    bound = (fan_in or shape[-1]) ** -0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


class RelationTable(nn.Module):
    """Relation vectors w_s of one layer that do not depend on the question, `[num_relations, dim]`."""

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator) -> None:
        """Draw the initial vectors; num_relations includes inverses and the self-loop."""
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(num_relations, dim, generator=generator))

    def forward(self, states: RelationStates) -> Tensor:
        """Return the vectors `[num_relations, dim]`."""
        return self.vectors


class QueryRelationTable(nn.Module):
    """Relation vectors w_s(q) = W_s q + b_s of one layer that depend on the question's relation.

    They have a matrix for each relation: many more parameters than `RelationTable`, which overfit more easily.
    """

    def __init__(self, num_relations: int, dim: int, generator: torch.Generator) -> None:
        """Draw the initial matrices and biases; num_relations includes inverses and the self-loop."""
        super().__init__()
        self.matrices = uniform_weight(num_relations, dim, dim, generator=generator)
        self.biases = uniform_weight(num_relations, 1, dim, generator=generator)

    def forward(self, states: RelationStates) -> Tensor:
        """Compute the vectors `[num_relations, num_questions * dim]`."""
        return (torch.matmul(states.query, self.matrices) + self.biases).flatten(1)


RELATION_TABLES: dict[str, type[nn.Module]] = {"own": RelationTable, "question": QueryRelationTable}


class PathLayer(nn.Module):
    """One layer: x_v ← x_v + ReLU(LayerNorm(W [x_v, a_v, s_v a_v])) for nodes that received a message.

    a_v are the sums over edges; s_v is the degree's logarithm, which distinguishes nodes with many edges from those
    with few (`settings.degree_scaling`).

    Args:
        relations: Module that computes relation vectors from `RelationStates`.
        is_sum: True for the messages x_u + w_s of edges (u, s, v), as in TransE, where a node with state zero sends
            none; False for x_u ⊙ w_s, as in DistMult.
        dim: Dimension of a state.
        generator: Source of the initial weights.
        settings: Settings of the update.
        deviation: Whether to use the standard deviation of messages too.

    Shapes: states `[num_sources, num_questions, dim]` → `[num_targets, num_questions, dim]`.
    """

    def __init__(
        self,
        relations: nn.Module,
        is_sum: bool,
        dim: int,
        generator: torch.Generator,
        settings: UpdateSettings = UpdateSettings(),  # noqa: B008 (a tuple)
        deviation: bool = False,
    ) -> None:
        """Draw the initial weights."""
        super().__init__()
        self.relations, self.is_sum, self.settings, self.deviation = relations, is_sum, settings, deviation
        inputs = dim * (1 + (1 + deviation) * (1 + settings.degree_scaling))
        self.weight = uniform_weight(dim, inputs, generator=generator)
        self.bias = uniform_weight(dim, generator=generator, fan_in=inputs)
        # Of LayerNorm; constant without it.
        self.gain = nn.Parameter(torch.ones(dim), requires_grad=settings.norm)
        self.shift = nn.Parameter(torch.zeros(dim), requires_grad=settings.norm)

    def forward(self, x: Tensor, states: RelationStates, edges: LayerEdges, table: Tensor | None = None) -> Tensor:
        """Pass messages and update the states.

        Args:
            x: States `[num_sources, num_questions, dim]`.
            states: Relation vectors of the questions.
            edges: The edges of this layer.
            table: The output of `relations`, if it has been computed before.

        Returns:
            States `[num_targets, num_questions, dim]`.
        """
        table = (self.relations(states) if table is None else table).to(x.dtype)
        operator, own_source, log_degree, hidden = edges
        own = x if own_source is None else x.index_select(0, own_source)
        # Half precision is too coarse for the difference of two moments.
        sums = _scaled_sum(operator, table, _has_state(x) if self.is_sum else x, exact=self.deviation)
        sums = _sum(operator, x) + sums if self.is_sum else sums
        squares = self._squares(operator, table, x) if self.deviation else None
        if hidden is not None:
            messages = self._hidden_messages(hidden, table, x, operator)
            sums = hidden.subtract(operator, sums, messages)
            squares = None if squares is None else hidden.subtract(operator, squares, messages.square())
        settings = self.settings if self.training else self.settings._replace(dropout=0.0)
        weights = (self.weight, self.bias, self.gain, self.shift)
        return layer_update(UpdateInputs(own, sums, squares, log_degree, weights, None, settings))

    def _squares(self, operator: RelationalAdjacency, table: Tensor, x: Tensor) -> Tensor:
        """Return Σ over edges of weight · message², `[num_targets, num_questions, dim]`."""
        if not self.is_sum:
            return _scaled_sum(operator, table.square(), x.square(), exact=True)
        mixed = 2 * _scaled_sum(operator, table, x)
        return _sum(operator, x.square()) + mixed + _scaled_sum(operator, table.square(), _has_state(x), exact=True)

    def _hidden_messages(self, hidden: HiddenEdges, table: Tensor, x: Tensor, operator: RelationalAdjacency) -> Tensor:
        """Return the messages of the hidden edges, `[num_hidden, dim]`."""
        edges, index = operator.structure, torch.arange(len(hidden.edge), device=x.device)
        rows = table[edges.relation[hidden.edge]].view(len(index), -1, x.shape[-1])
        row = rows[index, hidden.question if rows.shape[1] > 1 else 0]
        state = x[edges.source[hidden.edge], hidden.question]
        return state + row * _has_state(state) if self.is_sum else row * state


class NeighborhoodEncoder(nn.Module):
    """Vectors n_v of the neighborhood of each node: path layers that start at every node, whatever the question.

    They distinguish nodes that no walk of a question reaches. Like all of a path network they have no weights for
    nodes.

    Args:
        num_relations: Number of relations, with inverses and the self-loop.
        dim: Dimension of a state.
        depth: Number of layers, that is the radius of the neighborhood in hops.
        generator: Source of the initial weights.
    """

    def __init__(self, num_relations: int, dim: int, depth: int, generator: torch.Generator) -> None:
        """Draw the initial weights."""
        super().__init__()
        self.start = nn.Parameter(torch.randn(dim, generator=generator))
        self.layers = nn.ModuleList(
            PathLayer(RelationTable(num_relations, dim, generator), False, dim, generator) for _ in range(depth)
        )

    def forward(self, edges: Sequence[LayerEdges]) -> Tensor:
        """Compute the vectors of the last targets.

        Args:
            edges: The edges of each layer; of more than `depth`, the last ones.

        Returns:
            `[num_targets, 1, dim]`, or `[num_targets, num_questions, dim]` if edges are hidden from some questions.
        """
        edges = edges[-len(self.layers) :]
        hidden = edges[0].hidden
        num_questions = 1 if hidden is None else hidden.num_questions
        x = self.start.expand(edges[0].operator.num_sources, num_questions, -1)
        for layer, layer_edges in zip(self.layers, edges, strict=True):
            x = layer(x.contiguous(), RelationStates(self.start.unsqueeze(0)), layer_edges)
        return x


class AnswerHead(nn.Module):
    """The score f(v) = MLP([x_v, q_r, n_v]) + ⟨T q_r, n_v⟩ of an answer; MLP([x_v, q_r]) without neighborhoods.

    Args:
        num_relations: Number of relations, with inverses and the self-loop.
        dim: Dimension of a state.
        surroundings: Radius of neighborhoods in hops; 0 for none.
        generator: Source of the initial weights.
    """

    def __init__(self, num_relations: int, dim: int, surroundings: int, generator: torch.Generator) -> None:
        """Draw the initial weights."""
        super().__init__()
        uniform, inner = partial(uniform_weight, generator=generator), 2 * dim
        self.of_state, self.of_query = uniform(inner, dim), uniform(inner, dim)
        self.bias = nn.Parameter(torch.zeros(inner))
        self.answer, self.answer_bias = uniform(1, inner), nn.Parameter(torch.zeros(1))
        self.surroundings = NeighborhoodEncoder(num_relations, dim, surroundings, generator) if surroundings else None
        self.of_surroundings = uniform(inner, dim) if surroundings else None
        self.fitting = uniform(dim, dim) if surroundings else None

    def neighborhoods(self, edges: Sequence[LayerEdges]) -> Tensor | None:
        """Compute neighborhood vectors `[num_targets, 1 or num_questions, dim]`; None without neighborhoods."""
        return None if self.surroundings is None else self.surroundings(edges)

    def forward(self, x: Tensor, query: Tensor, neighborhoods: Tensor | None) -> Tensor:
        """Compute the scores of nodes.

        Args:
            x: States `[n, num_questions, dim]`.
            query: Vectors of the questions' relations, `[num_questions, dim]`.
            neighborhoods: Neighborhood vectors `[n, 1 or num_questions, dim]`, or None.

        Returns:
            Scores `[num_questions, n]`.
        """
        dtype = x.dtype
        inner = F.linear(query.to(dtype), self.of_query.to(dtype), self.bias.to(dtype))
        if neighborhoods is not None and self.of_surroundings is not None:
            inner = inner + F.linear(neighborhoods.to(dtype), self.of_surroundings.to(dtype))
        inner = torch.relu(F.linear(x, self.of_state.to(dtype)) + inner)
        scores = F.linear(inner, self.answer.to(dtype), self.answer_bias.to(dtype)).squeeze(-1).to(query.dtype)
        if neighborhoods is not None and self.fitting is not None:
            query = F.linear(query, self.fitting)
            is_shared = neighborhoods.shape[1] == 1  # by all questions: then it is one matrix product
            fit = neighborhoods.squeeze(1) @ query.T if is_shared else (neighborhoods * query).sum(-1)
            scores = scores + fit
        return scores.T
