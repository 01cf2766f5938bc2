"""A graph built on disk: numbered, freed of duplicates and indexed in pieces, so that it need not fit in memory.

A stage writes its files, and only then building.json, which says how far the building is: killed, it goes on with the
stage that was not finished. graph.json comes last, and a folder without it is no graph.

numbered   the files are read: names.*, building.rows int32 [T, 3], building.columns (splits, weights, times)
distinct   triples.npy and building.kept: the same without what repeats
indexed    incidence.*
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from rgcn.atomic import full_disk, remove_temporaries, replace_atomically, sync, write_array, write_atomically
from rgcn.compression import compression_of
from rgcn.data.collecting import TripleCollector
from rgcn.data.files import ByteSource, SourceFile, line_blocks
from rgcn.data.graph_store import (
    PARTS,
    TRIPLES,
    damage_told,
    is_stored_graph,
    open_array,
    open_incidence,
    open_names,
    read_json,
    write_incidence,
    write_names,
)
from rgcn.data.rdf import node_kinds
from rgcn.data.triple_rows import distinct
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, StoredGraph
from rgcn.memory import give_back
from rgcn.progress import progress
from rgcn.words import memory

STATE, ROWS, COLUMNS, KEPT_COLUMNS = "building.json", "building.rows", "building.columns", "building.kept"
LOCK, ROW_BYTES = "building.lock", 12
COPIED_AT_ONCE = 1 << 20  # rows
# Compressed text of triples grows about so much; Parquet is packed too.
EXPANSION = {"compressed": 8, "parquet": 4}


def expected_bytes(files: list[SourceFile]) -> int:
    """How much text the files hold, as far as their sizes tell."""
    packed = ("compressed" if compression_of(file.path) else file.format for file in files)
    return sum(file.path.stat().st_size * EXPANSION.get(how, 1) for file, how in zip(files, packed, strict=True))


class Building:
    """The folder in which a graph is built, and how far it is.

    of  what is built: another building in the same folder begins anew
    """

    def __init__(self, folder: Path, of: str) -> None:
        if is_stored_graph(folder):
            raise DataError(f"{folder} holds a graph already: choose another folder, or remove it")
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is a file: a graph is built in a folder")
        begun = (folder / STATE).exists()
        if not begun and folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder} is there and not empty: choose another folder for the graph")
        self.folder, self._of, self._made = folder, of, not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._stage, self._told = "", dict[str, Any]()
        if begun:
            remove_temporaries(folder)
            state = read_json(folder / STATE, "rgcn-building", 1)
            if state.get("of") == of:
                with damage_told(f"{folder / STATE}: damaged; remove {folder} and build again"):
                    self._stage, self._told = str(state["stage"]), dict(state["told"])
        self.resumed = self._stage != ""
        if not self.resumed:
            self.begin_anew()

    def begin_anew(self) -> None:
        """Whoever goes on from here repeats all."""
        self._reached("", {})

    def _reached(self, stage: str, told: dict[str, Any]) -> None:
        self._stage, self._told = stage, told
        about = {"format": "rgcn-building", "version": 1, "of": self._of, "stage": stage, "told": told}
        write_atomically(self.folder / STATE, json.dumps(about) + "\n")

    @contextmanager
    def writing(self, files: list[SourceFile]) -> Iterator[None]:
        """Check that there is room for the graph of these files, and say so where there was not."""
        lock, needed = FileLock(self.folder / LOCK), _needed_bytes(files)
        try:
            with lock.acquire(timeout=0):
                free = shutil.disk_usage(self.folder).free
                if not self.resumed and free < needed:
                    raise DataError(
                        f"building a graph of {', '.join(file.path.name for file in files[:3])} takes about "
                        f"{memory(needed)} of disk, and {self.folder} has {memory(free)} free: use another disk"
                    )
                yield
        except RgcnError:
            if not self._stage:  # nothing to go on with
                self._leave_nothing()
            raise
        except Timeout:
            raise DataError(f"another process is building in {self.folder}: wait for it, or stop it") from None
        except OSError as error:
            if (words := full_disk(error, self.folder)) is None:
                raise
            free = shutil.disk_usage(self.folder).free
            raise DataError(
                f"{words}. The building takes about {memory(needed)}, and {memory(free)} are free; the "
                "same command goes on from where it was"
            ) from error

    def built(
        self, number: Callable[[TripleCollector], dict[str, Any]], large: bool, show: bool | None
    ) -> KnowledgeGraph:
        """The graph, without what says that it is whole (`graph_store.write_rest`).

        number  reads the files into a collector, and says what is known of them: `name`, `metadata` and `is_rdf`
        """
        folder = self.folder
        if self._stage == "":
            with (folder / ROWS).open("wb") as rows:
                collector = TripleCollector(large, rows)
                told = number(collector)
                nodes, relations = collector.names()
                rows.flush()
                write_names(folder, "nodes", nodes.table)
                write_names(folder, "relations", relations.table)
                self._write_columns(COLUMNS, collector.columns())
            sync(folder / ROWS)
            self._reached("numbered", {**told, "rows": collector.count})
            del collector, nodes, relations
            give_back()
        nodes, relations = (open_names(folder, stem, stem.removesuffix("s")) for stem in ("nodes", "relations"))
        if self._stage == "numbered":
            with progress("removing duplicates", show=show):
                duplicates = self._write_distinct(self._told["rows"], len(nodes))
            metadata = {**self._told["metadata"], "duplicates": duplicates}
            self._reached("distinct", {**self._told, "metadata": metadata})
        (folder / ROWS).unlink(missing_ok=True)
        if self._stage == "distinct":
            with progress("indexing", show=show):
                write_incidence(folder, open_array(folder / TRIPLES, 2), len(nodes))
            self._reached("indexed", self._told)
        kinds = node_kinds(nodes) if self._told["is_rdf"] else None
        known: Any = {key: self._told[key] for key in ("name", "metadata")} | self._columns(KEPT_COLUMNS)
        # What was read of a mapped file counts as memory for as long as it is open: it was closed, and is opened anew.
        files = open_array(folder / TRIPLES, 2), open_incidence(folder)
        return StoredGraph.opened(*files, nodes=nodes, relations=relations, node_kinds=kinds, **known)

    def finish(self) -> None:
        """Remove what is not needed once the graph is whole."""
        for name in (ROWS, COLUMNS, KEPT_COLUMNS, LOCK, STATE):
            (self.folder / name).unlink(missing_ok=True)

    def _leave_nothing(self) -> None:
        remove_temporaries(self.folder)
        for pattern in ("building.*", *PARTS):
            for left in self.folder.glob(pattern):
                left.unlink(missing_ok=True)
        if self._made:
            with suppress(OSError):  # somebody put something there
                self.folder.rmdir()

    def _write_columns(self, name: str, columns: dict[str, NDArray[Any] | None]) -> None:
        from safetensors.numpy import save_file

        there = {role: array for role, array in columns.items() if array is not None}
        replace_atomically(self.folder / name, lambda at: save_file(there, at))

    def _columns(self, name: str) -> dict[str, NDArray[Any]]:
        from safetensors.numpy import load_file

        return dict(load_file(self.folder / name))

    def _write_distinct(self, count: int, num_nodes: int) -> int:
        """Write the triples and what stands beside them without what repeats; how many did."""
        rows = np.memmap(self.folder / ROWS, dtype=np.int32, mode="r", shape=(count, 3))
        columns = self._columns(COLUMNS)
        splits, times = columns.get("triple_splits"), columns.get("triple_times")
        if "edge_weights" in columns:  # with weights, a triple that stands twice is two edges
            kept = np.ones(count, dtype=bool)
        else:
            kept = distinct(rows, splits, times, num_nodes)
        left = int(np.count_nonzero(kept))
        starts = range(0, count, COPIED_AT_ONCE)
        pieces = (rows[i : i + COPIED_AT_ONCE][kept[i : i + COPIED_AT_ONCE]] for i in starts)
        write_array(self.folder / TRIPLES, np.int32, (left, 3), pieces)
        self._write_columns(KEPT_COLUMNS, {role: array[kept] for role, array in columns.items()})
        return count - left


def _needed_bytes(files: list[SourceFile]) -> int:
    """What the rows of ids and their index take, and a share of the text for the names; by the first lines."""
    text, line = expected_bytes(files), 40.0
    if files[0].format != "parquet":
        with ByteSource(files[0].path) as source:
            first = next(line_blocks(source), None)
            line = max(len(first.data) / max(first.data.count(b"\n"), 1), 8.0) if first else line
    return int(text / line * (2 * ROW_BYTES + 8) + text / 8)
