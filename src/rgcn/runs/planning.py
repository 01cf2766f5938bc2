"""What a training will take, told before it begins, and refused where the machine has less."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rgcn.config import RunConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.memory import available_bytes, held_bytes
from rgcn.placement import current
from rgcn.runs.configuration import changed
from rgcn.tasks.task import task_of
from rgcn.training.devices import choose_device
from rgcn.words import memory

WORTH_NAMING = 0.05  # of the memory: parts that are named
PROGRAMS_AND_TRIPLES = {"programs", "triples"}
OF_NODES = {"edges", "weights", "what moves them", "the best weights"}
KEPT_BESIDE = 3  # numbers in a checkpoint for each that is learned: itself and Adam's moments


class WorkPlan(NamedTuple):
    """Bytes that a training will take.

    held    in memory by this process already, the graph with it
    parts   what comes to that, by what it is for; empty where nobody knows
    disk    in its folder: checkpoints and the model
    """

    held: int
    parts: Mapping[str, int]
    disk: int

    @property
    def total(self) -> int:
        """Of memory, at most."""
        return self.held + sum(self.parts.values())

    @property
    def words(self) -> str:
        sizes = sorted(self.parts.items(), key=lambda part: -part[1])
        named = ", ".join(f"{name} {memory(size)}" for name, size in sizes if size > WORTH_NAMING * self.total)
        each = " for each process" if current().is_distributed else ""
        return f"Planned: {memory(self.total)} of memory{each} ({named}), {memory(self.disk)} of disk"


def plan_of(config: RunConfig, graph: KnowledgeGraph) -> WorkPlan:
    """From counts alone; the configuration is a `settled` one."""
    parts, group = task_of(config.task).footprint(config, graph), current()
    weights = parts.get("weights", 0)
    disk = config.checkpoints.keep_last * KEPT_BESIDE * weights + weights + 40 * len(graph) + 60 * graph.num_nodes
    if (
        group.is_distributed
    ):  # each has its part of every batch, and where nodes are spread of all that belongs to these
        whole = PROGRAMS_AND_TRIPLES if config.training.sharded else PROGRAMS_AND_TRIPLES | OF_NODES
        parts = {name: size if name in whole else size // group.size for name, size in parts.items()}
    return WorkPlan(held_bytes(), parts, disk)


def refuse_what_does_not_fit(plan: WorkPlan, config: RunConfig, graph: KnowledgeGraph, folder: Path | None) -> None:
    """Raise ConfigError where the machine has less than is planned, with the settings that would fit."""
    if folder is not None:
        free = shutil.disk_usage(next(place for place in (folder, *folder.resolve().parents) if place.exists())).free
        if plan.disk > free:
            raise ConfigError(
                f"the run needs about {memory(plan.disk)} of disk in {folder}, and {memory(free)} are free: choose "
                "another --out, or --set checkpoints.keep_last=1"
            )
    room = available_bytes()
    if not plan.parts or room is None or choose_device(config.training.device).type != "cpu":
        return
    need = sum(plan.parts.values())
    if need <= room:
        return
    # What takes less memory, the gentlest first, then together.
    smaller = [change for change in task_of(config.task).frugal(config) if change]
    together = {key: value for change in smaller for key, value in change.items()}
    fitting = []
    for change in [*smaller, together] if len(smaller) > 1 else smaller:
        try:
            less = sum(plan_of(changed(config, change), graph).parts.values())
        except ConfigError:
            continue
        if less <= room:
            said = " ".join(f"--set {key}={value}" for key, value in change.items())
            fitting.append(f"{said} ({memory(plan.held + less)})")
    there = f"beside the {memory(plan.held)} that are held {memory(room)} may be used"
    advice = f"these fit: {'; '.join(fitting)}" if fitting else "no setting of this model fits: take a smaller graph"
    raise ConfigError(f"{plan.words}, and {there}: {advice}")
