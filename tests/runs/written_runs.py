"""run.json as a training writes it, for folders that tests make by hand."""

import rgcn


def about_run(config, data, sessions=()):
    return {
        "format": "rgcn-run",
        "version": 1,
        "rgcn": rgcn.__version__,
        "created": "2026-11-15T12:00:00Z",
        "task": config.task,
        "dataset": config.data.title,
        "model": config.model.name,
        "seed": config.seed,
        "epochs": config.training.epochs,
        "data": data,
        "configuration": config.model_dump(mode="json"),
        "sessions": list(sessions),
    }
