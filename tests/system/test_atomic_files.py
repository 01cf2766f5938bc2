"""Test writing whole files: errors of the operating system are reported, in whichever library they occur."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

import rgcn
from rgcn.cli import main
from rgcn.data.split_files import write_splits
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.predict.answer_tables import write_lines, write_table
from rgcn.system.atomic_files import disk_error_message, replace_atomically
from rgcn.visualization.vectors import write_table as write_vectors

LIMIT = 4096  # bytes of a file, as `ulimit -f 4` sets it
MANY = pl.DataFrame({"number": np.random.default_rng(0).random(2000)})
TOO_LARGE = r"a file would be larger than the system allows \(File too large\): raise the limit.*`ulimit -f unlimited`"


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond LIMIT."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def graph() -> KnowledgeGraph:
    return KnowledgeGraph.from_triples([(f"node {i}", "next", f"node {i + 1}") for i in range(2000)])


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(2 * LIMIT)),
        lambda path: MANY.write_parquet(path),
        lambda path: MANY.write_csv(path),
        lambda path: MANY.lazy().sink_parquet(path),
        lambda path: save_file({"number": np.zeros(2000)}, path),
    ],
    ids=["bytes", "parquet", "csv", "sink", "safetensors"],
)
def test_a_limit_on_file_sizes_is_an_error_of_the_system(tmp_path: Path, write: Callable[[Path], object]) -> None:
    path = tmp_path / "file"
    path.write_text("as it was")
    with small_files(), pytest.raises(OSError, match="File too large") as failed:
        replace_atomically(path, write)
    assert failed.value.errno == errno.EFBIG
    assert disk_error_message(failed.value, path) is not None
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["as it was"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_tables_that_grow_too_large_say_so(tmp_path: Path, ending: str) -> None:
    with small_files(), pytest.raises(DataError, match=TOO_LARGE):
        write_table(tmp_path / f"answers.{ending}", [MANY])


def test_lines_that_grow_too_large_say_so(tmp_path: Path) -> None:
    with small_files(), pytest.raises(DataError, match=TOO_LARGE):
        write_lines(tmp_path / "answers.nt", ["a line"] * 2000)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_vectors_that_grow_too_large_say_so(tmp_path: Path, ending: str) -> None:
    vectors = MANY.with_columns(name=pl.col("number").cast(pl.String), vector=pl.concat_arr("number", "number"))
    with small_files(), pytest.raises(DataError, match=TOO_LARGE + ".* with --out"):
        write_vectors(tmp_path / f"vectors.{ending}", len(vectors), [vectors.select("name", "vector")])


def test_building_a_graph_that_grows_too_large_goes_on_later(tmp_path: Path, graph: KnowledgeGraph) -> None:
    write_splits(graph, tmp_path / "split")
    with small_files(), pytest.raises(DataError, match=TOO_LARGE + r".* the same command continues"):
        rgcn.read(tmp_path / "split", out=tmp_path / "built")
    assert rgcn.read(tmp_path / "split", out=tmp_path / "built").num_triples == 2000


def test_a_command_exits_with_one_message(
    tmp_path: Path, graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_splits(graph, tmp_path / "whole")
    monkeypatch.setattr("sys.argv", ["rgcn", "split", str(tmp_path / "whole"), "--out", str(tmp_path / "parts")])
    with small_files(), pytest.raises(SystemExit):
        main()
    assert "a file would be larger than the system allows (File too large)" in capsys.readouterr().err
