"""`RelationalGraphConv`, the convolution of all networks; message functions; and dropout that follows node ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import RelationalAdjacency
from rgcn.config.fields import HasOptions
from rgcn.errors import ConfigError
from rgcn.kernels import gather_sum
from rgcn.nn.decompositions import Basis, Decomposition, Full
from rgcn.nn.decompositions.base import Evaluation, OneHotPairs, OneHotWeights, RelationWeights, SelfLoopRows
from rgcn.nn.initialization import Initializer

# convolve(X, A) = Σ_r A_r X W_r: [num_sources, in] → [num_targets, out], differentiable in X, the weights of A and W_r
Convolve = Callable[[Tensor, RelationalAdjacency], Tensor]


class MessageShape(NamedTuple):
    """Input and output dimension of a convolution, and its number of relations with inverses and the self-loop."""

    in_features: int
    out_features: int
    num_relations: int


class MessageFunction(nn.Module, HasOptions, ABC):
    """The message function of a convolution: computes the sums of messages, H = forward(X, A, convolve) + b.

    Register a message function in `rgcn.plugins.MESSAGE_FUNCTIONS`, or pass the class or its dotted name as
    `model.message_function`. A function that only weights edges, for example by both of their ends, calls `convolve`
    with other edge weights. It then works with every decomposition, and the sums stay sparse products:

        edges = adjacency.structure                                 # `source`, `target`, `relation`: int [num_edges]
        source = x[edges.source]                                    # [num_edges, in]
        target = x[edges.target_sources][edges.target]                 # [num_edges, in]
        score = ...                                                 # [num_edges]
        return convolve(x, adjacency.with_attention(torch.exp(score)))  # weights are normalized again

    With `normalization: node` this is a softmax over all edges into a node, with `normalization: relation` a softmax
    over its edges of each relation. `tests/strangers/test_stranger_message_function.py` is a complete example.
    """

    @classmethod
    def build(cls, shape: MessageShape, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """Create the message function of one convolution, with initial weights.

        Args:
            shape: The convolution's dimensions and number of relations.
            options: `model.convolution_options`; `read_options` takes those that the class declares.
            generator: Source of the initial weights.
        """
        return cls()

    @abstractmethod
    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        """Compute the sums of messages.

        Args:
            x: A vector for each source node, `[num_sources, in]`.
            adjacency: The weighted edges, an operator `[num_targets, num_sources]` for each relation.
            convolve: The linear convolution with the layer's matrices.

        Returns:
            A vector for each target node, `[num_targets, out]`.
        """


class LinearMessages(MessageFunction):
    """The message of the paper: W_r times the source's vector, weighted by A_r[target, source]."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        """Return Σ_r A_r X W_r."""
        return convolve(x, adjacency)


_ODD_FACTORS, _MAX_HASH = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9), 2**53  # of the hash in `node_dropout`


class RelationalGraphConv(nn.Module):
    """The relational graph convolution H = Σ_r A_r X W_r + b, over relations, their inverses and the self-loop.

    Schlichtkrull et al., "Modeling relational data with graph convolutional networks", 2018.

    Args:
        in_features: Dimension of the input. For one-hot nodes use `RelationalGraphConv.one_hot`.
        out_features: Dimension of the output.
        num_relations: Number of relations of the graph, R, without inverses and the self-loop.
        decomposition: How the matrices W_r are written: `Full()`, `Basis(b)`, `BlockDiagonal(b)` or `Diagonal()`.
        inverse: Whether the adjacency has inverse edges. There are R⁺ = 2R + 1 matrices with these and self-loops.
        self_loops: Whether the adjacency has self-loops.
        bias: Whether to add b, which starts at zero.
        init: How weights are initialized; None for Glorot-uniform.
        self_loop_dropout: Dropout rate of self-loop messages, as in the original link predictor. It needs a
            decomposition with `self_loop_apart`.
        evaluation: Order of evaluation: "horizontal", "vertical" or "edgewise", which give the same result; "auto"
            chooses the cheapest for each adjacency.
        generator: Source of the initial weights; None for a new one from PyTorch's current seed.
        message_function: How messages are computed; None for `LinearMessages`.
        pairs: The (relation, node) pairs of a one-hot layer, which `one_hot` finds.

    `torch.compile` makes one graph of it, forward and backward, for each adjacency, so adjacencies should be reused.
    Under `torch.autocast` it behaves like a linear layer: outputs of reduced precision, gradients in float32.

    Shapes: x `[num_sources, in_features]` and an adjacency `[num_targets, num_sources]` → `[num_targets,
    out_features]`.

    >>> import torch, rgcn
    >>> from rgcn.nn import Basis, RelationalGraphConv
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
    >>> layer = RelationalGraphConv(8, 4, num_relations=kg.num_relations, decomposition=Basis(2))
    >>> layer(torch.randn(3, 8), rgcn.RelationalAdjacency.from_graph(kg)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_relations: int,
        *,
        decomposition: Decomposition | None = None,
        inverse: bool = True,
        self_loops: bool = True,
        bias: bool = True,
        init: Initializer | None = None,
        self_loop_dropout: float = 0.0,
        evaluation: Evaluation = "auto",
        generator: torch.Generator | None = None,
        message_function: MessageFunction | None = None,
        pairs: OneHotPairs | None = None,
    ) -> None:
        """Draw the initial weights."""
        super().__init__()
        for name, value in (("out_features", out_features), ("in_features", in_features)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        if evaluation not in get_args(Evaluation):
            raise ConfigError(f"unknown evaluation {evaluation!r}; choose from {', '.join(get_args(Evaluation))}")
        decomposition, init = decomposition or Full(), init or Initializer()
        if isinstance(decomposition, Basis) and decomposition.separate_inverse and not inverse:
            raise ConfigError("separate bases for inverses need inverse edges: set inverse=True")
        apart = decomposition.self_loop_apart and self_loops
        if self_loop_dropout and not (apart and pairs is None):
            raise ConfigError(
                "self_loop_dropout needs node vectors instead of one-hot nodes, and a self-loop outside the "
                "decomposition: set self_loop_apart=True"
            )
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ()).item()))
        self.in_features, self.out_features, self.num_relations = in_features, out_features, num_relations
        self.inverse, self.self_loops, self.self_loop_dropout = inverse, self_loops, self_loop_dropout
        self.num_edge_relations = num_relations * (1 + inverse) + self_loops
        self.evaluation: Evaluation = evaluation
        self.message_function = message_function or LinearMessages()
        if pairs is not None and not isinstance(self.message_function, LinearMessages):
            raise ConfigError(
                f"the message function {type(self.message_function).__name__} needs node vectors: use embeddings or "
                "features instead of one-hot nodes"
            )
        self.weights: RelationWeights | OneHotWeights
        self.self_loop: nn.Parameter | None = None
        self.self_loop_rows: SelfLoopRows | None = None
        if pairs is None:
            shape = (self.num_edge_relations - apart, in_features, out_features)
            self.weights = decomposition.weights(shape, init, generator)
            self.self_loop = nn.Parameter(init.draw((in_features, out_features), generator)) if apart else None
        else:
            other_pairs = pairs.without_last_relation() if apart else pairs
            self.weights = decomposition.one_hot_weights(other_pairs, out_features, init, generator)
            if apart:
                values = init.draw((in_features, out_features), generator)
                self.self_loop_rows = SelfLoopRows(values, pairs.trained_nodes(self.num_edge_relations - 1))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    def one_hot(
        cls,
        adjacency: RelationalAdjacency,
        out_features: int,
        *,
        training: tuple[RelationalAdjacency, Tensor] | None = None,
        **options: Any,
    ) -> RelationalGraphConv:
        """Create a layer for nodes without features (X = I), for the graph of `adjacency` only.

        Only (relation, node) pairs that occur have a row.

        Args:
            adjacency: The operator of the whole graph.
            out_features: Dimension of the output.
            training: The first layer of the receptive field of the training nodes, and the ids of its input nodes int64
                `[num_inputs]`. Rows that it does not reach are kept out of the parameters and stay as drawn.
            options: decomposition, bias, init, evaluation, generator and message_function, as for the class.

        >>> import rgcn
        >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
        >>> adjacency = rgcn.RelationalAdjacency.from_graph(kg)
        >>> RelationalGraphConv.one_hot(adjacency, 4)(None, adjacency).shape
        torch.Size([3, 4])
        """
        structure = adjacency.structure
        options |= {"inverse": structure.has_inverse, "self_loops": structure.has_self_loops}
        options["pairs"] = OneHotPairs.of(adjacency, training)
        return cls(adjacency.num_sources, out_features, structure.num_data_relations, **options)

    @property
    def is_one_hot(self) -> bool:
        """True if the layer looks up rows by node id instead of multiplying vectors."""
        return isinstance(self.weights, OneHotWeights)

    def forward(self, x: Tensor | None, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Compute the convolution.

        Args:
            x: Vectors of the source nodes `[num_sources, in_features]`; None for a one-hot layer.
            adjacency: The edges, with the layer's relations.
            nodes: For a one-hot layer over a part of the graph, the id of each source node, int64 `[num_sources]`.

        Returns:
            Vectors of the target nodes `[num_targets, out_features]`.
        """
        self._check(x, adjacency)
        device = adjacency.device.type
        if not torch.is_autocast_enabled(device):
            return self._evaluate(x, adjacency, nodes)
        # Like a linear layer: the result has autocast's type unless the input is float64. The kernels keep sums in
        # float32, so autocast is switched off inside. One-hot layers have no large product that would gain from a
        # narrow input: only their result is rounded.
        kind = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            out = self._evaluate(x if x is None or x.dtype == torch.float64 else x.to(kind), adjacency, nodes)
            return out if out.dtype == torch.float64 else out.to(kind)

    def _evaluate(self, x: Tensor | None, adjacency: RelationalAdjacency, nodes: Tensor | None) -> Tensor:
        out = self._convolve(x, adjacency, nodes) if x is None else self.message_function(x, adjacency, self._convolve)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _convolve(self, x: Tensor | None, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Return Σ_r A_r X W_r."""
        edges, own = adjacency, None
        if self.self_loop is not None or self.self_loop_rows is not None:
            if torch.compiler.is_compiling():
                adjacency.structure.prepare_self_loop_split()
            edges, pattern, value = adjacency.split_self_loops()
            if self.self_loop_rows is not None:
                own = self.self_loop_rows(adjacency, nodes)
            elif x is not None and self.self_loop is not None:
                complete = adjacency.structure.self_loop_split.is_complete
                scaled = x * value.to(x.dtype).unsqueeze(1) if complete else gather_sum(pattern, value, x)
                own = scaled @ self.self_loop.to(x.dtype)
                own = node_dropout(own, self.self_loop_dropout, self.training, adjacency.structure.node_ids)
        out: Tensor = self.weights(edges, nodes) if x is None else self.weights(x, edges, self.evaluation)
        return out if own is None else out + own

    def _check(self, x: Tensor | None, adjacency: RelationalAdjacency) -> None:
        if adjacency.num_relations != self.num_edge_relations:
            raise ConfigError(
                f"the layer has weights for {self.num_edge_relations} relations (with inverses and the self-loop), but "
                f"the adjacency has {adjacency.num_relations}: create both with the same inverse and self_loops"
            )
        if self.is_one_hot != (x is None):
            raise ConfigError(
                "this layer is for one-hot nodes: call it with x=None"
                if self.is_one_hot
                else f"this layer needs input vectors x [num_sources, {self.in_features}]; for nodes without features "
                "create it with RelationalGraphConv.one_hot"
            )
        if x is not None and x.shape != (adjacency.num_sources, self.in_features):
            raise ConfigError(f"x must be [{adjacency.num_sources}, {self.in_features}], not {list(x.shape)}")

    def dense_weight(self) -> Tensor:
        """Return all matrices W_r, `[R⁺, in_features, out_features]`, for inspection and tests."""
        dense: Tensor = self.weights.dense()
        own = self.self_loop if self.self_loop_rows is None else self.self_loop_rows.values()
        return dense if own is None else torch.cat([dense, own.unsqueeze(0)])


def node_dropout(x: Tensor, rate: float, training: bool, nodes: Tensor | None) -> Tensor:
    """Apply dropout to node vectors such that all processes draw the same mask for the same node.

    Args:
        x: Node vectors `[n, dim]`.
        rate: Share of the values that become zero in training; the others are scaled by 1 / (1 - rate).
        training: Whether to drop anything.
        nodes: Id of each row's node, int64 `[n]`. The mask then is a hash of node, column and one draw of PyTorch's
            generator. None for independent draws, as in `torch.nn.functional.dropout`.
    """
    if nodes is None or not training or not rate:
        return F.dropout(x, rate, training)
    key = int(torch.randint(2**62, ()))
    z = nodes[:, None] * x.shape[1] + torch.arange(x.shape[1], device=x.device)
    for turn, factor in enumerate((*_ODD_FACTORS, *_ODD_FACTORS)):  # products wrap around, shifts mix high bits down
        z = (z + (key >> turn)) * factor
        z = z ^ (z >> 31)
    kept = ((z & (_MAX_HASH - 1)).double() / _MAX_HASH >= rate).to(x.dtype)
    return x * kept / (1.0 - rate)
