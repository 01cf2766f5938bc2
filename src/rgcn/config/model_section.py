"""The section `model`: the network of each task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rgcn.config.fields import ComponentOf, Description, OptionsOf, Rule, Section, describe_encoder, rule, tuned
from rgcn.plugins import DECODERS, DECOMPOSITIONS, ENCODERS, HEADS, MESSAGE_FUNCTIONS

Published = Literal["schlichtkrull-uniform", "schlichtkrull-normal"]
Scheme = Literal["glorot-uniform", "glorot-normal", "kaiming-uniform", "kaiming-normal", Published]
Normalization = Literal["relation", "node", "direction", "none"]

CONVOLVES = {"model.encoder": ("rgcn", "c-rgcn")}
EMBEDS = {"model.encoder": ("none", "rgcn", "c-rgcn")}
WALKS = {"model.encoder": ("path", "universal")}
OWN_RELATIONS = {"model.encoder": "path"}  # universal computes its relation vectors
WITH_BASES, WITH_BLOCKS = {"model.decomposition": "basis"}, {"model.decomposition": "block"}
DECODER_NAMES = ("distmult", "complex", "transe", "rotate")  # also names of models: embeddings with this decoder
EMBEDDING_START = {"reciprocal": True, "node_deviation": 0.1, "relation_deviation": 0.1}
LinkModel = Literal["rgcn", "c-rgcn", "distmult", "complex", "transe", "rotate", "path", "universal", "popularity"]
Encoder = Annotated[str, ComponentOf(ENCODERS)]
Decoder = Annotated[str, ComponentOf(DECODERS)]
Head = Annotated[str, ComponentOf(HEADS)]
Decomposition = Annotated[str, ComponentOf(DECOMPOSITIONS)]
MessageFunction = Annotated[str, ComponentOf(MESSAGE_FUNCTIONS)]
ConvolutionOptions = Annotated[dict[str, Any], OptionsOf(("decomposition", "message_function"))]


class ModelSection(Section):
    """Base of the section `model` of every task."""

    @property
    def title(self) -> str:
        """The short name of the model."""
        return type(self).__name__

    def describe(self, features: bool = False) -> Description:
        """Return the parts of the model, and what it cannot do; `features` is True if nodes have features."""
        return Description({"Architecture": self.title})


def _short(choice: str) -> str:
    """Return the name of a component; of a dotted name only the class."""
    return choice.rpartition(":")[2].rpartition(".")[2]


def _goes_with(key: str, decomposition: str, example: int) -> Rule:
    """Make the rule that `bases` or `blocks` is given with its decomposition, and only then."""

    @rule(key, "decomposition")
    def both_or_neither(model: NodeModelConfig | LinkModelConfig) -> Iterator[str]:
        value, chosen = getattr(model, key), model.decomposition
        message = f"`{key}` goes with `decomposition: {decomposition}`"
        if chosen == decomposition and value is None:
            yield f"{message}: set it, for example to {example}"
        elif chosen != decomposition and value is not None:
            yield f"{message}, not with {chosen!r}: set it to null, or change the decomposition"

    return both_or_neither


def _undivided(model: NodeModelConfig | LinkModelConfig, *names: str) -> Iterator[str]:
    """Yield a message for the first width that is no multiple of `blocks`, with the nearest widths and blocks."""
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
    """The network of node classification."""

    shorthands: ClassVar = {"rgcn": {"encoder": "rgcn"}, "e-rgcn": {"encoder": "e-rgcn"}}

    name: Literal["rgcn", "e-rgcn"] | None = Field(None, exclude=True)
    """Shorthand for the encoder."""
    encoder: Encoder = "rgcn"
    """rgcn: convolutions over one-hot nodes or features. e-rgcn: over learned embeddings, the first one diagonal."""
    head: Head = "convolution"
    """convolution: the last convolution outputs class scores. linear: it outputs states, followed by a linear layer."""
    layers: int = tuned(2, low=1, high=3, ge=1, le=100)
    """Number of convolutions: a prediction depends on nodes up to so many hops away."""
    hidden: int = tuned(16, [8, 16, 32, 64], when={"model.encoder": "rgcn"}, ge=1)
    """Width of the hidden states between convolutions."""
    embedding: int = tuned(32, [16, 32, 64, 128], when={"model.encoder": "e-rgcn"}, ge=1)
    """Width of e-rgcn's node embeddings and of its first convolution."""
    input: Literal["auto", "one-hot", "features"] = "auto"
    """Input of rgcn. auto: the features of the graph if it has any, else one-hot vectors."""
    decomposition: Decomposition = tuned("none", ["none", "basis", "block"])
    """Decomposition of the weight matrices of rgcn."""
    message_function: MessageFunction = "linear"
    """Computes the message of an edge. linear: the source's vector times the relation's matrix, as published."""
    convolution_options: ConvolutionOptions = Field({})
    """Settings of a decomposition or message function of another package, by name."""
    bases: int | None = tuned(None, low=2, high=64, log=True, when=WITH_BASES, ge=1)
    """Number of bases, with decomposition: basis."""
    blocks: int | None = tuned(None, [2, 4, 8], when=WITH_BLOCKS, ge=1)
    """Number of blocks, with decomposition: block."""
    normalization: Normalization = tuned("relation", ["relation", "node", "direction"])
    """Messages into a node are averaged over its edges of a relation, all its edges, or those of a direction."""
    aggregation: Literal["sum", "mean"] = "sum"
    """Sum over relations, or mean over those that reach the node (for many layers)."""
    inverse: bool = True
    """Also send messages against the direction of triples."""
    self_loops: bool = True
    """Also send a message from each node to itself."""
    bias: bool = True
    """Add a learned bias in each convolution. The diagonal one of e-rgcn never has one, as published."""
    dropout: float = tuned(0.0, low=0.0, high=0.6, ge=0, lt=1)
    """Dropout rate of hidden states."""
    init: Scheme = "glorot-uniform"
    """Initialization of convolution weights."""
    gain: float = Field(math.sqrt(2), gt=0)
    """Factor on the initial weights; the square root of 2 suits ReLU."""
    fans: Literal["matrix", "stacked"] = "matrix"
    """Fans of one relation's matrix, or of all stacked, as in published code, which makes weights far smaller."""
    embedding_init: Scheme = "kaiming-normal"
    """Initialization of the embeddings of e-rgcn."""
    embedding_gain: float = Field(math.sqrt(2), gt=0)
    """Factor on the initial embeddings of e-rgcn; the square root of 2 is Kaiming's."""
    options: Annotated[dict[str, Any], OptionsOf(("encoder", "head"))] = Field({})
    """Settings of an encoder or head of another package, by name."""

    @property
    def title(self) -> str:
        """The encoder, and the head if it is not the default."""
        return _short(self.encoder) if self.head == "convolution" else f"{_short(self.encoder)}+{_short(self.head)}"

    def describe(self, features: bool = False) -> Description:
        """Return the parts of the model, and what it cannot do; `features` is True if nodes have features."""
        return describe_encoder(self.encoder, lambda encoder: encoder.describe_nodes(self, features))

    _bases = _goes_with("bases", "basis", 30)
    _blocks = _goes_with("blocks", "block", 4)

    @rule("blocks", "hidden", "embedding", "layers", "encoder", "head", "decomposition")
    def _blocks_divide_widths(self) -> Iterator[str]:
        if self.encoder == "e-rgcn":  # its first convolution is diagonal and keeps the width of embeddings
            yield from _undivided(self, "embedding", *(["hidden"] if self.layers > 2 else []))
        elif self.layers > 1 or self.head != "convolution":
            yield from _undivided(self, "hidden")

    @rule("input", "encoder")
    def _own_inputs(self) -> Iterator[str]:
        if self.encoder == "e-rgcn" and self.input != "auto":
            yield "e-rgcn learns its inputs, and `input` goes with rgcn: leave it at auto"

    @rule("decomposition", "input")
    def _diagonal_scales_vectors(self) -> Iterator[str]:
        if self.decomposition == "diagonal" and self.input == "one-hot":
            yield "diagonal weights scale input vectors: set input to features, or choose another decomposition"

    @rule("decomposition", "encoder", "layers", "embedding", "hidden")
    def _diagonal_keeps_the_width(self) -> Iterator[str]:
        inner = self.encoder == "e-rgcn" and self.layers > 2
        if self.decomposition == "diagonal" and inner and self.embedding != self.hidden:
            yield (
                f"diagonal weights keep the width, and embedding = {self.embedding} is not hidden = {self.hidden}: "
                "make them equal, or choose another decomposition"
            )


class LinkModelConfig(ModelSection):
    """The network of link prediction: an encoder computes node vectors, a decoder scores triples."""

    shorthands: ClassVar = {
        "rgcn": {"encoder": "rgcn"},
        "c-rgcn": {"encoder": "c-rgcn"},
        **{name: {"encoder": "none", "decoder": name, **EMBEDDING_START} for name in DECODER_NAMES},
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

    name: LinkModel | None = Field(None, exclude=True)
    """Shorthand for encoder, decoder and other settings; universal: those of the pretrained model."""
    encoder: Encoder = "rgcn"
    """rgcn: convolutions over embeddings. c-rgcn: convolutions through a bottleneck, which the embedding bypasses.
    none: embeddings alone. path: convolutions for each question, without embeddings. universal: the same, and relations
    are represented by how they meet, so that the weights suit any graph. popularity: counts of edges, a baseline
    without layers and widths."""
    decoder: Decoder = "distmult"
    """Scores triples from two node vectors and the relation's vector. distmult and complex: by products; transe and
    rotate: by distance. path and universal have a scoring head of their own."""
    reciprocal: bool = False
    """Give each relation a second vector for questions about subjects."""
    margin: float = Field(9.0, ge=0)
    """transe, rotate: the score at distance zero. It has no effect with objectives that are a softmax."""
    layers: int = tuned(1, low=1, high=2, when=CONVOLVES, ge=1, le=100)
    """Number of convolutions; encoder none has none."""
    embedding: int = tuned(200, [64, 128, 256], when=EMBEDS, ge=1)
    """Width of the node embeddings, and of the convolutions of rgcn."""
    bottleneck: int = tuned(16, [8, 16, 32], when={"model.encoder": "c-rgcn"}, ge=1)
    """Width of the convolutions of c-rgcn."""
    width: int = tuned(32, [16, 32, 64], when=WALKS, ge=1)
    """path, universal: width of the states. The settings of path below are also those of universal."""
    relation_layers: int = Field(4, ge=1, le=100)
    """universal: number of convolutions over the graph of relations."""
    start: Literal["random", "shipped"] = "random"
    """universal: initial weights. random: initialized at random. shipped: those of the pretrained model."""
    relation_vectors: Literal["own", "question"] = tuned("own", ["own", "question"], when=OWN_RELATIONS)
    """path: a vector for each relation, or vectors that depend on the question's relation (for large graphs)."""
    messages: Literal["multiply", "add"] = tuned("multiply", ["multiply", "add"], when=WALKS)
    """path: how a message combines the source's state and the relation's vector."""
    deviation: bool = tuned(False, [True, False], when=WALKS)
    """path: also aggregate messages by their standard deviation, not only by their mean."""
    degree_scaling: bool = tuned(True, [True, False], when=WALKS)
    """path: also use each aggregate times the logarithm of the node's degree."""
    surroundings: int = tuned(1, [0, 1, 2, 3], when=OWN_RELATIONS, ge=0)
    """path: number of hops around an answer that contribute to its score whatever the question is, at most `layers`.
    For an answer that no path reaches nothing else does. universal: 0."""
    unreached: Literal["asleep", "awake"] = tuned("asleep", ["asleep", "awake"], when=WALKS)
    """path: nodes that no path has reached yet are zero and not computed (asleep), or computed like others (awake)."""
    skip: bool = Field(True)
    """path: add the input of each layer to its output."""
    layer_norm: bool = Field(True)
    """path: normalize the output of each layer."""
    dropout: float = tuned(0.0, low=0.0, high=0.4, when=WALKS, ge=0, lt=1)
    """path: dropout rate of the output of each layer."""
    input: Literal["embedding", "one-hot"] = "embedding"
    """Input of rgcn: learned embeddings or one-hot vectors."""
    activated_input: bool = tuned(True, [True, False], when={"model.encoder": "rgcn", "model.input": "embedding"})
    """rgcn: add a bias to the embeddings and apply ReLU before the first convolution."""
    decomposition: Decomposition = tuned("none", ["none", "basis", "block"], when=CONVOLVES)
    """Decomposition of the weight matrices."""
    message_function: MessageFunction = "linear"
    """Computes the message of an edge. linear: the source's vector times the relation's matrix, as published."""
    convolution_options: ConvolutionOptions = Field({})
    """Settings of a decomposition or message function of another package, by name."""
    bases: int | None = tuned(None, low=2, high=32, log=True, when=WITH_BASES, ge=1)
    """Number of bases, with decomposition: basis."""
    blocks: int | None = tuned(None, [2, 4, 8], when=WITH_BLOCKS, ge=1)
    """Number of blocks, with decomposition: block."""
    self_loop_apart: bool | None = tuned(
        None, [True, False], when={"model.decomposition": ("basis", "block"), "model.self_loops": True}
    )
    """Give self-loops a full matrix outside the decomposition. null: with blocks yes, with bases no."""
    separate_inverse_bases: bool = tuned(
        False, [True, False], when={**WITH_BASES, "model.inverse": True, "model.input": "embedding"}
    )
    """Give inverse relations bases of their own, as the original code does."""
    coefficient_init: Literal["same", "normal"] = tuned("same", ["same", "normal"], when=WITH_BASES)
    """Initialization of basis coefficients. same: that of the bases. normal: N(0, 1), as in the original code."""
    normalization: Normalization = tuned("relation", ["relation", "node", "direction"], when=CONVOLVES)
    """Messages into a node are averaged over its edges of a relation, all its edges, or those of a direction."""
    aggregation: Literal["sum", "mean"] = "sum"
    """Sum or mean over relations."""
    inverse: bool = True
    """Also send messages against the direction of triples."""
    self_loops: bool = True
    """Also send a message from each node to itself."""
    bias: bool = True
    """Add a learned bias in each convolution."""
    init: Scheme = "schlichtkrull-normal"
    """Initialization of the encoder's weights."""
    gain: float = tuned(1.0, low=0.1, high=2.0, log=True, when=EMBEDS, gt=0)
    """Factor on the encoder's initial weights."""
    node_deviation: float | None = Field(None, gt=0)
    """Standard deviation of the initial node embeddings, which are normal. null: by `init` and `gain`."""
    relation_deviation: float | None = Field(None, gt=0)
    """Standard deviation of the initial relation vectors. null: 1; for rotate, uniform angles."""
    fans: Literal["matrix", "published"] = tuned("matrix", ["matrix", "published"], when=WITH_BLOCKS)
    """Fans of one relation's matrix; published: for blocks, the number of relations and the width of a block."""
    decoder_biases: bool = False
    """Add biases of subject, relation and object to the score."""
    options: Annotated[dict[str, Any], OptionsOf(("encoder", "decoder"))] = Field({})
    """Settings of an encoder or decoder of another package, by name."""

    @property
    def title(self) -> str:
        """The encoder and the decoder, without defaults."""
        encoder, decoder = _short(self.encoder), _short(self.decoder)
        return decoder if encoder == "none" else encoder if decoder == "distmult" else f"{encoder}+{decoder}"

    def describe(self, features: bool = False) -> Description:
        """Return the parts of the model, and what it cannot do."""
        return describe_encoder(self.encoder, lambda encoder: encoder.describe_links(self))

    _bases = _goes_with("bases", "basis", 2)
    _blocks = _goes_with("blocks", "block", 4)

    @rule("blocks", "embedding", "bottleneck", "encoder", "decomposition")
    def _blocks_divide_the_width(self) -> Iterator[str]:
        yield from _undivided(self, "bottleneck" if self.encoder == "c-rgcn" else "embedding")

    @rule("start", "encoder")
    def _shipped_weights_are_universal(self) -> Iterator[str]:
        if self.start == "shipped" and self.encoder != "universal":
            yield "the pretrained weights are those of universal: set start to random, or encoder to universal"

    @rule("embedding", "decoder", "encoder")
    def _complex_numbers_are_pairs(self) -> Iterator[str]:
        if self.decoder in ("complex", "rotate") and self.encoder in EMBEDS["model.encoder"] and self.embedding % 2:
            below, above = self.embedding - 1, self.embedding + 1
            fixes = f"set embedding to {f'{below} or ' if below else ''}{above}, or decoder to distmult"
            yield f"{self.decoder} needs an even width, and {self.embedding} (embedding) is odd: {fixes}"

    @rule("decoder_biases", "decoder")
    def _distances_have_no_biases(self) -> Iterator[str]:
        if self.decoder_biases and self.decoder in ("transe", "rotate"):
            yield f"{self.decoder} has no biases: set decoder_biases to false, or decoder to distmult or complex"

    @rule("input", "encoder")
    def _one_hot_is_for_rgcn(self) -> Iterator[str]:
        if self.input == "one-hot" and self.encoder in ("none", "c-rgcn"):
            yield f"{self.title} learns embeddings, and `input: one-hot` goes with rgcn: set input to embedding"

    @rule("separate_inverse_bases", "decomposition", "inverse", "input")
    def _separate_bases_need_bases_and_inverses(self) -> Iterator[str]:
        possible = self.decomposition == "basis" and self.inverse and self.input == "embedding"
        if self.separate_inverse_bases and not possible:
            needs = "`decomposition: basis`, `inverse: true` and `input: embedding`"
            yield f"`separate_inverse_bases` goes with {needs}: set it to false, or set those"

    @rule("self_loop_apart", "decomposition", "self_loops")
    def _apart_from_what(self) -> Iterator[str]:
        if self.self_loop_apart and self.decomposition == "none":
            yield "without a decomposition the self-loop has a full matrix anyway: set self_loop_apart to null"
        elif self.self_loop_apart and not self.self_loops:
            yield "there are no self-loops to set apart: set self_loop_apart to null, or self_loops to true"

    @rule("coefficient_init", "decomposition")
    def _coefficients_of_bases(self) -> Iterator[str]:
        if self.coefficient_init != "same" and self.decomposition != "basis":
            yield "only `decomposition: basis` has coefficients: set coefficient_init to same, or change decomposition"

    @rule("fans", "decomposition")
    def _published_fans_of_blocks(self) -> Iterator[str]:
        if self.fans == "published" and self.decomposition != "block":
            yield "`fans: published` goes with `decomposition: block`: set fans to matrix, or change decomposition"
