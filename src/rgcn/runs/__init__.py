"""Runs: configurations, run folders, checkpoints, trackers, series of seeds and model selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

__all__ = ["RunFolder", "RunResult", "builtin_configurations", "dump_configuration", "evaluate", "load_configuration"]
__all__ += ["load_data", "load_run_data", "resume", "train"]

if TYPE_CHECKING:
    from rgcn.runs.assembly import evaluate, load_data, load_run_data
    from rgcn.runs.configuration import builtin_configurations, dump_configuration, load_configuration
    from rgcn.runs.folder import RunFolder
    from rgcn.runs.training import RunResult, resume, train
else:
    # Reading run folders needs no PyTorch, so the module of each name is imported on first use.
    _NAMES = {
        "assembly": ("evaluate", "load_data", "load_run_data"),
        "configuration": ("dump_configuration", "load_configuration", "builtin_configurations"),
        "folder": ("RunFolder",),
        "training": ("RunResult", "resume", "train"),
    }
    __getattr__ = lazy_attributes(__name__, _NAMES)
