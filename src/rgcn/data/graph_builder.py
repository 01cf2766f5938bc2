"""Build a graph on disk: number its names, remove duplicates and index it in pieces, so that it need not fit in memory.

Once the files are read, building.json records size and sha256 of what was written: names.*, building.rows (int32
[num_triples, 3]) and building.columns (splits, weights, times). A build that was killed continues from there if all of
it is unchanged. graph.json is written last, and a folder without it is not a graph. Only the process that holds
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
from rgcn.data.files import ByteSource, SourceFile, expected_bytes, line_blocks
from rgcn.data.graph_store import TRIPLES, is_stored_graph, open_array, open_names
from rgcn.data.rdf import node_kinds
from rgcn.data.triple_collector import TripleCollector, find_distinct_rows, select_rows
from rgcn.errors import DataError, RgcnError
from rgcn.graph import KnowledgeGraph, StoredGraph
from rgcn.system import atomic_files as atomic
from rgcn.system.formatting import format_bytes
from rgcn.system.memory import release_memory
from rgcn.system.progress import progress
from rgcn.system.threads import map_in_threads

STATE_FILE, ROWS_FILE, COLUMNS_FILE, LOCK_FILE = "building.json", "building.rows", "building.columns", "building.lock"
BUILD_FILES = (ROWS_FILE, COLUMNS_FILE, STATE_FILE)
ROW_BYTES = 12
READ_PARTS = [*store.name_files("nodes", "relations"), ROWS_FILE, COLUMNS_FILE]  # written when the files were read
STATE_VERSION = 3  # builds of earlier versions start again
COPY_BLOCK_ROWS = 1 << 20


class GraphBuild:
    """Builds a graph in a folder, in steps that a later build can continue.

    Args:
        folder: The folder.
        inputs: Identifies what is built. A build with other inputs in the same folder starts again.
    """

    def __init__(self, folder: Path, inputs: str) -> None:
        self.folder, self._inputs = folder, inputs
        self._state = dict[str, Any]()  # facts about the files once they were read, else empty

    @contextmanager
    def open(self, files: list[SourceFile]) -> Iterator[None]:
        """Lock the folder, find out how far the build is, and check that there is enough disk space.

        Raises:
            DataError: Another process builds in the folder, it holds something else, or the disk is too small.
        """
        folder, needed, is_ours = self.folder, _needed_bytes(files), False
        self._refuse_other_contents(is_locked=False)  # before a lock file is created there
        is_new, lock = not folder.exists(), self._acquire_lock()
        try:
            self._refuse_other_contents(is_locked=True)
            self._load_state()
            is_ours, free = True, shutil.disk_usage(folder).free
            if not self._state and free < needed:
                raise DataError(
                    f"building a graph of {', '.join(file.path.name for file in files[:3])} takes about "
                    f"{format_bytes(needed)} of disk, and {folder} has {format_bytes(free)} free: use another disk"
                )
            yield
        except RgcnError:
            if is_stored_graph(folder):
                self.finish()
            elif not (is_ours and self._state):  # there is no progress to keep
                if is_ours:
                    self._remove_files()
                atomic.remove(folder / LOCK_FILE)
                if is_new:
                    with suppress(OSError):  # someone else may have put files there
                        folder.rmdir()
            raise
        except OSError as error:
            if (problem := atomic.disk_error_message(error, folder)) is None:
                raise
            free = shutil.disk_usage(folder).free
            raise DataError(
                f"{problem}. The build takes about {format_bytes(needed)}, and {format_bytes(free)} are free; the same "
                "command continues from there"
            ) from error
        finally:
            lock.release()

    def _acquire_lock(self) -> FileLock:
        lock = FileLock(self.folder / LOCK_FILE)
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise DataError(f"another process is building in {self.folder}: wait for it, or stop it") from None
            except FileNotFoundError:  # another build failed and has just removed the folder
                continue
            if (self.folder / LOCK_FILE).exists():
                return lock
            lock.release()  # another build has just removed this lock file, so it has no effect

    def _refuse_other_contents(self, *, is_locked: bool) -> None:
        """Raise DataError if the folder holds a graph, or files that no build wrote.

        Without the lock, a folder in which another process may be building is accepted.
        """
        folder = self.folder
        try:
            names = {path.name for path in folder.iterdir()}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise DataError(f"{folder} is a file: a graph is built in a folder") from None
        if not is_locked and names & {STATE_FILE, LOCK_FILE}:
            return
        if is_stored_graph(folder):
            raise DataError(f"{folder} holds a graph already: choose another folder, or remove it")
        others = [name for name in names if name != LOCK_FILE and not name.startswith(atomic.TEMPORARY_PREFIX)]
        if STATE_FILE not in names and others:
            raise DataError(f"{folder} exists and is not empty: choose another folder for the graph")

    def _load_state(self) -> None:
        """Load the state if the files were read and what was written then is intact; else start again."""
        path, state = self.folder / STATE_FILE, dict[str, Any]()
        atomic.remove_temporary_files(self.folder)
        try:
            content = store.read_json(path, "rgcn-building", STATE_VERSION, oldest=1) if path.exists() else {}
        except DataError as error:
            raise DataError(f"{error}. To start the build again, remove {self.folder}") from None
        if content.get("of") == self._inputs and content["version"] == STATE_VERSION:
            with store.report_damage(f"{path}: damaged; remove {self.folder} and build again"):
                parts, state = content["parts"], dict(content["known"])
                checks = map_in_threads(parts, lambda name: self._is_intact(name, *parts[name]))
                if damaged := [name for name, is_intact in checks if not is_intact]:
                    warnings.warn(
                        f"{self.folder}: {', '.join(damaged)} {'is' if len(damaged) == 1 else 'are'} missing or not as "
                        "the stopped build wrote it: the build reads the files again",
                        stacklevel=2,
                    )
                    state = {}
        if state:
            self._state = state
        else:
            self._remove_files()
            self.forget_progress()

    def _is_intact(self, name: str, size: int, digest: str) -> bool:
        """Return whether a part is as recorded, and cut off what `write_remaining_parts` may have added to it."""
        path = self.folder / name
        if not path.is_file() or atomic.file_sha256(path, size) != digest:
            return False
        os.truncate(path, size)
        return True

    def forget_progress(self) -> None:
        """Discard the recorded progress, so that a later build in this folder starts again."""
        self._record({}, [])

    def _record(self, state: dict[str, Any], names: list[str]) -> None:
        """Write the state, with size and sha256 of parts."""
        self._state, folder = state, self.folder
        hashes = map_in_threads(names, lambda name: atomic.file_sha256(folder / name))
        parts = {name: ((folder / name).stat().st_size, digest) for name, digest in hashes}
        fields = {"format": "rgcn-building", "version": STATE_VERSION}
        fields |= {"of": self._inputs, "known": state, "parts": parts}
        atomic.write_atomically(folder / STATE_FILE, json.dumps(fields) + "\n")

    def write_graph(
        self, collect: Callable[[TripleCollector], dict[str, Any]], is_large: bool, show_progress: bool | None
    ) -> KnowledgeGraph:
        """Write names, triples and their index; `graph_store.write_remaining_parts` writes the rest.

        Args:
            collect: Reads the files into a collector, and returns `name`, `metadata` and `is_rdf` of the graph.
            is_large: Whether the files are worth compiled loops.
            show_progress: Whether to draw progress bars; None draws them if stderr is a terminal.

        Returns:
            The graph, whose arrays are mapped from the files.
        """
        from safetensors.numpy import load_file

        folder = self.folder
        if not self._state:
            self._read(collect, is_large)
            release_memory()
        state, columns = self._state, load_file(folder / COLUMNS_FILE)
        nodes, relations = (open_names(folder, stem, stem.removesuffix("s")) for stem in ("nodes", "relations"))
        # Pages of a mapped file count as memory while it is open. So the triples are closed and opened after each step.
        with progress("removing duplicates", show=show_progress):
            is_first = self._write_distinct(columns, len(nodes))
        with progress("indexing", show=show_progress):
            store.write_incidence(folder, open_array(folder / TRIPLES, 2), len(nodes))
        others: dict[str, Any] = select_rows(columns, is_first)
        return StoredGraph.open(
            open_array(folder / TRIPLES, 2),
            store.open_incidence(folder),
            nodes=nodes,
            relations=relations,
            node_kinds=node_kinds(nodes) if state["is_rdf"] else None,
            name=state["name"],
            metadata={**state["metadata"], "duplicates": int(np.count_nonzero(~is_first))},
            **others,
        )

    def _write_distinct(self, columns: dict[str, NDArray[Any]], num_nodes: int) -> NDArray[np.bool_]:
        """Write the triples without duplicates; return which rows they are, bool [num_rows]."""
        rows = np.memmap(self.folder / ROWS_FILE, dtype=np.int32, mode="r", shape=(self._state["rows"], 3))
        is_first, size = find_distinct_rows(rows, columns, num_nodes), COPY_BLOCK_ROWS
        pieces = (rows[i : i + size][is_first[i : i + size]] for i in range(0, len(rows), size))
        atomic.write_array(self.folder / TRIPLES, np.int32, (int(np.count_nonzero(is_first)), 3), pieces)
        return is_first

    def _read(self, collect: Callable[[TripleCollector], dict[str, Any]], is_large: bool) -> None:
        """Read the files, and write names, rows of ids and their further columns."""
        from safetensors.numpy import save_file

        folder = self.folder
        with (folder / ROWS_FILE).open("wb") as rows:
            collector = TripleCollector(is_large, rows)
            state = collect(collector)
            nodes, relations, columns = collector.finish()
        store.write_names(folder, "nodes", nodes)
        store.write_names(folder, "relations", relations)
        atomic.replace_atomically(folder / COLUMNS_FILE, lambda path: save_file(columns, path))
        atomic.sync(folder / ROWS_FILE)
        self._record({**state, "rows": collector.count}, READ_PARTS)

    def finish(self) -> None:
        """Remove the files that are not part of the graph."""
        for name in (*BUILD_FILES, LOCK_FILE):
            atomic.remove(self.folder / name)

    def _remove_files(self) -> None:
        """Remove everything that a build wrote except its lock."""
        atomic.remove_temporary_files(self.folder)
        store.remove_parts(self.folder)
        for name in BUILD_FILES:
            atomic.remove(self.folder / name)


def _needed_bytes(files: list[SourceFile]) -> int:
    """Estimate the size of the graph: rows of ids with their index, by the first lines, and names."""
    text, line = expected_bytes(files), 40.0
    if files[0].format != "parquet":
        with ByteSource(files[0].path) as source:
            if first := next(line_blocks(source), None):
                line = max(len(first.data) / max(first.data.count(b"\n"), 1), 8.0)
    return int(text / line * (2 * ROW_BYTES + 8) + text / 8)
