"""What a run will do: its plan, made once before it begins; refused where the machine has less than it takes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rgcn.config import RunConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.models.task import Task, task_of
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import changed
from rgcn.system.formatting import count, memory
from rgcn.system.memory import available_bytes
from rgcn.training.plan import Plan
from rgcn.training.resources import ResourceEstimate


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

    def with_training(self, **changes: Any) -> RunPlan:
        """The same run with other settings of its training, of those that it has."""
        there = {key: value for key, value in changes.items() if key in type(self.config.training).model_fields}
        config = changed(self.config, {f"training.{key}": value for key, value in there.items()})
        return replace(self, config=config, training=self.training.with_training(**there))

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
    batch_labels, batch_edges = (getattr(training, f"batch_{what}", None) for what in ("labels", "edges"))
    if "batch_labels" in type(training).model_fields:
        each = "a step on all labels" if batch_labels is None else f"steps of {batch_labels:,} labels"
        return f"{count(training.epochs, 'epoch')}, each {each}"
    each = "all triples" if batch_edges is None else f"{batch_edges:,} triples"
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
