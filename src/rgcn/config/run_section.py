"""A whole run: the sections of each task together, and what they cannot be together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rgcn.axis_tables import TRACKERS
from rgcn.config.checkpoint_section import CheckpointConfig
from rgcn.config.data_section import DataConfig
from rgcn.config.model_section import LinkModelConfig, NodeModelConfig
from rgcn.config.on_axis import OnAxis
from rgcn.config.section import Section, impossible
from rgcn.config.training_section import ClassLinkTrainingConfig, LinkTrainingConfig, NodeTrainingConfig

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
