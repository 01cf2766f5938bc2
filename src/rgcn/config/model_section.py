"""The section `model`: the network of each task."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rgcn.axis_tables import DECODERS, ENCODERS, HEADS
from rgcn.config.description import Description, described
from rgcn.config.on_axis import OnAxis
from rgcn.config.search_space import search
from rgcn.config.section import Section, impossible

Scheme = Literal[
    "glorot-uniform",
    "glorot-normal",
    "kaiming-uniform",
    "kaiming-normal",
    "schlichtkrull-uniform",
    "schlichtkrull-normal",
]

CONVOLVES = {"model.encoder": ("rgcn", "c-rgcn")}  # plain embeddings pass no messages
Encoder = Annotated[str, OnAxis(ENCODERS)]
Decoder = Annotated[str, OnAxis(DECODERS)]
Head = Annotated[str, OnAxis(HEADS)]


class ModelSection(Section):
    """What the section of a model says of it; a task's own derives from it."""

    @property
    def title(self) -> str:
        """What the model is called."""
        return type(self).__name__

    def described(self, features: bool = False) -> Description:
        """What it is made of, and what it cannot do for that reason, for people; as its classes tell it.

        features  whether the nodes of its graph have any
        """
        return Description({"Architecture": self.title})


def _short(choice: str) -> str:
    """A member of an axis as a word: a class from outside by its own name."""
    return choice.rpartition(":")[2].rpartition(".")[2]


def _goes_with(knob: str, decomposition: str, example: int) -> Any:
    """The rule that `bases` (or `blocks`) is given where its decomposition is, and nowhere else."""

    @impossible(knob, "decomposition")
    def both_or_neither(model: NodeModelConfig | LinkModelConfig) -> str | None:
        given, chosen = getattr(model, knob), model.decomposition
        words = f"`{knob}` goes with `decomposition: {decomposition}`"
        if chosen == decomposition and given is None:
            return f"{words}: set it, for example to {example}"
        if chosen != decomposition and given is not None:
            return f"{words}, not with {chosen!r}: set it to null, or change the decomposition"
        return None

    return both_or_neither


def _undivided(blocks: int, **widths: int) -> str | None:
    """Words for the first width that does not divide into blocks, with the nearest that do and the nearest blocks."""
    for name, width in widths.items():
        if width % blocks:
            below, above = width // blocks * blocks, (width // blocks + 1) * blocks
            divisors = [d for d in range(max(1, blocks - 100), blocks + 100) if width % d == 0]
            nearest = min(divisors, key=lambda d: abs(d - blocks), default=1)
            fixes = f"set {name} to {f'{below} or ' if below else ''}{above}, or blocks to {nearest}"
            return f"a width of {width} ({name}) does not divide into {blocks} blocks: {fixes}"
    return None


class NodeModelConfig(ModelSection):
    """The network that classifies nodes."""

    shorthands: ClassVar = {"rgcn": {"encoder": "rgcn"}, "e-rgcn": {"encoder": "e-rgcn"}}

    name: Literal["rgcn", "e-rgcn"] | None = Field(None, exclude=True, description="Shorthand for the encoder.")
    encoder: Encoder = Field(
        "rgcn",
        description="rgcn: convolutions over one-hot nodes (or given features). e-rgcn: learned embeddings, a diagonal "
        "first convolution, then full ones; about a tenth of the parameters.",
    )
    head: Head = Field(
        "convolution",
        description="How states become classes. convolution: the last convolution gives a number for each class. "
        "linear: it gives hidden states, and a matrix turns them into classes.",
    )
    layers: int = Field(
        2,
        ge=1,
        description="Number of convolutions: how many hops away a node can be heard.",
        json_schema_extra=search(low=1, high=3),
    )
    hidden: int = Field(
        16,
        ge=1,
        description="Width of the states between convolutions.",
        json_schema_extra=search(choices=[8, 16, 32, 64], when={"model.encoder": "rgcn"}),
    )
    embedding: int = Field(
        32,
        ge=1,
        description="Width of e-rgcn's node embeddings and of its first convolution.",
        json_schema_extra=search(choices=[16, 32, 64, 128], when={"model.encoder": "e-rgcn"}),
    )
    input: Literal["auto", "one-hot", "features"] = Field(
        "auto", description="What rgcn's nodes bring: the graph's features where it has any (auto), or one-hot vectors."
    )
    decomposition: Literal["none", "basis", "block", "diagonal"] = Field(
        "none",
        description="How rgcn's weight matrices are written.",
        json_schema_extra=search(choices=["none", "basis", "block"]),
    )
    bases: int | None = Field(
        None,
        ge=1,
        description="Number of bases, with decomposition: basis.",
        json_schema_extra=search(low=2, high=64, log=True, when={"model.decomposition": "basis"}),
    )
    blocks: int | None = Field(
        None,
        ge=1,
        description="Number of blocks, with decomposition: block.",
        json_schema_extra=search(choices=[2, 4, 8], when={"model.decomposition": "block"}),
    )
    normalization: Literal["relation", "node", "direction", "none"] = Field(
        "relation",
        description="Which edges into a node share its attention: those of a relation, all, a direction's.",
        json_schema_extra=search(choices=["relation", "node", "direction"]),
    )
    aggregation: Literal["sum", "mean"] = Field(
        "sum", description="Sum over relations, or mean over those that reach the node (for deep stacks)."
    )
    inverse: bool = Field(True, description="Also send messages against the direction of triples.")
    self_loops: bool = Field(True, description="Let each node hear itself.")
    bias: bool = Field(
        True, description="Add a learned bias in each convolution; e-rgcn's diagonal one never has one, as published."
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of hidden numbers dropped while training.",
        json_schema_extra=search(low=0.0, high=0.6),
    )
    init: Scheme = Field("glorot-uniform", description="How convolution weights begin.")
    gain: float = Field(
        math.sqrt(2), gt=0, description="Factor on the initial weights; the square root of 2 goes with ReLU."
    )
    fans: Literal["matrix", "stacked"] = Field(
        "matrix",
        description="Fans of one relation's matrix, or of the whole stack as published code counts them (far smaller "
        "initial weights).",
    )
    embedding_init: Scheme = Field("kaiming-normal", description="How e-rgcn's embeddings begin.")
    embedding_gain: float = Field(
        math.sqrt(2), gt=0, description="Factor on e-rgcn's initial embeddings; the square root of 2 is Kaiming's own."
    )
    options: dict[str, Any] = Field({}, description="Settings of classes from outside, by name.")

    @property
    def title(self) -> str:
        return _short(self.encoder) if self.head == "convolution" else f"{_short(self.encoder)}+{_short(self.head)}"

    def described(self, features: bool = False) -> Description:
        return described(self.encoder, lambda encoder: encoder.describe_nodes(self, features))

    _bases = _goes_with("bases", "basis", 30)
    _blocks = _goes_with("blocks", "block", 4)

    @impossible("blocks", "hidden", "embedding", "layers", "encoder", "decomposition")
    def _blocks_divide_widths(self) -> str | None:
        if self.decomposition != "block" or self.blocks is None:
            return None
        widths = {"hidden": self.hidden} if self.layers > 1 or self.head != "convolution" else {}
        if self.encoder == "e-rgcn":  # its first convolution is diagonal, and keeps the embedding's width
            widths = {"embedding": self.embedding, **({"hidden": self.hidden} if self.layers > 2 else {})}
        return _undivided(self.blocks, **widths)

    @impossible("input", "encoder")
    def _own_inputs(self) -> str | None:
        if self.encoder == "e-rgcn" and self.input != "auto":
            return "e-rgcn learns its own inputs: `input` goes with rgcn; leave it at auto"
        return None

    @impossible("decomposition", "input")
    def _diagonal_scales_vectors(self) -> str | None:
        if self.decomposition == "diagonal" and self.input == "one-hot":
            return (
                "diagonal weights need input vectors to scale: set input to features, or choose another decomposition"
            )
        return None

    @impossible("decomposition", "encoder", "layers", "embedding", "hidden")
    def _diagonal_keeps_the_width(self) -> str | None:
        inner = self.encoder == "e-rgcn" and self.layers > 2
        if self.decomposition == "diagonal" and inner and self.embedding != self.hidden:
            return (
                f"diagonal weights keep the width, and embedding = {self.embedding} is not hidden = {self.hidden}: "
                "make them equal, or choose another decomposition"
            )
        return None


class LinkModelConfig(ModelSection):
    """The network that predicts links: an encoder that gives every node a vector, and a decoder that scores triples."""

    shorthands: ClassVar = {
        "rgcn": {"encoder": "rgcn"},
        "c-rgcn": {"encoder": "c-rgcn"},
        "distmult": {"encoder": "none", "decoder": "distmult"},
    }

    name: Literal["rgcn", "c-rgcn", "distmult"] | None = Field(
        None, exclude=True, description="Shorthand for encoder and decoder; distmult is encoder none with DistMult."
    )
    encoder: Encoder = Field(
        "rgcn",
        description="rgcn: convolutions over embeddings. c-rgcn: convolutions through a bottleneck, the embedding goes "
        "around it. none: the embedding alone.",
    )
    decoder: Decoder = Field("distmult", description="How triples are scored.")
    layers: int = Field(
        1,
        ge=1,
        description="Number of convolutions; encoder none has none.",
        json_schema_extra=search(low=1, high=2, when=CONVOLVES),
    )
    embedding: int = Field(
        200,
        ge=1,
        description="Width of the node embeddings, and of rgcn's convolutions.",
        json_schema_extra=search(choices=[64, 128, 256]),
    )
    bottleneck: int = Field(
        16,
        ge=1,
        description="Width of c-rgcn's convolutions.",
        json_schema_extra=search(choices=[8, 16, 32], when={"model.encoder": "c-rgcn"}),
    )
    input: Literal["embedding", "one-hot"] = Field(
        "embedding", description="What rgcn's nodes bring: learned embeddings, or one-hot vectors."
    )
    activated_input: bool = Field(
        True,
        description="Pass rgcn's embeddings, with a bias, through ReLU before the first convolution.",
        json_schema_extra=search(choices=[True, False], when={"model.encoder": "rgcn", "model.input": "embedding"}),
    )
    decomposition: Literal["none", "basis", "block"] = Field(
        "none",
        description="How weight matrices are written.",
        json_schema_extra=search(choices=["none", "basis", "block"], when=CONVOLVES),
    )
    bases: int | None = Field(
        None,
        ge=1,
        description="Number of bases, with decomposition: basis.",
        json_schema_extra=search(low=2, high=32, log=True, when={"model.decomposition": "basis"}),
    )
    blocks: int | None = Field(
        None,
        ge=1,
        description="Number of blocks, with decomposition: block.",
        json_schema_extra=search(choices=[2, 4, 8], when={"model.decomposition": "block"}),
    )
    self_loop_apart: bool | None = Field(
        None,
        description="Give the self-loop a full matrix outside the decomposition; by default with blocks, not bases.",
        json_schema_extra=search(
            choices=[True, False], when={"model.decomposition": ("basis", "block"), "model.self_loops": True}
        ),
    )
    separate_inverse_bases: bool = Field(
        False,
        description="Give inverses bases of their own, as the original does.",
        json_schema_extra=search(
            choices=[True, False],
            when={"model.decomposition": "basis", "model.inverse": True, "model.input": "embedding"},
        ),
    )
    coefficient_init: Literal["same", "normal"] = Field(
        "same",
        description="How basis coefficients begin: as the bases do, or N(0, 1) as in the original.",
        json_schema_extra=search(choices=["same", "normal"], when={"model.decomposition": "basis"}),
    )
    normalization: Literal["relation", "node", "direction", "none"] = Field(
        "relation",
        description="Which edges into a node share its attention; direction is the original's.",
        json_schema_extra=search(choices=["relation", "node", "direction"], when=CONVOLVES),
    )
    aggregation: Literal["sum", "mean"] = Field("sum", description="Sum or mean over relations.")
    inverse: bool = Field(True, description="Also send messages against the direction of triples.")
    self_loops: bool = Field(True, description="Let each node hear itself.")
    bias: bool = Field(True, description="Add a learned bias in each convolution.")
    init: Scheme = Field("schlichtkrull-normal", description="How the encoder's weights begin.")
    gain: float = Field(
        1.0,
        gt=0,
        description="Factor on the encoder's initial weights.",
        json_schema_extra=search(low=0.1, high=2.0, log=True),
    )
    fans: Literal["matrix", "published"] = Field(
        "matrix",
        description="Fans of a relation's matrix; published: for blocks, the number of relations and a block's width, "
        "as the published code counts them.",
        json_schema_extra=search(choices=["matrix", "published"], when={"model.decomposition": "block"}),
    )
    decoder_biases: bool = Field(False, description="Add biases of subject, relation and object to the score.")
    options: dict[str, Any] = Field({}, description="Settings of classes from outside, by name.")

    @property
    def title(self) -> str:
        """What the model is called: by its encoder, or by its decoder where there is none."""
        encoder, decoder = _short(self.encoder), _short(self.decoder)
        return decoder if encoder == "none" else encoder if decoder == "distmult" else f"{encoder}+{decoder}"

    def described(self, features: bool = False) -> Description:
        return described(self.encoder, lambda encoder: encoder.describe_links(self))

    _bases = _goes_with("bases", "basis", 2)
    _blocks = _goes_with("blocks", "block", 4)

    @impossible("blocks", "embedding", "bottleneck", "encoder", "decomposition")
    def _blocks_divide_the_width(self) -> str | None:
        if self.decomposition != "block" or self.blocks is None:
            return None
        compressed = self.encoder == "c-rgcn"
        return _undivided(
            self.blocks, **({"bottleneck": self.bottleneck} if compressed else {"embedding": self.embedding})
        )

    @impossible("input", "encoder")
    def _one_hot_is_for_rgcn(self) -> str | None:
        if self.input == "one-hot" and self.encoder in ("none", "c-rgcn"):
            return f"{self.title} learns embeddings: `input: one-hot` goes with rgcn; set input to embedding"
        return None

    @impossible("separate_inverse_bases", "decomposition", "inverse", "input")
    def _separate_bases_need_bases_and_inverses(self) -> str | None:
        possible = self.decomposition == "basis" and self.inverse and self.input == "embedding"
        if self.separate_inverse_bases and not possible:
            return (
                "`separate_inverse_bases` goes with `decomposition: basis`, `inverse: true` and `input: embedding`: "
                "set it to false, or those so"
            )
        return None

    @impossible("self_loop_apart", "decomposition", "self_loops")
    def _apart_from_what(self) -> str | None:
        if not self.self_loop_apart:
            return None
        if self.decomposition == "none":
            return "without a decomposition the self-loop has a full matrix anyway: set self_loop_apart to null"
        if not self.self_loops:
            return "there are no self-loops to set apart: set self_loop_apart to null, or self_loops to true"
        return None

    @impossible("coefficient_init", "decomposition")
    def _coefficients_of_bases(self) -> str | None:
        if self.coefficient_init != "same" and self.decomposition != "basis":
            return "only `decomposition: basis` has coefficients: set coefficient_init to same, or change decomposition"
        return None

    @impossible("fans", "decomposition")
    def _published_fans_of_blocks(self) -> str | None:
        if self.fans == "published" and self.decomposition != "block":
            return "`fans: published` goes with `decomposition: block`: set fans to matrix, or change decomposition"
        return None
