"""Files of a stopped building, and of a finished graph, that were cut, emptied, removed, changed or replaced."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

import rgcn
from rgcn.data import building
from rgcn.data.building import COLUMNS, KEPT_COLUMNS, ROWS

NAMED = [f"{stem}.{end}" for stem in ("nodes", "relations") for end in ("text", "ends.npy", "slots.npy")]
NUMBERED, DISTINCT = [*NAMED, ROWS, COLUMNS], [*NAMED, "triples.npy", KEPT_COLUMNS]
INDEXED = [*DISTINCT, "incidence.pointer.npy", "incidence.triples.npy"]
NEEDED = {"numbered": NUMBERED, "distinct": DISTINCT, "indexed": INDEXED, "written": INDEXED}


def triples(path: Path, seed: int = 7) -> Path:
    """A table whose graph's parts have the same sizes whatever the seed."""
    path.write_text("".join(f"n{i * seed % 17:02}\tr{i % 3}\tn{i * i % 19:02}\n" for i in range(60)))
    return path


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[130 if len(data) > 150 else 2] ^= 0x80  # a number, in an array after its header
    path.write_bytes(data)


DAMAGE = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:3]),
    "changed": flipped,
    "replaced": lambda path: path.write_bytes(path.read_bytes()[::-1]),
}


def stopped_after(stage: str, path: Path, out: Path) -> Path:
    """A building that was stopped when a stage had ended; "written": when all was written but graph.json."""

    def stop(self, reached, told, record=building.Building._reached):
        record(self, reached, told)
        if reached == stage:
            raise KeyboardInterrupt

    def stop_writing(at, content):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as now:
        now.setattr(building.Building, "_reached", stop)
        if stage == "written":
            now.setattr("rgcn.data.graph_store.write_atomically", stop_writing)
        with pytest.raises(KeyboardInterrupt):
            rgcn.read(path, out=out)
    return out


@pytest.mark.parametrize("stage", ["numbered", "distinct", "indexed", "written"])
def test_a_building_goes_on_from_the_last_stage_whose_files_are_whole(tmp_path, monkeypatch, stage):
    path = triples(tmp_path / "graph.tsv")
    expected, stopped = rgcn.read(path).fingerprint, stopped_after(stage, path, tmp_path / "stopped")
    read, collector = [], building.TripleCollector
    monkeypatch.setattr(building, "TripleCollector", lambda *given: read.append(1) or collector(*given))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said where nothing is damaged
        assert rgcn.read(path, out=shutil.copytree(stopped, tmp_path / "whole")).fingerprint == expected
    assert not read
    for number, name in enumerate(NEEDED[stage]):
        out = shutil.copytree(stopped, tmp_path / name)
        kind = [*DAMAGE][number % len(DAMAGE)]
        DAMAGE[kind](out / name)
        with pytest.warns(UserWarning, match=name.replace(".", r"\.")):
            graph = rgcn.read(path, out=out)
        assert graph.fingerprint == rgcn.read(out).fingerprint == expected, (name, kind)
        # Names and rows come from the files alone; all else is made of them.
        assert bool(read) == (name in NUMBERED), (name, kind)
        read.clear()


@pytest.mark.parametrize("kind", DAMAGE)
def test_rows_and_columns_of_a_stopped_building_are_verified(tmp_path, kind):
    path = tmp_path / "graph.tsv"
    path.write_text("subject\trelation\tobject\tweight\n" + "".join(f"a\tr\tb{i}\t{i}.5\n" for i in range(9)))
    expected = rgcn.read(path).fingerprint
    for stage, name in (("numbered", ROWS), ("numbered", COLUMNS), ("distinct", KEPT_COLUMNS)):
        out = stopped_after(stage, path, tmp_path / f"{stage} {name}")
        DAMAGE[kind](out / name)
        with pytest.warns(UserWarning, match=name.replace(".", r"\.")):
            assert rgcn.read(path, out=out).fingerprint == expected


def test_what_two_stopped_buildings_left_is_not_mixed(tmp_path):
    path, other = triples(tmp_path / "graph.tsv"), triples(tmp_path / "other.tsv", 5)
    stopped, foreign = (stopped_after("indexed", of, tmp_path / of.stem) for of in (path, other))
    sizes = [{at.name: at.stat().st_size for at in folder.glob("*.npy")} for folder in (stopped, foreign)]
    assert sizes[0] == sizes[1]
    shutil.copy(foreign / "triples.npy", stopped)
    with pytest.warns(UserWarning, match=r'triples\.npy .* goes on after the stage "numbered"'):
        assert rgcn.read(path, out=stopped).fingerprint == rgcn.read(path).fingerprint
