"""What a configuration stands for: its data and its model."""

from __future__ import annotations

from pathlib import Path

from rgcn.axis_tables import READERS
from rgcn.config import DataConfig, RunConfig
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.folder import RunFolder
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.task import task_of


def load_data(config: DataConfig, mirror: Path | None = None) -> KnowledgeGraph:
    """The graph a configuration names."""
    from rgcn.data import load, read

    if config.dataset is not None:
        return load(config.dataset, mirror=mirror)
    assert config.path is not None
    options = config.reading_options()
    if ":" in options.get("format", ""):
        options["format"] = READERS.find(options["format"])  # `read` would trust the name, whoever wrote it
    return read(config.path, **options)


def make_model(config: RunConfig) -> Estimator:
    """An unfitted model with the configuration's settings."""
    return task_of(config.task).estimator_class.from_settings(config.settings())


def refuse_other_data(run: RunFolder, graph: KnowledgeGraph) -> None:
    """A model is worth nothing on data that changed under it."""
    expected = run.about()["data"]
    if graph.fingerprint != expected["fingerprint"]:
        raise DataError(
            f"the data have changed since {run.path} began: then {expected['nodes']:,} nodes and "
            f"{expected['triples']:,} triples, now {graph.num_nodes:,} and {len(graph):,} (fingerprints differ); "
            "bring back the data, or train anew"
        )
