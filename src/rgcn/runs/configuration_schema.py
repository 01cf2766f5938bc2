"""The JSON Schema of a run, for editors that check and complete YAML."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from rgcn.axis_tables import TASKS
from rgcn.errors import UnknownNameError
from rgcn.runs.configuration import DEFAULT_TASK
from rgcn.tasks.task import task_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def run_schema(task: str | None = None) -> dict[str, Any]:
    """The schema of one task's runs, or of all, told apart by `task`.

    >>> sorted(run_schema("link-prediction")["properties"])
    ['checkpoints', 'data', 'model', 'seed', 'task', 'trackers', 'training']
    """
    if task is not None:
        if task not in TASKS.names():
            raise UnknownNameError("task", task, TASKS.names())
        return {"$schema": DRAFT, **_named_task(task_of(task).run_config.model_json_schema(), task)}
    runs = {name: task_of(name).run_config for name in TASKS.names()}
    _, definitions = models_json_schema([(run, "validation") for run in runs.values()])
    parts = definitions["$defs"]
    for name, run in runs.items():
        parts[run.__name__] = _named_task(parts[run.__name__], name)
    references = {name: f"#/$defs/{run.__name__}" for name, run in runs.items()}
    return {
        "$schema": DRAFT,
        "title": "rgcn run",
        "description": "A run of any task: what `rgcn train` reads.",
        "type": "object",
        "discriminator": {"propertyName": "task", "mapping": references},
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "$defs": parts,
    }


def _named_task(schema: dict[str, Any], task: str) -> dict[str, Any]:
    """A file without `task` is of the default task, and of no other."""
    required = [key for key in schema.get("required", []) if key != "task"]
    return {**schema, "required": required if task == DEFAULT_TASK else ["task", *required]}
