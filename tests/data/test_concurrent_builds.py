"""Several processes that build a graph in the same folder: one builds, the others are refused and change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rgcn
from rgcn.data import graph_builder as building
from rgcn.errors import DataError
from rgcn.system.atomic_files import TEMPORARY_PREFIX

# Builds the graphs named on its standard input, one per line, and prints the results. The packages are loaded once.
BUILDER = """
import json, sys, rgcn
from rgcn.errors import RgcnError
rgcn.read
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    path, out = json.loads(line)
    try:
        outcome = {"fingerprint": rgcn.read(path, out=out).fingerprint}
    except RgcnError as error:
        outcome = {"refused": str(error)}
    except Exception as error:
        outcome = {"crashed": repr(error)}
    print(json.dumps(outcome), flush=True)
"""


class Builder:
    """Start a process that builds graphs."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", BUILDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, path: Path, out: Path) -> None:
        self.process.stdin.write(json.dumps([str(path), str(out)]) + "\n")
        self.process.stdin.flush()

    def outcome(self):
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def builders():
    both = [Builder(), Builder()]
    assert [builder.outcome() for builder in both] == ["ready", "ready"]
    yield both
    for builder in both:
        builder.process.communicate()


def triples(path: Path, seed: int, rows: int = 20_000) -> Path:
    path.write_text("".join(f"node {i * seed % 4099}\tr{i % 7}\tnode {i * i % 5003}\n" for i in range(rows)))
    return path


def test_of_two_processes_one_builds_and_the_other_is_refused(tmp_path, builders):
    first, second = triples(tmp_path / "first.tsv", 31), triples(tmp_path / "second.tsv", 37)
    fingerprints, wrong = {path: rgcn.read(path).fingerprint for path in (first, second)}, []
    for number, delay in enumerate((0, 0.01, 0.02, 0.04, 0.06, 0.1)):
        for other in (first, second):
            out = tmp_path / f"{other.stem} {number}"
            builders[0].begin(first, out)
            time.sleep(delay)
            builders[1].begin(other, out)
            outcomes = [builder.outcome() for builder in builders]
            built = [one["fingerprint"] for one in outcomes if "fingerprint" in one]
            refused = [one["refused"] for one in outcomes if "refused" in one]
            if (
                len(built) != 1
                or built[0] not in (fingerprints[first], fingerprints[other])
                or len(refused) != 1
                or not any(words in refused[0] for words in ("another process is building", "holds a graph already"))
                or rgcn.read(out).fingerprint != built[0]
                or any(at.name.startswith(("building", TEMPORARY_PREFIX)) for at in out.iterdir())
            ):
                wrong.append((delay, other.name, outcomes))
    assert not wrong


@pytest.mark.parametrize("other", ["first", "second"])
def test_a_second_build_changes_nothing_of_the_first(tmp_path, other):
    first, second = triples(tmp_path / "first.tsv", 31, 50), triples(tmp_path / "second.tsv", 37, 50)
    out = tmp_path / "graph"

    def second_build(collector):
        (out / f"{TEMPORARY_PREFIX}triples.npy.1").write_text("being written")
        before = {at.name: at.read_bytes() for at in out.iterdir()}
        with pytest.raises(DataError, match="another process is building"):
            rgcn.read({"first": first, "second": second}[other], out=out)
        assert {at.name: at.read_bytes() for at in out.iterdir()} == before
        return finish(collector)

    finish = building.TripleCollector.finish
    with pytest.MonkeyPatch.context() as now:
        now.setattr(building.TripleCollector, "finish", second_build)
        built = rgcn.read(first, out=out)
    assert built.fingerprint == rgcn.read(first).fingerprint


def test_a_graph_that_was_finished_while_the_lock_was_taken_stays(tmp_path, monkeypatch):
    first, second = triples(tmp_path / "first.tsv", 31, 50), triples(tmp_path / "second.tsv", 37, 50)
    out, acquire = tmp_path / "graph", building.FileLock.acquire

    def finished_before(lock, **options):
        monkeypatch.setattr(building.FileLock, "acquire", acquire)
        rgcn.read(first, out=out)
        return acquire(lock, **options)

    monkeypatch.setattr(building.FileLock, "acquire", finished_before)
    with pytest.raises(DataError, match="holds a graph already"):
        rgcn.read(second, out=out)
    assert rgcn.read(out).fingerprint == rgcn.read(first).fingerprint
    assert not list(out.glob("building*"))
