"""Content of run.json for run folders that tests write by hand."""

import rgcn
from rgcn.runs.folder import FORMAT_VERSION


def about_run(config, data, sessions=()):
    """Return what a training with this configuration writes to run.json."""
    return {
        "format": "rgcn-run",
        "version": FORMAT_VERSION,
        "rgcn": rgcn.__version__,
        "created": "2026-11-15T12:00:00Z",
        "task": config.task,
        "dataset": config.data.title,
        "model": config.model.title,
        "seed": config.seed,
        "epochs": config.training.epochs,
        "data": data,
        "configuration": config.model_dump(mode="json"),
        "sessions": list(sessions),
    }
