"""A trained encoder for programs that do not have rgcn: plain PyTorch operations, saved by `torch.export`.

Our kernels are compiled for this package, so the same sums are written out here once more in operations every PyTorch
has. They run over the whole graph, relation by relation or basis by basis; nothing of the size relations × nodes ×
width is made, and edges are taken in steps of bounded memory.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.atomic import replace_atomically
from rgcn.errors import ConfigError
from rgcn.nn import RelationalEncoder, RelationalGraphConv
from rgcn.nn.decoders import BilinearDecoder
from rgcn.nn.decompositions.base import OneHotWeights, RelationWeights
from rgcn.nn.decompositions.basis import BasisRows, BasisWeights
from rgcn.nn.decompositions.block_diagonal import BlockRows
from rgcn.nn.decompositions.diagonal import DiagonalWeights
from rgcn.nn.decompositions.full import BlockWeights, PairRows, find_pairs
from rgcn.nn.encoders.c_rgcn import CompressionEncoder
from rgcn.nn.encoders.plain import PlainEncoder as PlainEmbedding
from rgcn.nn.encoders.rgcn import RgcnEncoder
from rgcn.nn.heads import Head
from rgcn.nn.inputs import EmbeddingInput, FeatureInput
from rgcn.nn.link_network import VectorNetwork
from rgcn.tasks.estimator import Estimator

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FORMAT_VERSION = 1
# Numbers that one step over the edges holds: 64 MiB.
LARGEST_STEP = 2**24


def export_encoder(model: Estimator) -> ExportedProgram:
    """The trained encoder as a program of plain operations: nodes int64 [n] → [n, width], for any n.

    A classifier gives the logits of its classes, a link predictor the nodes' vectors as its decoder takes them.

    >>> import rgcn, torch
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
    >>> program = export_encoder(rgcn.NodeClassifier(epochs=1).fit(kg))
    >>> program.module()(torch.tensor([2, 0, 1])).shape
    torch.Size([3, 2])
    """
    encoder = plain_encoder(model)
    example = torch.zeros(2, dtype=torch.int64)
    with torch.no_grad():
        return torch.export.export(encoder, (example,), dynamic_shapes={"nodes": {0: torch.export.Dim("n")}})


def save_encoder(model: Estimator, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write what `export_encoder` gives to a .pt2 file, names beside it, and return what about.json in it says.

    Its extra files: about.json; nodes.jsonl, a name a line, in the order of node numbers; classes.jsonl, the columns of
    a classifier; relations.jsonl, of a link predictor each relation's name, vector and bias.
    """
    target = Path(path)
    if target.suffix != ".pt2":
        raise ConfigError(
            f"{target.name}: PyTorch reads such a file only by the ending .pt2; call it {target.stem}.pt2"
        )
    program, about = export_encoder(model), _about(model)
    extra = {"about.json": json.dumps(about, indent=1), "nodes.jsonl": _lines(model.graph_.nodes)}
    if isinstance(model.network_, VectorNetwork):
        extra["relations.jsonl"] = _lines(_relations(model))
    if "classes" in model.task_().answers:
        extra["classes.jsonl"] = _lines(model.classes_)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            torch.export.save(program, file, extra_files=extra)

    replace_atomically(target, write)
    return about


def _about(model: Estimator) -> dict[str, Any]:
    import rgcn

    decoder = model.network_.decoder if isinstance(model.network_, VectorNetwork) else None
    return {
        "format": "rgcn-encoder",
        "version": FORMAT_VERSION,
        "rgcn": rgcn.__version__,
        "torch": torch.__version__,
        "task": model.task,
        "model": model.model.title,
        "input": "nodes: int64 [n], numbers of nodes",
        "output": "logits [n, classes]" if decoder is None else "vectors [n, width], for the decoder",
        "decoder": None if decoder is None else type(decoder).__name__,
        "nodes": model.graph_.num_nodes,
        "graph": model.graph_.fingerprint,
    }


def _relations(model: Estimator) -> Iterable[dict[str, Any]]:
    table = model.network_.decoder.relation_table()
    if table is None:
        return
    vectors = table[0].detach().tolist()
    biases = [0.0] * len(vectors) if table[1] is None else table[1].detach().tolist()
    for name, vector, bias in zip(model.graph_.relations, vectors, biases, strict=True):
        yield {"name": name, "vector": vector, "bias": bias}


def _lines(values: Iterable[Any]) -> str:
    # Escaped beyond ASCII: some readers take U+2028 and its like for the end of a line.
    encode = json.JSONEncoder().encode
    return "".join(f"{encode(value)}\n" for value in values)


# -- the network ------------------------------------------------------------------------------------------


def plain_encoder(model: Estimator) -> PlainEncoder:
    """The model's encoder in plain operations, on the CPU."""
    network, whole = model.network_, model.adjacency_.to("cpu")
    network.eval()
    if isinstance(network, RelationalEncoder):
        stack = _Stack(_input_rows(network.source), network.layers, whole, network.head)
        return PlainEncoder(stack)
    if not isinstance(network, VectorNetwork):
        raise ConfigError(f"{model.model.title} computes every answer anew: there is no encoder to export")
    encoder, decoder = network.encoder, network.decoder
    bias = decoder.node_bias if isinstance(decoder, BilinearDecoder) else None
    body: nn.Module
    if isinstance(encoder, RgcnEncoder):
        body = _Stack(_input_rows(encoder.source), encoder.layers, whole)
    elif isinstance(encoder, CompressionEncoder):
        body = _Compression(encoder, whole)
    elif isinstance(encoder, PlainEmbedding):
        body = _Stack(_input_rows(encoder.source), [], whole)
    else:
        raise ConfigError(f"an encoder of the kind {type(encoder).__name__} cannot be exported")
    return PlainEncoder(body, None if bias is None else _kept(bias))


class PlainEncoder(nn.Module):
    """nodes int64 [n] → [n, width]: every node's vector is computed, those of the nodes are picked."""

    node_bias: Tensor | None

    def __init__(self, body: nn.Module, node_bias: Tensor | None = None) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("node_bias", node_bias)

    def forward(self, nodes: Tensor) -> Tensor:
        vectors: Tensor = self.body().index_select(0, nodes)
        if self.node_bias is None:
            return vectors
        return torch.cat([vectors, self.node_bias.index_select(0, nodes)], dim=1)


class _Stack(nn.Module):
    """Input rows, then convolutions with ReLU between them. Without convolutions: the rows."""

    rows: Tensor | None

    def __init__(
        self,
        rows: Tensor | None,
        layers: Iterable[nn.Module],
        adjacency: RelationalAdjacency,
        head: Head | None = None,
    ) -> None:
        super().__init__()
        self.head = None if head is None else copy.deepcopy(head).cpu()
        self.register_buffer("rows", rows)
        self.layers = nn.ModuleList(_Convolution(layer, adjacency) for layer in layers)

    def forward(self) -> Tensor:
        x = self.rows
        for depth, layer in enumerate(self.layers):
            x = layer(x if x is None or depth == 0 else torch.relu(x))
        assert x is not None
        if self.head is None:
            return x
        out: Tensor = self.head(torch.relu(x) if self.head.activated else x)
        return out


class _Compression(nn.Module):
    """c-RGCN: H = E + g(σ(… Σ_r A_r f(E) W_r …))"""

    rows: Tensor
    down: Tensor
    down_bias: Tensor
    up: Tensor

    def __init__(self, encoder: CompressionEncoder, adjacency: RelationalAdjacency) -> None:
        super().__init__()
        self.register_buffer("rows", _input_rows(encoder.source))
        self.register_buffer("down", _kept(encoder.down))
        self.register_buffer("down_bias", _kept(encoder.down_bias))
        self.register_buffer("up", _kept(encoder.up))
        self.layers = nn.ModuleList(_Convolution(layer, adjacency) for layer in encoder.layers)

    def forward(self) -> Tensor:
        x = self.rows @ self.down + self.down_bias
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.rows + x @ self.up


def _input_rows(source: nn.Module | None) -> Tensor | None:
    """[nodes, width], or None for one-hot nodes."""
    if isinstance(source, EmbeddingInput):
        return _kept(source.all_nodes())
    return _kept(source.features) if isinstance(source, FeatureInput) else None


def _kept(value: Tensor) -> Tensor:
    return value.detach().cpu().clone()


# -- the convolution --------------------------------------------------------------------------------------


class _Convolution(nn.Module):
    """x [nodes, in], or None for one-hot nodes → Σ_r A_r X W_r + b [nodes, out]"""

    own: Tensor | None
    own_weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Module, adjacency: RelationalAdjacency) -> None:
        super().__init__()
        assert isinstance(layer, RelationalGraphConv)
        own = layer.self_loop if layer.self_loop_rows is None else layer.self_loop_rows.values()
        rest, own_weight = adjacency, None
        if own is not None:
            structure = adjacency.structure
            loops = structure.relation == structure.num_relations - 1
            own_weight = torch.zeros(structure.num_targets, 1)
            own_weight[structure.target[loops], 0] = adjacency.weight[loops]
            rest = adjacency.split_self_loops()[0]
        self.messages = _messages(layer.weights, rest)
        self.register_buffer("own", None if own is None else _kept(own))
        self.register_buffer("own_weight", own_weight)
        self.register_buffer("bias", None if layer.bias is None else _kept(layer.bias))

    def forward(self, x: Tensor | None) -> Tensor:
        out: Tensor = self.messages(x)
        if self.own is not None:
            out = out + (self.own_weight * self.own if x is None else (self.own_weight * x) @ self.own)
        return out if self.bias is None else out + self.bias


def _messages(weights: RelationWeights | OneHotWeights, adjacency: RelationalAdjacency) -> nn.Module:
    for kind, make in _KINDS.items():
        if isinstance(weights, kind):
            return make(weights, adjacency)
    raise ConfigError(f"weights of the kind {type(weights).__name__} cannot be exported")


class _Mix(nn.Module):
    """out[target[e]] += weight[e] · rows[index[e]], for every edge e; rows [any, width] → [size, width]"""

    target: Tensor
    index: Tensor
    weight: Tensor

    def __init__(self, target: Tensor, index: Tensor, weight: Tensor, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("target", target)
        self.register_buffer("index", index)
        self.register_buffer("weight", weight)

    def sums(self, rows: Tensor, scale: Callable[[slice], Tensor] | None = None) -> Tensor:
        """scale: what an edge's row is multiplied with besides its weight, for some edges: [edges, width] or [., 1]."""
        out = rows.new_zeros(self.size, rows.shape[1])
        step = max(1, LARGEST_STEP // rows.shape[1])
        for begin in range(0, len(self.index), step):
            some = slice(begin, begin + step)
            messages = rows.index_select(0, self.index[some]) * self.weight[some].unsqueeze(1)
            out = out.index_add(0, self.target[some], messages if scale is None else messages * scale(some))
        return out


def _mix(adjacency: RelationalAdjacency) -> _Mix:
    """From sources to targets."""
    structure = adjacency.structure
    return _Mix(structure.target, structure.source, adjacency.weight, structure.num_targets)


class _Diagonal(nn.Module):
    """Σ over edges of A_r[i, j] · w_r ⊙ x_j"""

    relation: Tensor
    scale: Tensor

    def __init__(self, weights: DiagonalWeights, adjacency: RelationalAdjacency) -> None:
        super().__init__()
        self.mix = _mix(adjacency)
        self.register_buffer("relation", adjacency.structure.relation)
        self.register_buffer("scale", _kept(weights.scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.mix.sums(x, lambda some: self.scale.index_select(0, self.relation[some]))


class _Bases(nn.Module):
    """Σ_b (Σ_r C[r, b] A_r) X V_b, a basis at a time, mixed on the narrower side of V_b.

    X = I: V_b [nodes, out] has a row for each node.
    """

    relation: Tensor
    bases: Tensor
    coefficients: Tensor

    def __init__(self, weights: BasisWeights | BasisRows, adjacency: RelationalAdjacency) -> None:
        super().__init__()
        if isinstance(weights, BasisRows):
            bases, coefficients = weights.rows.values().transpose(0, 1), weights.coefficients.data
        else:
            bases, coefficients = weights.bases.data, weights.all_coefficients()
        self.mix = _mix(adjacency)
        self.register_buffer("relation", adjacency.structure.relation)
        self.register_buffer("bases", _kept(bases).contiguous())
        self.register_buffer("coefficients", _kept(coefficients).T.unsqueeze(2).contiguous())  # [B, relations, 1]

    def forward(self, x: Tensor | None) -> Tensor:
        out = self._of_basis(0, x)
        for b in range(1, len(self.bases)):
            out = out + self._of_basis(b, x)
        return out

    def _of_basis(self, b: int, x: Tensor | None) -> Tensor:
        def scale(some: slice) -> Tensor:
            return self.coefficients[b].index_select(0, self.relation[some])

        basis = self.bases[b]
        if x is None:
            return self.mix.sums(basis, scale)
        if basis.shape[1] < basis.shape[0]:
            return self.mix.sums(x @ basis, scale)
        return self.mix.sums(x, scale) @ basis


class _Blocks(nn.Module):
    """Full and block-diagonal matrices: each (relation, source) pair is projected, then mixed.

    Pairs of a relation stand in groups of equal size, the last filled up, so that all are projected by one product. The
    size is that of a mean relation: then at most half of what is computed is filling.
    """

    source: Tensor
    group_relation: Tensor
    blocks: Tensor

    def __init__(self, weights: BlockWeights, adjacency: RelationalAdjacency) -> None:
        super().__init__()
        structure = adjacency.structure
        pairs = structure.source_pairs
        relation, node = pairs.relation.long(), pairs.node.long()
        counts = torch.bincount(relation, minlength=structure.num_relations)
        size = max(1, -(-len(relation) // max(1, int((counts > 0).sum()))))
        groups = -(-counts // size)
        first_slot = (torch.cumsum(groups, 0) - groups) * size
        first_pair = torch.cumsum(counts, 0) - counts
        slot = first_slot[relation] + torch.arange(len(relation)) - first_pair[relation]
        source = torch.zeros(int(groups.sum()) * size, dtype=torch.int64)
        source[slot] = node
        self.mix = _Mix(structure.target, slot[pairs.edge_pair.long()], adjacency.weight, structure.num_targets)
        self.group_size = size
        self.register_buffer("source", source)
        self.register_buffer("group_relation", torch.repeat_interleave(torch.arange(len(groups)), groups))
        self.register_buffer("blocks", _kept(weights.blocks))

    def forward(self, x: Tensor) -> Tensor:
        blocks = self.blocks.index_select(0, self.group_relation)
        picked = x.index_select(0, self.source).view(-1, self.group_size, *self.blocks.shape[1:3])
        projected = torch.einsum("gpki, gkio -> gpko", picked, blocks)
        return self.mix.sums(projected.flatten(0, 1).flatten(1))


class _Rows(nn.Module):
    """One-hot nodes whose (relation, node) pairs have rows of their own: a lookup.

    Rows of a block-diagonal W_r hold one block of the output, that of the run their node lies in.
    """

    rows: Tensor

    def __init__(self, weights: PairRows | BlockRows, adjacency: RelationalAdjacency) -> None:
        super().__init__()
        structure = adjacency.structure
        pair = find_pairs(weights.key.cpu(), structure.relation * weights.num_nodes + structure.source)
        blocks = weights.num_blocks if isinstance(weights, BlockRows) else 1
        target = structure.target * blocks
        if isinstance(weights, BlockRows):
            target = target + structure.source // weights.run
        self.num_blocks = blocks
        self.mix = _Mix(target, pair, adjacency.weight, structure.num_targets * blocks)
        self.register_buffer("rows", _kept(weights.rows.values()))

    def forward(self, x: None) -> Tensor:
        mixed = self.mix.sums(self.rows)
        return mixed.view(len(mixed) // self.num_blocks, -1)


_KINDS: dict[type[nn.Module], Callable[[Any, RelationalAdjacency], nn.Module]] = {
    BasisWeights: _Bases,
    BasisRows: _Bases,
    BlockWeights: _Blocks,
    PairRows: _Rows,
    BlockRows: _Rows,
    DiagonalWeights: _Diagonal,
}
