"""The one stack of relational convolutions, how settings build it, and heads, which turn its states into classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.receptive_field import HasRows
from rgcn.config import NodeModelConfig
from rgcn.config.fields import HasOptions, introduced
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.initialization import Initializer
from rgcn.nn.relational_graph_conv import MessageFunction, MessageShape, RelationalGraphConv, drop
from rgcn.nn.row_tables import Source
from rgcn.placement import LOCAL, Placement
from rgcn.plugins import DECOMPOSITIONS, MESSAGE_FUNCTIONS

if TYPE_CHECKING:
    from rgcn.nn.link_network import LinkPlan

# Edges in all layers of a receptive field that is computed at once, about a gigabyte; and of a piece where it is not.
FIELD_EDGES, PIECE_EDGES = 8_000_000, 1_000_000

Over: TypeAlias = "ReceptiveField | RelationalAdjacency | Tensor | None"


class RelationalEncoder(nn.Module):
    """what nodes bring → conv → ReLU → … → conv

    source     what nodes bring; None for one-hot nodes, whose first layer looks rows up
    dropout    share of an activated output that is dropped while training
    activated  whether the last convolution's output is activated too

    Over a receptive field it gives the nodes of the field, over the operator of a whole graph every node in order:
    [nodes, width]. Without layers nodes keep what they bring: over None every node, or over nodes int64 [n] these.
    """

    def __init__(
        self, source: Source, layers: Sequence[RelationalGraphConv], dropout: float = 0.0, activated: bool = False
    ) -> None:
        super().__init__()
        if source is None and not layers:
            raise ConfigError("one-hot nodes need at least one layer, which looks their rows up")
        self.source = source
        self.layers = nn.ModuleList(layers)
        self.dropout, self.activated = nn.Dropout(dropout), activated
        self.num_layers, self.one_hot = len(layers), source is None
        self.width = layers[-1].out_features if layers else 0 if source is None else source.width

    def forward(self, over: Over) -> Tensor:
        return self.states(over)[-1] if self.layers else self._brought(over)  # type: ignore[return-value]

    def states(self, over: Over, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, activated but for a last one that is not; only the first `depth`, if given."""
        return self.convolved(self._brought(over), over, depth)

    def _brought(self, over: Over) -> Tensor | None:
        nodes = over.inputs if isinstance(over, ReceptiveField) else over if isinstance(over, Tensor) else None
        return None if self.source is None else self.source(nodes)

    def convolved(self, x: Tensor | None, over: Over, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, where x goes in."""
        wanted = len(self.layers) if depth is None else depth
        operators, nodes = (over.layers, over.inputs) if isinstance(over, ReceptiveField) else ((over,) * wanted, None)
        if len(operators) != wanted:
            raise ConfigError(f"a receptive field of {len(operators)} layers for {wanted} layers of the encoder")
        states: list[Tensor] = []
        for number, adjacency in enumerate(operators):
            if x is not None and isinstance(over, ReceptiveField):
                x = over.layer_input(number, x)
            x = self.layers[number](x, adjacency, nodes if number == 0 else None)
            if number + 1 < len(self.layers) or self.activated:
                names = adjacency.structure.names if isinstance(adjacency, RelationalAdjacency) else None
                x = drop(torch.relu(x), self.dropout.p, self.training, names)
            states.append(x)
        return states

    @torch.no_grad()
    def states_of(self, adjacency: HasRows, nodes: Tensor, depth: int | None = None) -> Tensor:
        """[n, width]: the output of layer `depth`, or of the last, for these nodes, distinct; to look at.

        Over their receptive field where that is small; else layer by layer over all nodes, each layer once, in pieces:
        there is never more than two layers' states and a piece's edges.
        """
        depth = depth or len(self.layers)
        field = ReceptiveField.within(adjacency, nodes, depth, FIELD_EDGES)
        if field is not None:
            return self.states(field, depth)[-1]
        states, read = nodes, cast("Callable[..., Tensor] | None", self.source)
        every = torch.arange(adjacency.num_targets, device=nodes.device)
        for number, layer in enumerate(self.layers[:depth]):
            parts: list[Tensor] = []
            for targets in pieces(adjacency, nodes if number + 1 == depth else every, PIECE_EDGES):
                operator, sources = adjacency.restricted(targets)
                operator = replace(operator, structure=replace(operator.structure, batch=True))
                x = layer(None if read is None else read(sources), operator, None if number else sources)
                parts.append(torch.relu(x) if number + 1 < len(self.layers) or self.activated else x)
            states = torch.cat(parts)
            read = states.__getitem__
        return states

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        """Vectors [n, width] computed without any message, less what the nodes still bring around the messages."""
        return vectors


def edge_options(model: Any) -> dict[str, Any]:
    """Which edges there are and how they are normalized, by the settings of a model, as an operator takes them."""
    return {name: getattr(model, name) for name in ("inverse", "self_loops", "normalization", "aggregation")}


def pieces(adjacency: HasRows, nodes: Tensor, num_edges: int) -> Iterable[Tensor]:
    """Nodes cut, in their order, where so many edges into them are full; a hub may have more."""
    degree = adjacency.edges_into(nodes)
    _, sizes = torch.unique_consecutive((torch.cumsum(degree, 0) - degree) // num_edges, return_counts=True)
    return torch.split(nodes, sizes.tolist())


class Layer(NamedTuple):
    """A convolution to be built: the width it gives, how its weights are written, and whether it has a bias."""

    out: int
    decomposition: Decomposition
    bias: bool

    def published(self, width: int, num_relations: int, self_loops: bool) -> int:
        """Numbers it has with a row for every input, of `width`; num_relations: inverses and self-loop included."""
        apart = int(self.decomposition.self_loop_apart and self_loops)
        inside = self.decomposition.numbers(num_relations - apart, width, self.out)
        return inside + apart * width * self.out + self.bias * self.out


def stacked(
    plan: LinkPlan | NodePlan,
    width: int | None,
    layers: Iterable[Layer],
    init: Initializer,
    *,
    reach: ReceptiveField | None = None,
    self_loop_dropout: float = 0.0,
) -> list[RelationalGraphConv]:
    """Convolutions one on another, with fresh weights, for a graph.

    width: what nodes bring, None for one-hot nodes; reach: what the loss can reach of these
    """
    built: list[RelationalGraphConv] = []
    training = None if reach is None else (reach.layers[0], reach.inputs)
    adjacency, edges, generator = plan.adjacency, plan.adjacency.structure, plan.generator
    messages: type[MessageFunction] = MESSAGE_FUNCTIONS.find(plan.model.message_function)
    for out, decomposition, bias in layers:
        how: dict[str, Any] = {"decomposition": decomposition, "bias": bias, "init": init, "generator": generator}
        shape = MessageShape(adjacency.num_sources if width is None else width, out, adjacency.num_relations)
        how["message_function"] = messages.build(shape, plan.model.convolution_options, generator)
        if width is None:
            layer = RelationalGraphConv.one_hot(adjacency, out, training=training, **how)
        else:
            how |= {"inverse": edges.has_inverse, "self_loops": edges.has_self_loops}
            relations = edges.num_data_relations
            layer = RelationalGraphConv(width, out, relations, self_loop_dropout=self_loop_dropout, **how)
        built.append(layer)
        width = out
    return built


def link_stack(plan: LinkPlan, width: int, one_hot: bool = False) -> list[RelationalGraphConv]:
    """The convolutions of a link encoder, each as wide as what goes in."""
    model, training = plan.model, plan.training
    init = Initializer(model.init, model.gain)
    if model.fans == "published" and model.blocks is not None:
        init = Initializer(model.init, model.gain, fans=(plan.num_relations, width // model.blocks))
    dropout = training.self_loop_dropout if training.self_loop_dropout_on == "message" else 0.0
    layer = Layer(width, DECOMPOSITIONS.find(model.decomposition).build(model, width), model.bias)
    brought = None if one_hot else width
    return stacked(plan, brought, [layer] * model.layers, init, self_loop_dropout=dropout)


class Head(nn.Module, HasOptions, ABC):
    """From the last states [n, width] to logits [n, classes]: a member of the axis `head`.

    activated  whether it wants states through ReLU
    """

    activated = True

    @staticmethod
    def width(hidden: int, num_classes: int) -> int:
        """The width it wants the last convolution to have."""
        return hidden

    @classmethod
    def build(cls, hidden: int, num_classes: int, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """A head with fresh weights; options: `model.options`, of which `read_options` takes the head's own."""
        return cls(hidden, num_classes, generator)

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor: ...

    @classmethod
    def words(cls) -> str:
        """What a report says of it, behind the layers."""
        return f"; then {introduced(cls)}"


class ConvolutionHead(Head):
    """None of its own: the last convolution gives a number for each class, as published."""

    activated = False

    def __init__(self, *_: Any) -> None:
        super().__init__()

    @staticmethod
    def width(hidden: int, num_classes: int) -> int:
        return num_classes

    def forward(self, states: Tensor) -> Tensor:
        return states

    @classmethod
    def words(cls) -> str:
        return ""


class LinearHead(Head):
    """logits = H W + b, W begins Glorot-uniform."""

    def __init__(self, hidden: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        weight = torch.empty(num_classes, hidden)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(weight, generator=generator))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.weight, self.bias)


@dataclass(frozen=True)
class NodePlan:
    """What a network of node classification is built for.

    model      its settings
    graph      with labels; its classes are what the network tells apart
    adjacency  the operator of the graph
    training   what the loss can reach. Rows outside it are kept out of the parameters; None where something decays
               them, so that all must be parameters
    generator  where initial weights come from
    placement  which nodes are local: the operator has their rows
    """

    model: NodeModelConfig
    graph: KnowledgeGraph
    adjacency: RelationalAdjacency
    training: ReceptiveField | None
    generator: torch.Generator
    placement: Placement = LOCAL

    @property
    def num_classes(self) -> int:
        assert self.graph.labels is not None
        return self.graph.labels.num_classes


class NodeNetwork(RelationalEncoder):
    """An encoder with a head: over a field or a graph → [nodes, classes].

    The last convolution is not activated where it speaks for the classes itself; before any other head it is.
    """

    def __init__(self, source: Source, layers: Sequence[RelationalGraphConv], dropout: float, head: Head) -> None:
        super().__init__(source, layers, dropout, activated=head.activated)
        self.head = head

    def forward(self, over: Over) -> Tensor:
        return self.head(super().forward(over))  # type: ignore[no-any-return]
