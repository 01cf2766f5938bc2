"""Every knob, its default, and what it does: the one place to look.

Configurations are layered: a shipped name or a YAML file, then `--set section.key=value`, then flags. All problems are
reported at once, each with where it was written and how to put it right (`config_section`). What two settings cannot be
together stands below the fields of their section; what sections cannot be together, in the run. A field worth tuning
declares where to search (`config_search`).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from rgcn.axis_tables import DECODERS, ENCODERS, HEADS, OBJECTIVES, READERS, SAMPLERS, TRACKERS
from rgcn.config_choices import OnAxis
from rgcn.config_search import SearchSpace, search, search_spaces
from rgcn.config_section import Section, impossible, validated

if TYPE_CHECKING:
    from rgcn.nn.description import Description

__all__ = [
    "CheckpointConfig",
    "ClassificationByLinksRun",
    "DataConfig",
    "LinkModelConfig",
    "LinkPredictionRun",
    "LinkTrainingConfig",
    "ModelSection",
    "NodeClassificationRun",
    "NodeModelConfig",
    "NodeTrainingConfig",
    "RunConfig",
    "SearchSpace",
    "Section",
    "Tracker",
    "TrainingSection",
    "search",
    "search_spaces",
    "validated",
]

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
Objective = Annotated[str, OnAxis(OBJECTIVES)]
Sampler = Annotated[str, OnAxis(SAMPLERS)]
Head = Annotated[str, OnAxis(HEADS)]


class DataConfig(Section):
    """Which graph to learn from."""

    dataset: str | None = Field(None, description="Name of a data set of the registry (see `rgcn data list`).")
    path: str | None = Field(None, description="A file or folder of triples, instead of a data set.")
    labels: str | dict[str, str] | None = Field(
        None, description="File of labels for `path`: one file, or one for each of train, valid, test."
    )
    labels_from: str | None = Field(
        None, description="A relation of the graph whose objects are the classes; it is then removed from the graph."
    )
    inverse: str | None = Field(None, description="The inverse of `labels_from`, which would give the answer away.")
    features: str | None = Field(None, description="Table of node names and their numbers, for `path`.")
    format: Annotated[str, OnAxis(READERS, closed=False)] | None = Field(
        None, description="Format of `path` where its name does not tell, or the reader to use: package.module:Class."
    )
    columns: list[str | int] | None = Field(
        None, description="Subject, relation and object in a table: names, or positions from 0."
    )
    weight: str | int | None = Field(None, description="Column of edge weights in a table.")
    skip_bad_lines: bool = Field(False, description="Count malformed lines instead of stopping at the first.")
    prune: Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True, ge=1)] = Field(
        False,
        description="Node classification: keep only what lies within so many hops of a labelled node; true: as many "
        "as the model has layers. Changes no prediction for labelled nodes; nodes further away can no longer be asked "
        "for.",
    )

    @impossible("dataset", "path")
    def _one_source(self) -> str | None:
        if (self.dataset is None) == (self.path is None):
            return "give either `dataset` or `path`, and not both"
        return None

    @impossible(
        "labels", "labels_from", "inverse", "features", "format", "columns", "weight", "skip_bad_lines", "dataset"
    )
    def _reading_goes_with_path(self) -> str | None:
        reading = self.reading_options()
        if self.dataset is not None and reading:
            return f"`{'`, `'.join(reading)}` goes with `path`, not with `dataset`: remove it, or give `path` instead"
        return None

    @impossible("labels_from", "labels")
    def _one_source_of_labels(self) -> str | None:
        if self.labels is not None and self.labels_from is not None:
            return "labels come from files (`labels`) or from a relation (`labels_from`): remove one of the two"
        return None

    @impossible("labels")
    def _labels_by_split(self) -> str | None:
        known = ("train", "valid", "dev", "test")
        unknown = [split for split in self.labels if split not in known] if isinstance(self.labels, dict) else []
        return f"unknown split {unknown[0]!r}: there are train, valid (or dev) and test" if unknown else None

    @impossible("inverse", "labels_from")
    def _inverse_of_labels(self) -> str | None:
        if self.inverse is not None and self.labels_from is None:
            return "the inverse of `labels_from`, which is not given: give it, or remove this"
        return None

    @impossible("columns")
    def _three_columns(self) -> str | None:
        if self.columns is not None and len(self.columns) != 3:
            return f"takes three, subject, relation and object; these are {len(self.columns)}"
        return None

    def reading_options(self) -> dict[str, Any]:
        """What is said about reading `path`, as arguments of `rgcn.read`."""
        return self.model_dump(exclude={"dataset", "path", "prune"}, exclude_defaults=True)

    def source_paths(self) -> list[str]:
        """The files and folders that are read; none for a data set of the registry."""
        labels = self.labels.values() if isinstance(self.labels, dict) else [self.labels]
        return [source for source in (self.path, *labels, self.features) if source is not None]

    @property
    def title(self) -> str:
        return self.dataset or str(self.path)


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
        from rgcn.nn.description import Description

        return Description({"Architecture": self.title})


class TrainingSection(Section):
    """What the section of a training says of it; a task's own derives from it, and has `epochs` and `device`."""

    @property
    def keeps_best(self) -> bool:
        """Whether the weights with the best validation figure (`watch`) are kept, rather than the last ones."""
        return False


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
        from rgcn.nn.description import described

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


class NodeTrainingConfig(TrainingSection):
    """How the network learns."""

    epochs: int = Field(
        50,
        ge=1,
        description="Passes over the training labels; each is one step on the whole graph.",
        json_schema_extra=search(low=20, high=200, log=True),
    )
    learning_rate: float = Field(
        0.01, gt=0, description="Adam's learning rate.", json_schema_extra=search(low=1e-3, high=0.1, log=True)
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="Adam's weight decay, on every parameter.",
        json_schema_extra=search(low=1e-6, high=1e-2, log=True),
    )
    l2_penalty: float = Field(
        0.0,
        ge=0,
        description="This times the sum of squares of the first layer's weights is added to the loss.",
        json_schema_extra=search(low=1e-6, high=1e-2, log=True),
    )
    edge_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of triples left out of each step.",
        json_schema_extra=search(low=0.0, high=0.6),
    )
    self_loop_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of self-loops left out of each step.",
        json_schema_extra=search(low=0.0, high=0.5, when={"model.self_loops": True}),
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: a rare class counts as much in the loss as a frequent one."
    )
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of training labels held out for validation where the data has no such split.",
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after so many epochs without a better validation figure, and go back to the best."
    )
    watch: Literal["loss", "accuracy"] = Field("loss", description="The validation figure that patience watches.")
    device: str = Field("auto", description="cpu, cuda, cuda:1, or auto: a GPU where there is one.")
    deterministic: bool = Field(
        False,
        description="On a GPU, use only operations whose sums have a fixed order, so that the same seed gives the same "
        "bits; on the CPU this is always so.",
    )

    @property
    def keeps_best(self) -> bool:
        return self.patience is not None

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        return _known_device(value)


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
        from rgcn.nn.description import described

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


class LinkTrainingConfig(TrainingSection):
    """How the link predictor learns."""

    epochs: int = Field(
        1000,
        ge=1,
        description="Steps; each is one batch of positive edges (or all of them).",
        json_schema_extra=search(low=500, high=10000, log=True),
    )
    batch_edges: int | None = Field(None, ge=1, description="Positive edges a step; null: the whole graph.")
    sampler: Sampler = Field(
        "neighborhood", description="How a batch is drawn: growing along edges as in the original, or uniformly."
    )
    objective: Objective = Field(
        "sampled-bce",
        description="What is minimized. sampled-bce: true triples are told from drawn ones, by binary cross-entropy.",
    )
    negatives: int = Field(
        10, ge=1, description="False triples for each true one.", json_schema_extra=search(low=1, high=32, log=True)
    )
    head_probability: float = Field(0.5, ge=0, le=1, description="Share of false triples with another subject.")
    filtered_negatives: bool = Field(False, description="Draw again where a false triple is a known true one.")
    penalty: float = Field(
        0.01,
        ge=0,
        description="Times the mean squares of subject, relation and object over the scored triples.",
        json_schema_extra=search(low=1e-4, high=0.1, log=True),
    )
    edge_dropout: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="Share of a step's edges that carry no message.",
        json_schema_extra=search(low=0.0, high=0.8, when=CONVOLVES),
    )
    self_loop_dropout: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="Share of self-loops that carry no message.",
        json_schema_extra=search(low=0.0, high=0.5, when={**CONVOLVES, "model.self_loops": True}),
    )
    self_loop_dropout_on: Literal["edge", "message"] = Field(
        "edge",
        description="Drop whole self-loops, or numbers of their messages as the original does.",
        json_schema_extra=search(
            choices=["edge", "message"], when={"model.self_loop_apart": True, "model.input": "embedding"}
        ),
    )
    learning_rate: float = Field(
        0.01, gt=0, description="Adam's learning rate.", json_schema_extra=search(low=1e-3, high=0.1, log=True)
    )
    schedule: Literal["constant", "cosine", "step"] = Field(
        "constant",
        description="How the learning rate falls: not, along a cosine to zero, or in steps.",
        json_schema_extra=search(choices=["constant", "cosine"]),
    )
    warmup: int = Field(0, ge=0, description="Steps over which the learning rate first rises from zero.")
    step_every: int = Field(1000, ge=1, description="With schedule: step, steps between falls.")
    step_factor: float = Field(0.5, gt=0, le=1, description="With schedule: step, factor of each fall.")
    weight_decay: float = Field(0.0, ge=0, description="Adam's weight decay, on every parameter.")
    clip: float | None = Field(None, gt=0, description="Scale gradients down to this norm.")
    objective_options: dict[str, Any] = Field(
        {}, description="Settings of an objective or sampler from outside, by name."
    )
    evaluate_every: int | None = Field(
        None, ge=1, description="Measure on the validation triples every so many steps, and keep the best weights."
    )
    patience: int | None = Field(None, ge=1, description="Stop after so many measurements without a better one.")
    watch: Literal["mrr", "hits@1", "hits@3", "hits@10", "mean_rank"] = Field(
        "mrr", description="The validation figure by which the best weights are told, and which patience watches."
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1, or auto: a GPU where there is one.")
    deterministic: bool = Field(
        False,
        description="On a GPU, use only operations whose sums have a fixed order, so that the same seed gives the same "
        "bits; on the CPU this is always so.",
    )

    @property
    def keeps_best(self) -> bool:
        return self.evaluate_every is not None

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        return _known_device(value)

    @impossible("patience", "evaluate_every")
    def _patience_counts_measurements(self) -> str | None:
        if self.patience is not None and self.evaluate_every is None:
            return "`patience` counts measurements: set `evaluate_every` too, or `patience` to null"
        return None


class ClassLinkTrainingConfig(LinkTrainingConfig):
    """How a link predictor learns that is asked for classes."""

    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of training labels held out for validation where the data has no such split.",
    )
    watch: Literal["accuracy"] = Field(  # type: ignore[assignment]
        "accuracy", description="The validation figure by which the best weights are told, and which patience watches."
    )


class CheckpointConfig(Section):
    """When a run that is kept in a folder is saved, so that it can go on from there."""

    every_minutes: float | None = Field(5.0, gt=0, description="Save after so many minutes; null: not by the clock.")
    every_steps: int | None = Field(None, ge=1, description="Save after so many steps (epochs of node classification).")
    keep_last: int = Field(
        2, ge=1, description="How many of the newest checkpoints to keep; the best weights so far are kept in any case."
    )


Tracker = Annotated[str, OnAxis(TRACKERS)]


class RunConfig(Section):
    """A whole run: what `rgcn train` reads. A task's own has its name, and the sections of its model and training."""

    task: str
    seed: int = Field(0, ge=0, lt=2**63, description="Every random choice follows from it.")
    data: DataConfig = Field(description="Which graph to learn from.", examples=[{"dataset": "world"}])
    model: Any
    training: Any
    checkpoints: CheckpointConfig = Field(default_factory=CheckpointConfig, description="When the run is saved.")
    trackers: list[Tracker] = Field(
        default_factory=list,
        description="Also report to these; each is an extra of its own: pip install 'rgcn[NAME]'. Your own is "
        "package.module:Class.",
    )

    @impossible("trackers")
    def _each_once(self) -> str | None:
        twice = sorted(name for name in set(self.trackers) if self.trackers.count(name) > 1)
        return f"{twice[0]!r} is named twice: keep one" if twice else None

    def settings(self) -> dict[str, Any]:
        """What an estimator takes of it, flat."""
        return {"seed": self.seed, **self.model.model_dump(), **self.training.model_dump()}


class NodeClassificationRun(RunConfig):
    """A whole run of node classification: what `rgcn train` reads."""

    task: Literal["node-classification"] = Field("node-classification", description="What to learn.")
    model: NodeModelConfig = Field(default_factory=NodeModelConfig, description="The network.")
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig, description="How the network learns.")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "prune": self.data.prune}

    @impossible("data.prune", "model.layers")
    def _pruned_no_nearer_than_heard(self) -> str | None:
        hops, layers = self.data.prune, self.model.layers
        if not isinstance(hops, bool) and hops < layers:
            return (
                f"a model of {layers} layers hears {layers} hops; pruned to {hops}, the graph would give other "
                f"predictions: set prune to true, or to {layers} or more"
            )
        return None

    @impossible("training.self_loop_dropout", "model.self_loops")
    def _self_loops_to_drop(self) -> str | None:
        if self.training.self_loop_dropout and not self.model.self_loops:
            return "there are no self-loops to drop: set self_loop_dropout to 0, or model.self_loops to true"
        return None


class LinkPredictionRun(RunConfig):
    """A whole run of link prediction: what `rgcn train` reads."""

    task: Literal["link-prediction"] = Field("link-prediction", description="What to learn.")
    model: LinkModelConfig = Field(default_factory=LinkModelConfig, description="The network.")
    training: LinkTrainingConfig = Field(default_factory=LinkTrainingConfig, description="How the network learns.")

    @impossible("data.prune")
    def _nothing_to_prune(self) -> str | None:
        if self.data.prune is not False:
            return "pruning keeps what labelled nodes hear, and link prediction asks for every node: set prune to false"
        return None

    @impossible("training.warmup", "training.epochs")
    def _warm_before_the_end(self) -> str | None:
        warmup, epochs = self.training.warmup, self.training.epochs
        if warmup > epochs:
            return f"{warmup} steps of warm-up end after the last of {epochs} epochs: set warmup to {epochs} or less"
        return None

    @impossible(
        "training.self_loop_dropout_on",
        "training.self_loop_dropout",
        "model.encoder",
        "model.input",
        "model.self_loops",
        "model.self_loop_apart",
        "model.decomposition",
    )
    def _messages_to_drop_from(self) -> str | None:
        model, training = self.model, self.training
        if training.self_loop_dropout_on == "edge" or not training.self_loop_dropout or model.encoder == "none":
            return None
        if model.encoder == "rgcn" and model.input == "one-hot":
            return "one-hot nodes have no self-loop message to drop numbers of: set self_loop_dropout_on to edge"
        if not model.self_loops:
            return "there are no self-loops to drop numbers of: set self_loop_dropout to 0, or model.self_loops to true"
        apart = model.self_loop_apart is not False if model.decomposition == "block" else bool(model.self_loop_apart)
        if not apart:
            return (
                "only a self-loop outside the decomposition has a message of its own: set self_loop_dropout_on to "
                "edge, or model.self_loop_apart to true with bases or blocks"
            )
        return None

    @impossible("training.batch_edges", "data.weight", "model.encoder")
    def _sampled_edges_carry_no_weights(self) -> str | None:
        sampled = self.training.batch_edges is not None and self.model.encoder != "none"
        if sampled and self.data.weight is not None:
            return "sampled edges carry no weights: set batch_edges to null, or data.weight to null"
        return None


class ClassificationByLinksRun(LinkPredictionRun):
    """A whole run of classification by links: a link model that hears labels as triples, and is asked for the class."""

    task: Literal["classification-by-links"] = Field("classification-by-links", description="What to learn.")  # type: ignore[assignment]
    training: ClassLinkTrainingConfig = Field(
        default_factory=ClassLinkTrainingConfig, description="How the network learns."
    )


def _known_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; there are auto, cpu, cuda and cuda:N")
    return value
