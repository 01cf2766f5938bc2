"""The layer of a path network: what an edge says, what a node makes of all it hears, and what it becomes; the head that
scores a node by its state and by what stands around it; and the edges that walks from some nodes can take.

States are [nodes, questions, width]: B questions side by side, each with a convolution of its own over the same edges.
In memory that is one matrix [nodes, B · width], and the convolution H = Σ_r A_r X W_r with diagonal W_r is one scaled
sum over it.

A node that has heard nothing for a question is exactly zero and stays so: biases do not wake it. Whoever computes only
the nodes that a question reaches gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.adjacency.structure import rows_of
from rgcn.kernels import gather_sum, scaled_sum
from rgcn.kernels.layer_update import UpdateInputs, UpdateSettings, layer_update
from rgcn.kernels.sparse import pointer_from_sorted

# What is left of a sum after its parts were taken off again, as a share of these: so many times what numbers can tell.
ROUNDING = 100
# Above this share of the edges, picking them out costs more than the rest of them would.
MOST_OF_ALL = 0.5


class Hop(NamedTuple):
    """The edges that one layer passes messages along.

    operator  [targets, sources], weights normalized
    own       int64 [targets]: which of the sources each target is; None where both are all nodes in order
    degree    [targets]: the logarithm of what stands in each target, as a multiple of the training graph's mean
    hidden    edges that some of the questions do not hear; None without any
    """

    operator: RelationalAdjacency
    own: Tensor | None
    degree: Tensor
    hidden: Hidden | None = None

    @classmethod
    def along(cls, operator: RelationalAdjacency, mean_log_degree: Tensor, hidden: Hidden | None = None) -> Hop:
        """An operator that has every edge into its targets; self-loops say which source a target is."""
        edges = operator.structure
        everything = edges.num_targets == edges.num_sources == edges.num_nodes
        own = None if everything else edges.own_sources
        # A self-loop counts, so that a node alone has log 1 = 0.
        return cls(operator, own, torch.log(operator.total().clamp(min=1.0)) / mean_log_degree, hidden)


class Hidden(NamedTuple):
    """Edges that some of the questions of a batch do not hear, everything normalized as if these were not there.

    For weights that are not normalized, or over all edges of a target.

    edge, question  int64 [h]: numbers of edges of the operator, and who does not hear them
    share           [h]: the edge's part of all that stands in its target
    unit            the training graph's mean logarithm of a degree
    questions       B
    """

    edge: Tensor
    question: Tensor
    share: Tensor
    unit: Tensor
    questions: int

    def gone(self, operator: RelationalAdjacency) -> Tensor:
        """[targets, B]: the part of all that stands in a target which a question does not hear."""
        none = self.share.new_zeros(operator.num_targets, self.questions)
        return none.index_put((operator.structure.target[self.edge].long(), self.question), self.share, accumulate=True)

    def without(self, operator: RelationalAdjacency, total: Tensor, said: Tensor) -> Tensor:
        """Sums [targets, B, width] over edges less what the hidden ones said [h, width], the rest normalized again."""
        key = operator.structure.target[self.edge].long() * self.questions + self.question
        place, number = torch.unique(key, return_inverse=True)  # few: what nothing is hidden from is not touched
        every = total.flatten(0, 1)
        off = torch.zeros_like(every[place]).index_add(0, number, operator.weight[self.edge, None] * said)
        rest = every[place] - off
        if operator.normalization == "node":
            rest = rest / (1.0 - self.gone(operator).flatten()[place]).unsqueeze(-1)
        # Where nothing else was said, rounding must not pass for something.
        least = ROUNDING * min(torch.finfo(rest.dtype).eps, torch.finfo(torch.float32).eps)
        rest = torch.where((off != 0) & (rest.abs() <= least * off.abs()), 0.0, rest)
        return every.index_copy(0, place, rest).view_as(total)

    def degree(self, operator: RelationalAdjacency, degree: Tensor) -> Tensor:
        """[targets, B]: factors of nodes [targets] less the hidden edges."""
        return degree[:, None] + torch.log1p(-self.gone(operator)) / self.unit


class Told(NamedTuple):
    """What a batch of B questions knows of relations.

    query      [B, width]: the vector of the relation that each asks for
    relations  [R⁺, U, width]: vectors of all relations for each of U asked for; None where layers learn theirs
    column     int64 [B]: which of the U each question has; None: all the only one, or each its own
    """

    query: Tensor
    relations: Tensor | None = None
    column: Tensor | None = None


class Messages(NamedTuple):
    """What an edge (u, s, v) says of a state x_u: x_u ⊙ w_s, as DistMult does, or x_u + w_s, as TransE does.

    added  x_u + w_s; a node that has heard nothing says nothing

    The sums take an operator, the relations' table ([R⁺, width], or [R⁺, B · width] where it depends on the question)
    and states x [sources, B, width] → [targets, B, width].
    """

    added: bool = False

    def sums(self, operator: RelationalAdjacency, table: Tensor, x: Tensor, exact: bool = False) -> Tensor:
        """Σ over edges of weight · message; exact: of half precision, in float32."""
        if not self.added:
            return _scaled(operator, table, x, exact)
        return _summed(operator, x) + _scaled(operator, table, _speaks(x), exact)

    def squares(self, operator: RelationalAdjacency, table: Tensor, x: Tensor) -> Tensor:
        """Σ over edges of weight · message²."""
        if not self.added:
            return _scaled(operator, table.square(), x.square(), exact=True)
        mixed = 2 * _scaled(operator, table, x)
        return _summed(operator, x.square()) + mixed + _scaled(operator, table.square(), _speaks(x), exact=True)

    def of_edges(self, row: Tensor, x: Tensor) -> Tensor:
        """Messages one by one: rows of the table and states, [h, width] each → [h, width]."""
        return x + row * _speaks(x) if self.added else row * x


def _speaks(x: Tensor) -> Tensor:
    return (x != 0).any(-1, keepdim=True).to(x.dtype).expand_as(x)


def _scaled(operator: RelationalAdjacency, table: Tensor, x: Tensor, exact: bool = False) -> Tensor:
    out = scaled_sum(operator.structure.triple_index, operator.weight, table, x.flatten(1), exact=exact)
    return out.view(-1, *x.shape[1:])


def _summed(operator: RelationalAdjacency, x: Tensor) -> Tensor:
    return gather_sum(operator.structure.pattern, operator.weight, x.flatten(1)).view(-1, *x.shape[1:])


class RelationTable(nn.Module):
    """w_s of one layer, for relations, inverses and the self-loop: a vector each, whatever is asked."""

    def __init__(self, relations: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(relations, width, generator=generator))

    def forward(self, told: Told) -> Tensor:
        """[R⁺, width], or [R⁺, B · width] where it matters."""
        return self.vectors


class AskedRelationTable(RelationTable):
    """w_s(q) = W_s q + b_s: a vector for each relation that depends on the relation asked for.

    A matrix for each relation: far more to learn, and to overfit, than a vector.
    """

    def __init__(self, relations: int, width: int, generator: torch.Generator) -> None:
        nn.Module.__init__(self)
        bound = width**-0.5
        self.matrices = nn.Parameter(torch.empty(relations, width, width).uniform_(-bound, bound, generator=generator))
        self.biases = nn.Parameter(torch.empty(relations, 1, width).uniform_(-bound, bound, generator=generator))

    def forward(self, told: Told) -> Tensor:
        return (torch.matmul(told.query, self.matrices) + self.biases).flatten(1)


def drawn_weight(out: int, inputs: int, generator: torch.Generator) -> nn.Parameter:
    """[out, inputs], each number uniform within ± 1 / √inputs."""
    bound = inputs**-0.5
    return nn.Parameter(torch.empty(out, inputs).uniform_(-bound, bound, generator=generator))


class PathLayer(nn.Module):
    """x_v ← x_v + ReLU(LayerNorm(W [x_v, a_v, s_v a_v])), where anything was heard

    a_v are the sums over edges, `deviation` adds their standard deviations; s_v tells nodes of many edges from those of
    few (`settings.scaled`).
    """

    def __init__(
        self,
        relations: nn.Module,
        messages: Messages,
        width: int,
        generator: torch.Generator,
        settings: UpdateSettings = UpdateSettings(),  # noqa: B008 (a tuple)
        deviation: bool = False,
    ) -> None:
        super().__init__()
        self.relations, self.messages, self.settings, self.deviation = relations, messages, settings, deviation
        inputs = width * (1 + (1 + deviation) * (1 + settings.scaled))
        bound = inputs**-0.5
        self.weight = drawn_weight(width, inputs, generator)
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound, generator=generator))
        # Of LayerNorm; without it they stand for nothing.
        self.gain = nn.Parameter(torch.ones(width), requires_grad=settings.norm)
        self.shift = nn.Parameter(torch.zeros(width), requires_grad=settings.norm)

    def forward(self, x: Tensor, told: Told, hop: Hop, table: Tensor | None = None) -> Tensor:
        """x [sources, B, width] → [targets, B, width]. table: what `relations` gives, where it is there already."""
        table = self.relations(told) if table is None else table
        own = x if hop.own is None else x.index_select(0, hop.own)
        degree = hop.degree
        # The difference of two moments needs more digits than half precision has.
        table = table.to(x.dtype)
        heard = self.messages.sums(hop.operator, table, x, exact=self.deviation)
        squares = self.messages.squares(hop.operator, table, x) if self.deviation else None
        if (hidden := hop.hidden) is not None:
            said = self._said(hidden, table, x, hop.operator)
            heard, degree = hidden.without(hop.operator, heard, said), hidden.degree(hop.operator, degree)
            squares = None if squares is None else hidden.without(hop.operator, squares, said.square())
        settings = self.settings if self.training else self.settings._replace(dropout=0.0)
        weights = (self.weight, self.bias, self.gain, self.shift)
        return layer_update(UpdateInputs(own, heard, squares, degree, weights, None, settings))

    def _said(self, hidden: Hidden, table: Tensor, x: Tensor, operator: RelationalAdjacency) -> Tensor:
        """[h, width]: the messages of the hidden edges."""
        edges, number = operator.structure, torch.arange(len(hidden.edge), device=x.device)
        rows = table[edges.relation[hidden.edge]].view(len(number), -1, x.shape[-1])
        row = rows[number, hidden.question if rows.shape[1] > 1 else 0]
        return self.messages.of_edges(row, x[edges.source[hidden.edge], hidden.question])


class Surroundings(nn.Module):
    """The same layers, started at every node at once and whatever is asked: n_v is what stands around v.

    All that can be said of a node that no walk reaches, and a hint for the rest. Like everything here it knows no node,
    only edges.
    """

    def __init__(self, relations: int, width: int, depth: int, generator: torch.Generator) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(width, generator=generator))
        self.layers = nn.ModuleList(
            PathLayer(RelationTable(relations, width, generator), Messages(), width, generator) for _ in range(depth)
        )

    def forward(self, hops: Sequence[Hop]) -> Tensor:
        """[targets of the last hop, 1, width]; [targets, B, width] where some questions do not hear all edges.

        hops  at least as many as there are layers; the last ones are taken
        """
        hops = hops[-len(self.layers) :]
        hidden = hops[0].hidden
        questions = 1 if hidden is None else hidden.questions
        x = self.start.expand(hops[0].operator.num_sources, questions, -1)
        for layer, hop in zip(self.layers, hops, strict=True):
            x = layer(x.contiguous(), Told(self.start.unsqueeze(0)), hop)
        return x


class AnswerHead(nn.Module):
    """f(v) = MLP([x_v, q_r, n_v]) + ⟨T q_r, n_v⟩; without surroundings MLP([x_v, q_r])."""

    def __init__(self, relations: int, width: int, surroundings: int, generator: torch.Generator) -> None:
        """surroundings: how far around a node to look, in hops."""
        super().__init__()
        drawn = partial(drawn_weight, generator=generator)
        inner = 2 * width
        self.of_state, self.of_query = drawn(inner, width), drawn(inner, width)
        self.bias = nn.Parameter(torch.zeros(inner))
        self.answer, self.answer_bias = drawn(1, inner), nn.Parameter(torch.zeros(1))
        self.surroundings = Surroundings(relations, width, surroundings, generator) if surroundings else None
        self.of_surroundings = drawn(inner, width) if surroundings else None
        self.fitting = drawn(width, width) if surroundings else None

    def around(self, hops: Sequence[Hop]) -> Tensor | None:
        """[targets, 1 or B, width]: what stands around nodes; None where nobody looks."""
        return None if self.surroundings is None else self.surroundings(hops)

    def forward(self, x: Tensor, query: Tensor, around: Tensor | None) -> Tensor:
        """x [n, B, width], query [B, width], around [n, 1 or B, width] → [B, n]."""
        kind = x.dtype
        inside = F.linear(query.to(kind), self.of_query.to(kind), self.bias.to(kind))
        if around is not None and self.of_surroundings is not None:
            inside = inside + F.linear(around.to(kind), self.of_surroundings.to(kind))
        inside = torch.relu(F.linear(x, self.of_state.to(kind)) + inside)
        scores = F.linear(inside, self.answer.to(kind), self.answer_bias.to(kind)).squeeze(-1).to(query.dtype)
        if around is not None and self.fitting is not None:
            wanted = F.linear(query, self.fitting)
            shared = around.shape[1] == 1  # by all questions: then it is one product
            scores = scores + (around.squeeze(1) @ wanted.T if shared else (around * wanted).sum(-1))
        return scores.T


def reached_hops(whole: Hop, start: Tensor | None, num_layers: int) -> tuple[list[Hop], list[Tensor | None]]:
    """What each layer must compute for questions that start at nodes int64 [q]; None: at all of them.

    Returns a hop for each layer, and the nodes int64, ascending, that have a state before the first layer and after
    each one; None: all nodes. A hop's sources are its targets: states are first laid out over these, the new ones zero.
    No weight and no degree changes: those are the whole graph's.
    """
    if start is None:
        return [whole] * num_layers, [None] * (num_layers + 1)
    edges, operator = whole.operator.structure, whole.operator
    by_source, _ = edges.triple_index.seen_from("source")
    numbers = torch.arange(edges.num_edges, device=start.device) if by_source.entry is None else by_source.entry
    hops: list[Hop] = []
    nodes: list[Tensor | None] = [torch.unique(start)]
    for _ in range(num_layers):
        given = nodes[-1]
        if given is not None:
            entry, _ = rows_of(by_source.pointer, given)
            if len(entry) > MOST_OF_ALL * edges.num_edges:
                given = None
        if given is None:
            hops.append(whole)
            nodes.append(None)
            continue
        edge = torch.sort(numbers[entry]).values.long()
        reached, target = torch.unique_consecutive(edges.target[edge].long(), return_inverse=True)
        source = torch.searchsorted(reached, edges.source[edge].long())  # self-loops make every source a target
        size, pointer = len(reached), pointer_from_sorted(target, len(reached))
        part = operator.selected(edge, pointer=pointer, source=source, num_targets=size, num_sources=size)
        hops.append(Hop(part, None, whole.degree[reached]))
        nodes.append(reached)
    return hops, nodes
