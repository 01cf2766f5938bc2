"""The section `model`: the network of each task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rgcn.config.fields import Description, OnAxis, OptionsOf, Rule, Section, described, impossible, tuned
from rgcn.plugins import DECODERS, DECOMPOSITIONS, ENCODERS, HEADS, MESSAGE_FUNCTIONS

Published = Literal["schlichtkrull-uniform", "schlichtkrull-normal"]
Scheme = Literal["glorot-uniform", "glorot-normal", "kaiming-uniform", "kaiming-normal", Published]
Normalization = Literal["relation", "node", "direction", "none"]

CONVOLVES = {"model.encoder": ("rgcn", "c-rgcn")}  # plain embeddings pass no messages
EMBEDS = {"model.encoder": ("none", "rgcn", "c-rgcn")}
WALKS = {"model.encoder": ("path", "universal")}
OWN_RELATIONS = {"model.encoder": "path"}  # universal has none to learn
WITH_BASES, WITH_BLOCKS = {"model.decomposition": "basis"}, {"model.decomposition": "block"}
Encoder = Annotated[str, OnAxis(ENCODERS)]
Decoder = Annotated[str, OnAxis(DECODERS)]
Head = Annotated[str, OnAxis(HEADS)]
Decomposition = Annotated[str, OnAxis(DECOMPOSITIONS)]
MessageFunction = Annotated[str, OnAxis(MESSAGE_FUNCTIONS)]
ConvolutionOptions = Annotated[dict[str, Any], OptionsOf(("decomposition", "message_function"))]


class ModelSection(Section):
    """What the section of a model says of it; a task's own derives from it."""

    @property
    def title(self) -> str:
        return type(self).__name__

    def described(self, features: bool = False) -> Description:
        """What it is made of, and what it cannot do for that reason; `features`: whether its nodes have any."""
        return Description({"Architecture": self.title})


def _short(choice: str) -> str:
    """A member of an axis as a word: a class from outside by its own name."""
    return choice.rpartition(":")[2].rpartition(".")[2]


def _goes_with(knob: str, decomposition: str, example: int) -> Rule:
    """The rule that `bases` (or `blocks`) is given where its decomposition is, and nowhere else."""

    @impossible(knob, "decomposition")
    def both_or_neither(model: NodeModelConfig | LinkModelConfig) -> Iterator[str]:
        given, chosen = getattr(model, knob), model.decomposition
        words = f"`{knob}` goes with `decomposition: {decomposition}`"
        if chosen == decomposition and given is None:
            yield f"{words}: set it, for example to {example}"
        elif chosen != decomposition and given is not None:
            yield f"{words}, not with {chosen!r}: set it to null, or change the decomposition"

    return both_or_neither


def _undivided(model: NodeModelConfig | LinkModelConfig, *names: str) -> Iterator[str]:
    """Words for the first width that does not divide into blocks, with the nearest that do and the nearest blocks."""
    blocks = model.blocks if model.decomposition == "block" else None
    for name in names:
        width = getattr(model, name)
        if blocks is not None and width % blocks:
            below, above = width // blocks * blocks, (width // blocks + 1) * blocks
            divisors = [d for d in range(max(1, blocks - 100), blocks + 100) if width % d == 0]
            nearest = min(divisors, key=lambda d: abs(d - blocks), default=1)
            fixes = f"set {name} to {f'{below} or ' if below else ''}{above}, or blocks to {nearest}"
            yield f"a width of {width} ({name}) does not divide into {blocks} blocks: {fixes}"
            return


class NodeModelConfig(ModelSection):
    """The network that classifies nodes."""

    shorthands: ClassVar = {"rgcn": {"encoder": "rgcn"}, "e-rgcn": {"encoder": "e-rgcn"}}

    name: Literal["rgcn", "e-rgcn"] | None = Field(None, exclude=True)
    """Shorthand for the encoder."""
    encoder: Encoder = "rgcn"
    """rgcn: convolutions over one-hot nodes (or given features). e-rgcn: learned embeddings, a diagonal first
    convolution, then full ones; about a tenth of the parameters."""
    head: Head = "convolution"
    """How states become classes. convolution: the last convolution gives a number for each class. linear: it gives
    hidden states, and a matrix turns them into classes."""
    layers: int = tuned(2, low=1, high=3, ge=1, le=100)
    """Number of convolutions: how many hops away a node can be heard."""
    hidden: int = tuned(16, [8, 16, 32, 64], when={"model.encoder": "rgcn"}, ge=1)
    """Width of the states between convolutions."""
    embedding: int = tuned(32, [16, 32, 64, 128], when={"model.encoder": "e-rgcn"}, ge=1)
    """Width of e-rgcn's node embeddings and of its first convolution."""
    input: Literal["auto", "one-hot", "features"] = "auto"
    """What rgcn's nodes bring: the graph's features where it has any (auto), or one-hot vectors."""
    decomposition: Decomposition = tuned("none", ["none", "basis", "block"])
    """How rgcn's weight matrices are written."""
    message_function: MessageFunction = "linear"
    """What an edge of a convolution says. linear: its source's vector times its relation's matrix, as published."""
    convolution_options: ConvolutionOptions = Field({})
    """Settings of a decomposition or message function from outside, by name."""
    bases: int | None = tuned(None, low=2, high=64, log=True, when=WITH_BASES, ge=1)
    """Number of bases, with decomposition: basis."""
    blocks: int | None = tuned(None, [2, 4, 8], when=WITH_BLOCKS, ge=1)
    """Number of blocks, with decomposition: block."""
    normalization: Normalization = tuned("relation", ["relation", "node", "direction"])
    """Which edges into a node share its attention: those of a relation, all, a direction's."""
    aggregation: Literal["sum", "mean"] = "sum"
    """Sum over relations, or mean over those that reach the node (for deep stacks)."""
    inverse: bool = True
    """Also send messages against the direction of triples."""
    self_loops: bool = True
    """Let each node hear itself."""
    bias: bool = True
    """Add a learned bias in each convolution; e-rgcn's diagonal one never has one, as published."""
    dropout: float = tuned(0.0, low=0.0, high=0.6, ge=0, lt=1)
    """Share of hidden numbers dropped while training."""
    init: Scheme = "glorot-uniform"
    """How convolution weights begin."""
    gain: float = Field(math.sqrt(2), gt=0)
    """Factor on the initial weights; the square root of 2 goes with ReLU."""
    fans: Literal["matrix", "stacked"] = "matrix"
    """Fans of one relation's matrix, or of the whole stack, as published code counts them (far smaller weights)."""
    embedding_init: Scheme = "kaiming-normal"
    """How e-rgcn's embeddings begin."""
    embedding_gain: float = Field(math.sqrt(2), gt=0)
    """Factor on e-rgcn's initial embeddings; the square root of 2 is Kaiming's own."""
    options: Annotated[dict[str, Any], OptionsOf(("encoder", "head"))] = Field({})
    """Settings of an encoder or head from outside, by name."""

    @property
    def title(self) -> str:
        return _short(self.encoder) if self.head == "convolution" else f"{_short(self.encoder)}+{_short(self.head)}"

    def described(self, features: bool = False) -> Description:
        return described(self.encoder, lambda encoder: encoder.describe_nodes(self, features))

    _bases = _goes_with("bases", "basis", 30)
    _blocks = _goes_with("blocks", "block", 4)

    @impossible("blocks", "hidden", "embedding", "layers", "encoder", "head", "decomposition")
    def _blocks_divide_widths(self) -> Iterator[str]:
        if self.encoder == "e-rgcn":  # its first convolution is diagonal, and keeps the embedding's width
            yield from _undivided(self, "embedding", *(["hidden"] if self.layers > 2 else []))
        elif self.layers > 1 or self.head != "convolution":
            yield from _undivided(self, "hidden")

    @impossible("input", "encoder")
    def _own_inputs(self) -> Iterator[str]:
        if self.encoder == "e-rgcn" and self.input != "auto":
            yield "e-rgcn learns its own inputs: `input` goes with rgcn; leave it at auto"

    @impossible("decomposition", "input")
    def _diagonal_scales_vectors(self) -> Iterator[str]:
        if self.decomposition == "diagonal" and self.input == "one-hot":
            yield "diagonal weights scale input vectors: set input to features, or choose another decomposition"

    @impossible("decomposition", "encoder", "layers", "embedding", "hidden")
    def _diagonal_keeps_the_width(self) -> Iterator[str]:
        inner = self.encoder == "e-rgcn" and self.layers > 2
        if self.decomposition == "diagonal" and inner and self.embedding != self.hidden:
            yield (
                f"diagonal weights keep the width, and embedding = {self.embedding} is not hidden = {self.hidden}: "
                "make them equal, or choose another decomposition"
            )


class LinkModelConfig(ModelSection):
    """The network that predicts links: an encoder that gives every node a vector, and a decoder that scores triples."""

    shorthands: ClassVar = {
        "rgcn": {"encoder": "rgcn"},
        "c-rgcn": {"encoder": "c-rgcn"},
        "distmult": {"encoder": "none", "decoder": "distmult"},
        "path": {"encoder": "path", "layers": 6, "normalization": "node"},
        "universal": {
            "encoder": "universal",
            "layers": 6,
            "width": 64,
            "normalization": "node",
            "surroundings": 0,
            "unreached": "awake",
            "start": "shipped",
        },
        "popularity": {"encoder": "popularity", "normalization": "none", "self_loops": False},
    }

    name: Literal["rgcn", "c-rgcn", "distmult", "path", "universal", "popularity"] | None = Field(None, exclude=True)
    """Shorthand for encoder and decoder; distmult is encoder none with DistMult, path six layers of means, universal as
    the weights that come with rgcn have it."""
    encoder: Encoder = "rgcn"
    """rgcn: convolutions over embeddings. c-rgcn: convolutions through a bottleneck, the embedding goes around it.
    none: the embedding alone. path: a convolution for every question, and no embedding at all. universal: so too, and
    relations are known by how they meet, so that its weights suit any graph. popularity: counts of edges, the baseline;
    layers and widths mean nothing to it."""
    decoder: Decoder = "distmult"
    """How triples are scored; path has a scoring head of its own."""
    layers: int = tuned(1, low=1, high=2, when=CONVOLVES, ge=1, le=100)
    """Number of convolutions; encoder none has none."""
    embedding: int = tuned(200, [64, 128, 256], when=EMBEDS, ge=1)
    """Width of the node embeddings, and of rgcn's convolutions."""
    bottleneck: int = tuned(16, [8, 16, 32], when={"model.encoder": "c-rgcn"}, ge=1)
    """Width of c-rgcn's convolutions."""
    width: int = tuned(32, [16, 32, 64], when=WALKS, ge=1)
    """Width of path's and universal's states; what is said of path below holds for both."""
    relation_layers: int = Field(4, ge=1, le=100)
    """universal: convolutions over the graph of relations."""
    start: Literal["random", "shipped"] = "random"
    """universal: where weights begin, at random or with those that come with rgcn."""
    relation_vectors: Literal["own", "question"] = tuned("own", ["own", "question"], when=OWN_RELATIONS)
    """path: a vector for each relation, or one that depends on the relation asked for: a matrix each, for large graphs
    of many relations; small ones are overfitted."""
    messages: Literal["multiply", "add"] = tuned("multiply", ["multiply", "add"], when=WALKS)
    """path: what an edge makes of a state and its relation's vector."""
    deviation: bool = tuned(False, [True, False], when=WALKS)
    """path: hear the standard deviation of the messages beside their mean."""
    degree_scaling: bool = tuned(True, [True, False], when=WALKS)
    """path: hear everything a second time, times the logarithm of the node's degree."""
    surroundings: int = tuned(1, [0, 1, 2, 3], when=OWN_RELATIONS, ge=0)
    """path: how many hops around an answer to look, whatever is asked, no more than layers: all there is of an answer
    that no walk reaches. universal: 0, since these have learned vectors of relations."""
    unreached: Literal["asleep", "awake"] = tuned("asleep", ["asleep", "awake"], when=WALKS)
    """path: what a node is that no walk has reached yet. asleep: zero, so that only what is reached is computed. awake:
    what biases and its own neighbors make of it."""
    skip: bool = Field(True)
    """path: add each layer's output to what went in."""
    layer_norm: bool = Field(True)
    """path: normalize each layer's output."""
    dropout: float = tuned(0.0, low=0.0, high=0.4, when=WALKS, ge=0, lt=1)
    """path: share of each layer's output dropped while training."""
    input: Literal["embedding", "one-hot"] = "embedding"
    """What rgcn's nodes bring: learned embeddings, or one-hot vectors."""
    activated_input: bool = tuned(True, [True, False], when={"model.encoder": "rgcn", "model.input": "embedding"})
    """Pass rgcn's embeddings, with a bias, through ReLU before the first convolution."""
    decomposition: Decomposition = tuned("none", ["none", "basis", "block"], when=CONVOLVES)
    """How weight matrices are written."""
    message_function: MessageFunction = "linear"
    """What an edge of a convolution says. linear: its source's vector times its relation's matrix, as published."""
    convolution_options: ConvolutionOptions = Field({})
    """Settings of a decomposition or message function from outside, by name."""
    bases: int | None = tuned(None, low=2, high=32, log=True, when=WITH_BASES, ge=1)
    """Number of bases, with decomposition: basis."""
    blocks: int | None = tuned(None, [2, 4, 8], when=WITH_BLOCKS, ge=1)
    """Number of blocks, with decomposition: block."""
    self_loop_apart: bool | None = tuned(
        None, [True, False], when={"model.decomposition": ("basis", "block"), "model.self_loops": True}
    )
    """Give the self-loop a full matrix outside the decomposition; by default with blocks, not bases."""
    separate_inverse_bases: bool = tuned(
        False, [True, False], when={**WITH_BASES, "model.inverse": True, "model.input": "embedding"}
    )
    """Give inverses bases of their own, as the original does."""
    coefficient_init: Literal["same", "normal"] = tuned("same", ["same", "normal"], when=WITH_BASES)
    """How basis coefficients begin: as the bases do, or N(0, 1) as in the original."""
    normalization: Normalization = tuned("relation", ["relation", "node", "direction"], when=CONVOLVES)
    """Which edges into a node share its attention; direction is the original's."""
    aggregation: Literal["sum", "mean"] = "sum"
    """Sum or mean over relations."""
    inverse: bool = True
    """Also send messages against the direction of triples."""
    self_loops: bool = True
    """Let each node hear itself."""
    bias: bool = True
    """Add a learned bias in each convolution."""
    init: Scheme = "schlichtkrull-normal"
    """How the encoder's weights begin."""
    gain: float = tuned(1.0, low=0.1, high=2.0, log=True, when=EMBEDS, gt=0)
    """Factor on the encoder's initial weights."""
    fans: Literal["matrix", "published"] = tuned("matrix", ["matrix", "published"], when=WITH_BLOCKS)
    """Fans of a relation's matrix; published: for blocks, the number of relations and a block's width, as the published
    code counts them."""
    decoder_biases: bool = False
    """Add biases of subject, relation and object to the score."""
    options: Annotated[dict[str, Any], OptionsOf(("encoder", "decoder"))] = Field({})
    """Settings of an encoder or decoder from outside, by name."""

    @property
    def title(self) -> str:
        encoder, decoder = _short(self.encoder), _short(self.decoder)
        return decoder if encoder == "none" else encoder if decoder == "distmult" else f"{encoder}+{decoder}"

    def described(self, features: bool = False) -> Description:
        return described(self.encoder, lambda encoder: encoder.describe_links(self))

    _bases = _goes_with("bases", "basis", 2)
    _blocks = _goes_with("blocks", "block", 4)

    @impossible("blocks", "embedding", "bottleneck", "encoder", "decomposition")
    def _blocks_divide_the_width(self) -> Iterator[str]:
        yield from _undivided(self, "bottleneck" if self.encoder == "c-rgcn" else "embedding")

    @impossible("start", "encoder")
    def _shipped_weights_are_universal(self) -> Iterator[str]:
        if self.start == "shipped" and self.encoder != "universal":
            yield "the weights that come with rgcn are universal's: set start to random, or encoder to universal"

    @impossible("input", "encoder")
    def _one_hot_is_for_rgcn(self) -> Iterator[str]:
        if self.input == "one-hot" and self.encoder in ("none", "c-rgcn"):
            yield f"{self.title} learns embeddings: `input: one-hot` goes with rgcn; set input to embedding"

    @impossible("separate_inverse_bases", "decomposition", "inverse", "input")
    def _separate_bases_need_bases_and_inverses(self) -> Iterator[str]:
        possible = self.decomposition == "basis" and self.inverse and self.input == "embedding"
        if self.separate_inverse_bases and not possible:
            needs = "`decomposition: basis`, `inverse: true` and `input: embedding`"
            yield f"`separate_inverse_bases` goes with {needs}: set it to false, or those so"

    @impossible("self_loop_apart", "decomposition", "self_loops")
    def _apart_from_what(self) -> Iterator[str]:
        if self.self_loop_apart and self.decomposition == "none":
            yield "without a decomposition the self-loop has a full matrix anyway: set self_loop_apart to null"
        elif self.self_loop_apart and not self.self_loops:
            yield "there are no self-loops to set apart: set self_loop_apart to null, or self_loops to true"

    @impossible("coefficient_init", "decomposition")
    def _coefficients_of_bases(self) -> Iterator[str]:
        if self.coefficient_init != "same" and self.decomposition != "basis":
            yield "only `decomposition: basis` has coefficients: set coefficient_init to same, or change decomposition"

    @impossible("fans", "decomposition")
    def _published_fans_of_blocks(self) -> Iterator[str]:
        if self.fans == "published" and self.decomposition != "block":
            yield "`fans: published` goes with `decomposition: block`: set fans to matrix, or change decomposition"
