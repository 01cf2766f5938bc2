"""Tables of vectors as files."""

import json

import numpy as np
import polars as pl
import pytest

from rgcn.errors import ConfigError, DataError
from rgcn.visualization.vectors import WRITERS, vector_column, write_table

VECTORS = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
NAMES = ["a", 'say "x", y', "new\nline", "ü", "z"]


def parts(sizes=(2, 3)):
    first = 0
    for size in sizes:
        rows = slice(first, first + size)
        yield pl.DataFrame([pl.Series("name", NAMES[rows]), vector_column(VECTORS[rows])])
        first += size


def read_back(path):
    if path.suffix == ".npz":
        found = np.load(path, allow_pickle=False)
        return json.loads(found["table.json"])["name"], found["vectors"]
    if path.suffix == ".csv":
        table = pl.read_csv(path)
        return table["name"].to_list(), table.drop("name").to_numpy()
    table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path)
    return table["name"].to_list(), np.array(table["vector"].to_list())


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1, 1, 1, 2)])
def test_written_vectors_are_read_back(tmp_path, ending, sizes):
    path = tmp_path / "folder" / f"nodes{ending}"
    write_table(path, 5, parts(sizes))
    names, vectors = read_back(path)
    assert names == NAMES
    np.testing.assert_array_equal(np.asarray(vectors, np.float32), VECTORS)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", WRITERS)
def test_the_same_table_gives_the_same_bytes(tmp_path, ending):
    for name in ("one", "two"):
        write_table(tmp_path / f"{name}{ending}", 5, parts())
    assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()


def test_parquet_keeps_vectors_as_lists_of_fixed_size(tmp_path):
    write_table(tmp_path / "nodes.parquet", 5, parts())
    assert pl.read_parquet(tmp_path / "nodes.parquet").schema["vector"] == pl.Array(pl.Float32, 3)


@pytest.mark.parametrize("ending", WRITERS)
def test_a_failed_write_keeps_the_old_content(tmp_path, ending):
    path = tmp_path / f"nodes{ending}"
    path.write_text("before")

    def breaking():
        yield from parts((2,))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(path, 5, breaking())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["nodes.xlsx", "nodes", "nodes.parquet.gz"])
def test_unknown_endings_are_refused_with_the_known_ones(tmp_path, name):
    with pytest.raises(ConfigError, match=r"\.parquet, \.csv, \.jsonl, \.npz"):
        write_table(tmp_path / name, 5, parts())


def test_a_folder_is_refused_as_a_file(tmp_path):
    (tmp_path / "nodes.csv").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        write_table(tmp_path / "nodes.csv", 5, parts())


def test_a_path_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="choose another place with --out"):
        write_table(tmp_path / "file" / "nodes.csv", 5, parts())
