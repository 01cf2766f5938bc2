"""Test the arguments of `read`: files, folders, splits, features; and its errors."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from rgcn.data.reading import read
from rgcn.errors import DataError, ParseError
from rgcn.system.progress import progress


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_folder_of_splits(tmp_path: Path) -> None:
    write(tmp_path, test__txt="new\tr\ta\n", train__txt="a\tr\tb\n", dev__txt="b\tr\ta\n", notes__txt="not triples")
    graph = read(tmp_path)
    assert list(graph.nodes) == ["a", "b", "new"]
    assert graph.triple_splits is not None
    assert graph.triple_splits.tolist() == [0, 1, 2]
    assert graph.metadata["source"] == ["train.txt", "dev.txt", "test.txt"]


def test_named_splits_keep_the_same_triple_in_each(tmp_path: Path) -> None:
    write(tmp_path, one__tsv="a\tr\tb\na\tr\tb\n", two__csv="a,r,b\n")
    graph = read({"test": tmp_path / "two.csv", "train": tmp_path / "one.tsv"})
    assert graph.triple_splits is not None
    assert graph.triple_splits.tolist() == [0, 2]
    assert graph.metadata["duplicates"] == 1
    with pytest.raises(DataError, match="no train split"):
        read({"test": tmp_path / "two.csv"})
    with pytest.raises(DataError, match="unknown split 'exam'"):
        read({"train": tmp_path / "one.tsv", "exam": tmp_path / "two.csv"})


def test_two_files_for_a_split(tmp_path: Path) -> None:
    write(tmp_path, train__txt="a\tr\tb\n", valid__txt="a\tr\tb\n", dev__tsv="a\tr\tb\n")
    with pytest.raises(DataError, match="two files for the valid split"):
        read(tmp_path)


def test_folder_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, b__tsv="c\tr\td\n", a__tsv="a\tr\tb\n", readme__md="# no triples", _hidden="x")
    graph = read(tmp_path)
    assert list(graph.nodes) == ["a", "b", "c", "d"]
    assert graph.triple_splits is None


def test_folder_of_rdf_and_tables_is_ambiguous(tmp_path: Path) -> None:
    write(tmp_path, g__nt="<x:a> <x:p> <x:b> .\n", people__tsv="x:a\tc\n")
    with pytest.raises(DataError, match="both RDF"):
        read(tmp_path)
    assert len(read(tmp_path, format="nt")) == 1
    assert read(tmp_path, labels=tmp_path / "people.tsv").labels is not None


def test_format_can_be_given_and_unknown_ones_are_listed(tmp_path: Path) -> None:
    write(tmp_path, graph__dump="<x:a> <x:p> <x:b> .\n")
    assert len(read(tmp_path / "graph.dump", format="N-Triples")) == 1
    with pytest.raises(DataError, match="nt, nq, ttl, trig, rdf, jsonld, tsv, csv, parquet"):
        read(tmp_path / "graph.dump")
    with pytest.raises(DataError, match="unknown format 'docx'; known are nt, nq"):
        read(tmp_path / "graph.dump", format="docx")


def test_missing_path_suggests_its_neighbors(tmp_path: Path) -> None:
    write(tmp_path, graph__nt="<x:a> <x:p> <x:b> .\n")
    with pytest.raises(DataError, match=r"Did you mean '.*graph.nt'"):
        read(tmp_path / "grahp.nt")
    with pytest.raises(DataError, match="does not exist either"):
        read(tmp_path / "nowhere" / "graph.nt")


def test_folder_without_readable_files(tmp_path: Path) -> None:
    write(tmp_path, readme__md="hello")
    with pytest.raises(DataError, match=r"no readable files in .*readme.md"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"), [("g.nt", ""), ("g.tsv", ""), ("g.ttl", ""), ("g.csv", "\n\n"), ("g.nq", "#")]
)
def test_empty_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="no triples in"):
        read(tmp_path / name)


def test_features(tmp_path: Path) -> None:
    write(
        tmp_path,
        g__tsv="a\tr\tb\nb\tr\tc\n",
        header__csv="node,x,y\nb,1,2.5\na,-1,1e3\nelsewhere,0,0\n",
        plain__tsv="b\t1\t2.5\na\t-1\t1e3\n",
        words__csv="a,1\nb,tall\n",
        twice__csv="a,1\nb,1\na,2\n",
    )
    graph = read(tmp_path / "g.tsv", features=tmp_path / "header.csv")
    assert graph.features is not None
    np.testing.assert_array_equal(graph.features, np.float32([[-1, 1000], [1, 2.5], [0, 0]]))
    assert graph.metadata["nodes_without_features"] == 1
    assert graph.metadata["features_of_unknown_nodes"] == 1
    plain = read(tmp_path / "g.tsv", features=tmp_path / "plain.tsv")
    assert plain.fingerprint == graph.fingerprint
    with pytest.raises(ParseError, match=r"words.csv, line 2: feature 1 of b .* 'tall'"):
        read(tmp_path / "g.tsv", features=tmp_path / "words.csv")
    with pytest.raises(ParseError, match="line 3: the features of a are given twice"):
        read(tmp_path / "g.tsv", features=tmp_path / "twice.csv")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [io.StringIO(), Terminal()])
@pytest.mark.parametrize("unit", ["bytes", "steps"])
def test_progress_is_drawn_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, unit: str) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with progress("quiet", total=2, unit=unit) as meter:
        meter.set_description("reading it")
        meter.advance(2)
    assert ("reading it" in stderr.getvalue()) == stderr.isatty()
    assert meter.done == 2
    with progress("unseen", show=False):
        pass
    assert "unseen" not in stderr.getvalue()


def test_progress_counts_the_bytes_of_the_file(tmp_path: Path) -> None:
    from rgcn.data.files import ByteSource

    (tmp_path / "g.nt").write_text("<x:a> <x:p> <x:b> .\n" * 100)
    seen: list[float] = []
    with ByteSource(tmp_path / "g.nt", seen.append) as source:
        while source.read(64):
            pass
    assert sum(seen) == (tmp_path / "g.nt").stat().st_size
