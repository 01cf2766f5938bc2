"""Every knob, its default, and what it does: the one place to look.

Configurations are layered: a shipped name or a YAML file, then `--set section.key=value`, then flags. All problems are
reported at once, each with the closest known name.
"""

from __future__ import annotations

import math
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

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if value not in ("auto", "cpu", "cuda", "mps") and not value.startswith("cuda:"):
            raise ValueError(f"unknown device {value!r}; there are auto, cpu, cuda and cuda:N")
        return value


class RunConfig(Section):
    """A whole run: what `rgcn train` reads."""

    task: Literal["node-classification"] = Field("node-classification", description="What to learn.")
    seed: int = Field(0, ge=0, description="Every random choice follows from it.")
    data: DataConfig
    model: NodeModelConfig = Field(default_factory=NodeModelConfig)
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig)


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
