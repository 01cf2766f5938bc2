"""Trace which files of the package run during a training, a prediction for a file, and a request to the server.

    python tools/walk.py            # trace all three walks; report whether the written results are up to date
    python tools/walk.py --write    # also rewrite results/walks.json and the section of docs/reference/architecture.md

`tests/test_walks.py` fails where either file disagrees with the code. Rules for counting:

- A file counts if a function or method in it runs. A lambda or a comprehension is part of the function around it.
  Bodies of modules and classes do not count, nor do the functions that they call during import.
- Every function counts once, at its first call: first the functions of the main thread, then those that each other
  thread adds, in the order in which the threads started. So the order does not depend on which thread is faster.
- A change of subpackage is a first call of a function in another subpackage than the first call before it. A module
  directly in `rgcn/` counts as a subpackage.

The counts depend only on the code: each walk is traced in its own process, with an empty cache folder, one compute
thread and no GPU, and it waits for kernels that are compiled in the background.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import rgcn

PACKAGE = Path(rgcn.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCUMENT = ROOT / "results" / "walks.json", ROOT / "docs" / "reference" / "architecture.md"
BEGIN, END = "<!-- written by tools/walk.py -->\n", "<!-- end of what tools/walk.py writes -->\n"
COMPILING = "rgcn-compile"  # the thread of `rgcn.kernels.ahead`

Walk = dict[str, Any]


class Recorder:
    """Record the first call of every function of the package, in this thread and in those that start meanwhile."""

    def __init__(self) -> None:
        self.recording = False
        self._relative_paths: dict[str, str | None] = {}  # by full path; None for files outside the package
        self._calls: dict[threading.Thread, dict[tuple[str, int], None]] = {}  # (file, line of the function)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Install the trace function in this thread and in every thread that starts inside the block."""
        start = threading.Thread.start

        def start_in_turn(thread: threading.Thread) -> None:
            self._calls[thread] = {}
            start(thread)
            if thread.name == COMPILING:
                thread.join()

        self._calls[threading.current_thread()] = {}
        threading.Thread.start = start_in_turn  # type: ignore[method-assign]
        threading.settrace(self._trace_call)
        sys.settrace(self._trace_call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # the documentation allows None
            threading.Thread.start = start  # type: ignore[method-assign]

    @contextmanager
    def walk(self) -> Iterator[None]:
        """Record calls inside the block."""
        self.recording = True
        try:
            yield
        finally:
            self.recording = False

    def _trace_call(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call. Python calls this function for every new frame; it returns None, so lines are not traced."""
        code = frame.f_code
        file = self._file(code.co_filename)
        # Python sets CO_OPTIMIZED for bodies of functions, not for those of modules and classes.
        is_named_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if not (self.recording and file and is_named_function):
            return
        calls = self._calls[threading.current_thread()]
        if (file, code.co_firstlineno) not in calls and not self._is_importing(frame):
            calls[file, code.co_firstlineno] = None

    def _file(self, path: str) -> str | None:
        """Return the path within the package, or None for a file outside it."""
        if path not in self._relative_paths:
            is_inside = Path(path).is_relative_to(PACKAGE)
            self._relative_paths[path] = Path(path).relative_to(PACKAGE).as_posix() if is_inside else None
        return self._relative_paths[path]

    def _is_importing(self, frame: FrameType | None) -> bool:
        """Return True if a module of the package is being imported."""
        while frame is not None:
            if frame.f_code.co_name == "<module>" and self._file(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        return False

    def result(self) -> Walk:
        """Return the counts, and the files in the order of first calls."""
        files = [file for file, _ in dict.fromkeys(call for calls in self._calls.values() for call in calls)]
        subpackages = [subpackage(file) for file in files]
        return {
            "files": len(set(files)),
            "subpackages": len(set(subpackages)),
            "changes": sum(current != previous for previous, current in pairwise(subpackages)),
            "walk": list(dict.fromkeys(files)),
        }


def subpackage(file: str) -> str:
    """Return the folder of a file, with a slash at the end, or the name of a module directly in the package."""
    folder, slash, _ = file.partition("/")
    return f"{folder}/" if slash else file.removesuffix(".py")


def trace_command(*arguments: str) -> Walk:
    """Return the walk of the command `rgcn ARGUMENTS`."""
    from rgcn.cli import main

    recorder = Recorder()
    sys.argv = ["rgcn", *arguments]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
        try:
            with recorder.tracing(), recorder.walk():
                main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"rgcn {' '.join(arguments)}: {errors.getvalue()}") from end
    return recorder.result()


def train(folder: Path) -> Walk:
    """Return the walk of a training."""
    return trace_command("train", "rgcn/nc-world", "--set", "training.epochs=5", "--out", str(folder / "run"))


def predict(folder: Path) -> Walk:
    """Return the walk of a prediction for a file of triples."""
    graph, file = rgcn.load("world").subgraph(range(150)), folder / "world.tsv"
    lines = ("\t".join(triple) for triple in graph.named(graph.triples))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return trace_command("predict", str(file), "--subject", "Afghanistan", "--relation", "borders")


def links(folder: Path) -> Walk:
    """Return the walk of the second request to a server, which needs no loading and no calibration."""
    import httpx

    from rgcn.runs import load_configuration, train
    from rgcn.serve import create_app, load_models

    changes = ["training.steps=2", "model.embedding=32", "training.evaluate_every=2"]
    train(load_configuration("rgcn/lp-world", changes), rgcn.load("world"), folder / "links")
    recorder = Recorder()

    async def ask() -> None:
        transport = httpx.ASGITransport(app=create_app(load_models([folder / "links"], device="cpu")))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:

            async def get(subject: str, relation: str) -> None:
                question = {"subject": subject, "relation": relation}
                (await client.get("/api/models/links/links", params=question)).raise_for_status()

            await get("Switzerland", "exports_to")
            with recorder.walk():
                await get("Peru", "borders")

    with recorder.tracing():
        asyncio.run(ask())
    return recorder.result()


WALKS: dict[str, tuple[str, Callable[[Path], Walk]]] = {
    "train": ("`rgcn train rgcn/nc-world`", train),
    "predict": ("`rgcn predict FILE`, links by the pretrained model", predict),
    "links": ("`GET /links`, a trained model's second question", links),
}


def trace(name: str) -> Walk:
    """Trace a walk in its own process, because functions whose result another walk has cached would not run."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RGCN_", "OMP_", "MKL_"))}
    with tempfile.TemporaryDirectory() as cache:
        fixed = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80", "RGCN_CACHE": cache}
        environment = {**inherited, **fixed, "PYTHONPATH": str(PACKAGE.parent)}
        command = [sys.executable, __file__, "--only", name]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"the walk {name!r} failed: {process.stderr}")
    walk: Walk = json.loads(process.stdout)
    return walk


def section(walks: dict[str, Walk]) -> str:
    """Return the text about the walks in docs/reference/architecture.md, between `BEGIN` and `END`."""
    lines = ["| walk | files | subpackages | changes of subpackage |", "|---|---|---|---|"]
    for name, walk in walks.items():
        lines.append(f"| {WALKS[name][0]} | {walk['files']} | {walk['subpackages']} | {walk['changes']} |")
    for name, walk in walks.items():
        stations = [
            f"`{part}` {', '.join(Path(file).stem for file in files)}" if part.endswith("/") else f"`{part}`"
            for part, files in groupby(walk["walk"], subpackage)
        ]
        order = f"{WALKS[name][0]}: {' → '.join(stations)}."
        lines += ["", *textwrap.wrap(order, 120, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def as_json(walks: dict[str, Walk]) -> str:
    """Return the text of results/walks.json."""
    return json.dumps(walks, indent=2) + "\n"


def with_section(document: str, walks: dict[str, Walk]) -> str:
    """Return the document with its section about the walks replaced."""
    if BEGIN not in document or END not in document:
        raise ValueError(f"{DOCUMENT} must have the lines {BEGIN.strip()} and {END.strip()}")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{section(walks)}{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--write", action="store_true", help="rewrite results/walks.json and docs/reference/architecture.md"
    )
    parser.add_argument("--only", choices=WALKS, help="trace one walk in this process and print it as JSON")
    options = parser.parse_args()
    if options.only:
        os.sched_getaffinity = lambda process: {0}  # type: ignore[attr-defined]  # one worker in each pool of threads
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(WALKS[options.only][1](Path(folder))))
        return
    walks = {name: trace(name) for name in WALKS}
    for path, text in ((RESULTS, as_json(walks)), (DOCUMENT, with_section(DOCUMENT.read_text("utf-8"), walks))):
        state = "up to date"
        if path.read_text("utf-8") != text:
            state = "written" if options.write else "outdated: use --write"
            if options.write:
                path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {state}")
    print(section(walks))


if __name__ == "__main__":
    main()
