"""A graph built on disk: numbered, freed of duplicates and indexed in pieces, so that it need not fit in memory.

Once the files are read, building.json says so, with size and sha256 of what came of them: names.*, building.rows
int32 [T, 3] and building.columns (splits, weights, times). A building that was killed goes on from there, if all of it
is as it was written. graph.json comes last, and a folder without it is no graph. Only the process that holds
building.lock reads or changes the folder.
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

from rgcn.data import graph_store as store
from rgcn.data.files import ByteSource, SourceFile, line_blocks
from rgcn.data.graph_store import TRIPLES, damage_told, is_stored_graph, open_array, open_names, read_json
from rgcn.data.rdf import node_kinds
from rgcn.data.triple_collector import TripleCollector, kept_columns, kept_rows
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, StoredGraph
from rgcn.system import atomic_files as atomic
from rgcn.system.compression import compression_of
from rgcn.system.formatting import memory
from rgcn.system.memory import give_back
from rgcn.system.progress import progress
from rgcn.system.threads import in_order

STATE, ROWS, COLUMNS, LOCK = "building.json", "building.rows", "building.columns", "building.lock"
ROW_BYTES = 12
RECORDED = [*store.names_of("nodes", "relations"), ROWS, COLUMNS]  # what came of reading the files
STATE_VERSION = 3  # buildings of earlier versions begin anew
COPIED_AT_ONCE = 1 << 20  # rows
# Compressed text of triples grows about so much; Parquet is packed too.
EXPANSION = {"compressed": 8, "parquet": 4}


def expected_bytes(files: list[SourceFile]) -> int:
    """How much text the files hold, as far as their sizes tell."""
    packed = ("compressed" if compression_of(file.path) else file.format for file in files)
    return sum(file.path.stat().st_size * EXPANSION.get(how, 1) for file, how in zip(files, packed, strict=True))


class Building:
    """The folder in which a graph is built.

    of  what is built: another building in the same folder begins anew
    """

    def __init__(self, folder: Path, of: str) -> None:
        self.folder, self._of = folder, of
        self._known = dict[str, Any]()  # what is known of the files once they were read

    @contextmanager
    def writing(self, files: list[SourceFile]) -> Iterator[None]:
        """Hold the folder for this process alone, find out how far the building is, and check that there is room."""
        folder, needed, taken_up = self.folder, _needed_bytes(files), False
        self._refuse_other_contents(locked=False)  # else a lock would be left there
        made, lock = not folder.exists(), self._acquired()
        try:
            self._refuse_other_contents(locked=True)
            self._take_up()
            taken_up, free = True, shutil.disk_usage(folder).free
            if not self._known and free < needed:
                raise DataError(
                    f"building a graph of {', '.join(file.path.name for file in files[:3])} takes about "
                    f"{memory(needed)} of disk, and {folder} has {memory(free)} free: use another disk"
                )
            yield
        except RgcnError:
            if is_stored_graph(folder):
                self.finish()
            elif not (taken_up and self._known):  # nothing to go on with
                if taken_up:
                    self._remove_files()
                atomic.remove(folder / LOCK)
                if made:
                    with suppress(OSError):  # somebody put something there
                        folder.rmdir()
            raise
        except OSError as error:
            if (words := atomic.full_disk(error, folder)) is None:
                raise
            raise DataError(
                f"{words}. The building takes about {memory(needed)}, and {memory(shutil.disk_usage(folder).free)} are "
                "free; the same command goes on from where it was"
            ) from error
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
        if STATE not in names and any(name != LOCK and not name.startswith(atomic.TEMPORARY_PREFIX) for name in names):
            raise DataError(f"{folder} is there and not empty: choose another folder for the graph")

    def _take_up(self) -> None:
        """Find out whether the files were read, and what came of them is whole; else begin anew."""
        path, known = self.folder / STATE, dict[str, Any]()
        atomic.remove_temporaries(self.folder)
        try:
            state = read_json(path, "rgcn-building", STATE_VERSION, oldest=1) if path.exists() else {}
        except DataError as error:
            raise DataError(f"{error}. To build anew, remove {self.folder}") from None
        if state.get("of") == self._of and state["version"] == STATE_VERSION:
            with damage_told(f"{path}: damaged; remove {self.folder} and build again"):
                parts, known = state["parts"], dict(state["known"])
                found = in_order(parts, lambda name: self._is_whole(name, *parts[name]))
                if damaged := [name for name, is_whole in found if not is_whole]:
                    warnings.warn(
                        f"{self.folder}: {', '.join(damaged)} {'is' if len(damaged) == 1 else 'are'} missing or not as "
                        "the stopped building wrote it: the building reads the files again",
                        stacklevel=2,
                    )
                    known = {}
        if known:
            self._known = known
        else:
            self._remove_files()
            self.begin_anew()

    def _is_whole(self, name: str, size: int, digest: str) -> bool:
        """Whether it is as it was recorded; what `write_rest` wrote at its end before it was stopped is cut off."""
        path = self.folder / name
        if not path.is_file() or atomic.sha256_of(path, size) != digest:
            return False
        os.truncate(path, size)
        return True

    def begin_anew(self) -> None:
        """Whoever goes on from here repeats all."""
        self._record({}, [])

    def _record(self, known: dict[str, Any], names: list[str]) -> None:
        """Write down what is known of the files, with size and hash of what came of them."""
        self._known, folder = known, self.folder
        hashed = in_order(names, lambda name: atomic.sha256_of(folder / name))
        parts = {name: ((folder / name).stat().st_size, digest) for name, digest in hashed}
        about = {"format": "rgcn-building", "version": STATE_VERSION, "of": self._of, "known": known, "parts": parts}
        atomic.write_atomically(folder / STATE, json.dumps(about) + "\n")

    def built(
        self, number: Callable[[TripleCollector], dict[str, Any]], large: bool, show: bool | None
    ) -> KnowledgeGraph:
        """The graph, without what says that it is whole (`graph_store.write_rest`).

        number  reads the files into a collector, and says what is known of them: `name`, `metadata` and `is_rdf`
        """
        from safetensors.numpy import load_file

        folder = self.folder
        if not self._known:
            self._read(number, large)
            give_back()
        known, columns = self._known, load_file(folder / COLUMNS)
        nodes, relations = (open_names(folder, stem, stem.removesuffix("s")) for stem in ("nodes", "relations"))
        # What was read of a mapped file counts as memory for as long as it is open: each is closed, and opened anew.
        with progress("removing duplicates", show=show):
            kept = self._write_distinct(columns, len(nodes))
        with progress("indexing", show=show):
            store.write_incidence(folder, open_array(folder / TRIPLES, 2), len(nodes))
        others: dict[str, Any] = kept_columns(columns, kept)
        return StoredGraph.opened(
            open_array(folder / TRIPLES, 2),
            store.open_incidence(folder),
            nodes=nodes,
            relations=relations,
            node_kinds=node_kinds(nodes) if known["is_rdf"] else None,
            name=known["name"],
            metadata={**known["metadata"], "duplicates": int(np.count_nonzero(~kept))},
            **others,
        )

    def _write_distinct(self, columns: dict[str, NDArray[Any]], num_nodes: int) -> NDArray[np.bool_]:
        """Write the triples without those that repeat; bool [T]: which stay."""
        rows = np.memmap(self.folder / ROWS, dtype=np.int32, mode="r", shape=(self._known["rows"], 3))
        kept, size = kept_rows(rows, columns, num_nodes), COPIED_AT_ONCE
        pieces = (rows[i : i + size][kept[i : i + size]] for i in range(0, len(rows), size))
        atomic.write_array(self.folder / TRIPLES, np.int32, (int(np.count_nonzero(kept)), 3), pieces)
        return kept

    def _read(self, number: Callable[[TripleCollector], dict[str, Any]], large: bool) -> None:
        """Read the files, and write names, rows of ids and what stands beside these."""
        from safetensors.numpy import save_file

        folder = self.folder
        with (folder / ROWS).open("wb") as rows:
            collector = TripleCollector(large, rows)
            known = number(collector)
            nodes, relations = collector.names()
        store.write_names(folder, "nodes", nodes.table)
        store.write_names(folder, "relations", relations.table)
        atomic.replace_atomically(folder / COLUMNS, lambda at: save_file(collector.columns(nodes), at))
        atomic.sync(folder / ROWS)
        self._record({**known, "rows": collector.count}, RECORDED)

    def finish(self) -> None:
        """Remove what is not needed once the graph is whole."""
        for name in (ROWS, COLUMNS, STATE, LOCK):
            atomic.remove(self.folder / name)

    def _remove_files(self) -> None:
        """Remove whatever a building wrote, but its lock."""
        atomic.remove_temporaries(self.folder)
        store.remove_parts(self.folder)
        for name in (ROWS, COLUMNS, STATE):
            atomic.remove(self.folder / name)


def _needed_bytes(files: list[SourceFile]) -> int:
    """What the rows of ids and their index take, and a share of the text for the names; by the first lines."""
    text, line = expected_bytes(files), 40.0
    if files[0].format != "parquet":
        with ByteSource(files[0].path) as source:
            first = next(line_blocks(source), None)
            line = max(len(first.data) / max(first.data.count(b"\n"), 1), 8.0) if first else line
    return int(text / line * (2 * ROW_BYTES + 8) + text / 8)
