"""A knowledge graph as a folder of plain files, to travel with a trained model.

graph.json           what it is: format version, name, counts, fingerprint, prefixes of short names
nodes.jsonl, relations.jsonl, classes.jsonl   names, one JSON string a line
arrays.safetensors   triples, kinds, labels, splits, features, weights
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rgcn.atomic import write_atomically
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, NodeLabels, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS

FORMAT_VERSION = 1
KEPT = ("prefixes", "labels_from", "split")  # of what is known about the files, what questions and answers need


def save_graph(graph: KnowledgeGraph, folder: Path) -> None:
    """Write a graph into a folder; `load_graph` gives it back with the same fingerprint."""
    from safetensors.numpy import save

    arrays = {name: array for name in ARRAYS if (array := getattr(graph, name)) is not None}
    vocabularies = {"nodes": graph.nodes, "relations": graph.relations}
    if graph.labels is not None:
        vocabularies["classes"] = graph.labels.names
        for name in ("nodes", "classes", "splits"):
            arrays[f"label_{name}"] = getattr(graph.labels, name)
    encode = json.JSONEncoder(ensure_ascii=False).encode  # one for all: json.dumps makes a new one for each name
    for name, vocabulary in vocabularies.items():
        write_atomically(folder / f"{name}.jsonl", "".join(f"{encode(item)}\n" for item in vocabulary))
    write_atomically(folder / "arrays.safetensors", save({k: np.ascontiguousarray(v) for k, v in arrays.items()}))
    about = {
        "format": "rgcn-graph",
        "version": FORMAT_VERSION,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "relations": graph.num_relations,
        "triples": len(graph),
        "fingerprint": graph.fingerprint,
        "metadata": {key: graph.metadata[key] for key in KEPT if key in graph.metadata},
    }
    write_atomically(folder / "graph.json", json.dumps(about, indent=2) + "\n")


def load_graph(folder: Path) -> KnowledgeGraph:
    """Read what `save_graph` wrote, and check that it is whole."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    about = read_json(folder / "graph.json", "rgcn-graph", FORMAT_VERSION)
    try:
        arrays = load_file(folder / "arrays.safetensors")
        labels = None
        if "label_nodes" in arrays:
            nodes, classes, splits = (arrays[f"label_{name}"] for name in ("nodes", "classes", "splits"))
            labels = NodeLabels(nodes, classes, _names(folder, "classes", "class"), splits)
        given: dict[str, Any] = {"triples": arrays["triples"], **{name: arrays.get(name) for name in ARRAYS}}
        graph = KnowledgeGraph(
            nodes=_names(folder, "nodes", "node"),
            relations=_names(folder, "relations", "relation"),
            labels=labels,
            name=about["name"],
            metadata=about.get("metadata", {}),
            **given,
        )
    except (OSError, KeyError, json.JSONDecodeError, UnicodeDecodeError, SafetensorError) as error:
        raise DataError(f"{folder}: not a whole saved graph: a file is missing or damaged ({error})") from error
    if graph.fingerprint != about["fingerprint"]:
        raise DataError(f"{folder}: the graph does not match its fingerprint; a file was changed or damaged")
    return graph


def read_json(path: Path, format_name: str, version: int) -> dict[str, Any]:
    """A JSON object of our own making, of a version this program understands."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; is {path.parent} what `save` wrote?") from None
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(about, dict) or about.get("format") != format_name:
        raise DataError(f"{path}: not a {format_name} file")
    if about.get("version", 0) > version:
        raise DataError(
            f"{path}: written by a newer rgcn (format {about['version']}, this one reads up to {version}); upgrade rgcn"
        )
    if about.get("version", 0) < version:
        written = about.get("rgcn")
        raise DataError(
            f"{path}: written by rgcn {written if isinstance(written, str) else 'of an earlier version'}, whose "
            "settings and weights mean other things here. Train it anew, or ask it with the version that wrote it"
        )
    return about


def _names(folder: Path, name: str, kind: str) -> Vocabulary:
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return Vocabulary((json.loads(line) for line in lines), kind=kind)
