"""Checkpoints: a training's whole state on disk, found whole again or not used at all.

step-000000500.safetensors   the tensors of TrainingState
step-000000500.json          its plain values, and the sha256 of the tensors; written last, so that where it is, all is
best-000000400.safetensors   the best weights so far; checkpoints that share them refer to the same file
"""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rgcn.atomic import replace_atomically, write_atomically
from rgcn.data.graph_store import read_json
from rgcn.data.sources import sha256_of
from rgcn.errors import DataError
from rgcn.nn.table_files import write_tensors
from rgcn.tasks.fitting import TrainingState

FORMAT_VERSION = 1
ATTEMPTS = 3  # to read while another process writes


class Checkpoints:
    """The checkpoints in a folder; only the newest `keep_last` stay."""

    def __init__(self, folder: Path, keep_last: int = 2) -> None:
        self.folder, self.keep_last = folder, keep_last

    def save(self, state: TrainingState) -> None:
        """Write a state under the number of steps taken; only then the oldest goes, lest a full disk cost us both."""
        step = state.values["steps_taken"]
        files = {}
        try:
            weights = {name: tensor for name, tensor in state.tensors.items() if name.startswith("best/")}
            rest = {name: tensor for name, tensor in state.tensors.items() if name not in weights}
            if weights:
                files["best"] = self._keep_best(weights, state.values["best"]["step"], step)
            files["state"] = self._write(f"step-{step:09d}.safetensors", rest)
            about = {"format": "rgcn-checkpoint", "version": FORMAT_VERSION, "files": files, "values": state.values}
            about["check"] = _digest_of_values(about)
            write_atomically(self.folder / f"step-{step:09d}.json", json.dumps(about, indent=1) + "\n")
        except OSError as error:
            steps = self.steps()
            intact = f"the one at step {steps[0]} is intact" if steps else "there is none before it"
            raise DataError(
                f"cannot save a checkpoint in {self.folder}: {error.strerror or error}; {intact}: make room, then "
                "resume the run"
            ) from error
        for path in self._files():
            if _step(path) > step:  # passed over as damaged: those steps are taken anew, and it must not be met again
                path.unlink(missing_ok=True)
        self._forget_old()

    def newest(self) -> TrainingState | None:
        """The newest state that is whole; a damaged one is passed over with a warning. None where there is none."""
        for _ in range(ATTEMPTS):
            before = self._files()
            for path in before:
                try:
                    return self._read(path)
                except (DataError, OSError, SafetensorError) as error:  # noqa: PERF203
                    warnings.warn(f"checkpoint {path.stem} cannot be used: {error}", stacklevel=2)
            if self._files() == before:
                break  # else a training that goes on meanwhile has replaced what we were reading
        return None

    def steps(self) -> list[int]:
        """The numbers of steps of all checkpoints, newest first; whether they are whole is not looked at."""
        return [_step(path) for path in self._files()]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.json"), key=_step, reverse=True)

    def _keep_best(self, weights: dict[str, Tensor], found_at: int, step: int) -> dict[str, str]:
        """The file of the best weights: they change rarely, so that most checkpoints find it already written."""
        name = f"best-{found_at:09d}.safetensors"
        for path in self._files():
            if _step(path) >= step:  # passed over as damaged, and so may be what it refers to
                continue
            kept = _files_of(path).get("best")
            if kept is not None and kept["name"] == name and (self.folder / name).exists():
                return kept
        return self._write(name, weights)

    def _write(self, name: str, tensors: dict[str, Tensor]) -> dict[str, str]:
        about = {"name": name}

        def write(temporary: Path) -> None:
            write_tensors(tensors, temporary)
            about["sha256"] = sha256_of(temporary)

        replace_atomically(self.folder / name, write)
        return about

    def _read(self, path: Path) -> TrainingState:
        about = read_json(path, "rgcn-checkpoint", FORMAT_VERSION)
        if about.get("check") != _digest_of_values(about):
            raise DataError(f"{path.name} was changed or damaged")
        tensors: dict[str, Tensor] = {}
        for file in about["files"].values():
            target = self.folder / Path(file["name"]).name
            if not target.exists():
                raise DataError(f"{target.name} is missing")
            if sha256_of(target) != file["sha256"]:
                raise DataError(f"{target.name} was changed or damaged")
            tensors |= load_file(target)
        return TrainingState(tensors, about["values"])

    def _forget_old(self) -> None:
        kept: set[str] = set()
        for number, path in enumerate(self._files()):
            if number < self.keep_last:
                kept |= {file["name"] for file in _files_of(path).values()}
            else:
                path.unlink(missing_ok=True)  # first, so that what is left without its other half is never used
        for path in [*self.folder.glob("best-*.safetensors"), *self.folder.glob("step-*.safetensors")]:
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _step(path: Path) -> int:
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdigit() else -1


def _files_of(path: Path) -> dict[str, dict[str, str]]:
    """The files a checkpoint refers to; none where it cannot be read."""
    try:
        files: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))["files"]
        return files
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _digest_of_values(about: dict[str, Any]) -> str:
    values = {key: value for key, value in about.items() if key != "check"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
