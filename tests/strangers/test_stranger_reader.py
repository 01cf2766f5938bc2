"""Test that a reader of another package works wherever a built-in one does."""

from __future__ import annotations

import bz2
import gzip
import sys
from pathlib import Path

import pytest
import zstandard
from outside import command, forgotten, installed, written_package

import rgcn
from rgcn.config import DataConfig
from rgcn.data import files
from rgcn.errors import ConfigError, DataError, ParseError
from rgcn.plugins import READERS
from rgcn.runs.assembly import load_data
from rgcn.system.progress import ProgressMeter

PACKAGE = "stranger_reading"
MINE = f"{PACKAGE}:EdgeList"
CODE = """
    from rgcn.data.readers import TripleReader

    class EdgeList(TripleReader):
        '''A line "source target" each.'''

        suffixes = ("edges",)

        def read(self, reading):
            reading.add(self.triples(reading))

        def triples(self, reading):
            for number, line in reading.lines():
                ends = line.split()
                if len(ends) == 2:
                    yield ends[0], "linked", ends[1]
                else:
                    reading.bad_line(number, line, f"{len(ends)} names, not 2")

    class Forgetful(EdgeList):
        def triples(self, reading):
            yield "a", "", "b"

    class NoReader:
        pass
"""
EDGES = "Bern Zug\nZug Chur\n\nBern Zug\r\nChur Bern"
TRIPLES = [[0, 0, 1], [1, 0, 2], [2, 0, 0]]


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "site"
    place.mkdir()
    written_package(place, PACKAGE, CODE, monkeypatch)


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    (tmp_path / "graph.edges").write_text(EDGES)
    return tmp_path / "graph.edges"


def test_a_class_is_accepted_as_a_format(edges: Path) -> None:
    from stranger_reading import EdgeList

    kg = rgcn.read(edges, format=EdgeList)
    assert (list(kg.nodes), list(kg.relations), kg.triples.tolist()) == (["Bern", "Zug", "Chur"], ["linked"], TRIPLES)
    assert kg.metadata == {"source": ["graph.edges"], "format": MINE, "duplicates": 1, "skipped_lines": 0}
    with pytest.raises(DataError, match="does not follow from its name"):  # by suffix, only if it is installed
        rgcn.read(edges)


def test_a_dotted_name_is_accepted_as_a_format(edges: Path) -> None:
    assert rgcn.read(edges, format=MINE).triples.tolist() == TRIPLES


def test_an_installed_reader_is_found_by_the_ending_of_its_files(edges: Path) -> None:
    with installed(edges.parent / "site", "rgcn.readers", f"edge-list = {MINE}"):
        kg = rgcn.read(edges)
        assert (kg.name, kg.metadata["format"], kg.triples.tolist()) == ("graph", "edge-list", TRIPLES)
        for name in ("edge-list", "edges", ".EDGES"):
            assert rgcn.read(edges, format=name).triples.tolist() == TRIPLES
        with pytest.raises(DataError, match=r"known are nt, .*edge-list"):
            rgcn.read(edges, format="edgy")


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", zstandard.compress)]
)
def test_it_reads_compressed_files(tmp_path: Path, suffix: str, compress) -> None:
    path = tmp_path / f"graph.edges.{suffix}"
    path.write_bytes(compress(EDGES.encode()))
    with installed(tmp_path / "site", "rgcn.readers", f"edge-list = {MINE}"):
        kg = rgcn.read(path)
    assert (kg.name, kg.triples.tolist()) == ("graph", TRIPLES)


def test_bad_lines_stop_or_are_counted(edges: Path) -> None:
    edges.write_bytes(b"Bern Zug\nBern\nZug \xff\nZug Chur Bern\n")
    with pytest.raises(ParseError, match=r"graph\.edges, line 2: 1 names, not 2"):
        rgcn.read(edges, format=MINE)
    kg = rgcn.read(edges, format=MINE, skip_bad_lines=True)
    assert (len(kg), kg.metadata["skipped_lines"]) == (1, 3)
    assert kg.metadata["skipped_examples"][0] == f"{edges}:2: 1 names, not 2"
    assert kg.metadata["skipped_examples"][1].startswith(f"{edges}:3: not UTF-8")


def test_size_limits_apply_to_it(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = edges.with_name("bomb.edges.gz")
    bomb.write_bytes(gzip.compress(b"a b\n" * 2_000_000))
    monkeypatch.setattr(files, "EXPANSION_ALWAYS_ALLOWED", 1 << 20)
    monkeypatch.setattr(files, "MAX_EXPANSION_RATIO", 100)
    with pytest.raises(DataError, match="decompression bomb"):
        rgcn.read(bomb, format=MINE)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1 << 10)
    edges.write_text("a" * 2000)
    with pytest.raises(ParseError, match="a line of more than"):
        rgcn.read(edges, format=MINE)


def test_its_progress_is_shown(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    monkeypatch.setattr(ProgressMeter, "advance", lambda meter, amount: taken.append(amount))
    rgcn.read(edges, format=MINE, show_progress=True)
    assert sum(taken) == len(EDGES)


def test_folders_and_splits_are_read(edges: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "train.edges").write_text(EDGES)
    (folder / "test.edges.gz").write_bytes(gzip.compress(b"Zug Bern\n"))
    (folder / "labels.tsv").write_text("Bern\tlarge\n")
    assert len(rgcn.read(folder, format=MINE, labels=folder / "labels.tsv").split_triples("test")) == 1
    with installed(tmp_path / "site", "rgcn.readers", f"edge-list = {MINE}"):
        assert len(rgcn.read(folder, labels=folder / "labels.tsv").split_triples("test")) == 1
        (folder / "train.edges").rename(folder / "first.edges")
        assert len(rgcn.read(folder, labels=folder / "labels.tsv")) == 4
        with pytest.raises(DataError, match=r"edge-list files \(first.edges\) and tables \(labels.tsv\)"):
            rgcn.read(folder)
        with pytest.raises(DataError, match="labels are read from TSV"):
            rgcn.read(folder / "first.edges", labels=folder / "first.edges")


TRAINING = """
data:
  path: graph.edges
  labels: labels.tsv
  {format}
training: {{epochs: 2}}
"""


@pytest.fixture
def labeled(edges: Path) -> Path:
    (edges.parent / "labels.tsv").write_text(
        "node\tlabel\tsplit\nBern\tlarge\ttrain\nZug\tsmall\ttrain\nChur\tsmall\ttest\n"
    )
    return edges.parent


def _train(folder: Path, format: str) -> str:
    (folder / "mine.yaml").write_text(TRAINING.format(format=format))
    done = command("train", "mine.yaml", "--out", "a", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "a" / "config.yaml").read_text()


def test_a_training_reads_with_it_by_dotted_name(labeled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"format: {MINE}" in _train(labeled, f"format: {MINE}")
    # A new process gets the name from the run folder and must not import it.
    forgotten(PACKAGE, monkeypatch)
    READERS._classes.clear()
    monkeypatch.chdir(labeled)
    assert rgcn.open_model("a")  # the graph is stored with the model, so no file is read
    (labeled / "graph.edges").write_text(EDGES + "\nBern Chur\n")
    with pytest.raises(DataError, match=f"--allow {PACKAGE}"):
        rgcn.open_model("a")
    assert PACKAGE not in sys.modules
    rgcn.allow(PACKAGE)
    with pytest.raises(DataError, match="had 3 nodes and 3 triples, now it has 3 and 4"):
        rgcn.open_model("a")


def test_a_training_finds_it_by_the_ending(labeled: Path) -> None:
    with installed(labeled / "site", "rgcn.readers", f"edge-list = {MINE}"):
        assert "format: null" in _train(labeled, "")
        assert command("data", "stats", "graph.edges", cwd=labeled).returncode == 0


def test_a_class_is_kept_by_its_name(edges: Path) -> None:
    from stranger_reading import EdgeList, NoReader

    data = DataConfig(path=str(edges), format=EdgeList)
    assert data.format == MINE
    assert load_data(data).triples.tolist() == TRIPLES
    with pytest.raises(ValueError, match="NoReader is no reader"):
        DataConfig(path=str(edges), format=NoReader)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (f"{PACKAGE}:NoReader", "NoReader is no reader: it does not derive from rgcn.data.readers:TripleReader"),
        (f"{PACKAGE}:Missing", "there is no Missing"),
        ("not_there_at_all:Mine", "'not_there_at_all', which is not installed"),
        (f"{PACKAGE}:Forgetful", "a triple with an empty name"),
    ],
)
def test_errors_of_the_reader_are_reported(edges: Path, choice: str, words: str) -> None:
    with pytest.raises((ConfigError, DataError), match=words):
        rgcn.read(edges, format=choice)


def test_a_broken_package_does_not_affect_files_of_other_readers(edges: Path) -> None:
    (edges.parent / "graph.nt").write_text("<a:a> <a:b> <a:c> .\n")
    with installed(edges.parent / "site", "rgcn.readers", "broken = not_there_at_all:Mine"):
        assert len(rgcn.read(edges.with_name("graph.nt"))) == 1
        with pytest.warns(UserWarning, match="'broken' of the package stranger"), pytest.raises(DataError):
            rgcn.read(edges)
