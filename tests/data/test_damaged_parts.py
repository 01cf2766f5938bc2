"""Test files of an interrupted build and of a finished graph that were cut, emptied, removed, changed or replaced."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import rgcn
from rgcn.cli.commands import app
from rgcn.data import graph_builder as building
from rgcn.data import graph_store
from rgcn.data.graph_builder import COLUMNS_FILE, ROWS_FILE
from rgcn.data.graph_store import ARRAYS_FILE, check_graph, load_graph
from rgcn.errors import DataError
from rgcn.graph import titles

NAMED = [f"{stem}.{end}" for stem in ("nodes", "relations") for end in ("text", "ends.npy", "slots.npy")]
RECORDED = [*NAMED, ROWS_FILE, COLUMNS_FILE]
# Where a build is interrupted: the function that is called at this point.
STOPS = {"read": "rgcn.data.graph_builder.find_distinct_rows", "written": "rgcn.data.graph_store.write_atomically"}


def triples(path: Path, seed: int = 7) -> Path:
    """Write a table; the parts of its graph have the same sizes for every seed."""
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
    """Interrupt a build after the files were read, or before graph.json is written."""

    def stop(*given):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as now:
        now.setattr(STOPS[stage], stop)
        with pytest.raises(KeyboardInterrupt):
            rgcn.read(path, out=out)
    return out


@pytest.mark.parametrize("stage", STOPS)
def test_an_interrupted_build_is_resumed_if_its_files_are_complete(tmp_path, monkeypatch, stage):
    path = triples(tmp_path / "graph.tsv")
    expected, stopped = rgcn.read(path).fingerprint, stopped_after(stage, path, tmp_path / "stopped")
    read, collector = [], building.TripleCollector
    monkeypatch.setattr(building, "TripleCollector", lambda *given: read.append(1) or collector(*given))
    for name in [at.name for at in stopped.iterdir() if at.name not in (*RECORDED, "building.json")]:
        out = shutil.copytree(stopped, tmp_path / f"without {name}")
        (out / name).unlink()  # computed again from the stored rows
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no warning if nothing is damaged
            assert rgcn.read(path, out=out).fingerprint == rgcn.read(out).fingerprint == expected
    assert not read
    for number, name in enumerate(RECORDED):
        out = shutil.copytree(stopped, tmp_path / name)
        kind = [*DAMAGE][number % len(DAMAGE)]
        DAMAGE[kind](out / name)
        with pytest.warns(UserWarning, match=rf"{name}.* reads the files again".replace(".text", r"\.text")):
            graph = rgcn.read(path, out=out)
        assert graph.fingerprint == rgcn.read(out).fingerprint == expected, (name, kind)
    assert len(read) == len(RECORDED)


@pytest.mark.parametrize("kind", DAMAGE)
def test_rows_and_columns_of_a_stopped_building_are_verified(tmp_path, kind):
    path = tmp_path / "graph.tsv"
    path.write_text("subject\trelation\tobject\tweight\n" + "".join(f"a\tr\tb{i}\t{i}.5\n" for i in range(9)))
    expected = rgcn.read(path).fingerprint
    for name in (ROWS_FILE, COLUMNS_FILE):
        out = stopped_after("read", path, tmp_path / name)
        DAMAGE[kind](out / name)
        with pytest.warns(UserWarning, match=name.replace(".", r"\.")):
            assert rgcn.read(path, out=out).fingerprint == expected


def test_files_of_two_interrupted_builds_are_not_mixed(tmp_path):
    path, other = triples(tmp_path / "graph.tsv"), triples(tmp_path / "other.tsv", 5)
    stopped, foreign = (stopped_after("written", of, tmp_path / of.stem) for of in (path, other))
    sizes = [{at.name: at.stat().st_size for at in folder.glob("*.npy")} for folder in (stopped, foreign)]
    assert sizes[0] == sizes[1]
    shutil.copy(foreign / "triples.npy", stopped)  # written again
    shutil.copy(foreign / ROWS_FILE, stopped)
    with pytest.warns(UserWarning, match=rf"{ROWS_FILE} is missing or not as .* reads the files again"):
        assert rgcn.read(path, out=stopped).fingerprint == rgcn.read(path).fingerprint


def test_an_interrupted_build_of_rgcn_0_2_0_is_restarted(tmp_path):
    path = triples(tmp_path / "graph.tsv")
    out = stopped_after("read", path, tmp_path / "stopped")
    state = json.loads((out / "building.json").read_text())
    del state["parts"]
    (out / "building.json").write_text(json.dumps({**state, "version": 1}))
    flipped(out / "nodes.text")
    assert rgcn.read(path, out=out).fingerprint == rgcn.read(path).fingerprint


@pytest.mark.parametrize("content", ["", "{}", '{"format": "rgcn-building", "version": 2, "stage": "indexed"}'])
def test_files_that_do_not_belong_to_a_build_are_kept(tmp_path, content):
    path, out = triples(tmp_path / "graph.tsv"), tmp_path / "graph"
    out.mkdir()
    (out / "building.json").write_text(content)
    (out / "nodes.text").write_text("somebody's")
    if "stage" in content:  # of another input: the folder is ours
        assert rgcn.read(path, out=out).fingerprint == rgcn.read(path).fingerprint
        return
    with pytest.raises(DataError, match=r"building\.json: .* To start the build again, remove"):
        rgcn.read(path, out=out)
    assert {at.name: at.read_text() for at in out.iterdir()} == {"building.json": content, "nodes.text": "somebody's"}


# -- finished graphs ----------------------------------------------------------------------------------------


@pytest.fixture
def two_large(tmp_path, monkeypatch):
    """Two graphs whose parts have the same sizes, treated as too large to be read when they are opened."""
    monkeypatch.setattr(graph_store, "MAX_VERIFIED_BYTES", 0)
    monkeypatch.setattr(titles, "MIN_STORED_INDEX_NODES", 1)
    classes = tmp_path / "classes.tsv"
    classes.write_text("n00\tfirst\nn01\tsecond\n")
    for name, seed in (("one", 7), ("two", 5)):
        rgcn.read(triples(tmp_path / f"{name}.tsv", seed), labels=classes, out=tmp_path / name)
    return tmp_path / "one", tmp_path / "two"


def parts_of(folder: Path) -> list[str]:
    return list(json.loads((folder / "graph.json").read_text())["parts"])


def test_a_part_of_another_large_graph_is_noticed_when_the_graph_is_opened(tmp_path, two_large):
    one, two = two_large
    parts = parts_of(one)
    assert len(parts) == 21
    for part in parts:
        copy = shutil.copytree(one, tmp_path / "copies" / part)
        shutil.copy(two / part, copy)
        if (one / part).stat().st_size == (two / part).stat().st_size:
            with pytest.raises(DataError, match=rf"{part}: .* copied from another graph"):
                load_graph(copy)
        with pytest.raises(DataError, match=f"{part}: "):
            check_graph(copy)


def test_check_compares_every_byte_and_names_every_damaged_part(tmp_path, two_large):
    one, _ = two_large
    assert check_graph(one) == (21, sum((one / part).stat().st_size for part in parts_of(one)))
    for part in parts_of(one):
        copy = shutil.copytree(one, tmp_path / "copies" / part)
        flipped(copy / part)
        with pytest.raises(DataError, match=f"{part}: "):
            check_graph(copy)
    (one / "nodes.text").unlink()
    flipped(one / "triples.npy")
    done = CliRunner().invoke(app, ["data", "check", str(one)])
    assert done.exit_code == 1
    assert "nodes.text: there is no such file; triples.npy: its bytes are not those" in str(done.exception)


def test_the_check_command_lists_what_it_compared(two_large):
    one, _ = two_large
    done = CliRunner().invoke(app, ["data", "check", str(one)])
    assert (done.exit_code, f"{one}: all 21 parts are as they were written" in done.output) == (0, True)
    done = CliRunner().invoke(app, ["data", "check", str(one), "--json"])
    assert json.loads(done.output)["parts"] == 21
    done = CliRunner().invoke(app, ["data", "check", str(one.parent)])
    assert "has no complete graph" in str(done.exception)


def test_a_small_graph_is_compared_with_its_hashes_when_it_is_opened(tmp_path):
    whole = tmp_path / "graph"
    rgcn.read(triples(tmp_path / "graph.tsv"), out=whole)
    for part in parts_of(whole):  # also those that the fingerprint leaves out: slots, and the index of triples
        copy = shutil.copytree(whole, tmp_path / part)
        flipped(copy / part)
        with pytest.raises(DataError, match=f"{part}: "):
            rgcn.read(copy)


def without_hashes(folder: Path) -> Path:
    """The graph as rgcn 0.2.0 wrote it."""
    about = json.loads((folder / "graph.json").read_text())
    del about["sha256"]
    for part in about["parts"]:
        path = folder / part
        if part == ARRAYS_FILE:
            save_file(load_file(path), path)
        else:
            path.write_bytes(path.read_bytes()[:-64])
        about["parts"][part] = path.stat().st_size
    (folder / "graph.json").write_text(json.dumps({**about, "version": 2}))
    return folder


def test_a_graph_of_rgcn_0_2_0_opens_and_cannot_be_checked(tmp_path, two_large):
    one, _ = two_large
    expected = load_graph(one)
    old = load_graph(without_hashes(one))
    assert (old.fingerprint, list(old.nodes)) == (expected.fingerprint, list(expected.nodes))
    assert old.triples.tolist() == expected.triples.tolist()
    assert old.names.find("n0") == expected.names.find("n0") != []
    with pytest.raises(DataError, match=r"rgcn 0\.2\.0 wrote it.*build it again"):
        check_graph(one)


def test_ids_of_a_large_graph_are_checked_when_they_are_read(two_large):
    one, _ = two_large
    pointer = np.load(one / "incidence.pointer.npy", mmap_mode="r+")
    pointer[3], kept = 10**6, int(pointer[3])
    for read_ids in (
        lambda graph: graph.neighbors(3),
        lambda graph: graph.incident_triples(np.array([2, 3])),
        lambda graph: graph.degrees(),
    ):
        with pytest.raises(DataError, match=r"index of the stored graph's triples is damaged"):
            read_ids(load_graph(one))
    pointer[3] = kept
    np.load(one / "incidence.triples.npy", mmap_mode="r+")[:] = -1
    with pytest.raises(DataError, match=r"index of the stored graph's triples is damaged"):
        load_graph(one).neighbors(3)
    np.load(one / "search.ids.npy", mmap_mode="r+")[:] = 10**6
    with pytest.raises(DataError, match=r"index of the stored graph's names is damaged"):
        load_graph(one).names.find("n0")
    np.load(one / "nodes.ends.npy", mmap_mode="r+")[2] = 10**6
    with pytest.raises(DataError, match="table of names is damaged"):
        load_graph(one).nodes.names_of(np.arange(5))
