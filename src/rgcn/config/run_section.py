"""A whole run: the section `data`, the sections of each task together, and what they cannot be together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rgcn.config.fields import OnAxis, Section, impossible
from rgcn.config.model_section import LinkModelConfig, NodeModelConfig
from rgcn.config.training_section import (
    ClassLinkTrainingConfig,
    LinkTrainingConfig,
    NodeTrainingConfig,
    PretrainingConfig,
)
from rgcn.plugins import READERS, TRACKERS

Tracker = Annotated[str, OnAxis(TRACKERS)]
# How `path` is read: arguments of `rgcn.read`.
READING = (
    *("labels", "labels_from", "inverse", "multiple", "missing_labels", "label_columns", "label_header", "features"),
    *("format", "columns", "weight", "time", "header", "literals", "skip_bad_lines"),
)


class DataConfig(Section):
    """Which graph to learn from."""

    dataset: str | None = None
    """Name of a data set of the registry (see `rgcn data list`)."""
    path: str | None = None
    """A file or folder of triples, instead of a data set."""
    labels: str | dict[str, str] | None = None
    """File of labels for `path`: one file, or one for each of train, valid, test."""
    labels_from: str | None = None
    """A relation of the graph whose objects are the classes; it is then removed from the graph. A training holds out
    `test` of the labels, as it does of labels from a file without splits."""
    inverse: str | list[str] | None = None
    """The inverse of `labels_from`, and others that say the same: they are removed, for they give the answer away."""
    multiple: Literal["error", "first"] | None = None
    """A node with several classes by `labels_from`: an error, or the first that the file mentions."""
    missing_labels: Literal["error", "add", "drop"] | None = None
    """A label whose node is not in the graph: an error, an isolated node is added, or the label is dropped."""
    label_columns: list[str | int] | None = None
    """Node, class and perhaps split in the table of `labels`: names, or positions from 0; null: as its header says."""
    label_header: bool | None = None
    """Whether the first line of `labels` names its columns; null: it does if it reads so."""
    features: str | None = None
    """Table of node names and their numbers, for `path`."""
    format: Annotated[str, OnAxis(READERS, closed=False)] | None = None
    """Format of `path` where its name does not tell, or the reader to use: package.module:Class."""
    columns: list[str | int] | None = None
    """Subject, relation and object in a table: names, or positions from 0; null: as its header says, else the first
    three."""
    weight: str | int | None = None
    """Column of edge weights in a table."""
    header: bool | None = None
    """Whether a table's first line names its columns; null: it does if it reads so (subject,relation,object)."""
    literals: Literal["keep", "drop"] = "keep"
    """RDF: keep triples whose object is a literal, or drop them."""
    skip_bad_lines: bool = False
    """Count malformed lines instead of stopping at the first."""
    time: str | int | None = None
    """Column of a table that says when each triple was true, a number or a date: for `split: time`."""
    split: Literal["random", "time"] | None = "random"
    """How triples (of classification: labels) are held out where the data bring no split: at random, or the latest for
    test and those before them for validation; null: not at all. Validation takes training.validation of them."""
    test: float = Field(0.1, ge=0, lt=1)
    """Share that `split` holds out for test."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Draws what `split` holds out; apart from the run's seed, so that runs of several seeds have one test split."""
    prune: Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True, ge=1)] = False
    """Node classification: keep only what lies within so many hops of a labelled node; true: as many as the model has
    layers. Changes no prediction for labelled nodes; nodes further away can no longer be asked for."""

    @impossible("dataset", "path")
    def _one_source(self) -> Iterator[str]:
        if (self.dataset is None) == (self.path is None):
            yield "give either `dataset` or `path`, and not both"

    @impossible(*READING, "dataset")
    def _reading_goes_with_path(self) -> Iterator[str]:
        reading = self.reading_options()
        if self.dataset is not None and reading:
            yield f"`{'`, `'.join(reading)}` goes with `path`, not with `dataset`: remove it, or give `path` instead"

    @impossible("labels_from", "labels")
    def _one_source_of_labels(self) -> Iterator[str]:
        if self.labels is not None and self.labels_from is not None:
            yield "labels come from files (`labels`) or from a relation (`labels_from`): remove one of the two"

    @impossible("labels")
    def _labels_by_split(self) -> Iterator[str]:
        unknown = set(self.labels) - {"train", "valid", "dev", "test"} if isinstance(self.labels, dict) else ()
        if unknown:
            yield f"unknown split {min(unknown)!r}: there are train, valid (or dev) and test"

    @impossible("inverse", "multiple", "labels_from")
    def _of_the_label_relation(self) -> Iterator[str]:
        if (self.inverse is not None or self.multiple is not None) and self.labels_from is None:
            yield "`inverse` and `multiple` go with `labels_from`, which is not given: give it, or remove this"

    @impossible("label_columns", "label_header", "missing_labels", "labels")
    def _of_the_label_files(self) -> Iterator[str]:
        told = (self.label_columns, self.label_header, self.missing_labels)
        if self.labels is None and any(value is not None for value in told):
            yield "`label_columns`, `label_header` and `missing_labels` go with `labels`: give it, or remove this"

    @impossible("columns")
    def _three_columns(self) -> Iterator[str]:
        if self.columns is not None and len(self.columns) != 3:
            yield f"takes three, subject, relation and object; these are {len(self.columns)}"

    @impossible("split", "time")
    def _time_to_split_by(self) -> Iterator[str]:
        if (self.split == "time") != (self.time is not None):
            yield "`split: time` and the column `time` go together: give both or neither"

    @impossible("label_columns")
    def _two_or_three_columns(self) -> Iterator[str]:
        if self.label_columns is not None and len(self.label_columns) not in (2, 3):
            yield f"takes two or three, node, class and split; these are {len(self.label_columns)}"

    def reading_options(self) -> dict[str, Any]:
        """What is said about reading `path`, as arguments of `rgcn.read`."""
        return self.model_dump(include=set(READING), exclude_defaults=True)

    def source_paths(self) -> list[str]:
        """The files and folders that are read; none for a data set of the registry."""
        labels = self.labels.values() if isinstance(self.labels, dict) else [self.labels]
        return [source for source in (self.path, *labels, self.features) if source is not None]

    @property
    def title(self) -> str:
        """The data set, or the last part of the path: where a file lies on a machine is nobody else's affair."""
        return self.dataset or Path(str(self.path)).name


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

    @property
    def about(self) -> dict[str, Any]:
        """What it is of, in a few words: what lists and results begin with."""
        return {"task": self.task, "dataset": self.data.title, "model": self.model.title, "seed": self.seed}

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
