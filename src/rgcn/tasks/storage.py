"""A trained model as a folder: JSON for what it is, safetensors for its numbers, the graph it knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rgcn.data.atomic import write_atomically
from rgcn.data.graph_store import load_graph, read_json, save_graph
from rgcn.errors import DataError

if TYPE_CHECKING:
    from rgcn.tasks.link_predictor import LinkPredictor
    from rgcn.tasks.node_classifier import NodeClassifier

Model = TypeVar("Model", "NodeClassifier", "LinkPredictor")

FORMAT_VERSION = 1
KINDS = {"NodeClassifier": "node-classifier", "LinkPredictor": "link-predictor"}


def save_model(model: NodeClassifier | LinkPredictor, folder: str | Path) -> None:
    """Write a fitted model into a folder."""
    from safetensors.torch import save

    import rgcn

    target = Path(folder)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.network_.state_dict().items()}
    save_graph(model.graph_, target / "graph")
    write_atomically(target / "weights.safetensors", save(state))
    about: dict[str, Any] = {
        "format": "rgcn-model",
        "version": FORMAT_VERSION,
        "kind": KINDS[type(model).__name__],
        "rgcn": rgcn.__version__,
        "settings": model.get_params(),
        "graph": model.graph_.fingerprint,
    }
    write_atomically(target / "model.json", json.dumps(about, indent=2) + "\n")


def load_model(folder: str | Path, *, device: str = "auto") -> NodeClassifier | LinkPredictor:
    """The model in a folder that `save` wrote, or in the folder of a finished run, whichever kind it is.

    >>> import rgcn, tempfile
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")])
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(kg).save(folder)
    >>> rgcn.load_model(folder)
    LinkPredictor('distmult', fitted on KnowledgeGraph(3 nodes, 1 relation, 2 triples))
    """
    from rgcn.tasks import LinkPredictor, NodeClassifier

    source = Path(folder)
    if not (source / "model.json").exists() and (source / "model" / "model.json").exists():
        source = source / "model"
    kind = read_json(source / "model.json", "rgcn-model", FORMAT_VERSION).get("kind")
    if kind == KINDS["NodeClassifier"]:
        return load_as(source, NodeClassifier, device)
    if kind == KINDS["LinkPredictor"]:
        return load_as(source, LinkPredictor, device)
    raise DataError(
        f"{source / 'model.json'}: an unknown kind of model, {kind!r}; there are {', '.join(KINDS.values())}"
    )


def load_as(folder: str | Path, kind: type[Model], device: str = "auto") -> Model:
    """Read what `save_model` wrote. The device is chosen anew: a model trained on a GPU loads anywhere."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    source = Path(folder)
    about = read_json(source / "model.json", "rgcn-model", FORMAT_VERSION)
    missing = sorted({"kind", "settings", "graph"} - about.keys())
    if missing:
        raise DataError(f"{source / 'model.json'}: damaged, it lacks {', '.join(missing)}")
    if about["kind"] != KINDS[kind.__name__]:
        raise DataError(f"{source}: holds a {about['kind']}, not a {KINDS[kind.__name__]}")
    graph = load_graph(source / "graph")
    if graph.fingerprint != about["graph"]:
        raise DataError(f"{source}: the graph beside the model is another than it was saved with (fingerprints differ)")
    settings = {**about["settings"], "device": device}
    pruned = settings.get("prune")
    if pruned:  # the saved graph is already pruned, and its labels already split
        settings["prune"] = False
    model = kind(**settings).prepare(graph)
    try:
        model.network_.load_state_dict(load_file(source / "weights.safetensors"))
    except (SafetensorError, RuntimeError, FileNotFoundError) as error:
        raise DataError(f"{source / 'weights.safetensors'}: damaged, or of another model ({error})") from error
    model.network_.eval()
    if pruned:
        model.prune = pruned  # type: ignore[attr-defined]
    return model
