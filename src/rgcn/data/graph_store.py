"""A knowledge graph as a folder of plain files, mapped into memory where they are large: what `rgcn data build` makes,
and what travels with a trained model.

graph.json                what it is: format version, name, counts, fingerprint, and how many bytes each part has;
                          written last, so that half of a graph is never taken for a whole one
nodes.text, nodes.ends.npy, nodes.slots.npy   the names (`graph/stored_names`); relations.* and classes.* the same
triples.npy               int32 [T, 3]
incidence.pointer.npy     int64 [N+1] and
incidence.triples.npy     int32 [2T]: the triples that touch each node
arrays.safetensors        kinds, labels, splits, features, weights, times
search.*                  of a large graph: what finds nodes by a part of their name, and titles (`graph/name_search`)

Opening reads none of the large parts. That they are there, each with all its bytes, is checked at once; numbers in them
when they are read.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.atomic import replace_atomically, write_array, write_atomically, write_pieces
from rgcn.data.triple_rows import incidence
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, NodeLabels, StoredGraph, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS
from rgcn.graph.name_search import SEARCH_FILES
from rgcn.graph.stored_names import MOST_NAMES, StoredNames
from rgcn.graph.titles import TITLES, write_search
from rgcn.words import shortened

FORMAT_VERSION = 2
MANIFEST = "graph.json"
NAMES = ("text", "ends.npy", "slots.npy")
POINTER, TOUCHING = "incidence.pointer.npy", "incidence.triples.npy"
TRIPLES, ARRAYS_FILE = "triples.npy", "arrays.safetensors"
# Patterns of all its files.
PARTS = ("nodes.*", "relations.*", "classes.*", TRIPLES, "incidence.*", ARRAYS_FILE, "search.*", MANIFEST)
# Of what is known about the files: what questions and answers need, and what a user asks about a graph.
KEPT = ("prefixes", "labels_from", "split", "source", "format", "duplicates", "skipped_lines", "skipped_examples")
ROWS_AT_ONCE = 1 << 18
IN_MEMORY = 1 << 20  # bytes: smaller parts are read at once
VERIFIED = 8 << 20  # bytes: of a smaller graph all is read and compared with the fingerprint


def save_graph(graph: KnowledgeGraph, folder: Path) -> None:
    """Write a graph into a folder; `load_graph` gives it back with the same fingerprint."""
    (folder / MANIFEST).unlink(missing_ok=True)  # until all is there, there is no graph
    for stem, vocabulary in {"nodes": graph.nodes, "relations": graph.relations}.items():
        write_names(folder, stem, vocabulary.table)
    rows = graph._rows
    ids = np.int32 if max(graph.num_nodes, graph.num_relations) <= MOST_NAMES else np.int64
    pieces = (rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE))
    write_array(folder / TRIPLES, ids, rows.shape, pieces)
    write_incidence(folder, rows, graph.num_nodes)
    write_rest(graph, folder)


def write_incidence(folder: Path, rows: NDArray[Any], num_nodes: int) -> None:
    pointer, touching = incidence(rows, num_nodes)
    write_array(folder / POINTER, np.int64, pointer.shape, [pointer])
    write_array(folder / TOUCHING, np.int32 if len(rows) <= MOST_NAMES else np.int64, (2 * len(rows),), touching)


def open_incidence(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    return open_array(folder / POINTER), open_array(folder / TOUCHING)


def write_rest(graph: KnowledgeGraph, folder: Path) -> None:
    """What is left when names, triples and incidence lie there: arrays, classes, and last what says that all is."""
    from safetensors.numpy import save_file

    arrays = {name: array for name in ARRAYS if name != "triples" and (array := getattr(graph, name)) is not None}
    if graph.labels is not None:
        write_names(folder, "classes", graph.labels.names.table)
        for name in ("nodes", "classes", "splits"):
            arrays[f"label_{name}"] = getattr(graph.labels, name)
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    replace_atomically(folder / ARRAYS_FILE, lambda at: save_file(plain, at))
    with ThreadPoolExecutor(1) as beside:
        fingerprint = beside.submit(lambda: graph.fingerprint)
        searched = write_search(graph, folder)
    about = {
        "format": "rgcn-graph",
        "version": FORMAT_VERSION,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "relations": graph.num_relations,
        "triples": len(graph),
        "fingerprint": fingerprint.result(),
        "metadata": {key: graph.metadata[key] for key in KEPT if key in graph.metadata},
        "parts": {name: (folder / name).stat().st_size for name in [*_parts(graph.labels is not None), *searched]},
    }
    write_atomically(folder / MANIFEST, json.dumps(about, indent=2) + "\n")


def is_stored_graph(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def load_graph(folder: Path) -> KnowledgeGraph:
    """Open what `save_graph` wrote, after a check that it is whole."""
    from safetensors.numpy import load_file

    about = read_json(folder / MANIFEST, "rgcn-graph", FORMAT_VERSION)
    with damage_told(f"{folder}: not a whole saved graph: a file is missing or damaged"):
        parts = about["parts"]
        searched = [name for name in parts if name in (TITLES, *SEARCH_FILES)]
        for name in (*_parts("classes.text" in parts), *searched):
            if plain_file(folder / name).stat().st_size != parts[name]:
                raise DataError(f"{folder / name}: damaged: it has not the {parts[name]:,} bytes it was written with")
        arrays = load_file(folder / ARRAYS_FILE)
        labels = None
        if "label_nodes" in arrays:
            nodes, classes, splits = (arrays[f"label_{name}"] for name in ("nodes", "classes", "splits"))
            labels = NodeLabels(nodes, classes, open_names(folder, "classes", "class"), splits)
        fingerprint = "".join(_texts([about["fingerprint"]]))
        graph = StoredGraph.opened(
            open_array(folder / TRIPLES),
            open_incidence(folder),
            fingerprint=fingerprint if sum(parts.values()) > VERIFIED else None,
            search_folder=folder.resolve() if searched else None,
            nodes=open_names(folder, "nodes", "node"),
            relations=open_names(folder, "relations", "relation"),
            labels=labels,
            name="".join(_texts([about["name"]])),
            metadata=_metadata(about.get("metadata", {})),
            **{name: arrays.get(name) for name in ARRAYS if name != "triples"},
        )
        pointer, touching = graph._incidence
        if pointer.shape != (graph.num_nodes + 1,) or touching.shape != (2 * len(graph),):
            raise DataError(f"{folder}: damaged: its triples and the index of them differ in number")
        if graph.fingerprint != fingerprint:
            raise DataError(f"{folder}: the graph does not match its fingerprint; a file was changed or damaged")
    return graph


def write_names(folder: Path, stem: str, names: StoredNames) -> None:
    replace_atomically(folder / f"{stem}.text", lambda at: write_pieces(at, b"", [names.text]))
    write_array(folder / f"{stem}.ends.npy", np.int64, names.ends.shape, [names.ends])
    write_array(folder / f"{stem}.slots.npy", np.int32, names.slots.shape, [names.slots])


def open_names(folder: Path, stem: str, kind: str) -> Vocabulary:
    ends, slots = open_array(folder / f"{stem}.ends.npy", 1), open_array(folder / f"{stem}.slots.npy", 1)
    path = plain_file(folder / f"{stem}.text")
    large = path.stat().st_size > IN_MEMORY
    text = np.memmap(path, dtype=np.uint8, mode="r") if large else np.fromfile(path, dtype=np.uint8)
    return Vocabulary(StoredNames(text, ends, slots), kind=kind)


def open_array(path: Path, dimensions: int | None = None) -> NDArray[Any]:
    """Whole numbers that `write_array` wrote: mapped, or in memory where they are few."""
    # Mapping fails where a header promises more than the file has; reading would first take memory for it.
    array = np.lib.format.open_memmap(plain_file(path), mode="r")
    if array.dtype.str not in ("<i4", "<i8") or (dimensions is not None and array.ndim != dimensions):
        raise DataError(f"{path}: damaged: it holds {array.dtype} of {array.ndim} dimensions")
    return array if array.nbytes > IN_MEMORY else np.array(array)


def _parts(classes: bool) -> list[str]:
    stems = ("nodes", "relations", "classes") if classes else ("nodes", "relations")
    return [f"{stem}.{end}" for stem in stems for end in NAMES] + [TRIPLES, POINTER, TOUCHING, ARRAYS_FILE]


def _metadata(given: dict[str, Any]) -> dict[str, Any]:
    """What of it is kept, and of the kind that its readers expect."""
    found = {key: value for key, value in given.items() if key in KEPT}
    texts = (found.get(key, []) for key in ("labels_from", "source", "skipped_examples"))
    for names in (*found.get("prefixes", {}).values(), *texts):
        deque(_texts(names), maxlen=0)
    for key in ("duplicates", "skipped_lines"):
        if not isinstance(found.get(key, 0), int):
            raise TypeError(f"{key} is no whole number")
    return found


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


def read_json(path: Path, format_name: str, version: int, oldest: int | None = None) -> dict[str, Any]:
    """A JSON object of our own making, of a version this program understands: this one, or since `oldest`."""
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
    if found < (version if oldest is None else oldest):
        written = about.get("rgcn")
        raise DataError(
            f"{path}: written by rgcn {written if isinstance(written, str) else 'of an earlier version'}, whose "
            "settings and weights mean other things here. Train it anew, or ask it with the version that wrote it"
        )
    return about


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"a name is no text but a {type(value).__name__}")
        yield value
