"""`RGCNConv`, a drop-in replacement for PyG's layer of that name, computed by rgcn's kernels."""

import weakref

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.errors import ConfigError, DataError
from rgcn.nn.decompositions.base import RelationWeights
from rgcn.nn.decompositions.basis import BasisWeights
from rgcn.nn.decompositions.matrices import MatrixWeights

NORMALIZATIONS = {"mean": "relation", "add": "none", "sum": "none"}
MAX_CACHED_GRAPHS = 4  # per layer; a training has at most three: training, validation and test


class RGCNConv(nn.Module):
    """The convolution x'_i = x_i W_root + Σ_r mean over edges (j, r, i) of x_j W_r + b, with PyG's arguments.

    Parameters have PyG's names and shapes, so state dictionaries are interchangeable. The graph's structure is computed
    on the first call with an `edge_index`, and reused while the same tensors are passed. To build it once for several
    layers, use `RelationalGraphConv`.

    Args:
        in_channels: Width of the input, or (source width, target width). Without input features: the number of nodes.
        out_channels: Width of the output.
        num_relations: Number of edge types.
        num_bases: Number of bases of the basis decomposition; None for full matrices.
        num_blocks: Number of blocks of the block-diagonal decomposition; None for full matrices.
        aggr: "mean" over the edges of a relation into a node, or "add".
        root_weight: Whether to add x_i W_root.
        bias: Whether to add b.

    Shapes: x `[num_nodes, in_channels]`, edge_index int64 `[2, num_edges]`, edge_type int64 `[num_edges]` →
    `[num_nodes, out_channels]`.

    >>> conv = RGCNConv(8, 4, num_relations=2, num_bases=2)
    >>> edge_index, edge_type = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])
    >>> conv(torch.randn(3, 8), edge_index, edge_type).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        num_relations: int,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        aggr: str = "mean",
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        """Draw the initial weights."""
        super().__init__()
        if num_bases is not None and num_blocks is not None:
            raise ConfigError("num_bases and num_blocks select two different decompositions: pass only one of them")
        if aggr not in NORMALIZATIONS:
            raise ConfigError(f"aggr={aggr!r} is not supported; use 'mean' or 'add', or PyG's own layer")
        self.in_channels, self.out_channels, self.num_relations = in_channels, out_channels, num_relations
        self.num_bases, self.num_blocks, self.aggr = num_bases, num_blocks, aggr
        width, root_width = in_channels if isinstance(in_channels, tuple) else (in_channels, in_channels)
        self.comp = None if num_bases is None else nn.Parameter(torch.empty(num_relations, num_bases))
        if num_blocks is None:
            shape: tuple[int, ...] = (num_relations if num_bases is None else num_bases, width, out_channels)
        elif width % num_blocks or out_channels % num_blocks:
            raise ConfigError(f"widths {width} and {out_channels} do not divide into {num_blocks} blocks")
        else:
            shape = (num_relations, num_blocks, width // num_blocks, out_channels // num_blocks)
        self.weight = nn.Parameter(torch.empty(shape))
        self.root = nn.Parameter(torch.empty(root_width, out_channels)) if root_weight else None
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        # Weak references to edge_index and edge_type, their versions and other sizes, and the operator.
        self._cached: list[tuple[weakref.ref[Tensor], weakref.ref[Tensor], object, RelationalAdjacency]] = []
        self._functions: tuple[RelationWeights, ...] = ()  # in a tuple, so that parameters are registered only once
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform in ±√(6 / (fan in + fan out)) of the last two dimensions, as PyG does."""
        for parameter in (self.weight, self.comp, self.root):
            if parameter is not None:
                bound = (6.0 / (parameter.size(-2) + parameter.size(-1))) ** 0.5
                nn.init.uniform_(parameter, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | tuple[Tensor | None, Tensor] | None, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Compute the new node vectors.

        Args:
            x: Node vectors `[num_nodes, in_channels]`; node ids int64 `[num_nodes]`; None for all nodes in order; or a
                pair for source and target nodes.
            edge_index: Source and target of each edge, int64 `[2, num_edges]`.
            edge_type: Relation of each edge, int64 `[num_edges]`.

        Returns:
            Vectors of the target nodes, `[num_target_nodes, out_channels]`.
        """
        sources, targets = x if isinstance(x, tuple) else (x, x)
        if sources is None:
            count = self.in_channels[0] if isinstance(self.in_channels, tuple) else self.in_channels
            sources = torch.arange(count, device=self.weight.device)
        targets = sources if targets is None else targets
        sizes = len(sources), len(targets) if isinstance(x, tuple) else None
        adjacency = self._adjacency(edge_index, edge_type, *sizes, self.weight.dtype)
        if sources.is_floating_point():
            inputs = sources
            if isinstance(x, tuple):  # one operator over both kinds of nodes, targets after sources
                inputs = torch.cat([sources, sources.new_zeros(len(targets), sources.shape[1])])
            out: Tensor = self._relation_weights()(inputs, adjacency)
        else:
            out = self._look_up(sources, adjacency)
        out = out[len(sources) :] if isinstance(x, tuple) else out
        if self.root is not None:
            out = out + (targets @ self.root.to(targets.dtype) if targets.is_floating_point() else self.root[targets])
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _relation_weights(self) -> RelationWeights:
        if not self._functions or all(one is not self.weight for one in self._functions[0].parameters()):
            self._functions = (_Matrices(self.weight) if self.comp is None else _Bases(self.weight, self.comp),)
        return self._functions[0]

    def _look_up(self, ids: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Sum the weights' rows for node ids `[num_sources]`, that is, compute the convolution of one-hot vectors."""
        if self.num_blocks is not None:
            raise ConfigError("num_blocks needs node vectors: a block-diagonal matrix cannot multiply node ids")
        weight: Tensor = self.weight
        edges = adjacency.structure
        if self.comp is not None:
            weight = torch.einsum("rb, bio -> rio", self.comp, weight)
        messages = weight[edges.relation, ids[edges.source]] * adjacency.weight.to(weight.dtype)[:, None]
        out = messages.new_zeros(adjacency.num_targets, self.out_channels)
        return out.index_add(0, edges.target, messages)

    def _adjacency(
        self, edge_index: Tensor, edge_type: Tensor, num_sources: int, num_targets: int | None, dtype: torch.dtype
    ) -> RelationalAdjacency:
        """Return the operator of these edges, from the cache if the same tensors were passed before.

        Args:
            edge_index: Source and target of each edge.
            edge_type: Relation of each edge.
            num_sources: Number of source nodes.
            num_targets: Number of target nodes; None if sources and targets are the same.
            dtype: Type of the parameters; float64 needs edge weights of that precision.
        """
        if edge_index.ndim != 2 or len(edge_index) != 2 or edge_type.shape != edge_index.shape[1:]:
            shapes = f"{list(edge_index.shape)} and {list(edge_type.shape)}"
            raise DataError(f"edge_index must be [2, num_edges] and edge_type [num_edges], not {shapes}")
        key = (edge_index._version, edge_type._version, num_sources, num_targets, dtype == torch.float64)
        for index_ref, type_ref, cached_key, adjacency in self._cached:
            if index_ref() is edge_index and type_ref() is edge_type and cached_key == key:
                return adjacency
        first = 0 if num_targets is None else num_sources
        triples = torch.stack([edge_index[0], edge_type, edge_index[1] + first], dim=1)
        sizes = num_sources + (num_targets or 0), self.num_relations
        edges = {"inverse": False, "self_loops": False, "normalization": NORMALIZATIONS[self.aggr]}
        adjacency = RelationalAdjacency.from_triples(triples.long(), *sizes, **edges)  # type: ignore[arg-type]
        if dtype == torch.float64:
            adjacency = adjacency.to(dtype)
        cached = weakref.ref(edge_index), weakref.ref(edge_type), key, adjacency
        self._cached = [cached, *(entry for entry in self._cached if entry[0]() is not None)][:MAX_CACHED_GRAPHS]
        return adjacency

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the cache, whose weak references cannot be copied."""
        return {**self.__dict__, "_cached": []}

    def extra_repr(self) -> str:
        """Return the sizes, as PyG does."""
        return f"{self.in_channels}, {self.out_channels}, num_relations={self.num_relations}"


class _Matrices(MatrixWeights):
    """Weights `[num_relations, in, out]` or `[num_relations, num_blocks, in / num_blocks, out / num_blocks]`."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def matrices(self) -> Tensor:
        return self.weight if self.weight.ndim == 4 else self.weight.unsqueeze(1)


class _Bases(BasisWeights):
    """Bases `[num_bases, in, out]` and coefficients `[num_relations, num_bases]`."""

    def __init__(self, weight: nn.Parameter, comp: nn.Parameter) -> None:
        RelationWeights.__init__(self)
        self.bases, self.coefficients = weight, comp
        self.side = None
