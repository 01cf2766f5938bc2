"""Which files of the package run in a training, a prediction for a file of triples, and a request to the server.

    python tools/walk.py            # trace all three, say how they differ from what is written
    python tools/walk.py --write    # and write results/walks.json and the table in docs/architecture.md anew

`tests/test_walks.py` fails where either file disagrees with the code. What is counted:

- A file counts if a function or method in it runs. A lambda or a comprehension is part of the function that holds it.
  Bodies of modules and classes do not count, nor does what they call while they are imported.
- Every function counts once, in the order of first calls: first those of the main thread, then what is new in each
  other thread, in the order in which the threads started. So the order does not depend on which thread is faster.
- A change of subpackage is where the next function is in another subpackage than the last. A module that lies directly
  in `rgcn/` is a subpackage of its own here.

The counts depend on the code alone. Each walk is traced in a process of its own, with an empty cache folder, one thread
for computing and no GPU, and it waits for kernels that are compiled in the background.
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
RESULTS, DOCUMENT = ROOT / "results" / "walks.json", ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- written by tools/walk.py -->\n", "<!-- end of what tools/walk.py writes -->\n"
COMPILING = "rgcn-compile"  # the thread of `rgcn.kernels.ahead`

Walk = dict[str, Any]


class Recorder:
    """Notes every function of the package when it is first called, in each thread that starts while it listens."""

    def __init__(self) -> None:
        self.recording = False
        self._inside: dict[str, str | None] = {}  # the path of a file: the same within the package, None outside
        self._calls: dict[threading.Thread, dict[tuple[str, int], None]] = {}  # (file, line of the function)

    @contextmanager
    def listening(self) -> Iterator[None]:
        start = threading.Thread.start

        def start_in_turn(thread: threading.Thread) -> None:
            self._calls[thread] = {}
            start(thread)
            if thread.name == COMPILING:
                thread.join()

        self._calls[threading.current_thread()] = {}
        threading.Thread.start = start_in_turn  # type: ignore[method-assign]
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # None is allowed, and documented
            threading.Thread.start = start  # type: ignore[method-assign]

    @contextmanager
    def walk(self) -> Iterator[None]:
        self.recording = True
        try:
            yield
        finally:
            self.recording = False

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        """Trace function: called whenever a frame begins; returns nothing, so lines are not traced."""
        code = frame.f_code
        file = self._file(code.co_filename)
        # The body of a function is optimized, those of modules and classes are not.
        named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if not (self.recording and file and named):
            return
        calls = self._calls[threading.current_thread()]
        if (file, code.co_firstlineno) not in calls and not self._is_importing(frame):
            calls[file, code.co_firstlineno] = None

    def _file(self, path: str) -> str | None:
        if path not in self._inside:
            inside = Path(path).is_relative_to(PACKAGE)
            self._inside[path] = Path(path).relative_to(PACKAGE).as_posix() if inside else None
        return self._inside[path]

    def _is_importing(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and self._file(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        return False

    def result(self) -> Walk:
        files = [file for file, _ in dict.fromkeys(call for calls in self._calls.values() for call in calls)]
        places = [subpackage(file) for file in files]
        return {
            "files": len(set(files)),
            "subpackages": len(set(places)),
            "changes": sum(here != before for before, here in pairwise(places)),
            "walk": list(dict.fromkeys(files)),
        }


def subpackage(file: str) -> str:
    """The folder of a file, with its slash; a file that lies directly in the package is a subpackage of its own."""
    folder, slash, _ = file.partition("/")
    return f"{folder}/" if slash else file.removesuffix(".py")


def command(*arguments: str) -> Walk:
    """The walk of `rgcn ARGUMENTS`."""
    from rgcn.cli import main

    recorder = Recorder()
    sys.argv = ["rgcn", *arguments]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        try:
            with recorder.listening(), recorder.walk():
                main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"rgcn {' '.join(arguments)}: {said.getvalue()}") from end
    return recorder.result()


def train(folder: Path) -> Walk:
    return command("train", "rgcn/nc-world", "--set", "training.epochs=5", "--out", str(folder / "run"))


def predict(folder: Path) -> Walk:
    graph, file = rgcn.load("world").subgraph(range(150)), folder / "world.tsv"
    lines = ("\t".join(triple) for triple in graph.named(graph.triples))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return command("predict", str(file), "--subject", "Afghanistan", "--relation", "borders")


def links(folder: Path) -> Walk:
    """The second question to a server, so that nothing is loaded or calibrated for it."""
    import httpx

    from rgcn.runs import load_configuration, train
    from rgcn.serve import create_app, load_models

    changes = ["training.epochs=2", "model.embedding=32", "training.evaluate_every=2"]
    train(load_configuration("rgcn/lp-world", changes), rgcn.load("world"), folder / "links")
    recorder = Recorder()

    async def ask() -> None:
        transport = httpx.ASGITransport(app=create_app(load_models([folder / "links"], device="cpu")))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:

            async def get(subject: str, relation: str) -> None:
                asked = {"subject": subject, "relation": relation}
                (await client.get("/api/models/links/links", params=asked)).raise_for_status()

            await get("Switzerland", "exports_to")
            with recorder.walk():
                await get("Peru", "borders")

    with recorder.listening():
        asyncio.run(ask())
    return recorder.result()


WALKS: dict[str, tuple[str, Callable[[Path], Walk]]] = {
    "train": ("`rgcn train rgcn/nc-world`", train),
    "predict": ("`rgcn predict FILE`, links by the pretrained model", predict),
    "links": ("`GET /links`, a trained model's second question", links),
}


def trace(name: str) -> Walk:
    """A walk, traced in a process of its own: what is remembered from another walk would be left out of it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGCN_", "OMP_", "MKL_"))}
    with tempfile.TemporaryDirectory() as cache:
        alike = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80", "RGCN_CACHE": cache}
        place = {**kept, **alike, "PYTHONPATH": str(PACKAGE.parent)}
        asked = [sys.executable, __file__, "--only", name]
        done = subprocess.run(asked, env=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the walk {name!r} failed: {done.stderr}")
    found: Walk = json.loads(done.stdout)
    return found


def section(walks: dict[str, Walk]) -> str:
    """What docs/architecture.md says of the walks, between `BEGIN` and `END`."""
    lines = ["| walk | files | subpackages | changes of subpackage |", "|---|---|---|---|"]
    for name, walk in walks.items():
        lines.append(f"| {WALKS[name][0]} | {walk['files']} | {walk['subpackages']} | {walk['changes']} |")
    for name, walk in walks.items():
        places = [
            f"`{place}` {', '.join(Path(file).stem for file in files)}" if place.endswith("/") else f"`{place}`"
            for place, files in groupby(walk["walk"], subpackage)
        ]
        order = f"{WALKS[name][0]}: {' → '.join(places)}."
        lines += ["", *textwrap.wrap(order, 120, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def as_json(walks: dict[str, Walk]) -> str:
    return json.dumps(walks, indent=2) + "\n"


def with_section(document: str, walks: dict[str, Walk]) -> str:
    """The document with the section of these walks in place of its own."""
    if BEGIN not in document or END not in document:
        raise ValueError(f"{DOCUMENT} must have the lines {BEGIN.strip()} and {END.strip()}")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{section(walks)}{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write results/walks.json and docs/architecture.md")
    parser.add_argument("--only", choices=WALKS, help="trace one walk in this very process; JSON on standard output")
    given = parser.parse_args()
    if given.only:
        os.sched_getaffinity = lambda process: {0}  # type: ignore[attr-defined]  # one worker in each pool of threads
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(WALKS[given.only][1](Path(folder))))
        return
    walks = {name: trace(name) for name in WALKS}
    for path, text in ((RESULTS, as_json(walks)), (DOCUMENT, with_section(DOCUMENT.read_text("utf-8"), walks))):
        state = "up to date"
        if path.read_text("utf-8") != text:
            state = "written" if given.write else "outdated: use --write"
            if given.write:
                path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {state}")
    print(section(walks))


if __name__ == "__main__":
    main()
