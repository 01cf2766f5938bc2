"""A whole run: the sections of each task together, and what they cannot be together."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from rgcn.config.base_section import Section, impossible
from rgcn.config.data_section import DataConfig
from rgcn.config.fields import OnAxis
from rgcn.config.model_section import LinkModelConfig, NodeModelConfig
from rgcn.config.training_section import (
    ClassLinkTrainingConfig,
    LinkTrainingConfig,
    NodeTrainingConfig,
    PretrainingConfig,
)
from rgcn.plugins import TRACKERS

Tracker = Annotated[str, OnAxis(TRACKERS)]


class CheckpointConfig(Section):
    """When a run that is kept in a folder is saved, so that it can go on from there."""

    every_minutes: float | None = Field(5.0, gt=0)
    """Save after so many minutes; null: not by the clock."""
    every_steps: int | None = Field(None, ge=1)
    """Save after so many steps (epochs of node classification)."""
    keep_last: int = Field(2, ge=1)
    """How many of the newest checkpoints to keep; the best weights so far are kept in any case."""


class RunConfig(Section):
    """A whole run: what `rgcn train` reads. A task's own has its name, and the sections of its model and training."""

    task: str
    seed: int = Field(0, ge=0, lt=2**63)
    """Every random choice follows from it."""
    data: DataConfig = Field(examples=[{"dataset": "world"}])
    """Which graph to learn from."""
    model: Any
    training: Any
    checkpoints: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """When the run is saved."""
    trackers: list[Tracker] = Field(default_factory=list)
    """Also report to these; each is an extra of its own: pip install 'rgcn[NAME]'. Your own is package.module:Class."""

    @impossible("trackers")
    def _each_once(self) -> Iterator[str]:
        twice = sorted(name for name in set(self.trackers) if self.trackers.count(name) > 1)
        if twice:
            yield f"{twice[0]!r} is named twice: keep one"

    def settings(self) -> dict[str, Any]:
        """What an estimator takes of it, flat."""
        return {"seed": self.seed, **self.model.model_dump(), **self.training.model_dump()}


class NodeClassificationRun(RunConfig):
    """A whole run of node classification: what `rgcn train` reads."""

    task: Literal["node-classification"] = "node-classification"
    """What to learn."""
    model: NodeModelConfig = Field(default_factory=NodeModelConfig)
    """The network."""
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig)
    """How the network learns."""

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "prune": self.data.prune}

    @impossible("data.prune", "model.layers")
    def _pruned_no_nearer_than_heard(self) -> Iterator[str]:
        hops, layers = self.data.prune, self.model.layers
        if not isinstance(hops, bool) and hops < layers:
            yield (
                f"a model of {layers} layers hears {layers} hops; pruned to {hops}, the graph would give other "
                f"predictions: set prune to true, or to {layers} or more"
            )

    @impossible("training.self_loop_dropout", "model.self_loops")
    def _self_loops_to_drop(self) -> Iterator[str]:
        if self.training.self_loop_dropout and not self.model.self_loops:
            yield "there are no self-loops to drop: set self_loop_dropout to 0, or model.self_loops to true"


class LinkPredictionRun(RunConfig):
    """A whole run of link prediction: what `rgcn train` reads."""

    task: Literal["link-prediction"] = "link-prediction"
    """What to learn."""
    model: LinkModelConfig = Field(default_factory=LinkModelConfig)
    """The network."""
    training: LinkTrainingConfig = Field(default_factory=LinkTrainingConfig)
    """How the network learns."""

    @impossible("data.prune")
    def _nothing_to_prune(self) -> Iterator[str]:
        if self.data.prune is not False:
            yield "pruning keeps what labelled nodes hear, and link prediction asks for every node: set prune to false"

    @impossible("training.validation", "data.test", "data.split")
    def _something_left_to_learn(self) -> Iterator[str]:
        if self.data.split and self.data.test + (self.training.validation or 0) >= 1:
            yield "validation and data.test together leave nothing to learn from: their sum must be below 1"

    @impossible("training.warmup", "training.epochs")
    def _warm_before_the_end(self) -> Iterator[str]:
        warmup, epochs = self.training.warmup, self.training.epochs
        if warmup > epochs:
            yield f"{warmup} steps of warm-up end after the last of {epochs} epochs: set warmup to {epochs} or less"

    @impossible(
        "training.self_loop_dropout_on",
        "training.self_loop_dropout",
        "model.encoder",
        "model.input",
        "model.self_loops",
        "model.self_loop_apart",
        "model.decomposition",
    )
    def _messages_to_drop_from(self) -> Iterator[str]:
        model, training = self.model, self.training
        blocks = model.decomposition == "block"
        if training.self_loop_dropout_on == "edge" or not training.self_loop_dropout or model.encoder == "none":
            return
        if model.encoder == "rgcn" and model.input == "one-hot":
            yield "one-hot nodes have no self-loop message to drop numbers of: set self_loop_dropout_on to edge"
        elif not model.self_loops:
            yield "there are no self-loops to drop numbers of: set self_loop_dropout to 0, or model.self_loops to true"
        elif not (blocks if model.self_loop_apart is None else model.self_loop_apart):
            yield (
                "only a self-loop outside the decomposition has a message of its own: set self_loop_dropout_on to "
                "edge, or model.self_loop_apart to true with bases or blocks"
            )

    @impossible("training.batch_edges", "data.weight", "model.encoder")
    def _sampled_edges_carry_no_weights(self) -> Iterator[str]:
        # Others may keep the whole graph's operator in every step; the network says so when it is made.
        sampled = self.training.batch_edges is not None and self.model.encoder in ("rgcn", "c-rgcn")
        if sampled and self.data.weight is not None:
            yield "sampled edges carry no weights: set batch_edges to null, or data.weight to null"


class ClassificationByLinksRun(LinkPredictionRun):
    """A whole run of classification by links: a link model that hears labels as triples, and is asked for the class."""

    task: Literal["classification-by-links"] = "classification-by-links"  # type: ignore[assignment]
    """What to learn."""
    training: ClassLinkTrainingConfig = Field(default_factory=ClassLinkTrainingConfig)
    """How the network learns."""


class PretrainingRun(LinkPredictionRun):
    """A whole pretraining: what `rgcn pretrain` reads. `data` is the graph it is watched on, never learned from."""

    task: Literal["pretraining"] = "pretraining"  # type: ignore[assignment]
    """What to learn."""
    training: PretrainingConfig = Field(default_factory=PretrainingConfig)
    """How the weights learn, and from which graphs."""

    @impossible("data.dataset", "training.graphs")
    def _watched_is_not_learned(self) -> Iterator[str]:
        if self.data.dataset in self.training.graphs:
            yield f"{self.data.dataset} is learned from, and so tells nothing of others: watch another graph"
