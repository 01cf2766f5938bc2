"""Checkpoints: a training's whole state on disk, found whole again or not used at all.

step-000000500.safetensors   the tensors of TrainingState
step-000000500.shards/       those of which several processes hold rows: a file of each (`sharded_state`)
step-000000500.json          its plain values, and the sha256 of the tensors; written last, so that where it is, all is
best-000000400.safetensors   the best weights so far, and .shards/; checkpoints that share them refer to the same files

Several processes call everything together: the first writes what all have alike, and decides.
"""

import hashlib
import json
import warnings
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rgcn.conversion import converted_names
from rgcn.data.graph_store import read_json
from rgcn.distributed.sharded_state import read_tables, write_tables
from rgcn.errors import DataError
from rgcn.nn.row_tables import mapped_tensors, write_tensors
from rgcn.placement import current
from rgcn.system.atomic_files import TEMPORARY_PREFIX, remedy, remove, replace_atomically, sha256_of, write_atomically
from rgcn.training.fitting import TrainingState

VERSION, OLDEST = 3, 1
ATTEMPTS = 3  # to read while another process writes
Files = dict[str, dict[str, Any]]


class Checkpoints:
    """The checkpoints in a folder; only the newest `keep_last` stay."""

    def __init__(self, folder: Path, keep_last: int = 2) -> None:
        self.folder, self.keep_last = folder, keep_last

    def save(self, state: TrainingState) -> None:
        """Write a state under the number of steps taken; only then the oldest goes, lest a full disk cost us both."""
        step, placement, files = state.values["steps_taken"], current(), Files()
        try:
            if any(name.startswith("best/") for name in state.tensors):
                best = f"best-{state.values['best']['step']:09d}"
                files |= self._kept(best, step) or self._write("best", best, state)
            files |= self._write("state", f"step-{step:09d}", state)
            about = {"format": "rgcn-checkpoint", "version": VERSION, "files": files, "values": state.values}
            about["check"] = _digest_of_values(about)
            words, path = json.dumps(about, indent=1) + "\n", self.folder / f"step-{step:09d}.json"
            placement.on_main(lambda: write_atomically(path, words))
        except OSError as error:
            steps = self.steps()
            intact = f"the one at step {steps[0]} is intact" if steps else "there is none before it"
            raise DataError(
                f"cannot save a checkpoint in {self.folder}: {error.strerror or error}; {intact}: {remedy(error)}, "
                "then resume the run"
            ) from error
        if placement.is_main:
            for path in self._files():
                if _step(path) > step:  # passed over as damaged: those steps are taken anew, it must not be met again
                    path.unlink(missing_ok=True)
            self._forget_old()

    def newest(self) -> TrainingState | None:
        """The newest state that is whole; a damaged one is passed over with a warning. None where there is none.

        Of tables that several processes hold, each of several gets its own rows; one alone gets them whole.
        """
        placement = current()
        for _ in range(ATTEMPTS):
            before = placement.from_main(lambda: [path.name for path in self._files()])
            for name in before:
                try:
                    return self._read(self.folder / name)
                except (DataError, OSError, SafetensorError) as error:  # noqa: PERF203
                    if placement.is_main:
                        warnings.warn(f"checkpoint {Path(name).stem} cannot be used: {error}", stacklevel=2)
            if placement.from_main(lambda: [path.name for path in self._files()]) == before:
                break  # else a training that goes on meanwhile has replaced what we were reading
        return None

    def steps(self) -> list[int]:
        """The numbers of steps of all checkpoints, newest first; whether they are whole is not looked at."""
        return [_step(path) for path in self._files()]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.json"), key=_step, reverse=True)

    def _kept(self, best: str, step: int) -> Files:
        """The files of the best weights: they change rarely, so that most checkpoints find them already written."""
        found: Files = {}
        for path in self._files():
            kept = {role: file for role, file in _files_of(path).items() if role.startswith("best")}
            names = [file["name"] for file in kept.values()]
            there = all(name.startswith(f"{best}.") and (self.folder / name).exists() for name in names)
            if there and _step(path) < step:  # a later one was passed over as damaged, and so may be what it refers to
                found = found or kept
        return current().from_main(lambda: found) or {}

    def _write(self, role: str, stem: str, state: TrainingState) -> Files:
        """Write the tensors of a role: the best weights, or the state that is left."""
        placement = current()
        tensors = {name: one for name, one in state.tensors.items() if name.startswith("best/") == (role == "best")}
        local = {name: state.partitions[name] for name in tensors if name in state.partitions}
        plain = {name: tensor for name, tensor in tensors.items() if name not in local}
        files: Files = {role: {"name": f"{stem}.safetensors"}}

        def write(temporary: Path) -> None:
            write_tensors(plain, temporary)
            files[role]["sha256"] = sha256_of(temporary)

        placement.on_main(lambda: replace_atomically(self.folder / f"{stem}.safetensors", write))
        if local:
            # Never over another, which a checkpoint of this very step may need until the new one is whole.
            names = (f"{stem}.shards" if number == 0 else f"{stem}.{number}.shards" for number in count())
            name = placement.from_main(lambda: next(name for name in names if not (self.folder / name).exists()))
            temporary = self.folder / f"{TEMPORARY_PREFIX}{name}"
            placement.on_main(lambda: remove(temporary))
            try:
                about = write_tables(temporary, {name: tensors[name] for name in local}, local)
            except BaseException:
                if placement.is_main:
                    remove(temporary)
                raise
            placement.on_main(lambda: temporary.replace(self.folder / name))
            files[f"{role}.shards"] = {"name": name, **about}
        return files

    def _read(self, path: Path) -> TrainingState:
        placement = current()
        checked = placement.on_main(lambda: _checked(path))
        about = placement.from_main(lambda: checked)
        placement.on_all(lambda: _refuse_damage(self.folder, about["files"], placement.rank, placement.size))
        state = TrainingState({}, about["values"])
        for file in about["files"].values():
            at = self.folder / Path(file["name"]).name
            if "tables" in file:
                tensors, partitions = read_tables(at, file)
                state.partitions.update(converted_names(partitions))
            else:
                tensors = placement.on_all(partial(mapped_tensors, at))
            state.tensors.update(converted_names(tensors))
        return state

    def _forget_old(self) -> None:
        kept: set[str] = set()
        for number, path in enumerate(self._files()):
            if number < self.keep_last:
                kept |= {file["name"] for file in _files_of(path).values()}
            else:
                path.unlink(missing_ok=True)  # first, so that what is left without its other half is never used
        for pattern in ("best-*.safetensors", "step-*.safetensors", "best-*.shards", "step-*.shards"):
            for path in self.folder.glob(pattern):
                if path.name not in kept:
                    remove(path)


def _checked(path: Path) -> dict[str, Any]:
    about = read_json(path, "rgcn-checkpoint", VERSION, OLDEST)
    if about.get("check") != _digest_of_values(about):
        raise DataError(f"{path.name} was changed or damaged")
    return about


def _refuse_damage(folder: Path, files: Files, rank: int, size: int) -> None:
    """Whether all is there, and of every so many-th file whether it is whole: others look at the others."""
    expected: dict[Path, str] = {}
    for file in files.values():
        at, parts = folder / Path(file["name"]).name, file.get("files")
        expected |= {at: file["sha256"]} if parts is None else {at / part: about[1] for part, about in parts.items()}
        for stranger in set() if parts is None else set(at.glob("*")) - set(expected):
            raise DataError(f"{at.name} has a file that does not belong there, {stranger.name}")
    for number, (path, digest) in enumerate(expected.items()):
        if not path.exists():
            raise DataError(f"{path.relative_to(folder)} is missing")
        if number % size == rank and sha256_of(path) != digest:
            raise DataError(f"{path.relative_to(folder)} was changed or damaged")


def _step(path: Path) -> int:
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdigit() else -1


def _files_of(path: Path) -> Files:
    """The files a checkpoint refers to; none where it cannot be read."""
    try:
        files: Files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return files
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _digest_of_values(about: dict[str, Any]) -> str:
    values = {key: value for key, value in about.items() if key != "check"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
