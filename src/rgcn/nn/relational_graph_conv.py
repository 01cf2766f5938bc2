"""The relational graph convolution of every network, its message functions, and dropout whose draws belong to nodes."""

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
from rgcn.nn.decompositions.base import Evaluation, OneHotSpace, OneHotWeights, RelationWeights, SelfLoopRows
from rgcn.nn.initialization import Initializer

# convolve(X, A) = Σ_r A_r X W_r: [sources, in] → [targets, out], with gradients for X, the weights of A, and the W_r.
Convolve = Callable[[Tensor, RelationalAdjacency], Tensor]


class MessageShape(NamedTuple):
    """Widths of a convolution's input and output; num_relations: inverses and the self-loop included."""

    in_features: int
    out_features: int
    num_relations: int


class MessageFunction(nn.Module, HasOptions, ABC):
    """Computes the messages of a convolution and their sums: H = forward(X, A, convolve) + b. A registered component.

    A function that only weighs edges, for example by both of their ends, calls `convolve` with other edge weights. It
    then works with every decomposition, and the sums stay sparse products:

        edges = adjacency.structure                                 # `source`, `target`, `relation`: integers [edges]
        source = x[edges.source]                                    # [edges, in]
        target = x[edges.own_sources][edges.target]                 # [edges, in]
        score = ...                                                 # [edges]
        return convolve(x, adjacency.weighed_by(torch.exp(score)))  # weights are normalized again

    With `normalization: node` this is a softmax over all edges into a node, with `normalization: relation` a softmax
    over its edges of each relation. `tests/strangers/test_stranger_message_function.py` is a complete example.
    """

    @classmethod
    def build(cls, shape: MessageShape, options: Mapping[str, Any], generator: torch.Generator) -> Self:
        """Make the function of one convolution, with initial weights.

        Args:
            shape: The convolution's widths and number of relations.
            options: `model.convolution_options`; `read_options` takes those that the class declares.
            generator: Source of the initial weights.
        """
        return cls()

    @abstractmethod
    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        """Compute the sums of messages.

        Args:
            x: A vector for each source, [sources, in].
            adjacency: The weighted edges, an operator [targets, sources] for each relation.
            convolve: The linear convolution with the layer's matrices.

        Returns:
            A vector for each target, [targets, out].
        """


class LinearMessages(MessageFunction):
    """The source's vector times its relation's matrix, weighed by A_r[target, source]: as published."""

    def forward(self, x: Tensor, adjacency: RelationalAdjacency, convolve: Convolve) -> Tensor:
        return convolve(x, adjacency)


_ODD, _LARGEST = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9), 2**53  # of the draws of `drop`


class RelationalGraphConv(nn.Module):
    """H = Σ_r A_r X W_r + b, over relations, their inverses and the self-loop.

    Args:
        in_features, out_features: numbers a node brings and leaves with. For one-hot nodes use `one_hot`.
        num_relations: R, the relations of the graph itself.
        decomposition: how the W_r are written: `Full()`, `Basis(b)`, `BlockDiagonal(b)` or `Diagonal()`.
        inverse, self_loops: whether the adjacency has these edges; R⁺ = 2R + 1 with both.
        bias, init: whether to add b, which begins at zero; how the weights begin.
        self_loop_dropout: share of the self-loop's message dropped while training, number by number, as the original
            link predictor does; needs a decomposition that sets the self-loop apart.
        evaluation: which of the equal ways to compute is taken; "auto" takes the cheaper one for the shape at hand.
        generator: source of randomness; None: a new one from PyTorch's current seed.
        message_function: what an edge says; None: the source's vector times the relation's matrix.
        space: the pairs a one-hot layer looks up, which `one_hot` finds.

    `torch.compile` makes one graph of it, forward and backward, for each adjacency it meets: for adjacencies that last.
    Under `torch.autocast` it gives what a linear layer would: narrow outputs, float32 gradients.

    Shapes: x [sources, in_features], an adjacency [targets, sources] → [targets, out_features].

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
        space: OneHotSpace | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("out_features", out_features), ("in_features", in_features)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        if evaluation not in get_args(Evaluation):
            raise ConfigError(f"unknown evaluation {evaluation!r}; there are {', '.join(get_args(Evaluation))}")
        decomposition, init = decomposition or Full(), init or Initializer()
        if isinstance(decomposition, Basis) and decomposition.separate_inverse and not inverse:
            raise ConfigError("separate bases for inverses need inverses: inverse=True")
        apart = decomposition.self_loop_apart and self_loops
        if self_loop_dropout and not apart:
            raise ConfigError("self_loop_dropout needs a self-loop outside the decomposition: self_loop_apart=True")
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ()).item()))
        self.in_features, self.out_features, self.num_relations = in_features, out_features, num_relations
        self.inverse, self.self_loops, self.self_loop_dropout = inverse, self_loops, self_loop_dropout
        self.num_edge_relations = num_relations * (1 + inverse) + self_loops
        self.evaluation: Evaluation = evaluation
        self.message_function = message_function or LinearMessages()
        if space is not None and not isinstance(self.message_function, LinearMessages):
            raise ConfigError(
                f"the message function {type(self.message_function).__name__} reads vectors: give embeddings or "
                "features, not one-hot nodes"
            )
        self.weights: RelationWeights | OneHotWeights
        self.self_loop: nn.Parameter | None = None
        self.self_loop_rows: SelfLoopRows | None = None
        if space is None:
            shape = (self.num_edge_relations - apart, in_features, out_features)
            self.weights = decomposition.weights(shape, init, generator)
            self.self_loop = nn.Parameter(init.draw((in_features, out_features), generator)) if apart else None
        else:
            rest = space.without_last_relation() if apart else space
            self.weights = decomposition.one_hot_weights(rest, out_features, init, generator)
            if apart:
                values = init.draw((in_features, out_features), generator)
                self.self_loop_rows = SelfLoopRows(values, space.reached_nodes(self.num_edge_relations - 1))
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
        """A layer for nodes without features (X = I), built for the graph of `adjacency`.

        Only the (relation, node) pairs that occur get a row. With `training`, the first layer of a receptive field and
        its input nodes, rows that no training edge reaches are kept out of the parameters; they stay as drawn.

        options: decomposition, bias, init, generator, as above.

        >>> import rgcn
        >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "knows", "c")])
        >>> adjacency = rgcn.RelationalAdjacency.from_graph(kg)
        >>> RelationalGraphConv.one_hot(adjacency, 4)(None, adjacency).shape
        torch.Size([3, 4])
        """
        structure = adjacency.structure
        options |= {"inverse": structure.has_inverse, "self_loops": structure.has_self_loops}
        options["space"] = OneHotSpace.of(adjacency, training)
        return cls(adjacency.num_sources, out_features, structure.num_data_relations, **options)

    @property
    def is_one_hot(self) -> bool:
        return isinstance(self.weights, OneHotWeights)

    def forward(self, x: Tensor | None, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """x [sources, in] → [targets, out]. One-hot layers take x = None, and `nodes` [sources] where the adjacency is
        a part of the graph: which node each source is."""
        self._check(x, adjacency)
        device = adjacency.device.type
        if not torch.is_autocast_enabled(device):
            return self._evaluate(x, adjacency, nodes)
        # As a linear layer does: results are of autocast's type, unless the input is float64. Sums are kept in float32
        # below this, so that autocast has nothing more to decide. One-hot layers have no large product that would gain
        # from a narrow input: they read their float32 rows, and round what they give.
        kind = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            out = self._evaluate(x if x is None or x.dtype == torch.float64 else x.to(kind), adjacency, nodes)
            return out if out.dtype == torch.float64 else out.to(kind)

    def _evaluate(self, x: Tensor | None, adjacency: RelationalAdjacency, nodes: Tensor | None) -> Tensor:
        out = self._convolve(x, adjacency, nodes) if x is None else self.message_function(x, adjacency, self._convolve)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _convolve(self, x: Tensor | None, adjacency: RelationalAdjacency, nodes: Tensor | None = None) -> Tensor:
        """Σ_r A_r X W_r."""
        rest, own = adjacency, None
        if self.self_loop is not None or self.self_loop_rows is not None:
            if torch.compiler.is_compiling():
                adjacency.structure.set_self_loops_apart()
            rest, pattern, value = adjacency.split_self_loops()
            if self.self_loop_rows is not None:
                own = self.self_loop_rows(adjacency, nodes)
            elif x is not None and self.self_loop is not None:
                complete = adjacency.structure.self_loops_apart.complete
                scaled = x * value.to(x.dtype).unsqueeze(1) if complete else gather_sum(pattern, value, x)
                own = scaled @ self.self_loop.to(x.dtype)
                own = drop(own, self.self_loop_dropout, self.training, adjacency.structure.names)
        out: Tensor = self.weights(rest, nodes) if x is None else self.weights(x, rest, self.evaluation)
        return out if own is None else out + own

    def _check(self, x: Tensor | None, adjacency: RelationalAdjacency) -> None:
        if adjacency.num_relations != self.num_edge_relations:
            raise ConfigError(
                f"the layer has weights for {self.num_edge_relations} relations (inverses and self-loop included), "
                f"the adjacency has {adjacency.num_relations}: build both with the same inverse and self_loops"
            )
        if self.is_one_hot != (x is None):
            raise ConfigError(
                "this layer was built for one-hot nodes: call it with x=None"
                if self.is_one_hot
                else f"this layer needs input vectors x [sources, {self.in_features}]; for nodes without features "
                "build it with RelationalGraphConv.one_hot"
            )
        if x is not None and x.shape != (adjacency.num_sources, self.in_features):
            raise ConfigError(f"x must be [{adjacency.num_sources}, {self.in_features}], not {list(x.shape)}")

    def dense_weight(self) -> Tensor:
        """[R⁺, in, out]: every W_r written out, for looking and testing."""
        dense: Tensor = self.weights.dense()
        own = self.self_loop if self.self_loop_rows is None else self.self_loop_rows.values()
        return dense if own is None else torch.cat([dense, own.unsqueeze(0)])


def drop(x: Tensor, rate: float, training: bool, names: Tensor | None) -> Tensor:
    """x [n, width] with a share of its numbers zero while training, the others larger, as `F.dropout` does it.

    names  int64 [n]: which node each row is. What is dropped then follows from the node, the column and one draw of
           PyTorch's generator, which all processes make alike. None: every number is drawn
    """
    if names is None or not training or not rate:
        return F.dropout(x, rate, training)
    key = int(torch.randint(2**62, ()))
    z = names[:, None] * x.shape[1] + torch.arange(x.shape[1], device=x.device)
    for turn, odd in enumerate((*_ODD, *_ODD)):  # products wrap around, and each shift mixes high digits into low ones
        z = (z + (key >> turn)) * odd
        z = z ^ (z >> 31)
    kept = ((z & (_LARGEST - 1)).double() / _LARGEST >= rate).to(x.dtype)
    return x * kept / (1.0 - rate)
