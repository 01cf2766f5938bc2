"""Which files somebody opens who follows a training, or a request to the server, from its beginning to its end.

    python tools/walk.py                       # both walks, a file a line in the order they are first entered
    python tools/walk.py --json walks.json     # also as JSON

training  `rgcn train rgcn/nc-world --set training.epochs=5` into a temporary folder
request   one GET of /links from its arrival to its answer, the model's thread included; the application is made in this
          process, as the tests do, and has answered another question before, so that nothing is loaded for this one

A file counts if a function of ours that is in it runs: methods, properties, lambdas and comprehensions too, but neither
the bodies of modules and classes nor what these call while they are imported. Whoever reads along reads every function
once, in the order of their first calls: a change of file is where the next one is in another file than the last.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import rgcn

PACKAGE = Path(rgcn.__file__).parent


class Recorder:
    """Notes every function of the package when it is first called, in all threads that start while it listens."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str, int], None] = {}
        self.recording = False
        self._importing = threading.local()
        self._files: dict[str, str | None] = {}  # path: the same in the package, None outside

    @contextmanager
    def listening(self) -> Iterator[None]:
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]  # None is allowed, and documented

    @contextmanager
    def walk(self) -> Iterator[None]:
        self.recording = True
        try:
            yield
        finally:
            self.recording = False

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_filename not in self._files:
            path = Path(code.co_filename)
            inside = path.is_relative_to(PACKAGE)
            self._files[code.co_filename] = path.relative_to(PACKAGE).as_posix() if inside else None
        file = self._files[code.co_filename]
        if file is None:
            return
        depth = getattr(self._importing, "depth", 0)
        if code.co_name == "<module>":
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif self.recording and not depth and event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            # Neither a module's nor a class's body is optimized; functions are.
            self.functions.setdefault((file, code.co_name, code.co_firstlineno))

    def as_dict(self) -> dict[str, Any]:
        entered = [file for file, _, _ in self.functions]
        rooms = [room(file) for file in entered]
        return {
            "files": len(set(entered)),
            "rooms": len(set(rooms)),
            "functions": len(entered),
            "changes_of_file": changes(entered),
            "changes_of_room": changes(rooms),
            "walk": list(dict.fromkeys(entered)),
        }


def room(file: str) -> str:
    """The folder a file is in; one that lies directly in the package is a room of its own."""
    return file.partition("/")[0]


def changes(places: list[str]) -> int:
    return sum(here != before for before, here in pairwise(places))


def training() -> dict[str, Any]:
    from rgcn.cli import main

    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        sys.argv = ["rgcn", "train", "rgcn/nc-world", "--set", "training.epochs=5", "--out", f"{folder}/run"]
        try:
            with recorder.listening(), recorder.walk():
                main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"the training failed: {said.getvalue()}") from end
    return recorder.as_dict()


def request() -> dict[str, Any]:
    import httpx

    from rgcn.runs import load_configuration, train
    from rgcn.serve import create_app, load_models

    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "links"
        changed = ["training.epochs=2", "model.embedding=32", "training.evaluate_every=2"]
        graph = rgcn.load("world")
        train(load_configuration("rgcn/lp-world", changed), graph, run)
        with recorder.listening():
            app = create_app(load_models([run], device="cpu"))

            async def ask() -> None:
                transport = httpx.ASGITransport(app=app)
                async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                    first, second = (
                        {"subject": graph.nodes[s], "relation": graph.relations[r]}
                        for s, r, _ in graph.triples[[0, -1]].tolist()
                    )
                    await client.get("/api/models/links/links", params=first)
                    with recorder.walk():
                        answer = await client.get("/api/models/links/links", params=second)
                    answer.raise_for_status()

            asyncio.run(ask())
    return recorder.as_dict()


WALKS: dict[str, Callable[[], dict[str, Any]]] = {"training": training, "request": request}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the walks to this file")
    parser.add_argument("--only", choices=WALKS, help="one walk in this very process, as JSON on standard output")
    given = parser.parse_args()
    if given.only:
        print(json.dumps(WALKS[given.only]()))
        return
    found = {}
    for name in WALKS:  # a process each: what one remembers, the other would not walk through
        command = [sys.executable, __file__, "--only", name]
        found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        counts = ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in found[name].items() if key != "walk")
        print(f"{name}: {counts}", *found[name]["walk"], "", sep="\n  ")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
