"""A training from configuration to result: load, fit, measure, keep."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rgcn.config import DataConfig, LinkPredictionRun, NodeClassificationRun, RunConfig
from rgcn.data.atomic import write_atomically
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.runs.configuration import dump_configuration
from rgcn.tasks import LinkPredictor, NodeClassifier
from rgcn.tasks.link_fitting import LinkEpoch
from rgcn.tasks.node_training import Epoch

OnEpoch = Callable[[Epoch | LinkEpoch], None]
Model = NodeClassifier | LinkPredictor


@dataclass(frozen=True)
class RunResult:
    """What a run gave; `as_dict` is what `--json` prints.

    parameters         as the paper counts them: a row for every relation and node in a one-hot layer
    stored_parameters  what is really held and trained
    """

    config: RunConfig
    model: Model
    epochs: int
    parameters: int
    seconds: float
    metrics: dict[str, dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "dataset": self.config.data.title,
            "model": self.config.model.name,
            "seed": self.config.seed,
            "epochs": self.epochs,
            "parameters": self.parameters,
            "stored_parameters": self.model.num_parameters_,
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


def make_model(config: RunConfig) -> Model:
    """An unfitted model with the configuration's settings."""
    settings = {**config.model.model_dump(exclude={"name"}), **config.training.model_dump()}
    if isinstance(config, LinkPredictionRun):
        return LinkPredictor(config.model.name, seed=config.seed, **settings)
    return NodeClassifier(config.model.name, seed=config.seed, prune=config.data.prune, **settings)


def train(
    config: RunConfig, graph: KnowledgeGraph, folder: Path | None = None, on_epoch: OnEpoch | None = None
) -> RunResult:
    """Fit on what may be learned from, then measure on every split there is; keep everything in `folder`."""
    if folder is not None:
        _claim(folder)
        write_atomically(folder / "config.yaml", dump_configuration(config))
    model = make_model(config)
    start = time.perf_counter()
    model.fit(graph, on_epoch)
    seconds = time.perf_counter() - start
    if isinstance(model, NodeClassifier):
        assert isinstance(config, NodeClassificationRun)
        epochs, parameters = len(model.history_), model.num_parameters_as_published_
    else:
        epochs, parameters = model.history_[-1].number, model.num_parameters_
    result = RunResult(config, model, epochs, parameters, seconds, measure(model))
    if folder is not None:
        keep(result, folder)
    return result


def measure(model: Model) -> dict[str, dict[str, Any]]:
    """Metrics on every split that has something to measure; link prediction leaves training triples out."""
    if isinstance(model, NodeClassifier):
        assert model.graph_.labels is not None
        return {split: {"accuracy": model.score(split=split)} for split in model.graph_.labels.counts()}
    graph = model.graph_
    if graph.triple_splits is None:
        return {}
    splits = [split for split in SPLITS[1:] if len(graph.split_triples(split))]
    return {split: model.rank(split=split).both.as_dict() for split in splits}


def keep(result: RunResult, folder: Path) -> None:
    """Write a run's outcome: metrics.jsonl (an epoch a line), model/, and last of all result.json."""
    lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in result.model.history_)
    write_atomically(folder / "metrics.jsonl", lines)
    result.model.save(str(folder / "model"))
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
