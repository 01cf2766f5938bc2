"""A trained model as a folder: JSON for what it is, safetensors for its numbers, the graph it knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.data.atomic import write_atomically
from rgcn.data.graph_store import load_graph, read_json, save_graph
from rgcn.errors import DataError

if TYPE_CHECKING:
    from rgcn.tasks.node_classifier import NodeClassifier

FORMAT_VERSION = 1


def save_classifier(classifier: NodeClassifier, folder: str | Path) -> None:
    """Write a fitted classifier into a folder."""
    from safetensors.torch import save

    import rgcn

    target = Path(folder)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in classifier.network_.state_dict().items()}
    save_graph(classifier.graph_, target / "graph")
    write_atomically(target / "weights.safetensors", save(state))
    about: dict[str, Any] = {
        "format": "rgcn-model",
        "version": FORMAT_VERSION,
        "kind": "node-classifier",
        "rgcn": rgcn.__version__,
        "settings": classifier.get_params(),
        "classes": classifier.classes_,
        "graph": classifier.graph_.fingerprint,
    }
    write_atomically(target / "model.json", json.dumps(about, indent=2) + "\n")


def load_classifier(folder: str | Path) -> NodeClassifier:
    """Read what `save_classifier` wrote. The device is chosen anew: a model trained on a GPU loads anywhere."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from rgcn.tasks.node_classifier import NodeClassifier

    source = Path(folder)
    about = read_json(source / "model.json", "rgcn-model", FORMAT_VERSION)
    if about["kind"] != "node-classifier":
        raise DataError(f"{source}: holds a {about['kind']}, not a node classifier")
    graph = load_graph(source / "graph")
    # The saved graph is already pruned and its labels already split.
    settings = {**about["settings"], "device": "auto", "prune": False}
    classifier = NodeClassifier(**settings).prepare(graph)
    try:
        classifier.network_.load_state_dict(load_file(source / "weights.safetensors"))
    except (SafetensorError, RuntimeError, FileNotFoundError) as error:
        raise DataError(f"{source / 'weights.safetensors'}: damaged, or of another model ({error})") from error
    classifier.network_.eval()
    classifier.prune = bool(about["settings"]["prune"])
    return classifier
