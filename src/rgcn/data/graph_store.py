"""A knowledge graph as a folder of plain files, to travel with a trained model.

graph.json           what it is: format version, name, counts, fingerprint, prefixes of short names
nodes.jsonl, relations.jsonl, classes.jsonl   names, one JSON string a line
arrays.safetensors   triples, kinds, labels, splits, features, weights
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rgcn.atomic import write_atomically
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, NodeLabels, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS
from rgcn.words import shortened

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
    from safetensors.numpy import load_file

    about = read_json(folder / "graph.json", "rgcn-graph", FORMAT_VERSION)
    with damage_told(f"{folder}: not a whole saved graph: a file is missing or damaged"):
        arrays = load_file(plain_file(folder / "arrays.safetensors"))
        labels = None
        if "label_nodes" in arrays:
            nodes, classes, splits = (arrays[f"label_{name}"] for name in ("nodes", "classes", "splits"))
            labels = NodeLabels(nodes, classes, _names(folder, "classes", "class"), splits)
        metadata = {key: value for key, value in about.get("metadata", {}).items() if key in KEPT}
        for names in (*metadata.get("prefixes", {}).values(), metadata.get("labels_from", [])):
            deque(_texts(names), maxlen=0)
        given: dict[str, Any] = {"triples": arrays["triples"], **{name: arrays.get(name) for name in ARRAYS}}
        graph = KnowledgeGraph(
            nodes=_names(folder, "nodes", "node"),
            relations=_names(folder, "relations", "relation"),
            labels=labels,
            name="".join(_texts([about["name"]])),
            metadata=metadata,
            **given,
        )
        if graph.fingerprint != about["fingerprint"]:
            raise DataError(f"{folder}: the graph does not match its fingerprint; a file was changed or damaged")
    return graph


@contextmanager
def damage_told(words: str) -> Iterator[None]:
    """Whatever a file from elsewhere makes a constructor raise is said of the file."""
    try:
        yield
    except RgcnError:
        raise
    except Exception as error:
        raise DataError(f"{words} ({shortened(str(error) or type(error).__name__, 300)})") from error


def plain_file(path: Path) -> Path:
    """The path, which must be of a file: who opens a FIFO waits for ever."""
    if not path.is_file():
        what = "is no plain file" if path.exists() else "there is no such file"
        raise DataError(f"{path}: {what}; is {path.parent} what `save` wrote?")
    return path


def read_json(path: Path, format_name: str, version: int) -> dict[str, Any]:
    """A JSON object of our own making, of a version this program understands."""
    try:
        about = json.loads(plain_file(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(about, dict) or about.get("format") != format_name:
        raise DataError(f"{path}: not a {format_name} file")
    found = about.get("version", 0)
    if not isinstance(found, int):
        raise DataError(f"{path}: damaged, its version is no whole number")
    if found > version:
        raise DataError(f"{path}: of a newer rgcn (format {found}, this one reads up to {version}); upgrade rgcn")
    if found < version:
        written = about.get("rgcn")
        raise DataError(
            f"{path}: written by rgcn {written if isinstance(written, str) else 'of an earlier version'}, whose "
            "settings and weights mean other things here. Train it anew, or ask it with the version that wrote it"
        )
    return about


def _names(folder: Path, name: str, kind: str) -> Vocabulary:
    with plain_file(folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return Vocabulary(_texts(json.loads(line) for line in lines), kind=kind)


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"a name is no text but a {type(value).__name__}")
        yield value
