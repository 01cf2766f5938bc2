"""The section `training`: how the network of each task learns."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rgcn.axis_tables import OBJECTIVES, SAMPLERS
from rgcn.config.model_section import CONVOLVES
from rgcn.config.on_axis import OnAxis
from rgcn.config.search_space import search
from rgcn.config.section import Section, impossible

Objective = Annotated[str, OnAxis(OBJECTIVES)]
Sampler = Annotated[str, OnAxis(SAMPLERS)]


class TrainingSection(Section):
    """What the section of a training says of it; a task's own derives from it, and has `epochs` and `device`."""

    @property
    def keeps_best(self) -> bool:
        """Whether the weights with the best validation figure (`watch`) are kept, rather than the last ones."""
        return False


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


def _known_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; there are auto, cpu, cuda and cuda:N")
    return value
