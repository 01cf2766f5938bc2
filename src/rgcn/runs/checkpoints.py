"""Checkpoints: the whole state of a training on disk. A damaged checkpoint is detected and never used.

step-000000500.safetensors   the tensors of TrainingState
step-000000500.shards/       tensors whose rows several ranks hold, one file per rank (`sharded_state`)
step-000000500.json          plain values, and the sha256 of the other files; written last, after all others exist
best-000000400.safetensors   the best weights so far, also with .shards/; several checkpoints may refer to the same file

In a distributed training every rank calls each method. The main process writes the files that are equal on all ranks.
"""

import hashlib
import json
import warnings
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rgcn.conversion import convert_weight_names
from rgcn.data.graph_store import read_json
from rgcn.distributed.sharded_state import read_tables, write_tables
from rgcn.errors import DataError
from rgcn.nn.row_tables import read_tensors, write_tensors
from rgcn.placement import current
from rgcn.system import atomic_files
from rgcn.training.fitting import TrainingState

VERSION, OLDEST = 3, 1
MAX_ATTEMPTS = 3  # to read while a training replaces the files
Files = dict[str, dict[str, Any]]


class Checkpoints:
    """The checkpoints in a folder.

    Args:
        folder: The folder.
        keep_last: Number of checkpoints to keep; older ones are removed.
    """

    def __init__(self, folder: Path, keep_last: int = 2) -> None:
        self.folder, self.keep_last = folder, keep_last

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint for the current step, then remove old ones.

        Raises:
            DataError: The files cannot be written, for example because the disk is full. Earlier checkpoints remain.
        """
        step, placement, files = state.values["steps_taken"], current(), Files()
        try:
            if any(name.startswith("best/") for name in state.tensors):
                best = f"best-{state.values['best']['step']:09d}"
                files |= self._existing_best(best, step) or self._write("best", best, state)
            files |= self._write("state", f"step-{step:09d}", state)
            about = {"format": "rgcn-checkpoint", "version": VERSION, "files": files, "values": state.values}
            about["check"] = _digest(about)
            content, path = json.dumps(about, indent=1) + "\n", self.folder / f"step-{step:09d}.json"
            placement.on_main(lambda: atomic_files.write_atomically(path, content))
        except OSError as error:
            steps = self.steps()
            previous = f"the one at step {steps[0]} is intact" if steps else "there is none before it"
            raise DataError(
                f"cannot save a checkpoint in {self.folder}: {error.strerror or error}; {previous}: "
                f"{atomic_files.disk_error_remedy(error)}, then resume the run"
            ) from error
        if placement.is_main:
            for path in self._files():
                if _step(path) > step:  # it was damaged, or the run would have resumed from it: those steps come again
                    path.unlink(missing_ok=True)
            self._remove_old()

    def newest(self) -> TrainingState | None:
        """Read the newest intact checkpoint; a damaged one gives a warning. None if there is none.

        Returns:
            The state. Of a sharded table, each of several ranks gets its own rows; a single process gets all rows.
        """
        placement = current()
        for _ in range(MAX_ATTEMPTS):
            before = placement.from_main(lambda: [path.name for path in self._files()])
            for name in before:
                try:
                    return self._read(self.folder / name)
                except (DataError, OSError, SafetensorError) as error:  # noqa: PERF203
                    if placement.is_main:
                        warnings.warn(f"checkpoint {Path(name).stem} cannot be used: {error}", stacklevel=2)
            if placement.from_main(lambda: [path.name for path in self._files()]) == before:
                break  # otherwise a running training replaced the files meanwhile
        return None

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, newest first, damaged ones included."""
        return [_step(path) for path in self._files()]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.json"), key=_step, reverse=True)

    def _existing_best(self, best: str, step: int) -> Files:
        """Return the files of the best weights if an earlier checkpoint wrote them; they change rarely."""

        def find() -> Files:
            for path in self._files():
                files = {role: file for role, file in _files_of(path).items() if role.startswith("best")}
                names = [file["name"] for file in files.values()]
                exist = all(name.startswith(f"{best}.") and (self.folder / name).exists() for name in names)
                # A checkpoint of a later step was found damaged, and so may be the files it refers to.
                if files and exist and _step(path) < step:
                    return files
            return {}

        return current().from_main(find)  # type: ignore[no-any-return]

    def _write(self, role: str, stem: str, state: TrainingState) -> Files:
        """Write the tensors of the role "best" (the best weights) or "state" (all others)."""
        placement = current()
        tensors = {name: one for name, one in state.tensors.items() if name.startswith("best/") == (role == "best")}
        sharded = {name: state.partitions[name] for name in tensors if name in state.partitions}
        whole = {name: tensor for name, tensor in tensors.items() if name not in sharded}
        files: Files = {role: {"name": f"{stem}.safetensors"}}

        def write(temporary: Path) -> None:
            write_tensors(whole, temporary)
            files[role]["sha256"] = atomic_files.file_sha256(temporary)

        placement.on_main(lambda: atomic_files.replace_atomically(self.folder / f"{stem}.safetensors", write))
        if sharded:
            # Never overwrite a folder: a checkpoint of the same step may need it until the new one is complete.
            names = (f"{stem}.shards" if number == 0 else f"{stem}.{number}.shards" for number in count())
            name = placement.from_main(lambda: next(name for name in names if not (self.folder / name).exists()))
            temporary = self.folder / f"{atomic_files.TEMPORARY_PREFIX}{name}"
            placement.on_main(lambda: atomic_files.remove(temporary))
            try:
                about = write_tables(temporary, {name: tensors[name] for name in sharded}, sharded)
            except BaseException:
                if placement.is_main:
                    atomic_files.remove(temporary)
                raise
            placement.on_main(lambda: temporary.replace(self.folder / name))
            files[f"{role}.shards"] = {"name": name, **about}
        return files

    def _read(self, path: Path) -> TrainingState:
        placement = current()
        checked = placement.on_main(lambda: _read_description(path))
        about = placement.from_main(lambda: checked)
        placement.on_all(lambda: _check_files(self.folder, about["files"], placement.rank, placement.size))
        state = TrainingState({}, about["values"])
        for file in about["files"].values():
            place = self.folder / Path(file["name"]).name
            if "tables" in file:
                tensors, partitions = read_tables(place, file)
                state.partitions.update(convert_weight_names(partitions))
            else:
                tensors = placement.on_all(partial(read_tensors, place))
            state.tensors.update(convert_weight_names(tensors))
        return state

    def _remove_old(self) -> None:
        needed: set[str] = set()
        for number, path in enumerate(self._files()):
            if number < self.keep_last:
                needed |= {file["name"] for file in _files_of(path).values()}
            else:
                path.unlink(missing_ok=True)  # first, because tensors without this file are never used
        for pattern in ("best-*.safetensors", "step-*.safetensors", "best-*.shards", "step-*.shards"):
            for path in self.folder.glob(pattern):
                if path.name not in needed:
                    atomic_files.remove(path)


def _read_description(path: Path) -> dict[str, Any]:
    about = read_json(path, "rgcn-checkpoint", VERSION, OLDEST)
    if about.get("check") != _digest(about):
        raise DataError(f"{path.name} was changed or damaged")
    return about


def _check_files(folder: Path, files: Files, rank: int, world_size: int) -> None:
    """Check that all files exist, and the hashes of this rank's share of them."""
    expected: dict[Path, str] = {}
    for file in files.values():
        place, parts = folder / Path(file["name"]).name, file.get("files")
        expected |= {place: file["sha256"]} if parts is None else {place / part: v[1] for part, v in parts.items()}
        for extra in set() if parts is None else set(place.glob("*")) - set(expected):
            raise DataError(f"{place.name} has a file that does not belong there, {extra.name}")
    for number, (path, digest) in enumerate(expected.items()):
        if not path.exists():
            raise DataError(f"{path.relative_to(folder)} is missing")
        if number % world_size == rank and atomic_files.file_sha256(path) != digest:
            raise DataError(f"{path.relative_to(folder)} was changed or damaged")


def _step(path: Path) -> int:
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdigit() else -1


def _files_of(path: Path) -> Files:
    """Return the files that a checkpoint refers to; none if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["files"]  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _digest(about: dict[str, Any]) -> str:
    values = json.dumps({key: value for key, value in about.items() if key != "check"}, sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()
