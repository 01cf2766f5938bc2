"""The configuration of a run of each task: its sections, and the section `data`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rgcn.config.fields import ComponentOf, Section, rule
from rgcn.config.model_section import LinkModelConfig, NodeModelConfig
from rgcn.config.training_section import (
    ClassLinkTrainingConfig,
    LinkTrainingConfig,
    NodeTrainingConfig,
    PretrainingConfig,
)
from rgcn.plugins import READERS, TRACKERS

Tracker = Annotated[str, ComponentOf(TRACKERS)]
READING = (  # arguments of `rgcn.read`
    *("labels", "labels_from", "inverse", "multiple", "missing_labels", "label_columns", "label_header", "features"),
    *("format", "columns", "weight", "time", "header", "literals", "skip_bad_lines"),
)


class DataConfig(Section):
    """The graph to train on."""

    dataset: str | None = None
    """Name of a data set of the registry (see `rgcn data list`)."""
    path: str | None = None
    """A file or folder of triples, instead of a data set."""
    labels: str | dict[str, str] | None = None
    """File of labels for `path`: one file, or one for each of train, valid, test."""
    labels_from: str | None = None
    """A relation whose objects are the classes. It is removed from the graph, and `test` of the labels are held out."""
    inverse: str | list[str] | None = None
    """The inverse of `labels_from`, and other relations that reveal the classes: they are removed."""
    multiple: Literal["error", "first"] | None = None
    """If a node has several classes by `labels_from`: an error, or use the first in the file."""
    missing_labels: Literal["error", "add", "drop"] | None = None
    """If the node of a label is not in the graph: an error, add the node without edges, or drop the label."""
    label_columns: list[str | int] | None = None
    """Columns of `labels` with node, class and optionally split: names, or positions from 0. null: by the header."""
    label_header: bool | None = None
    """Whether the first line of `labels` contains column names. null: detected."""
    features: str | None = None
    """Table of node features for `path`: node names and numbers."""
    format: Annotated[str, ComponentOf(READERS, is_closed=False)] | None = None
    """Format of `path`, or the reader to use: package.module:Class. null: by the ending of the file."""
    columns: list[str | int] | None = None
    """Columns with subject, relation and object: names, or positions from 0. null: by the header, else the first."""
    weight: str | int | None = None
    """Column of a table with edge weights."""
    header: bool | None = None
    """Whether the first line of a table contains column names (subject,relation,object). null: detected."""
    literals: Literal["keep", "drop"] = "keep"
    """RDF: keep triples whose object is a literal, or drop them."""
    skip_bad_lines: bool = False
    """Count malformed lines instead of stopping at the first."""
    time: str | int | None = None
    """Column of a table with the time of each triple, a number or a date, for `split: time`."""
    split: Literal["random", "time"] | None = "random"
    """How triples (for classification: labels) are held out if the data have no split: at random, or by time, the
    latest for test. null: none are. `test` and training.validation are the shares."""
    test: float = Field(0.1, ge=0, lt=1)
    """Share that `split` holds out for test."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of `split`. It differs from the run's seed, so that runs of several seeds have the same test split."""
    prune: Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True, ge=1)] = False
    """Node classification: keep only the part of the graph within so many hops of a labeled node; true: as many as the
    model has layers. No prediction for labeled nodes changes; nodes further away have no predictions."""

    @rule("dataset", "path")
    def _one_source(self) -> Iterator[str]:
        if (self.dataset is None) == (self.path is None):
            yield "give either `dataset` or `path`, and not both"

    @rule(*READING, "dataset")
    def _reading_goes_with_path(self) -> Iterator[str]:
        options = self.reading_options()
        if self.dataset is not None and options:
            yield f"`{'`, `'.join(options)}` goes with `path`, not with `dataset`: remove it, or give `path` instead"

    @rule("labels_from", "labels")
    def _one_source_of_labels(self) -> Iterator[str]:
        if self.labels is not None and self.labels_from is not None:
            yield "labels come from files (`labels`) or from a relation (`labels_from`): remove one of the two"

    @rule("labels")
    def _labels_by_split(self) -> Iterator[str]:
        unknown = set(self.labels) - {"train", "valid", "dev", "test"} if isinstance(self.labels, dict) else ()
        if unknown:
            yield f"unknown split {min(unknown)!r}: there are train, valid (or dev) and test"

    @rule("inverse", "multiple", "labels_from")
    def _of_the_label_relation(self) -> Iterator[str]:
        if (self.inverse is not None or self.multiple is not None) and self.labels_from is None:
            yield "`inverse` and `multiple` go with `labels_from`, which is not given: give it, or remove this"

    @rule("label_columns", "label_header", "missing_labels", "labels")
    def _of_the_label_files(self) -> Iterator[str]:
        options = (self.label_columns, self.label_header, self.missing_labels)
        if self.labels is None and any(value is not None for value in options):
            yield "`label_columns`, `label_header` and `missing_labels` go with `labels`: give it, or remove this"

    @rule("columns")
    def _three_columns(self) -> Iterator[str]:
        if self.columns is not None and len(self.columns) != 3:
            yield f"must be three columns, subject, relation and object; these are {len(self.columns)}"

    @rule("split", "time")
    def _time_to_split_by(self) -> Iterator[str]:
        if (self.split == "time") != (self.time is not None):
            yield "`split: time` and the column `time` go together: give both or neither"

    @rule("label_columns")
    def _two_or_three_columns(self) -> Iterator[str]:
        if self.label_columns is not None and len(self.label_columns) not in (2, 3):
            yield f"must be two or three columns, node, class and split; these are {len(self.label_columns)}"

    def reading_options(self) -> dict[str, Any]:
        """Return the settings for reading `path`, as arguments of `rgcn.read`."""
        return self.model_dump(include=set(READING), exclude_defaults=True)

    def source_paths(self) -> list[str]:
        """List the files and folders that are read; none for a data set of the registry."""
        labels = self.labels.values() if isinstance(self.labels, dict) else [self.labels]
        return [source for source in (self.path, *labels, self.features) if source is not None]

    @property
    def title(self) -> str:
        """The data set, or the last part of the path: reports must not contain folders of this machine."""
        return self.dataset or Path(str(self.path)).name


class CheckpointConfig(Section):
    """When a run saves checkpoints, from which it can be resumed."""

    every_minutes: float | None = Field(5.0, gt=0)
    """Minutes between checkpoints; null: only by steps."""
    every_steps: int | None = Field(None, ge=1)
    """Steps between checkpoints (epochs of node classification); null: only by minutes."""
    keep_last: int = Field(2, ge=1)
    """Number of checkpoints to keep; the best weights so far are kept in addition."""


class RunConfig(Section):
    """The configuration of a run. Each task derives its own, with the sections of its model and training."""

    task: str
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all random numbers."""
    data: DataConfig = Field(examples=[{"dataset": "world"}])
    """The graph to train on."""
    model: Any
    training: Any
    checkpoints: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """When the run saves checkpoints."""
    trackers: list[Tracker] = Field(default_factory=list)
    """Experiment trackers to report to. Each needs its extra: pip install 'rgcn[NAME]'; or package.module:Class."""

    @rule("trackers")
    def _each_once(self) -> Iterator[str]:
        twice = sorted(name for name in set(self.trackers) if self.trackers.count(name) > 1)
        if twice:
            yield f"{twice[0]!r} is named twice: keep one"

    @property
    def about(self) -> dict[str, Any]:
        """The first fields of lists and results: task, data set, model and seed."""
        return {"task": self.task, "dataset": self.data.title, "model": self.model.title, "seed": self.seed}

    def settings(self) -> dict[str, Any]:
        """Return the settings of the estimator, flat."""
        return {"seed": self.seed, **self.model.model_dump(), **self.training.model_dump()}


class NodeClassificationRun(RunConfig):
    """The configuration of a run of node classification."""

    task: Literal["node-classification"] = "node-classification"
    """The task."""
    model: NodeModelConfig = Field(default_factory=NodeModelConfig)
    """The network."""
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig)
    """The training."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of the estimator, flat."""
        return {**super().settings(), "prune": self.data.prune}

    @rule("data.prune", "model.layers")
    def _pruning_keeps_the_receptive_field(self) -> Iterator[str]:
        hops, layers = self.data.prune, self.model.layers
        if not isinstance(hops, bool) and hops < layers:
            yield (
                f"a model of {layers} layers reads {layers} hops; pruned to {hops}, the graph would give other "
                f"predictions: set prune to true, or to {layers} or more"
            )

    @rule("training.self_loop_dropout", "model.self_loops")
    def _self_loops_to_drop(self) -> Iterator[str]:
        if self.training.self_loop_dropout and not self.model.self_loops:
            yield "there are no self-loops to drop: set self_loop_dropout to 0, or model.self_loops to true"


class LinkPredictionRun(RunConfig):
    """The configuration of a run of link prediction."""

    task: Literal["link-prediction"] = "link-prediction"
    """The task."""
    model: LinkModelConfig = Field(default_factory=LinkModelConfig)
    """The network."""
    training: LinkTrainingConfig = Field(default_factory=LinkTrainingConfig)
    """The training."""

    @rule("data.prune")
    def _no_pruning(self) -> Iterator[str]:
        if self.data.prune is not False:
            yield "pruning keeps only nodes near labels, and link prediction needs all: set prune to false"

    @rule("training.validation", "data.test", "data.split")
    def _training_triples_remain(self) -> Iterator[str]:
        if self.data.split and self.data.test + (self.training.validation or 0) >= 1:
            yield "validation and data.test together leave no training triples: their sum must be below 1"

    @rule("training.warmup", "training.steps", "training.epochs")
    def _warmup_ends_before_the_training(self) -> Iterator[str]:
        warmup, steps = self.training.warmup, self.training.steps
        if self.training.epochs is None and warmup > steps:
            yield f"a warm-up of {warmup} steps is longer than the training of {steps}: set warmup to {steps} or less"

    @rule(
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

    @rule("training.batch_edges", "data.weight", "model.encoder")
    def _sampled_edges_have_no_weights(self) -> Iterator[str]:
        # Encoders of other packages may use the whole graph in every step; these are checked when they are made.
        is_sampled = self.training.batch_edges is not None and self.model.encoder in ("rgcn", "c-rgcn")
        if is_sampled and self.data.weight is not None:
            yield "edge weights cannot be used with sampled edges: set batch_edges to null, or data.weight to null"


class ClassificationByLinksRun(LinkPredictionRun):
    """The configuration of a run of classification by links: labels are triples whose objects are predicted."""

    task: Literal["classification-by-links"] = "classification-by-links"  # type: ignore[assignment]
    """The task."""
    training: ClassLinkTrainingConfig = Field(default_factory=ClassLinkTrainingConfig)
    """The training."""


class PretrainingRun(LinkPredictionRun):
    """The configuration of a pretraining. `data` is the graph for validation, which is not trained on."""

    task: Literal["pretraining"] = "pretraining"  # type: ignore[assignment]
    """The task."""
    training: PretrainingConfig = Field(default_factory=PretrainingConfig)
    """The training, and the graphs to train on."""

    @rule("data.dataset", "training.graphs")
    def _validation_graph_is_not_trained_on(self) -> Iterator[str]:
        if self.data.dataset in self.training.graphs:
            yield f"{self.data.dataset} is one of the training graphs: choose another graph for validation"
