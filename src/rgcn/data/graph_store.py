"""A knowledge graph as a folder of plain files, mapped into memory where they are large: what `rgcn data build` makes,
and what travels with a trained model.

graph.json                what it is: format version, name, counts, fingerprint, and the size and sha256 of each part;
                          written last, so that half of a graph is never taken for a whole one
nodes.text, nodes.ends.npy, nodes.slots.npy   the names (`graph/stored_names`); relations.* and classes.* the same
triples.npy               int32 [T, 3]
incidence.pointer.npy     int64 [N+1] and
incidence.triples.npy     int32 [2T]: the triples that touch each node
arrays.safetensors        kinds, labels, splits, features, weights, times
search.*                  of a large graph: what finds nodes by a part of their name, and titles (`graph/name_search`)

Every part ends with the fingerprint of the graph that it belongs to (arrays.safetensors has it in its metadata), which
its sha256 leaves out.

Opening reads none of the large parts. That they are there, each with all its bytes and of this graph, is checked at
once; numbers in them when they are read. A small graph is compared with its hashes at once, a large one by
`check_graph`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.data.triple_rows import incidence
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, NodeLabels, StoredGraph, Vocabulary
from rgcn.graph.knowledge_graph import ARRAYS
from rgcn.graph.name_search import SEARCH_FILES
from rgcn.graph.titles import TITLES, write_search
from rgcn.graph.vocabulary import MOST_NAMES, StoredNames
from rgcn.system import atomic_files as atomic
from rgcn.system.atomic_files import sha256_of, write_array, write_atomically
from rgcn.system.formatting import shortened
from rgcn.system.progress import progress
from rgcn.system.threads import in_order

FORMAT_VERSION, OLDEST_VERSION = 3, 2  # format 2 (rgcn 0.2.0) has no hashes, and no fingerprint in its parts
MANIFEST = "graph.json"
NAMES = ("text", "ends.npy", "slots.npy")
POINTER, TOUCHING = "incidence.pointer.npy", "incidence.triples.npy"
TRIPLES, ARRAYS_FILE = "triples.npy", "arrays.safetensors"
# Of what is known about the files: what questions and answers need, and what a user asks about a graph.
KEPT = ("prefixes", "labels_from", "split", "source", "format", "duplicates", "skipped_lines", "skipped_examples")
ROWS_AT_ONCE = 1 << 18
IN_MEMORY = 1 << 20  # bytes: smaller parts are read at once
VERIFIED = 8 << 20  # bytes: a smaller graph is read and compared with its hashes when it is opened
FINGERPRINT_BYTES = 64


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
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(lambda: graph.fingerprint)
        searched = write_search(graph, folder)
        fingerprint = found.result()
    about_arrays = {"fingerprint": fingerprint}
    atomic.replace_atomically(folder / ARRAYS_FILE, lambda at: save_file(plain, at, metadata=about_arrays))
    parts = [*_parts(graph.labels is not None), *searched]
    hashes = dict(in_order(parts, lambda name: sha256_of(folder / name)))
    for name in parts:
        _end_with(fingerprint, folder / name)
    about = {
        "format": "rgcn-graph",
        "version": FORMAT_VERSION,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "relations": graph.num_relations,
        "triples": len(graph),
        "fingerprint": fingerprint,
        "metadata": {key: graph.metadata[key] for key in KEPT if key in graph.metadata},
        "parts": {name: (folder / name).stat().st_size for name in parts},
        "sha256": hashes,
    }
    write_atomically(folder / MANIFEST, json.dumps(about, indent=2) + "\n")


def is_stored_graph(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def load_graph(folder: Path) -> KnowledgeGraph:
    """Open what `save_graph` wrote, after a check that it is whole."""
    from safetensors.numpy import load_file

    about = read_json(folder / MANIFEST, "rgcn-graph", FORMAT_VERSION, OLDEST_VERSION)
    with damage_told(f"{folder}: not a whole saved graph: a file is missing or damaged"):
        is_small = sum(_sizes(about).values()) <= VERIFIED
        _refuse_damaged(folder, about, compare_hashes=is_small and _has_hashes(about))
        arrays = load_file(folder / ARRAYS_FILE)
        labels = None
        if "label_nodes" in arrays:
            nodes, classes, splits = (arrays[f"label_{name}"] for name in ("nodes", "classes", "splits"))
            labels = NodeLabels(nodes, classes, open_names(folder, "classes", "class"), splits)
        name, fingerprint = _texts([about["name"], about["fingerprint"]])
        graph = StoredGraph.opened(
            open_array(folder / TRIPLES),
            open_incidence(folder),
            fingerprint=None if is_small and not _has_hashes(about) else fingerprint,
            search_folder=folder.resolve() if "search.text" in about["parts"] else None,
            nodes=open_names(folder, "nodes", "node"),
            relations=open_names(folder, "relations", "relation"),
            labels=labels,
            name=name,
            metadata=_metadata(about.get("metadata", {})),
            **{name: arrays.get(name) for name in ARRAYS if name != "triples"},
        )
        pointer, touching = graph._incidence
        if pointer.shape != (graph.num_nodes + 1,) or touching.shape != (2 * len(graph),):
            raise DataError(f"{folder}: damaged: its triples and the index of them differ in number")
        if graph.fingerprint != fingerprint:  # computed where no hash told already
            raise DataError(f"{folder}: the graph does not match its fingerprint; a file was changed or damaged")
    return graph


def check_graph(folder: Path, show: bool | None = None) -> tuple[int, int]:
    """Compare every part of a stored graph with the hash that was recorded when it was written.

    Args:
        folder: What `save_graph` or `rgcn data build` wrote.
        show: Whether to draw a progress bar; None: if stderr is a terminal.

    Returns:
        How many parts there are, and how many bytes they have.

    Raises:
        DataError: A part is missing or was changed, or the graph has no hashes.
    """
    about = read_json(folder / MANIFEST, "rgcn-graph", FORMAT_VERSION, OLDEST_VERSION)
    with damage_told(f"{folder / MANIFEST}: damaged"):
        if not _has_hashes(about):
            raise DataError(
                f"{folder} cannot be checked: rgcn 0.2.0 wrote it, which recorded no hashes. It opens as before; build "
                "it again with `rgcn data build` to have them"
            )
        _refuse_damaged(folder, about, compare_hashes=True, show=show)
        sizes = _sizes(about)
    return len(sizes), sum(sizes.values())


def _has_hashes(about: dict[str, Any]) -> bool:
    return bool(about["version"] > 2)


def _sizes(about: dict[str, Any]) -> dict[str, int]:
    """The bytes of each part that there must be."""
    parts = about["parts"]
    searched = [name for name in (TITLES, *SEARCH_FILES) if name in parts]
    return {name: parts[name] for name in (*_parts("classes.text" in parts), *searched)}


def _refuse_damaged(folder: Path, about: dict[str, Any], *, compare_hashes: bool, show: bool | None = False) -> None:
    """Raise where a part is missing, has another size or belongs to another graph; or, if asked, has another hash."""
    sizes, fingerprint = _sizes(about), about["fingerprint"] if _has_hashes(about) else None
    found = {name: _damage(folder / name, size, fingerprint) for name, size in sizes.items()}
    if compare_hashes:
        whole = [name for name in sizes if found[name] is None]
        with progress("checking", sum(map(sizes.__getitem__, whole)), "bytes", show=show) as meter:
            for name, digest in in_order(whole, lambda name: _hash_of(folder / name, sizes[name])):
                meter.advance(sizes[name])
                if digest != about["sha256"][name]:
                    found[name] = "its bytes are not those that were written (sha256)"
    damaged = [f"{name}: {words}" for name, words in found.items() if words is not None]
    if damaged:
        raise DataError(
            f"{folder}: damaged: {'; '.join(damaged)}. Copy {'this part' if len(damaged) == 1 else 'these parts'} from "
            "where the graph came from, or build the graph again"
        )


def _damage(path: Path, size: int, fingerprint: str | None) -> str | None:
    """What is wrong with a part, as far as is seen without reading it."""
    if not path.is_file():  # who opens a FIFO waits for ever
        return "it is no plain file" if path.exists() else "there is no such file"
    found = path.stat().st_size
    if found != size:
        return f"it has {found:,} bytes, and was written with {size:,}"
    if fingerprint is not None and _fingerprint_in(path) != fingerprint:
        return "it does not carry the fingerprint of this graph, so it was damaged, or copied from another graph"
    return None


def _end_with(fingerprint: str, path: Path) -> None:
    """Write at the end of a part which graph it belongs to."""
    if path.name != ARRAYS_FILE:
        with path.open("ab") as file:
            file.write(fingerprint.encode())
        atomic.sync(path)


def _fingerprint_in(path: Path) -> str | None:
    """The fingerprint of the graph that a part was written for."""
    from safetensors import SafetensorError, safe_open

    if path.name == ARRAYS_FILE:
        try:
            with safe_open(path, framework="np") as file:
                return (file.metadata() or {}).get("fingerprint")
        except SafetensorError:
            return None
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - FINGERPRINT_BYTES, 0))
        return file.read().decode(errors="replace")


def _hash_of(path: Path, size: int) -> str:
    """The sha256 of a part as it was before its graph's fingerprint was written at its end."""
    return sha256_of(path, size if path.name == ARRAYS_FILE else size - FINGERPRINT_BYTES)


def write_names(folder: Path, stem: str, names: StoredNames) -> None:
    atomic.replace_atomically(folder / f"{stem}.text", lambda at: atomic.write_pieces(at, b"", [names.text]))
    write_array(folder / f"{stem}.ends.npy", np.int64, names.ends.shape, [names.ends])
    write_array(folder / f"{stem}.slots.npy", np.int32, names.slots.shape, [names.slots])


def open_names(folder: Path, stem: str, kind: str) -> Vocabulary:
    ends, slots = open_array(folder / f"{stem}.ends.npy", 1), open_array(folder / f"{stem}.slots.npy", 1)
    path, size = plain_file(folder / f"{stem}.text"), int(ends[-1]) if len(ends) else 0
    if not 0 <= size <= path.stat().st_size:
        raise DataError(f"{path}: damaged: its names do not end where {stem}.ends.npy says")
    if size > IN_MEMORY:
        text: NDArray[Any] = np.memmap(path, dtype=np.uint8, mode="r", shape=(size,))
    else:
        text = np.fromfile(path, dtype=np.uint8, count=size)
    return Vocabulary(StoredNames(text, ends, slots), kind=kind)


def open_array(path: Path, dimensions: int | None = None) -> NDArray[Any]:
    """Whole numbers that `write_array` wrote: mapped, or in memory where they are few."""
    # Mapping fails where a header promises more than the file has; reading would first take memory for it.
    array = np.lib.format.open_memmap(plain_file(path), mode="r")
    if array.dtype.str not in ("<i4", "<i8") or (dimensions is not None and array.ndim != dimensions):
        raise DataError(f"{path}: damaged: it holds {array.dtype} of {array.ndim} dimensions")
    return array if array.nbytes > IN_MEMORY else np.array(array)


def _parts(classes: bool) -> list[str]:
    named = names_of("nodes", "relations", "classes") if classes else names_of("nodes", "relations")
    return [*named, TRIPLES, POINTER, TOUCHING, ARRAYS_FILE]


def names_of(*stems: str) -> list[str]:
    """The files of some names."""
    return [f"{stem}.{end}" for stem in stems for end in NAMES]


def remove_parts(folder: Path) -> None:
    """Remove whatever there is of a graph."""
    for name in (MANIFEST, *_parts(True), TITLES, *SEARCH_FILES):
        atomic.remove(folder / name)


def _metadata(given: dict[str, Any]) -> dict[str, Any]:
    """What of it is kept, and of the kind that its readers expect."""
    found = {key: value for key, value in given.items() if key in KEPT}
    for names in (*found.get("prefixes", {}).values(), *map(found.get, ("labels_from", "source", "skipped_examples"))):
        _texts(names or [])
    if not all(isinstance(found.get(key, 0), int) for key in ("duplicates", "skipped_lines")):
        raise TypeError("the number of duplicates or of skipped lines is no whole number")
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


def _texts(values: list[Any]) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"names are text, and not all of these: {values}")
    return values
