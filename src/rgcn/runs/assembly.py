"""What a configuration stands for, its data and its model; and a run's own, which may have changed or be unfinished."""

from pathlib import Path
from typing import Any

from rgcn.config import DataConfig, RunConfig
from rgcn.data.catalog import CATALOG
from rgcn.data.registry import named_or_read
from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.models.estimator import Estimator
from rgcn.models.storage import load_model
from rgcn.models.task import task_of
from rgcn.plugins import READERS
from rgcn.runs.checkpoints import Checkpoints
from rgcn.runs.folder import RunFolder, stamps_of


def load_data(config: DataConfig, mirror: Path | None = None) -> KnowledgeGraph:
    from rgcn.data import load, read

    if config.dataset is not None:
        return load(config.dataset, mirror=mirror)
    assert config.path is not None
    options = config.reading_options()
    if ":" in options.get("format", ""):
        options["format"] = READERS.find(options["format"])  # `read` would trust the name, whoever wrote it
    return read(config.path, **options)


def load_run_data(config: RunConfig, mirror: Path | None = None) -> KnowledgeGraph:
    """The graph that a run learns from: what it names, with what its task holds out of it."""
    return task_of(config.task).with_held_out(load_data(config.data, mirror), config)


def titles_of(graph: KnowledgeGraph, dataset: str | None, mirror: Path | None = None) -> Titles:
    """What people call the nodes, relations and classes of a graph: as its data set has it, else as itself says."""
    from rgcn.data.wordnet import names_outside

    outside = names_outside(dataset or graph.name, graph, mirror)
    return Titles(graph) if outside is None else Titles(graph, outside.titles, outside.descriptions)


def make_model(config: RunConfig, mirror: Path | None = None) -> Estimator:
    """The model of a configuration, not trained yet; mirror: where it finds data sets that it reads by name."""
    model = task_of(config.task).estimator_class.from_settings(config.settings())
    model.mirror = mirror
    return model


def refuse_other_data(run: RunFolder, graph: KnowledgeGraph, advice: str = "bring them back, or train anew") -> None:
    """A model is worth nothing on data that changed under it."""
    then = run.about()["data"]
    if graph.fingerprint != then["fingerprint"]:
        raise DataError(
            f"{run.path}: its data have changed since it was trained: the graph had {then['nodes']:,} nodes and "
            f"{then['triples']:,} triples, now it has {graph.num_nodes:,} and {len(graph):,} (fingerprints differ); "
            f"{advice}"
        )


def refuse_changed_data(run: RunFolder) -> None:
    """Raise where the run's data are there, and are other data now.

    Files that look untouched (size and time of change) are taken to be so; others are read again, and what they hold
    is compared. Data sets of the registry are checked whenever they are read and need no second look. Data that are
    gone cannot contradict: the model has its copy of the graph.
    """
    config, stamps = run.config(), run.about()["data"].get("files")
    if (stamps and stamps == stamps_of(config.data)) or not _can_be_read(config.data):
        return
    advice = "put them back, train anew, or ask the model about the graph it knew with --accept-changed-data"
    try:
        now = load_run_data(config)
    except DataError as error:
        raise DataError(
            f"{run.path}: its data have changed since it was trained, and can no longer be read: {error}; {advice}"
        ) from error
    refuse_other_data(run, now, advice)


def _can_be_read(data: DataConfig) -> bool:
    if data.dataset is not None:
        known = CATALOG.get(data.dataset.lower())
        return known is not None and known.embedded
    return all(Path(source).exists() for source in data.source_paths())


def load_trained(run: RunFolder, mirror: Path | None = None, device: str = "auto") -> Estimator:
    """A run's model: the saved one, or for a run that is not finished the best weights of its newest checkpoint."""
    run.check()
    if run.result() is not None:
        return load_model(run.path / "model", device=device)
    state = Checkpoints(run.path / "checkpoints").newest()
    if state is None:
        raise DataError(f"{run.path} is {run.status()} and has no checkpoint yet: there is no model to look at")
    config = run.config()
    graph = load_run_data(config, mirror)
    refuse_other_data(run, graph)
    training = config.training.model_copy(update={"device": device})
    model = make_model(config.model_copy(update={"training": training})).prepare(graph)
    # Weights only: a run that is under way on a GPU may be looked at on another machine.
    model.network_.load_state_dict(state.weights("best" if state.part("best") else "network", model.network_))
    model.network_.eval()
    return model


def check_split(split: str) -> str:
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    return split


def evaluate(
    run: RunFolder, split: str | None = None, mirror: Path | None = None, *, on: str | None = None, **options: Any
) -> dict[str, Any]:
    """Metrics of a run's model on one split; as the task has them.

    split    by default the test split, or validation while the run is not finished: the test split is for the end
    on       another graph to measure on, a data set's name or a path, whose relations the model knows
    options  of the model's own `evaluate`
    """
    split = check_split(split or ("valid" if run.result() is None else "test"))
    model = load_trained(run, mirror)
    about = run.about()
    head = {"run": str(run.path), "status": run.status(), **{k: about[k] for k in ("task", "dataset", "model", "seed")}}
    if on is not None:
        why_not = model.cannot_move()
        if why_not is not None:  # before a graph is read for nothing
            raise DataError(f"{run.path}: {why_not}")
        model = model.over(named_or_read(on, mirror=mirror))
        head["on"] = model.graph_.name or on
    return {**head, "split": split, "metrics": model.evaluate(split=split, **options)}
