"""Everything that happens around a training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Looking at run folders needs no PyTorch, so each name brings in its own file only when it is first used.
_FILES = {
    "RunFolder": "folder",
    "RunResult": "result",
    "dump_configuration": "configuration",
    "evaluate": "trained",
    "load_configuration": "configuration",
    "load_data": "assembly",
    "resume": "training",
    "shipped_configurations": "configuration",
    "train": "training",
}

if TYPE_CHECKING:
    from rgcn.runs.assembly import load_data
    from rgcn.runs.configuration import dump_configuration, load_configuration, shipped_configurations
    from rgcn.runs.folder import RunFolder
    from rgcn.runs.result import RunResult
    from rgcn.runs.trained import evaluate
    from rgcn.runs.training import resume, train

__all__ = [
    "RunFolder",
    "RunResult",
    "dump_configuration",
    "evaluate",
    "load_configuration",
    "load_data",
    "resume",
    "shipped_configurations",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'rgcn.runs' has no attribute {name!r}")
    value = getattr(import_module(f"rgcn.runs.{_FILES[name]}"), name)
    globals()[name] = value
    return value
