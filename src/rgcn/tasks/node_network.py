"""The networks of node classification, built from a configuration."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn import Basis, BlockDiagonal, Diagonal, Full, Initializer, RelationalEncoder, RelationalGraphConv
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoder import EmbeddingInput, FeatureInput, OneHotInput


def build_network(
    config: NodeModelConfig,
    graph: KnowledgeGraph,
    adjacency: RelationalAdjacency,
    training: ReceptiveField | None,
    seed: int,
) -> RelationalEncoder:
    """RGCN or e-RGCN over a graph, with one output for each class.

    training: what the loss can reach. Rows outside it are kept out of the parameters; None where something decays them,
    so that all must be parameters.
    """
    assert graph.labels is not None
    generator = torch.Generator().manual_seed(seed)
    init = Initializer(config.init, config.gain, config.fans)
    source, width = _input(config, graph, training, generator)
    layers = []
    for depth in range(config.layers):
        last = depth + 1 == config.layers
        embedded_first = depth == 0 and config.name == "e-rgcn"
        out = graph.labels.num_classes if last else config.embedding if embedded_first else config.hidden
        bias = has_bias(config, depth)
        decomposition = Diagonal() if _scales_only(config, depth) else _named(config, last, out)
        if width is None:
            layer = RelationalGraphConv.one_hot(
                adjacency,
                out,
                decomposition=decomposition,
                training=None if training is None else (training.layers[0], training.inputs),
                bias=bias,
                init=init,
                generator=generator,
            )
        else:
            layer = RelationalGraphConv(
                width,
                out,
                graph.num_relations,
                decomposition=decomposition,
                inverse=config.inverse,
                self_loops=config.self_loops,
                bias=bias,
                init=init,
                generator=generator,
            )
        if config.bias and not bias:
            layer.register_load_state_dict_pre_hook(_with_its_bias)  # type: ignore[no-untyped-call]
        layers.append(layer)
        width = out
    return RelationalEncoder(source, layers, config.dropout)


def has_bias(config: NodeModelConfig, depth: int) -> bool:
    """Whether a convolution adds a bias: e-RGCN's diagonal one does not, in the paper's equation and in its code."""
    return config.bias and not _scales_only(config, depth)


def _scales_only(config: NodeModelConfig, depth: int) -> bool:
    """e-RGCN's first convolution only scales the embedding; with a single layer there is nothing after it to mix."""
    return config.name == "e-rgcn" and depth == 0 < config.layers - 1


def _with_its_bias(layer: RelationalGraphConv, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """e-RGCNs of the first versions were trained with a bias there: they keep it, and answer as they did."""
    if f"{prefix}bias" in state and layer.bias is None:
        like: Tensor = next(layer.parameters())
        layer.bias = nn.Parameter(torch.zeros_like(state[f"{prefix}bias"], device=like.device, dtype=like.dtype))


def _input(
    config: NodeModelConfig, graph: KnowledgeGraph, training: ReceptiveField | None, generator: torch.Generator
) -> tuple[nn.Module, int | None]:
    """The module that gives nodes their input vectors, and their width; None for one-hot nodes."""
    if config.name == "e-rgcn":
        reached: Tensor | None = None
        if training is not None:
            reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
            reached[training.inputs.cpu()] = True
        # E [nodes, width] as torch.nn.init reads a matrix: the fan in is its width.
        init = Initializer(config.embedding_init, config.embedding_gain, fans=(config.embedding, graph.num_nodes))
        return EmbeddingInput(graph.num_nodes, config.embedding, init, generator, reached), config.embedding
    if config.input == "features" or (config.input == "auto" and graph.features is not None):
        if graph.features is None:
            raise ConfigError("model.input is 'features', but the graph has none: read it with features=FILE")
        return FeatureInput(torch.from_numpy(np.array(graph.features))), graph.features.shape[1]
    return OneHotInput(), None


def _named(config: NodeModelConfig, last: bool, out: int) -> Decomposition:
    if config.decomposition == "basis":
        assert config.bases is not None
        return Basis(config.bases)
    if config.decomposition == "block":
        assert config.blocks is not None
        # Classes rarely divide into blocks: the last layer then keeps full matrices.
        return BlockDiagonal(config.blocks) if not (last and out % config.blocks) else Full()
    if config.decomposition == "diagonal" and not last:
        return Diagonal()
    return Full()


def kernels_of(config: NodeModelConfig) -> list[str]:
    """The kernels that training such a network will call, in the order it first does."""
    products = ["grouped_product", "grouped_outer"]
    bases = ["combine_bases", "spread_bases", "coefficient_gradient", "adam_bases"]
    last = bases[:3] if config.decomposition == "basis" else products
    if config.name == "e-rgcn":
        return ["gather_product_sum", "gather_sum", *last]
    return ["gather_sum", *(bases if config.decomposition == "basis" else last)]
