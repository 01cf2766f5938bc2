"""The networks of link prediction, built from a configuration."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.errors import ConfigError
from rgcn.nn import Basis, BlockDiagonal, Full, Initializer, RelationalGraphConv
from rgcn.nn.decoders import BilinearDecoder, DistMult
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoder import EmbeddingInput
from rgcn.nn.link_encoders import CompressionEncoder, ConvolutionalEncoder, PlainEmbedding


class LinkNetwork(nn.Module):
    """An encoder that gives every node a vector, and a decoder that scores triples of them."""

    def __init__(self, encoder: nn.Module, decoder: BilinearDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self._encoded: Tensor | None = None

    def train(self, mode: bool = True) -> LinkNetwork:
        """Training or not; either way the weights may change, so that what was encoded is forgotten."""
        self._encoded = None
        super().train(mode)
        return self

    def encode(self, adjacency: RelationalAdjacency | None) -> Tensor:
        """[N, d']: every node's vector, ready for the decoder."""
        return self.decoder.prepare(self.encoder(adjacency))

    def encoded(self, adjacency: RelationalAdjacency | None) -> Tensor:
        """The same with nothing dropped and no gradient; computed once until the network trains again."""
        if self.training:
            self.eval()
        if self._encoded is None:
            with torch.no_grad():
                self._encoded = self.encode(adjacency).detach()  # a parameter itself would become a second one here
        return self._encoded


def build_link_network(
    model: LinkModelConfig,
    training: LinkTrainingConfig,
    num_nodes: int,
    num_relations: int,
    adjacency: RelationalAdjacency,
    seed: int,
) -> LinkNetwork:
    """RGCN, c-RGCN or plain DistMult for a graph of these sizes."""
    generator = torch.Generator().manual_seed(seed)
    init = Initializer(model.init, model.gain)
    one_hot = model.name == "rgcn" and model.input == "one-hot"
    activated = model.name == "rgcn" and model.activated_input
    if one_hot and training.self_loop_dropout_on == "message" and training.self_loop_dropout:
        raise ConfigError("one-hot nodes have no self-loop message to drop numbers of: self_loop_dropout_on=edge")
    source = None
    if not one_hot:
        source = EmbeddingInput(num_nodes, model.embedding, init, generator, activated=activated)
    encoder: nn.Module
    if model.name == "distmult":
        assert source is not None
        encoder = PlainEmbedding(source)
    elif model.name == "c-rgcn":
        assert source is not None
        layers = [_layer(model, training, model.bottleneck, num_relations, generator) for _ in range(model.layers)]
        encoder = CompressionEncoder(source, layers, model.embedding, model.bottleneck, init, generator)
    else:
        layers = []
        if one_hot:
            first = RelationalGraphConv.one_hot(
                adjacency,
                model.embedding,
                decomposition=_decomposition(model),
                bias=model.bias,
                init=_init(model, model.embedding, num_relations),
                generator=generator,
            )
            layers.append(first)
        while len(layers) < model.layers:
            layers.append(_layer(model, training, model.embedding, num_relations, generator))
        encoder = ConvolutionalEncoder(source, layers)
    decoder = DistMult(num_relations, model.embedding, num_nodes, model.decoder_biases, generator=generator)
    return LinkNetwork(encoder, decoder)


def _layer(
    model: LinkModelConfig, training: LinkTrainingConfig, width: int, num_relations: int, generator: torch.Generator
) -> RelationalGraphConv:
    on_message = training.self_loop_dropout_on == "message"
    return RelationalGraphConv(
        width,
        width,
        num_relations,
        decomposition=_decomposition(model),
        inverse=model.inverse,
        self_loops=model.self_loops,
        bias=model.bias,
        init=_init(model, width, num_relations),
        self_loop_dropout=training.self_loop_dropout if on_message else 0.0,
        generator=generator,
    )


def _init(model: LinkModelConfig, width: int, num_relations: int) -> Initializer:
    if model.fans == "published" and model.blocks is not None:
        return Initializer(model.init, model.gain, fans=(num_relations, width // model.blocks))
    return Initializer(model.init, model.gain)


def _decomposition(model: LinkModelConfig) -> Decomposition:
    if model.decomposition == "basis":
        assert model.bases is not None
        coefficient_init = Initializer("normal") if model.coefficient_init == "normal" else None
        apart = bool(model.self_loop_apart)
        return Basis(model.bases, apart, model.separate_inverse_bases, coefficient_init)
    if model.decomposition == "block":
        assert model.blocks is not None
        return BlockDiagonal(model.blocks, model.self_loop_apart is not False)
    return Full()
