"""`RelationalEncoder`, the stack of relational convolutions; heads for classes; and `NodeNetwork`, both together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.receptive_field import RowSource
from rgcn.config import NodeModelConfig
from rgcn.config.fields import HasOptions, component_title
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.relational_graph_conv import RelationalGraphConv, node_dropout
from rgcn.nn.row_tables import NodeInput
from rgcn.placement import LOCAL, Placement

MAX_FIELD_EDGES = 8_000_000  # in all layers of a receptive field that is computed at once: about a gigabyte
MAX_CHUNK_EDGES = 1_000_000  # in a chunk of nodes, if it is larger

EncoderInput: TypeAlias = "ReceptiveField | RelationalAdjacency | Tensor | None"


class RelationalEncoder(nn.Module):
    """A stack of relational convolutions: node input → convolution → ReLU → … → convolution.

    Args:
        source: The input of the first layer: `NodeEmbedding` or `NodeFeatures`. None for one-hot nodes, whose first
            layer looks up rows by node id.
        layers: The convolutions.
        dropout: Dropout rate of activated outputs.
        activated: Whether to apply a ReLU after the last layer too.

    Shapes: an adjacency, for all nodes in order, or a receptive field, for its output nodes → `[num_nodes, dim]`.
    Without layers the output is the node input: of all nodes for None, or of nodes int64 `[n]`.

    >>> import rgcn
    >>> from rgcn.nn import Initializer, NodeEmbedding, RelationalEncoder, RelationalGraphConv
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
    >>> embedding = NodeEmbedding(kg.num_nodes, 8, Initializer(), torch.Generator().manual_seed(0))
    >>> encoder = RelationalEncoder(embedding, [RelationalGraphConv(8, 4, kg.num_relations)])
    >>> encoder(RelationalAdjacency.from_graph(kg)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self, source: NodeInput, layers: Sequence[RelationalGraphConv], dropout: float = 0.0, activated: bool = False
    ) -> None:
        """Combine an input and layers."""
        super().__init__()
        if source is None and not layers:
            raise ConfigError("one-hot nodes need at least one layer, which looks up their rows: pass layers")
        self.source = source
        self.layers = nn.ModuleList(layers)
        self.dropout, self.activated = nn.Dropout(dropout), activated
        self.num_layers, self.is_one_hot = len(layers), source is None
        self.dim = layers[-1].out_features if layers else 0 if source is None else source.dim

    def forward(self, over: EncoderInput) -> Tensor:
        """Compute node vectors `[num_nodes, dim]` over an adjacency, a receptive field or, without layers, nodes."""
        return self.layer_outputs(over)[-1] if self.layers else self._input(over)  # type: ignore[return-value]

    def layer_outputs(self, over: EncoderInput, depth: int | None = None) -> list[Tensor]:
        """Compute the output of each layer, after the ReLU if it has one; only of the first `depth` if not None."""
        return self.convolve(self._input(over), over, depth)

    def _input(self, over: EncoderInput) -> Tensor | None:
        nodes = over.inputs if isinstance(over, ReceptiveField) else over if isinstance(over, Tensor) else None
        return None if self.source is None else self.source(nodes)

    def convolve(self, x: Tensor | None, over: EncoderInput, depth: int | None = None) -> list[Tensor]:
        """Compute the output of each layer for an input x `[num_inputs, dim]`."""
        depth = len(self.layers) if depth is None else depth
        operators, nodes = (over.layers, over.inputs) if isinstance(over, ReceptiveField) else ((over,) * depth, None)
        if len(operators) != depth:
            raise ConfigError(f"a receptive field of {len(operators)} layers is given, but {depth} are needed")
        outputs: list[Tensor] = []
        for number, adjacency in enumerate(operators):
            if x is not None and isinstance(over, ReceptiveField) and over.exchanges:
                x = over.exchanges[number](x)
            x = self.layers[number](x, adjacency, nodes if number == 0 else None)
            if number + 1 < len(self.layers) or self.activated:
                names = adjacency.structure.node_ids if isinstance(adjacency, RelationalAdjacency) else None
                x = node_dropout(torch.relu(x), self.dropout.p, self.training, names)
            outputs.append(x)
        return outputs

    @torch.no_grad()
    def node_states(self, adjacency: RowSource, nodes: Tensor, depth: int | None = None) -> Tensor:
        """Compute the output of layer `depth` (None: the last) for distinct nodes, in evaluation: `[n, dim]`.

        This uses their receptive field if it is small. Otherwise it computes layer after layer for all nodes, in chunks
        of nodes, so that memory holds the states of two layers and the edges of one chunk.
        """
        depth = depth or len(self.layers)
        field = ReceptiveField.within(adjacency, nodes, depth, MAX_FIELD_EDGES)
        if field is not None:
            return self.layer_outputs(field, depth)[-1]
        states, read = nodes, cast("Callable[..., Tensor] | None", self.source)
        all_nodes = torch.arange(adjacency.num_targets, device=nodes.device)
        for number, layer in enumerate(self.layers[:depth]):
            parts: list[Tensor] = []
            for targets in _chunks(adjacency, nodes if number + 1 == depth else all_nodes, MAX_CHUNK_EDGES):
                operator, sources = adjacency.restrict(targets)
                operator = replace(operator, structure=replace(operator.structure, is_batch=True))
                x = layer(None if read is None else read(sources), operator, None if number else sources)
                parts.append(torch.relu(x) if number + 1 < len(self.layers) or self.activated else x)
            states = torch.cat(parts)
            read = states.__getitem__
        return states

    def remove_inputs(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        """Subtract from vectors `[n, dim]` what the inputs add to them without messages; nothing by default."""
        return vectors


def _chunks(adjacency: RowSource, nodes: Tensor, num_edges: int) -> Iterable[Tensor]:
    """Split nodes, in order, into chunks with about so many incoming edges; a hub may have more."""
    degree = adjacency.num_edges_into(nodes)
    _, sizes = torch.unique_consecutive((torch.cumsum(degree, 0) - degree) // num_edges, return_counts=True)
    return torch.split(nodes, sizes.tolist())


class Head(nn.Module, HasOptions, ABC):
    """A module that turns the last node states `[num_nodes, dim]` into logits `[num_nodes, num_classes]`.

    Register a head in `rgcn.plugins.HEADS`, or pass the class or its dotted name as `model.head`.

    Attributes:
        needs_activation: Whether the last convolution is followed by a ReLU.
    """

    needs_activation = True

    @staticmethod
    def input_dim(dim: int, num_classes: int) -> int:
        """Return the output dimension of the last convolution, given the configured one."""
        return dim

    @classmethod
    def build(cls, dim: int, num_classes: int, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """Create a head with initial weights.

        Args:
            dim: Dimension of the node states.
            num_classes: Number of classes.
            options: `model.options`, from which `read_options` takes those that the head declares.
            generator: Source of the initial weights.
        """
        return cls(dim, num_classes, generator)

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """Compute logits `[num_nodes, num_classes]` from states `[num_nodes, dim]`."""

    @classmethod
    def description(cls) -> str:
        """Describe the head for reports, as the end of a sentence about the layers."""
        return f"; then {component_title(cls)}"


class ConvolutionHead(Head):
    """No further layer: the last convolution computes the logits, as in the paper."""

    needs_activation = False

    def __init__(self, *_: Any) -> None:
        """Create a module without parameters."""
        super().__init__()

    @staticmethod
    def input_dim(dim: int, num_classes: int) -> int:
        """Return the number of classes."""
        return num_classes

    def forward(self, states: Tensor) -> Tensor:
        """Return the states."""
        return states

    @classmethod
    def description(cls) -> str:
        """Return nothing, since there is no further layer."""
        return ""


class LinearHead(Head):
    """A linear layer: logits = H W + b, with W initialized Glorot-uniform and b = 0."""

    def __init__(self, dim: int, num_classes: int, generator: torch.Generator) -> None:
        """Draw the initial weights."""
        super().__init__()
        weight = torch.empty(num_classes, dim)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(weight, generator=generator))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, states: Tensor) -> Tensor:
        """Compute logits `[num_nodes, num_classes]` from states `[num_nodes, dim]`."""
        return nn.functional.linear(states, self.weight, self.bias)


@dataclass(frozen=True)
class NodePlan:
    """What an encoder needs to build a network for node classification.

    Attributes:
        model: The model's configuration.
        graph: The graph with labels, whose classes the network predicts.
        adjacency: The operator of the graph.
        training: The receptive field of the training nodes. Rows outside it are kept out of the parameters. None if
            all rows must be parameters, because weight decay changes them.
        generator: Source of the initial weights.
        placement: Which nodes are local; the operator has their rows.
    """

    model: NodeModelConfig
    graph: KnowledgeGraph
    adjacency: RelationalAdjacency
    training: ReceptiveField | None
    generator: torch.Generator
    placement: Placement = LOCAL

    @property
    def num_classes(self) -> int:
        """Number of classes of the graph's labels."""
        assert self.graph.labels is not None
        return self.graph.labels.num_classes


class NodeNetwork(RelationalEncoder):
    """An encoder with a head: over an adjacency or a receptive field → logits `[num_nodes, num_classes]`.

    Args: as for `RelationalEncoder`, and `head`, which decides whether the last convolution is followed by a ReLU.
    """

    def __init__(self, source: NodeInput, layers: Sequence[RelationalGraphConv], dropout: float, head: Head) -> None:
        """Combine an input, layers and a head."""
        super().__init__(source, layers, dropout, activated=head.needs_activation)
        self.head = head

    def forward(self, over: EncoderInput) -> Tensor:
        """Compute logits `[num_nodes, num_classes]`."""
        return self.head(super().forward(over))  # type: ignore[no-any-return]
