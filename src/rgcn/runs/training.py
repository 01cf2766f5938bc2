"""A training from configuration to result: load, fit, measure, keep."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rgcn.config import DataConfig, RunConfig
from rgcn.data.atomic import write_atomically
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.configuration import dump_configuration
from rgcn.tasks import NodeClassifier
from rgcn.tasks.node_classifier import Epoch


@dataclass(frozen=True)
class RunResult:
    """What a run gave; `as_dict` is what `--json` prints."""

    config: RunConfig
    classifier: NodeClassifier
    epochs: int
    seconds: float
    metrics: dict[str, dict[str, float]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "dataset": self.config.data.title,
            "model": self.config.model.name,
            "seed": self.config.seed,
            "epochs": self.epochs,
            "parameters": self.classifier.num_parameters_as_published_,
            "stored_parameters": self.classifier.num_parameters_,
            "seconds": round(self.seconds, 3),
            "metrics": self.metrics,
        }


def load_data(config: DataConfig, mirror: Path | None = None) -> KnowledgeGraph:
    """The graph a configuration names."""
    from rgcn.data import load, read

    if config.dataset is not None:
        return load(config.dataset, mirror=mirror)
    assert config.path is not None
    return read(config.path, **config.reading_options())


def make_classifier(config: RunConfig) -> NodeClassifier:
    """An unfitted classifier with the configuration's settings."""
    model = config.model.model_dump(exclude={"name"})
    return NodeClassifier(
        config.model.name, seed=config.seed, prune=config.data.prune, **model, **config.training.model_dump()
    )


def train(
    config: RunConfig,
    graph: KnowledgeGraph,
    folder: Path | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> RunResult:
    """Fit on the training labels, then measure on every split that has labels; keep everything in `folder`."""
    if folder is not None:
        _claim(folder)
        write_atomically(folder / "config.yaml", dump_configuration(config))
    classifier = make_classifier(config)
    start = time.perf_counter()
    classifier.fit(graph, on_epoch)
    seconds = time.perf_counter() - start
    assert classifier.graph_.labels is not None
    splits = classifier.graph_.labels.counts()
    metrics = {split: {"accuracy": classifier.score(split=split)} for split in splits}
    result = RunResult(config, classifier, len(classifier.history_), seconds, metrics)
    if folder is not None:
        keep(result, folder)
    return result


def keep(result: RunResult, folder: Path) -> None:
    """Write a run's outcome: metrics.jsonl (an epoch a line), model/, and last of all result.json."""
    lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in result.classifier.history_)
    write_atomically(folder / "metrics.jsonl", lines)
    result.classifier.save(str(folder / "model"))
    write_atomically(folder / "result.json", json.dumps(result.as_dict(), indent=2) + "\n")


def _claim(folder: Path) -> None:
    """Make the run's folder, unless something else is in it: results are never overwritten in silence."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; --out needs a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "config.yaml").exists():
        raise DataError(f"{folder} is not empty and holds no run; choose another --out")
    if (folder / "result.json").exists():
        raise DataError(f"{folder} already holds a finished run; choose another --out, or remove the folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {folder}: {error.strerror}") from error
