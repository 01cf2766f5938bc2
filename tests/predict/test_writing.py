"""Test reading lists of names, and writing files of predictions atomically."""

import gzip
import io
import os
from pathlib import Path

import polars as pl
import pytest

from rgcn.errors import ConfigError, DataError, ParseError
from rgcn.predict.answer_tables import format_of, predicate_term, write_lines, write_table
from rgcn.predict.questions import read_questions, read_table, resolve_nodes
from small_models import random_graph, with_whole_numbers

# -- reading ----------------------------------------------------------------------------------------------


def names(path):
    return [(row.line, row.cells[0]) for row in read_table(path).rows]


def test_plain_text_with_a_byte_order_mark_blank_lines_and_any_line_end(tmp_path):
    path = tmp_path / "nodes.txt"
    path.write_bytes("\ufeffBern\r\n\r\n  Zürich \n<http://x.org/a,b>\n\n".encode())
    assert names(path) == [(1, "Bern"), (3, "Zürich"), (4, "<http://x.org/a,b>")]


def test_first_columns_of_tables(tmp_path):
    (tmp_path / "a.csv").write_text('node,title\n"Bern, the city",x\n\nOslo,y\n')
    assert names(tmp_path / "a.csv") == [(2, "Bern, the city"), (4, "Oslo")]
    (tmp_path / "b.tsv").write_text("Bern\tx\nOslo\ty\n")  # no header: Bern is not a column heading
    assert names(tmp_path / "b.tsv") == [(1, "Bern"), (2, "Oslo")]
    pl.DataFrame({"who": ["Bern", None, "Oslo"]}).write_parquet(tmp_path / "c.parquet")
    assert names(tmp_path / "c.parquet") == [(1, "Bern"), (3, "Oslo")]


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("Zürich\n".encode())))
    assert names(Path("-")) == [(1, "Zürich")]


def test_a_named_pipe_is_not_waited_for_and_an_open_one_is_read(tmp_path):
    for name in ("nodes.txt", "nodes.parquet"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match=rf"{name} is a pipe, not a file: give - instead"):
            read_table(tmp_path / name)
    reading, writing = os.pipe()
    os.write(writing, "Zürich\n".encode())
    os.close(writing)
    assert names(Path(f"/dev/fd/{reading}")) == [(1, "Zürich")]  # as the shell writes <(printf Zürich)
    os.close(reading)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv"])
@pytest.mark.parametrize("content", ["", "\n  \n", "\ufeff"])
def test_empty_files_are_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="no names in it"):
        read_table(tmp_path / name)


def test_unreadable_input_is_reported_with_its_line(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"Bern\nZ\xfcrich\n")
    with pytest.raises(ParseError, match=r"line 2: not UTF-8: byte 0xfc"):
        read_table(tmp_path / "latin.txt")
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "none.txt")
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path)
    (tmp_path / "no.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_table(tmp_path / "no.parquet")


def test_unknown_names_are_counted_and_the_first_explained():
    opened = with_whole_numbers(random_graph(0))
    listed = [(1, "n1"), (2, "N2"), (4, "n99"), *[(10 + i, f"x{i}") for i in range(20)]]
    with pytest.raises(DataError, match=r"people.txt: 21 of 23 names are not known") as refused:
        resolve_nodes(opened, listed, "people.txt")
    assert "line 4: unknown node 'n99'. Did you mean 'n9'" in str(refused.value)
    assert "and 16 more" in str(refused.value)
    found = resolve_nodes(opened, listed, "people.txt", skip_unknown=True)
    assert (found.ids.tolist(), found.place.tolist(), found.skipped) == ([1, 2], [0, 1], 21)
    with pytest.raises(DataError, match="1 of 1 name is not known"):  # if no name is known, it is an error
        resolve_nodes(opened, [(1, "x")], "people.txt", skip_unknown=True)


def test_tables_of_questions(tmp_path):
    opened = with_whole_numbers(random_graph(0))
    path = tmp_path / "q.csv"
    path.write_text("relation,object\nr1,n4\nr0,n5\n")
    parsed = read_questions(opened, path).questions
    assert (parsed.node.tolist(), parsed.relation.tolist(), parsed.for_objects) == ([4, 5], [1, 0], False)
    path = tmp_path / "q.txt"
    path.write_text("n4\tr2\nwho\tr0\nn6\tr1\n")
    parsed, skipped = read_questions(opened, path, skip_unknown=True)
    assert (parsed.node.tolist(), parsed.relation.tolist(), parsed.for_objects) == ([4, 6], [2, 1], True)
    assert skipped == 1
    path.write_text("n4\n")
    with pytest.raises(DataError, match="1 row without a relation, the first in line 1"):
        read_questions(opened, path)
    (tmp_path / "q.tsv").write_text("node\tname\nn1\tr1\n")
    with pytest.raises(DataError, match="a question needs subject and relation"):
        read_questions(opened, tmp_path / "q.tsv")


# -- writing ----------------------------------------------------------------------------------------------

FRAMES = [pl.DataFrame({"node": ['a,"b"\nc', "ü"], "p": [0.5, 0.25]}), pl.DataFrame({"node": ["z"], "p": [1.0]})]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.csv", pl.read_csv),
        ("a.tsv", lambda path: pl.read_csv(path, separator="\t")),
        ("a.parquet", pl.read_parquet),
        ("A.JSONL", pl.read_ndjson),
    ],
)
def test_tables_come_back_as_they_were(tmp_path, name, read):
    assert write_table(tmp_path / name, iter(FRAMES)) == 3
    assert read(tmp_path / name).equals(pl.concat(FRAMES))


def test_lines_plain_and_compressed(tmp_path):
    for name in ("a.nt", "a.nt.gz"):
        assert write_lines(tmp_path / name, iter(["ü .", "b ."])) == 2
    first = (tmp_path / "a.nt.gz").read_bytes()
    assert gzip.decompress(first) == (tmp_path / "a.nt").read_bytes() == "ü .\nb .\n".encode()
    write_lines(tmp_path / "b.nt.gz", ["ü .", "b ."])
    assert (tmp_path / "b.nt.gz").read_bytes() == first


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataError])
@pytest.mark.parametrize("name", ["a.csv", "a.nt", "a.parquet", "a.nt.gz"])
def test_an_interrupted_write_keeps_the_old_file(tmp_path, name, error):
    (tmp_path / name).write_text("old")

    def some(first):
        yield first
        raise error

    write, first = (write_lines, "x .") if name.startswith("a.nt") else (write_table, FRAMES[0])
    with pytest.raises(error):
        write(tmp_path / name, some(first))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


def test_unknown_suffixes_are_refused(tmp_path):
    for wrong in ("a.xlsx", "a", ".csv", "a.csv.gz"):
        with pytest.raises(ConfigError, match=r"must be one of \.csv"):
            format_of(tmp_path / wrong)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        format_of(tmp_path / "folder.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_lines(tmp_path / "file" / "a.nt", ["x"])


def test_predicates():
    assert predicate_term("<http://x.org/p>") == predicate_term("http://x.org/p") == "<http://x.org/p>"
    assert predicate_term("is a") == "<urn:rgcn:relation:is%20a>"
