"""Every knob, its default, and what it does: the one place to look.

Configurations are layered: a shipped name or a YAML file, then `--set section.key=value`, then flags. All problems are
reported at once, each with the closest known name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rgcn.errors import ConfigError, close_matches

Scheme = Literal[
    "glorot-uniform",
    "glorot-normal",
    "kaiming-uniform",
    "kaiming-normal",
    "schlichtkrull-uniform",
    "schlichtkrull-normal",
]


class Section(BaseModel):
    """A part of a configuration: frozen, and strict about names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    format: str | None = Field(None, description="Format of `path` where its name does not tell.")
    columns: list[str | int] | None = Field(
        None, description="Subject, relation and object in a table: names, or positions from 0."
    )
    weight: str | int | None = Field(None, description="Column of edge weights in a table.")
    skip_bad_lines: bool = Field(False, description="Count malformed lines instead of stopping at the first.")
    prune: bool = Field(
        False,
        description="Keep only what lies within as many hops of a labelled node as the model has layers. Changes no "
        "prediction for labelled nodes; nodes further away can no longer be asked for.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if (self.dataset is None) == (self.path is None):
            raise ValueError("give either `dataset` or `path`")
        reading = self.reading_options()
        if self.dataset is not None and reading:
            raise ValueError(f"`{'`, `'.join(reading)}` goes with `path`, not with `dataset`")
        return self

    def reading_options(self) -> dict[str, Any]:
        """What is said about reading `path`, as arguments of `rgcn.read`."""
        return self.model_dump(exclude={"dataset", "path", "prune"}, exclude_defaults=True)

    @property
    def title(self) -> str:
        return self.dataset or str(self.path)


class NodeModelConfig(Section):
    """The network that classifies nodes."""

    name: Literal["rgcn", "e-rgcn"] = Field(
        "rgcn",
        description="rgcn: convolutions over one-hot nodes (or given features). e-rgcn: learned embeddings, a diagonal "
        "first convolution, then full ones; about a tenth of the parameters.",
    )
    layers: int = Field(2, ge=1, description="Number of convolutions: how many hops away a node can be heard.")
    hidden: int = Field(16, ge=1, description="Width of the states between convolutions.")
    embedding: int = Field(32, ge=1, description="Width of e-rgcn's node embeddings and of its first convolution.")
    input: Literal["auto", "one-hot", "features"] = Field(
        "auto", description="What rgcn's nodes bring: the graph's features where it has any (auto), or one-hot vectors."
    )
    decomposition: Literal["none", "basis", "block", "diagonal"] = Field(
        "none", description="How rgcn's weight matrices are written."
    )
    bases: int | None = Field(None, ge=1, description="Number of bases, with decomposition: basis.")
    blocks: int | None = Field(None, ge=1, description="Number of blocks, with decomposition: block.")
    normalization: Literal["relation", "node", "direction", "none"] = Field(
        "relation", description="Which edges into a node share its attention: those of a relation, all, a direction's."
    )
    aggregation: Literal["sum", "mean"] = Field(
        "sum", description="Sum over relations, or mean over those that reach the node (for deep stacks)."
    )
    inverse: bool = Field(True, description="Also send messages against the direction of triples.")
    self_loops: bool = Field(True, description="Let each node hear itself.")
    bias: bool = Field(True, description="Add a learned bias in each convolution.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of hidden numbers dropped while training.")
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

    @model_validator(mode="after")
    def _consistent(self) -> NodeModelConfig:
        if (self.decomposition == "basis") != (self.bases is not None):
            raise ValueError("`bases` goes with `decomposition: basis`, and only with it")
        if (self.decomposition == "block") != (self.blocks is not None):
            raise ValueError("`blocks` goes with `decomposition: block`, and only with it")
        if self.blocks is not None and self.hidden % self.blocks:
            raise ValueError(f"hidden = {self.hidden} does not divide into {self.blocks} blocks")
        if self.name == "e-rgcn" and self.input != "auto":
            raise ValueError("e-rgcn learns its own inputs: `input` goes with rgcn")
        return self


class NodeTrainingConfig(Section):
    """How the network learns."""

    epochs: int = Field(50, ge=1, description="Passes over the training labels; each is one step on the whole graph.")
    learning_rate: float = Field(0.01, gt=0, description="Adam's learning rate.")
    weight_decay: float = Field(0.0, ge=0, description="Adam's weight decay, on every parameter.")
    l2_penalty: float = Field(
        0.0, ge=0, description="This times the sum of squares of the first layer's weights is added to the loss."
    )
    edge_dropout: float = Field(0.0, ge=0, lt=1, description="Share of triples left out of each step.")
    self_loop_dropout: float = Field(0.0, ge=0, lt=1, description="Share of self-loops left out of each step.")
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
        None, ge=1, description="Stop after so many epochs without a better validation loss, and go back to the best."
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1, or auto: a GPU where there is one.")
    deterministic: bool = Field(
        False,
        description="On a GPU, use only operations whose sums have a fixed order, so that the same seed gives the same "
        "bits; on the CPU this is always so.",
    )

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        return _known_device(value)


class LinkModelConfig(Section):
    """The network that predicts links: an encoder that gives every node a vector, and a decoder that scores triples."""

    name: Literal["rgcn", "c-rgcn", "distmult"] = Field(
        "rgcn",
        description="rgcn: convolutions over embeddings. c-rgcn: convolutions through a bottleneck, the embedding goes "
        "around it. distmult: the embedding alone.",
    )
    layers: int = Field(1, ge=1, description="Number of convolutions; distmult has none.")
    embedding: int = Field(200, ge=1, description="Width of the node embeddings, and of rgcn's convolutions.")
    bottleneck: int = Field(16, ge=1, description="Width of c-rgcn's convolutions.")
    input: Literal["embedding", "one-hot"] = Field(
        "embedding", description="What rgcn's nodes bring: learned embeddings, or one-hot vectors."
    )
    activated_input: bool = Field(
        True, description="Pass rgcn's embeddings, with a bias, through ReLU before the first convolution."
    )
    decomposition: Literal["none", "basis", "block"] = Field("none", description="How weight matrices are written.")
    bases: int | None = Field(None, ge=1, description="Number of bases, with decomposition: basis.")
    blocks: int | None = Field(None, ge=1, description="Number of blocks, with decomposition: block.")
    self_loop_apart: bool | None = Field(
        None,
        description="Give the self-loop a full matrix outside the decomposition; by default with blocks, not bases.",
    )
    separate_inverse_bases: bool = Field(False, description="Give inverses bases of their own, as the original does.")
    coefficient_init: Literal["same", "normal"] = Field(
        "same", description="How basis coefficients begin: as the bases do, or N(0, 1) as in the original."
    )
    normalization: Literal["relation", "node", "direction", "none"] = Field(
        "relation", description="Which edges into a node share its attention; direction is the original's."
    )
    aggregation: Literal["sum", "mean"] = Field("sum", description="Sum or mean over relations.")
    inverse: bool = Field(True, description="Also send messages against the direction of triples.")
    self_loops: bool = Field(True, description="Let each node hear itself.")
    bias: bool = Field(True, description="Add a learned bias in each convolution.")
    init: Scheme = Field("schlichtkrull-normal", description="How the encoder's weights begin.")
    gain: float = Field(1.0, gt=0, description="Factor on the encoder's initial weights.")
    fans: Literal["matrix", "published"] = Field(
        "matrix",
        description="Fans of a relation's matrix; published: for blocks, the number of relations and a block's width, "
        "as the published code counts them.",
    )
    decoder: Literal["distmult"] = Field("distmult", description="How triples are scored.")
    decoder_biases: bool = Field(False, description="Add biases of subject, relation and object to the score.")

    @model_validator(mode="after")
    def _consistent(self) -> LinkModelConfig:
        if (self.decomposition == "basis") != (self.bases is not None):
            raise ValueError("`bases` goes with `decomposition: basis`, and only with it")
        if (self.decomposition == "block") != (self.blocks is not None):
            raise ValueError("`blocks` goes with `decomposition: block`, and only with it")
        width = self.bottleneck if self.name == "c-rgcn" else self.embedding
        if self.blocks is not None and width % self.blocks:
            raise ValueError(f"a width of {width} does not divide into {self.blocks} blocks")
        if self.input == "one-hot" and self.name != "rgcn":
            raise ValueError(f"{self.name} learns embeddings: `input: one-hot` goes with rgcn")
        if self.separate_inverse_bases and not (self.decomposition == "basis" and self.inverse):
            raise ValueError("`separate_inverse_bases` goes with `decomposition: basis` and `inverse: true`")
        return self


class LinkTrainingConfig(Section):
    """How the link predictor learns."""

    epochs: int = Field(1000, ge=1, description="Steps; each is one batch of positive edges (or all of them).")
    batch_edges: int | None = Field(None, ge=1, description="Positive edges a step; none: the whole graph.")
    sampling: Literal["neighborhood", "uniform"] = Field(
        "neighborhood", description="How a batch is drawn: growing along edges as in the original, or uniformly."
    )
    negatives: int = Field(10, ge=1, description="False triples for each true one.")
    head_probability: float = Field(0.5, ge=0, le=1, description="Share of false triples with another subject.")
    filtered_negatives: bool = Field(False, description="Draw again where a false triple is a known true one.")
    penalty: float = Field(
        0.01, ge=0, description="Times the mean squares of subject, relation and object over the scored triples."
    )
    edge_dropout: float = Field(0.5, ge=0, lt=1, description="Share of a step's edges that carry no message.")
    self_loop_dropout: float = Field(0.2, ge=0, lt=1, description="Share of self-loops that carry no message.")
    self_loop_dropout_on: Literal["edge", "message"] = Field(
        "edge", description="Drop whole self-loops, or numbers of their messages as the original does."
    )
    learning_rate: float = Field(0.01, gt=0, description="Adam's learning rate.")
    schedule: Literal["constant", "cosine", "step"] = Field(
        "constant", description="How the learning rate falls: not, along a cosine to zero, or in steps."
    )
    warmup: int = Field(0, ge=0, description="Steps over which the learning rate first rises from zero.")
    step_every: int = Field(1000, ge=1, description="With schedule: step, steps between falls.")
    step_factor: float = Field(0.5, gt=0, le=1, description="With schedule: step, factor of each fall.")
    weight_decay: float = Field(0.0, ge=0, description="Adam's weight decay, on every parameter.")
    clip: float | None = Field(None, gt=0, description="Scale gradients down to this norm.")
    evaluate_every: int | None = Field(
        None, ge=1, description="Measure on the validation triples every so many steps, and keep the best weights."
    )
    patience: int | None = Field(None, ge=1, description="Stop after so many measurements without a better one.")
    device: str = Field("auto", description="cpu, cuda, cuda:1, or auto: a GPU where there is one.")
    deterministic: bool = Field(
        False,
        description="On a GPU, use only operations whose sums have a fixed order, so that the same seed gives the same "
        "bits; on the CPU this is always so.",
    )

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        return _known_device(value)

    @model_validator(mode="after")
    def _consistent(self) -> LinkTrainingConfig:
        if self.patience is not None and self.evaluate_every is None:
            raise ValueError("`patience` counts measurements: set `evaluate_every` too")
        return self


class CheckpointConfig(Section):
    """When a run that is kept in a folder is saved, so that it can go on from there."""

    every_minutes: float | None = Field(5.0, gt=0, description="Save after so many minutes; none: not by the clock.")
    every_steps: int | None = Field(None, ge=1, description="Save after so many steps (epochs of node classification).")
    keep_last: int = Field(
        2, ge=1, description="How many of the newest checkpoints to keep; the best weights so far are kept in any case."
    )


Tracker = Literal["tensorboard", "mlflow", "wandb"]


class NodeClassificationRun(Section):
    """A whole run of node classification: what `rgcn train` reads."""

    task: Literal["node-classification"] = Field("node-classification", description="What to learn.")
    seed: int = Field(0, ge=0, description="Every random choice follows from it.")
    data: DataConfig
    model: NodeModelConfig = Field(default_factory=NodeModelConfig)
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig)
    checkpoints: CheckpointConfig = Field(default_factory=CheckpointConfig)
    trackers: list[Tracker] = Field(
        default_factory=list, description="Also report to these; each is an extra of its own: pip install 'rgcn[NAME]'."
    )


class LinkPredictionRun(Section):
    """A whole run of link prediction: what `rgcn train` reads."""

    task: Literal["link-prediction"] = Field("link-prediction", description="What to learn.")
    seed: int = Field(0, ge=0, description="Every random choice follows from it.")
    data: DataConfig
    model: LinkModelConfig = Field(default_factory=LinkModelConfig)
    training: LinkTrainingConfig = Field(default_factory=LinkTrainingConfig)
    checkpoints: CheckpointConfig = Field(default_factory=CheckpointConfig)
    trackers: list[Tracker] = Field(
        default_factory=list, description="Also report to these; each is an extra of its own: pip install 'rgcn[NAME]'."
    )


RunConfig = NodeClassificationRun | LinkPredictionRun
RUNS: dict[str, type[Section]] = {
    "node-classification": NodeClassificationRun,
    "link-prediction": LinkPredictionRun,
}


def _known_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; there are auto, cpu, cuda and cuda:N")
    return value


def validated(section: type[Section], values: Mapping[str, Any], source: str = "configuration") -> Any:
    """A section from plain values, or a ConfigError that lists every problem and its likely fix."""
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(_explain(section, error, source)) from None


def _explain(section: type[Section], error: ValidationError, source: str) -> str:
    lines = []
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        where = ".".join(path) or "as a whole"
        if problem["type"] == "extra_forbidden":
            known = list(_fields_at(section, path[:-1]))
            close = close_matches(path[-1], known)
            hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
            lines.append(f"  {where}: unknown key; {hint}")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            given = "" if problem["type"] in ("missing", "value_error") else f" (got {problem['input']!r})"
            lines.append(f"  {where}: {message[:1].lower() + message[1:]}{given}")
    return f"{source}: {len(lines)} problem{'s' if len(lines) > 1 else ''}\n" + "\n".join(lines)


def _fields_at(section: type[Section], path: list[str]) -> Mapping[str, Any]:
    for part in path:
        annotation = section.model_fields[part].annotation if part in section.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, Section)):
            return {}
        section = annotation
    return section.model_fields
