"""A graph built on disk: numbered, freed of duplicates and indexed in pieces, so that it need not fit in memory.

A stage writes its files, and only then building.json, which says how far the building is and has size and sha256 of
each file: killed, it goes on after the last stage whose files are as they were written. graph.json comes last, and a
folder without it is no graph. Only the process that holds building.lock reads or changes the folder.

numbered   the files are read: names.*, building.rows int32 [T, 3], building.columns (splits, weights, times)
distinct   triples.npy and building.kept: the same without what repeats
indexed    incidence.*
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from rgcn.data.files import ByteSource, SourceFile, line_blocks
from rgcn.data.graph_store import (
    POINTER,
    TOUCHING,
    TRIPLES,
    damage_told,
    is_stored_graph,
    names_of,
    open_array,
    open_incidence,
    open_names,
    read_json,
    remove_parts,
    write_incidence,
    write_names,
)
from rgcn.data.rdf import node_kinds
from rgcn.data.triple_collector import TripleCollector, kept_columns, kept_rows
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, StoredGraph
from rgcn.system.atomic_files import (
    TEMPORARY_PREFIX,
    full_disk,
    remove,
    remove_temporaries,
    replace_atomically,
    sha256_of,
    sync,
    write_array,
    write_atomically,
)
from rgcn.system.compression import compression_of
from rgcn.system.formatting import memory
from rgcn.system.memory import give_back
from rgcn.system.progress import progress
from rgcn.system.threads import in_order

STATE, ROWS, COLUMNS, KEPT_COLUMNS = "building.json", "building.rows", "building.columns", "building.kept"
LOCK, ROW_BYTES = "building.lock", 12
NAMED = names_of("nodes", "relations")
# What each stage writes, and what is read by those after it.
WRITTEN = {"numbered": [*NAMED, ROWS, COLUMNS], "distinct": [TRIPLES, KEPT_COLUMNS], "indexed": [POINTER, TOUCHING]}
NEEDED = {
    "numbered": WRITTEN["numbered"],
    "distinct": [*NAMED, *WRITTEN["distinct"]],
    "indexed": [*NAMED, *WRITTEN["distinct"], *WRITTEN["indexed"]],
}
STATE_VERSION = 2  # version 1 has no hashes: such a building begins anew
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
        self.folder, self._of, self._made = folder, of, False
        self._stage, self._told = "", dict[str, Any]()
        self._recorded = dict[str, tuple[int, str]]()  # bytes and sha256 of what the stages wrote

    @contextmanager
    def writing(self, files: list[SourceFile]) -> Iterator[None]:
        """Hold the folder for this process alone, find out how far the building is, and check that there is room."""
        needed = _needed_bytes(files)
        with self._locked():
            try:
                free = shutil.disk_usage(self.folder).free
                if not self._stage and free < needed:
                    raise DataError(
                        f"building a graph of {', '.join(file.path.name for file in files[:3])} takes about "
                        f"{memory(needed)} of disk, and {self.folder} has {memory(free)} free: use another disk"
                    )
                yield
            except RgcnError:
                if not self._stage:  # nothing to go on with
                    self._leave_nothing()
                raise
            except OSError as error:
                if (words := full_disk(error, self.folder)) is None:
                    raise
                free = shutil.disk_usage(self.folder).free
                raise DataError(
                    f"{words}. The building takes about {memory(needed)}, and {memory(free)} are free; the "
                    "same command goes on from where it was"
                ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock while anything is read or changed in the folder, which is made if need be."""
        self._refuse_other_contents(locked=False)  # else a lock would be left there
        self._made = not self.folder.exists()
        lock = self._acquired()
        try:
            try:
                self._refuse_other_contents(locked=True)
                self._take_up()
            except DataError:
                if is_stored_graph(self.folder):
                    self.finish()
                else:
                    (self.folder / LOCK).unlink(missing_ok=True)
                raise
            yield
        finally:
            lock.release()

    def _acquired(self) -> FileLock:
        lock = FileLock(self.folder / LOCK)
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise DataError(f"another process is building in {self.folder}: wait for it, or stop it") from None
            except FileNotFoundError:  # another building came to nothing, and has just removed the folder
                continue
            if (self.folder / LOCK).exists():
                return lock
            lock.release()  # of a file that another building has just removed: it keeps nobody out

    def _refuse_other_contents(self, *, locked: bool) -> None:
        """Raise where the folder holds a graph, or what no building wrote.

        Without the lock, nothing is said of a folder in which another process may be building.
        """
        folder = self.folder
        try:
            names = {path.name for path in folder.iterdir()}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise DataError(f"{folder} is a file: a graph is built in a folder") from None
        if not locked and names & {STATE, LOCK}:
            return
        if is_stored_graph(folder):
            raise DataError(f"{folder} holds a graph already: choose another folder, or remove it")
        if STATE not in names and any(name != LOCK and not name.startswith(TEMPORARY_PREFIX) for name in names):
            raise DataError(f"{folder} is there and not empty: choose another folder for the graph")

    def _take_up(self) -> None:
        """Find out after which stage the building can go on; if after none, begin anew."""
        remove_temporaries(self.folder)
        path = self.folder / STATE
        try:
            state = read_json(path, "rgcn-building", STATE_VERSION, oldest=1) if path.exists() else {}
        except DataError as error:
            raise DataError(f"{error}. To build anew, remove {self.folder}") from None
        if state.get("of") == self._of and state["version"] == STATE_VERSION:
            with damage_told(f"{path}: damaged; remove {self.folder} and build again"):
                self._recorded = {name: (int(size), str(digest)) for name, (size, digest) in state["parts"].items()}
                self._told, self._stage = dict(state["told"]), self._last_whole_stage(str(state["stage"]))
        if not self._stage:
            self.begin_anew()
            self._remove_files()

    def _last_whole_stage(self, reached: str) -> str:
        """The last stage after which all that is needed is as it was written; what is damaged is said."""
        stages, whole, found = [*WRITTEN], dict[str, bool](), ""
        for stage in reversed(stages[: stages.index(reached) + 1] if reached else []):
            whole |= in_order([name for name in NEEDED[stage] if name not in whole], self._is_whole)
            if all(whole[name] for name in NEEDED[stage]):
                found = stage
                break
        if damaged := [name for name, is_whole in whole.items() if not is_whole]:
            goes_on = f'goes on after the stage "{found}"' if found else "reads the files again"
            warnings.warn(
                f"{self.folder}: {', '.join(damaged)} {'is' if len(damaged) == 1 else 'are'} missing or not as the "
                f'stopped building wrote it, which had ended the stage "{reached}": the building {goes_on}',
                stacklevel=2,
            )
        for name in damaged:
            remove(self.folder / name)
        return found

    def _is_whole(self, name: str) -> bool:
        """Whether it is as a stage wrote it; what `write_rest` wrote at its end before it was stopped is cut off."""
        path, (size, digest) = self.folder / name, self._recorded[name]
        if not path.is_file() or sha256_of(path, size) != digest:
            return False
        os.truncate(path, size)
        return True

    def begin_anew(self) -> None:
        """Whoever goes on from here repeats all."""
        self._reached("", {})

    def _reached(self, stage: str, told: dict[str, Any]) -> None:
        """Record that a stage ended, with size and hash of what it wrote."""
        self._stage, self._told = stage, told
        hashed = in_order(WRITTEN.get(stage, []), lambda name: sha256_of(self.folder / name))
        found = {name: ((self.folder / name).stat().st_size, digest) for name, digest in hashed}
        self._recorded = {**self._recorded, **found} if stage else {}
        about = {"format": "rgcn-building", "version": STATE_VERSION, "of": self._of, "stage": stage, "told": told}
        write_atomically(self.folder / STATE, json.dumps({**about, "parts": self._recorded}) + "\n")

    @property
    def hashes(self) -> dict[str, str]:
        """The sha256 of each part of the graph that the stages wrote."""
        return {name: digest for name, (_, digest) in self._recorded.items()}

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
                self._write_columns(COLUMNS, collector.columns(nodes))
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
        for name in (ROWS, COLUMNS, KEPT_COLUMNS, STATE, LOCK):
            remove(self.folder / name)

    def _remove_files(self) -> None:
        """Remove whatever stages wrote."""
        remove_parts(self.folder)
        for name in (ROWS, COLUMNS, KEPT_COLUMNS):
            remove(self.folder / name)

    def _leave_nothing(self) -> None:
        remove_temporaries(self.folder)
        self._remove_files()
        self.finish()
        if self._made:
            with suppress(OSError):  # somebody put something there
                self.folder.rmdir()

    def _write_columns(self, name: str, columns: dict[str, NDArray[Any]]) -> None:
        from safetensors.numpy import save_file

        replace_atomically(self.folder / name, lambda at: save_file(columns, at))

    def _columns(self, name: str) -> dict[str, NDArray[Any]]:
        from safetensors.numpy import load_file

        return dict(load_file(self.folder / name))

    def _write_distinct(self, count: int, num_nodes: int) -> int:
        """Write the triples and what stands beside them without what repeats; how many did."""
        rows = np.memmap(self.folder / ROWS, dtype=np.int32, mode="r", shape=(count, 3))
        columns = self._columns(COLUMNS)
        kept = kept_rows(rows, columns, num_nodes)
        left = int(np.count_nonzero(kept))
        starts = range(0, count, COPIED_AT_ONCE)
        pieces = (rows[i : i + COPIED_AT_ONCE][kept[i : i + COPIED_AT_ONCE]] for i in starts)
        write_array(self.folder / TRIPLES, np.int32, (left, 3), pieces)
        self._write_columns(KEPT_COLUMNS, kept_columns(columns, kept))
        return count - left


def _needed_bytes(files: list[SourceFile]) -> int:
    """What the rows of ids and their index take, and a share of the text for the names; by the first lines."""
    text, line = expected_bytes(files), 40.0
    if files[0].format != "parquet":
        with ByteSource(files[0].path) as source:
            first = next(line_blocks(source), None)
            line = max(len(first.data) / max(first.data.count(b"\n"), 1), 8.0) if first else line
    return int(text / line * (2 * ROW_BYTES + 8) + text / 8)
