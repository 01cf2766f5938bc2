"""What a completion has found so far, in a file: whoever was interrupted goes on where it stood.

One file of safetensors, its header says what was asked of which model. Written whole or not at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import shortened

FORMAT, FORMAT_VERSION = "rgcn-completion", "1"
SAVED_EVERY = 5.0  # seconds; or so rarely that saving takes at most this share of the time
SHARE_OF_TIME = 0.02

Found = Mapping[str, NDArray[Any]]


class UnfinishedFile:
    """Where a completion keeps what it has found.

    asked  what must be the same to go on: the model, and what is asked of it; plain values
    """

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        self.path, self.asked = path, {name: json.dumps(value) for name, value in asked.items()}
        self._next = time.monotonic() + SAVED_EVERY

    def read(self) -> Found | None:
        """What was found before; None where nothing was begun, DataError where the file is of something else."""
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                said = dict(file.metadata() or {})
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        except (OSError, SafetensorError) as error:
            raise DataError(f"{self.path}: damaged, or no unfinished completion ({error}): {_instead()}") from None
        if (said.pop("format", None), said.pop("version", None)) != (FORMAT, FORMAT_VERSION):
            raise DataError(f"{self.path}: not an unfinished completion of this version of rgcn: {_instead()}")
        if said != self.asked:
            raise DataError(f"{self.path} holds an unfinished completion {self._difference(said)}: {_instead()}")
        return found

    def _difference(self, said: dict[str, str]) -> str:
        if said.get("model") != self.asked["model"]:
            return "of another model, or over another graph"
        differ = [name for name, value in self.asked.items() if said.get(name) != value]
        words = (shortened(f"{name} {said.get(name)}, now {self.asked[name]}", 80) for name in differ)
        return f"that asked something else ({'; '.join(words)})"

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def write(self, found: Found) -> None:
        """Replace what was kept."""
        from safetensors.numpy import save

        began = time.monotonic()
        header = {"format": FORMAT, "version": FORMAT_VERSION, **self.asked}
        content = save({name: np.ascontiguousarray(array) for name, array in found.items()}, header)
        try:
            write_atomically(self.path, content)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        now = time.monotonic()
        self._next = now + max(SAVED_EVERY, (now - began) / SHARE_OF_TIME)


def _instead() -> str:
    return "repeat that call to go on with it, or begin anew (`rgcn complete --restart`, or remove the file)"
