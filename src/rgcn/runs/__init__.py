"""Everything that happens around a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from rgcn.runs.assembly import evaluate as evaluate
    from rgcn.runs.assembly import load_data as load_data
    from rgcn.runs.assembly import load_run_data as load_run_data
    from rgcn.runs.configuration import builtin_configurations as builtin_configurations
    from rgcn.runs.configuration import dump_configuration as dump_configuration
    from rgcn.runs.configuration import load_configuration as load_configuration
    from rgcn.runs.folder import RunFolder as RunFolder
    from rgcn.runs.training import RunResult as RunResult
    from rgcn.runs.training import resume as resume
    from rgcn.runs.training import train as train
else:
    # Looking at run folders needs no PyTorch, so each name brings in its own file only when it is first used.
    _NAMES = {
        "assembly": ("evaluate", "load_data", "load_run_data"),
        "configuration": ("dump_configuration", "load_configuration", "builtin_configurations"),
        "folder": ("RunFolder",),
        "training": ("RunResult", "resume", "train"),
    }
    __getattr__ = lazy_attributes(__name__, _NAMES)
