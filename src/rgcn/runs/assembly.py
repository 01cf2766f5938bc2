"""Load the data, build the model and make the plan of a configuration or of a stored run.

A run is planned once, before it begins, and refused if the machine lacks memory or disk.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rgcn.config import DataConfig, RunConfig
from rgcn.data.catalog import CATALOG
from rgcn.data.registry import load_or_read
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.models.estimator import Estimator
from rgcn.models.storage import load_model
from rgcn.models.task import Task, task_of
from rgcn.plugins import READERS
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.configuration import replace_settings, replace_training_settings
from rgcn.runs.folder import RunFolder, file_stamps
from rgcn.system.formatting import format_bytes, format_count
from rgcn.system.memory import available_bytes
from rgcn.training.plan import Plan, ResourceEstimate


def load_data(config: DataConfig, mirror: Path | None = None) -> KnowledgeGraph:
    """Load the graph that a configuration names.

    Args:
        config: The section `data`.
        mirror: Folder with copies of the data sets.
    """
    from rgcn.data import load, read

    if config.dataset is not None:
        return load(config.dataset, mirror=mirror)
    assert config.path is not None
    options = config.reading_options()
    if ":" in options.get("format", ""):
        options["format"] = READERS.resolve(options["format"])  # `read` would trust a name from any file
    return read(config.path, **options)


def load_run_data(config: RunConfig, mirror: Path | None = None) -> KnowledgeGraph:
    """Load the graph of a run, and hold out what its task holds out."""
    return task_of(config.task).with_splits(load_data(config.data, mirror), config)


def titles_of(graph: KnowledgeGraph, dataset: str | None, mirror: Path | None = None) -> Titles:
    """Return the display names of nodes, relations and classes: from the data set if it has some, else the graph's."""
    from rgcn.data.wordnet import load_external_names

    outside = load_external_names(dataset or graph.name, graph, mirror)
    return Titles(graph) if outside is None else Titles(graph, outside.titles, outside.descriptions)


def make_model(config: RunConfig, mirror: Path | None = None) -> Estimator:
    """Return the untrained model of a configuration.

    Args:
        config: The configuration.
        mirror: Folder with copies of the data sets, for a model that reads data sets by name.
    """
    settings = config.settings()
    model = task_of(config.task).estimator_class.from_settings(settings)
    model.mirror = mirror
    return model


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Everything that is decided before a run begins.

    Attributes:
        config: The configuration with every default filled in.
        graph: The data, with what `data.split` holds out. The graph of the training may hold out more.
        training: The plan of the training.
        mirror: Folder with copies of the data sets, for a model that reads data sets by name.
    """

    config: RunConfig
    graph: KnowledgeGraph
    training: Plan
    mirror: Path | None = None

    @property
    def task(self) -> Task:
        """The task of the run."""
        return task_of(self.config.task)

    @cached_property
    def resources(self) -> ResourceEstimate:
        """The estimated memory and disk that the run needs."""
        parts = self.task.memory_estimate(self.training)
        return ResourceEstimate.of(self.training, parts, self.config.checkpoints.keep_last)

    def with_training(self, **settings: Any) -> RunPlan:
        """Return the plan with other training settings."""
        training = self.training.with_training(**settings)
        return replace(self, config=replace_training_settings(self.config, **settings), training=training)

    @property
    def split_sizes(self) -> dict[str, int]:
        """The number of labels or triples in each split that has any."""
        return {name: size for name, size in self.task.kind.split_sizes(self.training.graph).items() if size}

    def summary(self) -> dict[str, str]:
        """Describe what the run will do, by heading: the output of `rgcn train --dry-run`."""
        graph, plan, resources = self.training.graph, self.training, self.resources
        training, placement = plan.training, plan.placement
        model = self.config.model.describe(features=graph.features is not None).parts
        division = "nodes are divided" if placement.partition is not None else "each holds the model"
        processes = f" in {placement.size} processes, {division}" if placement.is_distributed else ""
        chosen = [f"{key} {value}" for key, value in plan.chosen.items() if value is not None]
        rows = {
            "task": self.task.title,
            "data": f"{self.config.data.title}, {graph!r}",
            "splits": ", ".join(f"{name} {size:,}" for name, size in self.split_sizes.items()),
            "model": model.get("Architecture", self.config.model.title),
            "steps": _describe_steps(training),
            "optimizer": f"{getattr(training, 'optimizer', None) or 'adam'}, learning rate {training.learning_rate:g}",
            "validation": self.task.watch(training).title if "valid" in self.split_sizes else "",
            "device": f"{plan.device}{processes}",
            "seed": str(plan.seed),
            "chosen for this graph and machine": ", ".join(chosen),
            "memory": format_bytes(resources.total) if resources.parts else "not known for this model",
            "disk": format_bytes(resources.disk),
        }
        return {heading: text for heading, text in rows.items() if text}


def _describe_steps(training: Any) -> str:
    if "batch_labels" in type(training).model_fields:
        batch = f"steps of {training.batch_labels:,} labels" if training.batch_labels else "a step on all labels"
        return f"{format_count(training.epochs, 'epoch')}, each {batch}"
    size = getattr(training, "batch_edges", None)
    batch = f"{size:,} triples" if size else "all triples"
    return f"{format_count(training.steps, 'step')} on {batch} each" if training.steps else "none: nothing is trained"


def plan_run(config: RunConfig, graph: KnowledgeGraph, mirror: Path | None = None) -> RunPlan:
    """Plan a run of a configuration on its data."""
    model = make_model(config, mirror)
    graph = task_of(config.task).with_splits(graph, config)
    plan = model.plan(graph)
    settings = {f"training.{name}": value for name, value in plan.chosen.items()}
    return RunPlan(replace_settings(config, settings) if settings else config, graph, plan, mirror)


def check_resources(plan: RunPlan, folder: Path | None) -> None:
    """Check that the machine has the memory and disk that a run needs.

    Args:
        plan: The run.
        folder: Where the run will be stored, or None.

    Raises:
        ConfigError: It does not. The message names settings that would fit.
    """
    estimate = plan.resources
    if folder is not None:
        free = shutil.disk_usage(next(place for place in (folder, *folder.resolve().parents) if place.exists())).free
        if estimate.disk > free:
            raise ConfigError(
                f"the run needs about {format_bytes(estimate.disk)} of disk in {folder}, and {format_bytes(free)} are "
                "free: choose another --out, or --set checkpoints.keep_last=1"
            )
    available = available_bytes()
    if available is None or plan.training.device.type != "cpu" or estimate.needed <= available:
        return
    fitting = _settings_that_fit(plan, available)
    advice = f"these fit: {'; '.join(fitting)}" if fitting else "no setting of this model fits: use a smaller graph"
    limit = f"in addition to the {format_bytes(estimate.held)} in use, {format_bytes(available)} may be used"
    raise ConfigError(f"{estimate.words}, and {limit}: {advice}")


def _settings_that_fit(plan: RunPlan, available: int) -> list[str]:
    """Return changes with which a training needs at most `available` bytes, those that change least first."""
    changes = [change for change in plan.task.memory_savings(plan.config) if change]
    if len(changes) > 1:
        changes.append({key: value for change in changes for key, value in change.items()})
    fitting = []
    for change in changes:
        try:
            config = replace_settings(plan.config, change)
        except ConfigError:
            continue
        training = replace(plan.training, model=config.model, training=config.training)
        needed = replace(plan, config=config, training=training).resources.needed
        if needed <= available:
            options = " ".join(f"--set {key}={value}" for key, value in change.items())
            fitting.append(f"{options} ({format_bytes(plan.resources.held + needed)})")
    return fitting


def check_same_data(run: RunFolder, graph: KnowledgeGraph, advice: str = "restore them, or train again") -> None:
    """Check that a graph is the one that a run was started with.

    Raises:
        DataError: It is not.
    """
    stored = run.about()["data"]
    if graph.fingerprint != stored["fingerprint"]:
        raise DataError(
            f"{run.path}: its data have changed since it was trained: the graph had {stored['nodes']:,} nodes and "
            f"{stored['triples']:,} triples, now it has {graph.num_nodes:,} and {len(graph):,} (fingerprints differ); "
            f"{advice}"
        )


def check_data_unchanged(run: RunFolder) -> None:
    """Check that the data of a run have not changed since it was trained.

    Files with the same size and modification time are not read again. Data sets of the registry are verified whenever
    they are loaded. Data that no longer exist are no error, because the model has a copy of its graph.

    Raises:
        DataError: The data have changed.
    """
    config, stamps = run.config(), run.about()["data"].get("files")
    dataset = CATALOG.get((config.data.dataset or "").lower())
    paths_exist = config.data.dataset is None and all(Path(path).exists() for path in config.data.source_paths())
    is_readable = paths_exist or (dataset is not None and dataset.embedded)
    if (stamps and stamps == file_stamps(config.data)) or not is_readable:
        return
    advice = "restore them, train again, or use the graph that is stored with the model: --accept-changed-data"
    try:
        graph = load_run_data(config)
    except DataError as error:
        changed = f"{run.path}: its data have changed since it was trained"
        raise DataError(f"{changed}, and can no longer be read: {error}; {advice}") from error
    check_same_data(run, graph, advice)


def load_trained(run: RunFolder, mirror: Path | None = None, device: str = "auto") -> Estimator:
    """Load the model of a run; for an unfinished run, the best weights of its newest checkpoint.

    Raises:
        DataError: There is no model yet, or the data have changed.
    """
    run.check()
    if run.result() is not None:
        return load_model(run.path / "model", device=device)
    state = Checkpoints(run.path / "checkpoints").newest()
    if state is None:
        raise DataError(f"{run.path} is {run.status()} and has no checkpoint yet: there is no model to load")
    config = run.config()
    graph = load_run_data(config, mirror)
    check_same_data(run, graph)
    training = config.training.model_copy(update={"device": device})
    model = make_model(config.model_copy(update={"training": training})).prepare(graph)
    # Only the weights, so that a run that trains on a GPU can be opened on another machine.
    model.network_.load_state_dict(state.weights("best" if state.part("best") else "network", model.network_))
    model.network_.eval()
    return model


def check_split(split: str) -> str:
    """Return the name of a split if there is one of that name, else raise a DataError."""
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    return split


def evaluate(
    run: RunFolder, split: str | None = None, mirror: Path | None = None, *, on: str | None = None, **options: Any
) -> dict[str, Any]:
    """Measure the model of a run on one split.

    Args:
        run: The run.
        split: The split. Default: "test" for a finished run; "valid" before, because the test split is read once.
        mirror: Folder with copies of the data sets.
        on: Another graph to measure on, by path or name of a data set. The model must know its relations.
        **options: Arguments of the model's own `evaluate`.

    Returns:
        The run, the split and "metrics", as plain values.
    """
    split = check_split(split or ("valid" if run.result() is None else "test"))
    model = load_trained(run, mirror)
    about = run.about()
    head = {"run": str(run.path), "status": run.status(), **{k: about[k] for k in ("task", "dataset", "model", "seed")}}
    if on is not None:
        if reason := model.hooks_.why_not_transferable():  # before the graph is read for nothing
            raise DataError(f"{run.path}: {reason}")
        model = model.over(load_or_read(on, mirror=mirror))
        head["on"] = model.graph_.name or on
    return {**head, "split": split, "metrics": model.evaluate(split=split, **options)}
