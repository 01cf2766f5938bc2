"""What a configuration stands for: its data, model and plan; and a run's own, which may have changed or be unfinished.

A run is planned once, before it begins, and refused where the machine has less than it takes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rgcn.config import DataConfig, RunConfig
from rgcn.data.catalog import CATALOG
from rgcn.data.registry import named_or_read
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.models.estimator import Estimator
from rgcn.models.storage import load_model
from rgcn.models.task import Task, task_of
from rgcn.plugins import READERS
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.configuration import changed, changed_training
from rgcn.runs.folder import RunFolder, stamps_of
from rgcn.system.formatting import count, memory
from rgcn.system.memory import available_bytes
from rgcn.training.plan import Plan, ResourceEstimate


def load_data(config: DataConfig, mirror: Path | None = None) -> KnowledgeGraph:
    from rgcn.data import load, read

    if config.dataset is not None:
        return load(config.dataset, mirror=mirror)
    assert config.path is not None
    options = config.reading_options()
    if ":" in options.get("format", ""):
        options["format"] = READERS.find(options["format"])  # `read` would trust the name, whoever wrote it
    return read(config.path, **options)


def load_run_data(config: RunConfig, mirror: Path | None = None) -> KnowledgeGraph:
    """The graph that a run learns from: what it names, with what its task holds out of it."""
    return task_of(config.task).with_held_out(load_data(config.data, mirror), config)


def titles_of(graph: KnowledgeGraph, dataset: str | None, mirror: Path | None = None) -> Titles:
    """What people call the nodes, relations and classes of a graph: as its data set has it, else as itself says."""
    from rgcn.data.wordnet import names_outside

    outside = names_outside(dataset or graph.name, graph, mirror)
    return Titles(graph) if outside is None else Titles(graph, outside.titles, outside.descriptions)


def make_model(config: RunConfig, mirror: Path | None = None) -> Estimator:
    """The model of a configuration, not trained yet; mirror: where it finds data sets that it reads by name."""
    settings = config.settings()
    model = task_of(config.task).estimator_class.from_settings(settings)
    model.mirror = mirror
    return model


@dataclass(frozen=True, eq=False)
class RunPlan:
    """A run, decided once: everything downstream takes it and decides nothing again.

    config    the configuration with every default filled in
    graph     the data, with what `data.split` holds out; the training's own graph may hold out more
    training  what its training will do
    mirror    a folder of data sets, for models that read graphs by name
    """

    config: RunConfig
    graph: KnowledgeGraph
    training: Plan
    mirror: Path | None = None

    @property
    def task(self) -> Task:
        return task_of(self.config.task)

    @cached_property
    def resources(self) -> ResourceEstimate:
        """The memory and disk that it takes, from counts."""
        parts = self.task.memory_parts(self.training)
        return ResourceEstimate.of(self.training, parts, self.config.checkpoints.keep_last)

    def with_training(self, **settings: Any) -> RunPlan:
        """The same run with other settings of its training."""
        config, training = changed_training(self.config, **settings), self.training.with_training(**settings)
        return replace(self, config=config, training=training)

    @property
    def split_sizes(self) -> dict[str, int]:
        """How many labels or triples are in each split; of splits that have any."""
        return {name: size for name, size in self.task.kind.split_sizes(self.training.graph).items() if size}

    def described(self) -> dict[str, str]:
        """What the run will do, by heading: what `rgcn train --dry-run` prints."""
        graph, plan, resources = self.training.graph, self.training, self.resources
        training, placement = plan.training, plan.placement
        model = self.config.model.described(features=graph.features is not None).made_of
        divided = "nodes are divided" if placement.partition is not None else "each holds the model"
        where = f" in {placement.size} processes, {divided}" if placement.is_distributed else ""
        rows = {
            "task": self.task.title,
            "data": f"{self.config.data.title}, {graph!r}",
            "splits": ", ".join(f"{name} {size:,}" for name, size in self.split_sizes.items()),
            "model": model.get("Architecture", self.config.model.title),
            "steps": _steps(training),
            "optimizer": f"{getattr(training, 'optimizer', None) or 'adam'}, learning rate {training.learning_rate:g}",
            "validation": self.task.watch(training).title if "valid" in self.split_sizes else "",
            "device": f"{plan.device}{where}",
            "seed": str(plan.seed),
            "chosen for this graph and machine": ", ".join(f"{key} {value}" for key, value in plan.chosen.items()),
            "memory": memory(resources.total) if resources.parts else "not known for this model",
            "disk": memory(resources.disk),
        }
        return {heading: words for heading, words in rows.items() if words}


def _steps(training: Any) -> str:
    """How long a training is and what a step learns from, in words."""
    if "batch_labels" in type(training).model_fields:
        each = f"steps of {training.batch_labels:,} labels" if training.batch_labels else "a step on all labels"
        return f"{count(training.epochs, 'epoch')}, each {each}"
    size = getattr(training, "batch_edges", None)
    each = f"{size:,} triples" if size else "all triples"
    return f"{count(training.epochs, 'step')} on {each} each" if training.epochs else "none: nothing is trained"


def plan_run(config: RunConfig, graph: KnowledgeGraph, mirror: Path | None = None) -> RunPlan:
    """Plan a run of a configuration on its data."""
    graph = task_of(config.task).with_held_out(graph, config)
    plan = make_model(config, mirror).plan(graph)
    settings = {f"training.{name}": value for name, value in plan.chosen.items()}
    return RunPlan(changed(config, settings) if settings else config, graph, plan, mirror)


def refuse_what_does_not_fit(plan: RunPlan, folder: Path | None) -> None:
    """Raise ConfigError where the machine has less than is planned, with the settings that would fit."""
    estimate = plan.resources
    if folder is not None:
        free = shutil.disk_usage(next(place for place in (folder, *folder.resolve().parents) if place.exists())).free
        if estimate.disk > free:
            raise ConfigError(
                f"the run needs about {memory(estimate.disk)} of disk in {folder}, and {memory(free)} are free: choose "
                "another --out, or --set checkpoints.keep_last=1"
            )
    room = available_bytes()
    if room is None or plan.training.device.type != "cpu" or estimate.needed <= room:
        return
    fitting = _settings_that_fit(plan, room)
    there = f"beside the {memory(estimate.held)} that are held {memory(room)} may be used"
    advice = f"these fit: {'; '.join(fitting)}" if fitting else "no setting of this model fits: take a smaller graph"
    raise ConfigError(f"{estimate.words}, and {there}: {advice}")


def _settings_that_fit(plan: RunPlan, room: int) -> list[str]:
    """Settings with which a training takes no more than this memory, the gentlest first, then all together."""
    smaller = [change for change in plan.task.frugal(plan.config) if change]
    together = {key: value for change in smaller for key, value in change.items()}
    fitting = []
    for change in [*smaller, together] if len(smaller) > 1 else smaller:
        try:
            config = changed(plan.config, change)
        except ConfigError:
            continue
        training = replace(plan.training, model=config.model, training=config.training)
        less = replace(plan, config=config, training=training).resources
        if less.needed <= room:
            said = " ".join(f"--set {key}={value}" for key, value in change.items())
            fitting.append(f"{said} ({memory(plan.resources.held + less.needed)})")
    return fitting


def refuse_other_data(run: RunFolder, graph: KnowledgeGraph, advice: str = "bring them back, or train anew") -> None:
    """A model is worth nothing on data that changed under it."""
    then = run.about()["data"]
    if graph.fingerprint != then["fingerprint"]:
        raise DataError(
            f"{run.path}: its data have changed since it was trained: the graph had {then['nodes']:,} nodes and "
            f"{then['triples']:,} triples, now it has {graph.num_nodes:,} and {len(graph):,} (fingerprints differ); "
            f"{advice}"
        )


def refuse_changed_data(run: RunFolder) -> None:
    """Raise where the run's data are there, and are other data now.

    Files that look untouched (size and time of change) are taken to be so; others are read again, and what they hold
    is compared. Data sets of the registry are checked whenever they are read and need no second look. Data that are
    gone cannot contradict: the model has its copy of the graph.
    """
    config, stamps = run.config(), run.about()["data"].get("files")
    known = CATALOG.get(str(config.data.dataset).lower())
    can_be_read = all(Path(source).exists() for source in config.data.source_paths())
    if config.data.dataset is not None:
        can_be_read = known is not None and known.embedded
    if (stamps and stamps == stamps_of(config.data)) or not can_be_read:
        return
    advice = "put them back, train anew, or ask the model about the graph it knew with --accept-changed-data"
    try:
        now = load_run_data(config)
    except DataError as error:
        raise DataError(
            f"{run.path}: its data have changed since it was trained, and can no longer be read: {error}; {advice}"
        ) from error
    refuse_other_data(run, now, advice)


def load_trained(run: RunFolder, mirror: Path | None = None, device: str = "auto") -> Estimator:
    """A run's model: the saved one, or for a run that is not finished the best weights of its newest checkpoint."""
    run.check()
    if run.result() is not None:
        return load_model(run.path / "model", device=device)
    state = Checkpoints(run.path / "checkpoints").newest()
    if state is None:
        raise DataError(f"{run.path} is {run.status()} and has no checkpoint yet: there is no model to look at")
    config = run.config()
    graph = load_run_data(config, mirror)
    refuse_other_data(run, graph)
    training = config.training.model_copy(update={"device": device})
    model = make_model(config.model_copy(update={"training": training})).prepare(graph)
    # Weights only: a run that is under way on a GPU may be looked at on another machine.
    model.network_.load_state_dict(state.weights("best" if state.part("best") else "network", model.network_))
    model.network_.eval()
    return model


def check_split(split: str) -> str:
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    return split


def evaluate(
    run: RunFolder, split: str | None = None, mirror: Path | None = None, *, on: str | None = None, **options: Any
) -> dict[str, Any]:
    """Metrics of a run's model on one split; as the task has them.

    split    by default the test split, or validation while the run is not finished: the test split is for the end
    on       another graph to measure on, a data set's name or a path, whose relations the model knows
    options  of the model's own `evaluate`
    """
    split = check_split(split or ("valid" if run.result() is None else "test"))
    model = load_trained(run, mirror)
    about = run.about()
    head = {"run": str(run.path), "status": run.status(), **{k: about[k] for k in ("task", "dataset", "model", "seed")}}
    if on is not None:
        why_not = model.cannot_move()
        if why_not is not None:  # before a graph is read for nothing
            raise DataError(f"{run.path}: {why_not}")
        model = model.over(named_or_read(on, mirror=mirror))
        head["on"] = model.graph_.name or on
    return {**head, "split": split, "metrics": model.evaluate(split=split, **options)}
