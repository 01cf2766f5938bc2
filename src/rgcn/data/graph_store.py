"""Store a knowledge graph as a folder of plain files, of which the large ones are mapped into memory.

`rgcn data build` makes such folders, and every saved model contains one.

graph.json                what it is: format version, name, counts, fingerprint, and size and sha256 of each part. It is
                          written last, so that half of a graph is never taken for a whole one
nodes.text, nodes.ends.npy, nodes.slots.npy   the names (`graph/vocabulary`); relations.* and classes.* likewise
triples.npy               int32 [num_triples, 3]
incidence.pointer.npy     int64 [num_nodes + 1] and
incidence.triples.npy     int32 [2 * num_triples]: the triples that touch each node
arrays.safetensors        kinds, labels, splits, features, weights, times
search.*                  only large graphs: an index of parts of names, and titles (`graph/name_search`)

Every part ends with the fingerprint of its graph (arrays.safetensors has it in its metadata). The sha256 of a part
leaves the fingerprint out.

Opening a graph reads none of the large parts. It checks that all parts exist, have all their bytes and belong to this
graph. The numbers in a part are checked when they are read. Parts of a small graph are compared with their sha256 when
it is opened, those of a large one by `check_graph`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
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
from rgcn.graph.vocabulary import MAX_NAMES, StoredNames
from rgcn.system import atomic_files as atomic
from rgcn.system.atomic_files import file_sha256, write_array, write_atomically
from rgcn.system.formatting import shorten
from rgcn.system.progress import progress
from rgcn.system.threads import map_in_threads

FORMAT_VERSION, OLDEST_VERSION = 3, 2  # format 2 (rgcn 0.2.0) has no hashes, and no fingerprint in its parts
MANIFEST = "graph.json"
NAME_SUFFIXES = ("text", "ends.npy", "slots.npy")
POINTER, TOUCHING = "incidence.pointer.npy", "incidence.triples.npy"
TRIPLES, ARRAYS_FILE = "triples.npy", "arrays.safetensors"
# The metadata that queries need or users ask for.
STORED_METADATA = (
    "prefixes",
    "labels_from",
    "split",
    "source",
    "format",
    "duplicates",
    "skipped_lines",
    "skipped_examples",
)
BLOCK_ROWS = 1 << 18
MAX_IN_MEMORY_BYTES = 1 << 20  # smaller parts are read into memory
MAX_VERIFIED_BYTES = 8 << 20  # a smaller graph is compared with its hashes when it is opened
FINGERPRINT_BYTES = 64


def save_graph(graph: KnowledgeGraph, folder: Path) -> None:
    """Write a graph into a folder; `load_graph` returns it with the same fingerprint."""
    (folder / MANIFEST).unlink(missing_ok=True)  # without it, the folder is not a graph until all is written
    for stem, vocabulary in {"nodes": graph.nodes, "relations": graph.relations}.items():
        write_names(folder, stem, vocabulary)
    rows = graph._rows
    ids = np.int32 if max(graph.num_nodes, graph.num_relations) <= MAX_NAMES else np.int64
    pieces = (rows[i : i + BLOCK_ROWS] for i in range(0, len(rows), BLOCK_ROWS))
    write_array(folder / TRIPLES, ids, rows.shape, pieces)
    write_incidence(folder, rows, graph.num_nodes)
    write_remaining_parts(graph, folder)


def write_incidence(folder: Path, rows: NDArray[Any], num_nodes: int) -> None:
    """Write which triples touch each node."""
    pointer, touching = incidence(rows, num_nodes)
    write_array(folder / POINTER, np.int64, pointer.shape, [pointer])
    write_array(folder / TOUCHING, np.int32 if len(rows) <= MAX_NAMES else np.int64, (2 * len(rows),), touching)


def open_incidence(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Open what `write_incidence` wrote."""
    return open_array(folder / POINTER), open_array(folder / TOUCHING)


def write_remaining_parts(graph: KnowledgeGraph, folder: Path) -> None:
    """Write the parts other than names, triples and incidence, and finally graph.json."""
    from safetensors.numpy import save_file

    arrays = {name: array for name in ARRAYS if name != "triples" and (array := getattr(graph, name)) is not None}
    if graph.labels is not None:
        write_names(folder, "classes", graph.labels.names)
        for name in ("nodes", "classes", "splits"):
            arrays[f"label_{name}"] = getattr(graph.labels, name)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    parts = _part_names(graph.labels is not None)
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(lambda: graph.fingerprint)
        parts += write_search(graph, folder)
        fingerprint = future.result()
    metadata = {"fingerprint": fingerprint}
    atomic.replace_atomically(folder / ARRAYS_FILE, lambda path: save_file(arrays, path, metadata=metadata))
    hashes = dict(map_in_threads(parts, lambda name: file_sha256(folder / name)))
    for name in parts:
        if name != ARRAYS_FILE:
            with (folder / name).open("ab") as file:
                file.write(fingerprint.encode())
            atomic.sync(folder / name)
    manifest = {
        "format": "rgcn-graph",
        "version": FORMAT_VERSION,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "relations": graph.num_relations,
        "triples": len(graph),
        "fingerprint": fingerprint,
        "metadata": {key: graph.metadata[key] for key in STORED_METADATA if key in graph.metadata},
        "parts": {name: (folder / name).stat().st_size for name in parts},
        "sha256": hashes,
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")


def is_stored_graph(folder: Path) -> bool:
    """Return whether a folder holds a whole graph."""
    return (folder / MANIFEST).is_file()


def load_graph(folder: Path) -> KnowledgeGraph:
    """Open what `save_graph` wrote.

    Raises:
        DataError: A part is missing, damaged or of another graph, or a newer rgcn wrote the graph.
    """
    from safetensors.numpy import load_file

    manifest = read_json(folder / MANIFEST, "rgcn-graph", FORMAT_VERSION, OLDEST_VERSION)
    with report_damage(f"{folder}: not a whole saved graph: a file is missing or damaged"):
        is_small = sum(_part_sizes(manifest).values()) <= MAX_VERIFIED_BYTES
        _check_parts(folder, manifest, compare_hashes=is_small and _has_hashes(manifest))
        arrays = load_file(folder / ARRAYS_FILE)
        labels = None
        if "label_nodes" in arrays:
            nodes, classes, splits = (arrays[f"label_{name}"] for name in ("nodes", "classes", "splits"))
            labels = NodeLabels(nodes, classes, open_names(folder, "classes", "class"), splits)
        metadata, fingerprint = _checked_metadata(manifest), manifest["fingerprint"]
        graph = StoredGraph.open(
            open_array(folder / TRIPLES),
            open_incidence(folder),
            search_folder=folder.resolve() if "search.text" in manifest["parts"] else None,
            nodes=open_names(folder, "nodes", "node"),
            relations=open_names(folder, "relations", "relation"),
            labels=labels,
            name=manifest["name"],
            metadata=metadata,
            **{name: arrays.get(name) for name in ARRAYS if name != "triples"},
            **({} if is_small and not _has_hashes(manifest) else {"fingerprint": fingerprint}),
        )
        pointer, touching = graph._incidence
        if pointer.shape != (graph.num_nodes + 1,) or touching.shape != (2 * len(graph),):
            raise DataError(f"{folder}: damaged: its triples and their index differ in number; build the graph again")
        if graph.fingerprint != fingerprint:  # which is computed only if there were no hashes to compare
            raise DataError(f"{folder}: a file was changed or damaged (other fingerprint); build the graph again")
    return graph


def check_graph(folder: Path, show_progress: bool | None = None) -> tuple[int, int]:
    """Compare every part of a stored graph with the sha256 that was recorded when it was written.

    Args:
        folder: A folder that `save_graph` or `rgcn data build` wrote.
        show_progress: Whether to draw a progress bar; None draws it if stderr is a terminal.

    Returns:
        The number of parts, and of their bytes.

    Raises:
        DataError: A part is missing or was changed, or the graph has no hashes.
    """
    manifest = read_json(folder / MANIFEST, "rgcn-graph", FORMAT_VERSION, OLDEST_VERSION)
    with report_damage(f"{folder / MANIFEST}: damaged"):
        if not _has_hashes(manifest):
            raise DataError(
                f"{folder} cannot be checked: rgcn 0.2.0 wrote it, which recorded no hashes. It opens as before; build "
                "it again with `rgcn data build` to have them"
            )
        _check_parts(folder, manifest, compare_hashes=True, show_progress=show_progress)
        sizes = _part_sizes(manifest)
    return len(sizes), sum(sizes.values())


def _has_hashes(manifest: dict[str, Any]) -> bool:
    return bool(manifest["version"] > 2)


def _part_sizes(manifest: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of each part that must exist."""
    parts = manifest["parts"]
    search_files = [name for name in (TITLES, *SEARCH_FILES) if name in parts]
    return {name: parts[name] for name in (*_part_names("classes.text" in parts), *search_files)}


def _check_parts(
    folder: Path, manifest: dict[str, Any], *, compare_hashes: bool, show_progress: bool | None = False
) -> None:
    """Raise DataError if a part is missing, damaged or of another graph."""
    sizes, fingerprint = _part_sizes(manifest), manifest["fingerprint"] if _has_hashes(manifest) else None
    problems = {name: _part_problem(folder / name, size, fingerprint) for name, size in sizes.items()}
    if compare_hashes:
        names = [name for name in sizes if problems[name] is None]
        with progress("checking", sum(map(sizes.__getitem__, names)), "bytes", show=show_progress) as meter:
            hashed = {name: sizes[name] - FINGERPRINT_BYTES * (name != ARRAYS_FILE) for name in names}
            for name, digest in map_in_threads(names, lambda name: file_sha256(folder / name, hashed[name])):
                meter.advance(sizes[name])
                if digest != manifest["sha256"][name]:
                    problems[name] = "its bytes are not those that were written (sha256)"
    damaged = [f"{name}: {problem}" for name, problem in problems.items() if problem is not None]
    if damaged:
        raise DataError(
            f"{folder}: damaged: {'; '.join(damaged)}. Copy {'this part' if len(damaged) == 1 else 'these parts'} from "
            "where the graph came from, or build the graph again"
        )


def _part_problem(path: Path, size: int, fingerprint: str | None) -> str | None:
    """Return what is wrong with a part, as far as can be seen without reading it."""
    if not path.is_file():
        return _missing_reason(path)
    if path.stat().st_size != size:
        return f"it has {path.stat().st_size:,} bytes, and was written with {size:,}"
    if fingerprint is not None and _read_fingerprint(path) != fingerprint:
        return "it does not have the fingerprint of this graph, so it was damaged, or copied from another graph"
    return None


def _read_fingerprint(path: Path) -> str | None:
    """Return the fingerprint of the graph that a part belongs to."""
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


def write_names(folder: Path, stem: str, vocabulary: Vocabulary) -> None:
    """Write the names of nodes, relations or classes."""
    names = vocabulary.table
    atomic.replace_atomically(folder / f"{stem}.text", lambda path: atomic.write_pieces(path, b"", [names.text]))
    write_array(folder / f"{stem}.ends.npy", np.int64, names.ends.shape, [names.ends])
    write_array(folder / f"{stem}.slots.npy", np.int32, names.slots.shape, [names.slots])


def open_names(folder: Path, stem: str, kind: str) -> Vocabulary:
    """Open what `write_names` wrote; `kind` is what error messages call a name."""
    ends, slots = open_array(folder / f"{stem}.ends.npy", 1), open_array(folder / f"{stem}.slots.npy", 1)
    path, size = require_file(folder / f"{stem}.text"), int(ends[-1]) if len(ends) else 0
    if not 0 <= size <= path.stat().st_size:
        raise DataError(f"{path}: damaged: its names do not end where {stem}.ends.npy says")
    if size > MAX_IN_MEMORY_BYTES:
        text: NDArray[Any] = np.memmap(path, dtype=np.uint8, mode="r", shape=(size,))
    else:
        text = np.fromfile(path, dtype=np.uint8, count=size)
    return Vocabulary(StoredNames(text, ends, slots), kind=kind)


def open_array(path: Path, dimensions: int | None = None) -> NDArray[Any]:
    """Open an array of integers that `write_array` wrote: mapped, or in memory if it is small."""
    # If a header promises more than the file has, mapping fails. Reading would first allocate memory for it.
    array = np.lib.format.open_memmap(require_file(path), mode="r")
    if array.dtype.str not in ("<i4", "<i8") or dimensions not in (None, array.ndim):
        raise DataError(f"{path}: damaged: it holds an array of {array.dtype} with {array.ndim} dimensions")
    return array if array.nbytes > MAX_IN_MEMORY_BYTES else np.array(array)


def _part_names(has_classes: bool) -> list[str]:
    return [*name_files("nodes", "relations", *["classes"] * has_classes), TRIPLES, POINTER, TOUCHING, ARRAYS_FILE]


def name_files(*stems: str) -> list[str]:
    """Return the files that `write_names` writes."""
    return [f"{stem}.{suffix}" for stem in stems for suffix in NAME_SUFFIXES]


def remove_parts(folder: Path) -> None:
    """Remove all files of a graph that exist."""
    for name in (MANIFEST, *_part_names(True), TITLES, *SEARCH_FILES):
        atomic.remove(folder / name)


def _checked_metadata(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata that are used; TypeError if a value has another type than its readers expect."""
    checked = {key: value for key, value in manifest.get("metadata", {}).items() if key in STORED_METADATA}
    lists = [checked.get(key) or [] for key in ("labels_from", "source", "skipped_examples")]
    texts = [manifest["name"], manifest["fingerprint"], *chain(*lists, *checked.get("prefixes", {}).values())]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"these must all be text: {texts}")
    if not all(isinstance(checked.get(key, 0), int) for key in ("duplicates", "skipped_lines")):
        raise TypeError("the number of duplicates or of skipped lines is not an integer")
    return checked


@contextmanager
def report_damage(message: str) -> Iterator[None]:
    """Turn any error that the contents of a file cause into a DataError that begins with `message`."""
    try:
        yield
    except RgcnError:
        raise
    except Exception as error:
        raise DataError(f"{message} ({shorten(str(error) or type(error).__name__, 300)})") from error


def require_file(path: Path) -> Path:
    """Return the path of a regular file; DataError if it is missing or something else."""
    if not path.is_file():  # opening a FIFO would wait forever
        raise DataError(f"{path}: {_missing_reason(path)}; is {path.parent} what `save` wrote?")
    return path


def _missing_reason(path: Path) -> str:
    return "it is not a regular file" if path.exists() else "there is no such file"


def read_json(path: Path, format_name: str, version: int, oldest: int | None = None) -> dict[str, Any]:
    """Read a JSON object that rgcn wrote.

    Args:
        path: The file.
        format_name: Its field "format".
        version: The newest version of the format that can be read.
        oldest: The oldest version that can be read; by default the newest.

    Raises:
        DataError: The file is missing, damaged, or of another format or version.
    """
    try:
        content = json.loads(require_file(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict) or content.get("format") != format_name:
        raise DataError(f"{path}: not a {format_name} file")
    file_version = content.get("version", 0)
    if not isinstance(file_version, int):
        raise DataError(f"{path}: damaged, its version is not an integer")
    if file_version > version:
        raise DataError(f"{path}: written by a newer rgcn (format {file_version}, not {version}); upgrade rgcn")
    if file_version < (version if oldest is None else oldest):
        writer = content.get("rgcn")
        raise DataError(
            f"{path}: written by rgcn {writer if isinstance(writer, str) else 'of an earlier version'}, whose "
            "settings and weights have another meaning here. Train it again, or use it with the version that wrote it"
        )
    return content
