"""The one stack of relational convolutions, the body of every network whatever its task; and how settings build it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.stored_edges import StoredEdges
from rgcn.errors import ConfigError
from rgcn.nn.decompositions import Basis, BlockDiagonal, Decomposition, Full
from rgcn.nn.initialization import Initializer
from rgcn.nn.inputs import EmbeddingInput, FeatureInput
from rgcn.nn.relational_graph_conv import RelationalGraphConv

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig
    from rgcn.nn.link_network import LinkPlan

Over: TypeAlias = "ReceptiveField | RelationalAdjacency | None"


class RelationalEncoder(nn.Module):
    """what nodes bring → conv → ReLU → … → conv

    source     what nodes bring; None for one-hot nodes, whose first layer looks rows up
    dropout    share of an activated output that is dropped while training
    activated  whether the last convolution's output is activated too

    Over a receptive field it gives the nodes of the field, over the operator of a whole graph every node in order:
    [nodes, width]. Without layers nodes keep what they bring, and None does for a graph.
    """

    def __init__(
        self,
        source: EmbeddingInput | FeatureInput | None,
        layers: Sequence[RelationalGraphConv],
        dropout: float = 0.0,
        activated: bool = False,
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
        nodes = over.inputs if isinstance(over, ReceptiveField) else None
        return None if self.source is None else self.source(nodes)

    def convolved(self, x: Tensor | None, over: Over, depth: int | None = None) -> list[Tensor]:
        """The output of each layer, where x goes in."""
        wanted = len(self.layers) if depth is None else depth
        operators, nodes = (over.layers, over.inputs) if isinstance(over, ReceptiveField) else ((over,) * wanted, None)
        if len(operators) != wanted:
            raise ConfigError(f"a receptive field of {len(operators)} layers for {wanted} layers of the encoder")
        states: list[Tensor] = []
        for number, adjacency in enumerate(operators):
            x = self.layers[number](x, adjacency, nodes if number == 0 else None)
            if number + 1 < len(self.layers) or self.activated:
                x = self.dropout(torch.relu(x))
            states.append(x)
        return states

    @torch.no_grad()
    def states_in_pieces(self, edges: StoredEdges, nodes: Tensor, depth: int) -> Tensor:
        """[n, width]: the output of a layer for these nodes, layer by layer over all nodes, some of them at a time."""
        every, states = torch.arange(edges.graph.num_nodes), None
        for number in range(depth):
            parts: list[Tensor] = []
            for targets in edges.pieces(nodes if number + 1 == depth else every):
                adjacency, sources = edges.restricted(targets)
                read: Any = self.source if states is None else states.__getitem__
                x = self.layers[number](None if read is None else read(sources), adjacency, sources)
                is_last = number + 1 == len(self.layers) and not self.activated
                parts.append(x if is_last else torch.relu(x))
            states = torch.cat(parts)
        assert states is not None
        return states

    def without_own(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        """Vectors [n, width] computed without any message, less what the nodes still bring around the messages."""
        return vectors


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
    adjacency: RelationalAdjacency,
    width: int | None,
    layers: Iterable[Layer],
    init: Initializer,
    generator: torch.Generator,
    *,
    reach: ReceptiveField | None = None,
    self_loop_dropout: float = 0.0,
) -> list[RelationalGraphConv]:
    """Convolutions one on another, with fresh weights, for a graph.

    width  what nodes bring, None for one-hot nodes; reach: what the loss can reach of these
    """
    built: list[RelationalGraphConv] = []
    training = None if reach is None else (reach.layers[0], reach.inputs)
    edges = adjacency.structure
    for out, decomposition, bias in layers:
        how: dict[str, Any] = {"decomposition": decomposition, "bias": bias, "init": init, "generator": generator}
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
    layer = Layer(width, link_decomposition(model), model.bias)
    layers, brought = [layer] * model.layers, None if one_hot else width
    return stacked(plan.adjacency, brought, layers, init, plan.generator, self_loop_dropout=dropout)


def link_decomposition(model: LinkModelConfig) -> Decomposition:
    if model.bases is not None:
        coefficient_init = Initializer("normal") if model.coefficient_init == "normal" else None
        return Basis(model.bases, bool(model.self_loop_apart), model.separate_inverse_bases, coefficient_init)
    return Full() if model.blocks is None else BlockDiagonal(model.blocks, model.self_loop_apart is not False)
