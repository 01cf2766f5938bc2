"""What a configuration stands for: its data and its model."""

from __future__ import annotations

from pathlib import Path

from rgcn.axis_tables import READERS
from rgcn.config import DataConfig, LinkPredictionRun, RunConfig
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.folder import RunFolder
from rgcn.tasks import LinkPredictor, NodeClassifier

Model = NodeClassifier | LinkPredictor


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


def make_model(config: RunConfig) -> Model:
    """An unfitted model with the configuration's settings."""
    settings = {**config.model.model_dump(exclude={"name"}), **config.training.model_dump()}
    if isinstance(config, LinkPredictionRun):
        return LinkPredictor(config.model.name, seed=config.seed, **settings)
    return NodeClassifier(config.model.name, seed=config.seed, prune=config.data.prune, **settings)


def refuse_other_data(run: RunFolder, graph: KnowledgeGraph) -> None:
    """A model is worth nothing on data that changed under it."""
    expected = run.about()["data"]
    if graph.fingerprint != expected["fingerprint"]:
        raise DataError(
            f"the data have changed since {run.path} began: then {expected['nodes']:,} nodes and "
            f"{expected['triples']:,} triples, now {graph.num_nodes:,} and {len(graph):,} (fingerprints differ); "
            "bring back the data, or train anew"
        )
