"""Triples from TSV, CSV and Parquet."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from pathlib import Path
from typing import Literal

import polars as pl
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rgcn.data.reading import read
from rgcn.errors import DataError, ParseError

TRIPLES = [("z", "r", "y"), ("a", "q", "z"), ("Zürich", "r", "München, 'x'")]


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("format_name", ["tsv", "txt", "csv", "parquet"])
def test_every_format_and_compression(tmp_path: Path, format_name: str, suffix: str) -> None:
    frame = pl.DataFrame(TRIPLES, schema=["s", "r", "o"], orient="row")
    buffer = io.BytesIO()
    if format_name == "parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer, separator="," if format_name == "csv" else "\t", include_header=False)
    compress = {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    }[suffix]
    file = tmp_path / f"graph.{format_name}{suffix}"
    file.write_bytes(compress(buffer.getvalue()))
    graph = read(file)
    assert graph.named() == TRIPLES
    assert list(graph.nodes) == ["z", "y", "a", "Zürich", "München, 'x'"]
    assert graph.node_kinds is None


def test_columns_by_name_position_and_weight(tmp_path: Path) -> None:
    file = tmp_path / "g.csv"
    file.write_text("w,to,by,from\n0.5,b,r,a\n2,b,r,a\n")
    by_name = read(file, columns=("from", "by", "to"), weight="w")
    assert by_name.named() == [("a", "r", "b")] * 2
    assert by_name.edge_weights is not None
    assert by_name.edge_weights.tolist() == [0.5, 2.0]
    by_position = read(file, columns=(-1, 2, 1), weight=0, header=True)
    assert by_position.fingerprint == by_name.fingerprint
    assert len(read(file, columns=("from", "by", "to"))) == 1
    with pytest.raises(DataError, match="Did you mean 'from'"):
        read(file, columns=("form", "by", "to"))
    with pytest.raises(DataError, match="no column 7"):
        read(file, columns=(7, 1, 2))
    with pytest.raises(DataError, match="takes three"):
        read(file, columns=("from", "to"))


def test_the_header_option_decides(tmp_path: Path) -> None:
    file = tmp_path / "g.tsv"
    file.write_text("subject\trelation\tobject\na\tr\tb\n")
    assert len(read(file, header=False)) == 2
    assert len(read(file, header=True)) == 1
    assert len(read(file, columns=("subject", "relation", "object"))) == 1


def test_numeric_parquet_columns_by_name(tmp_path: Path) -> None:
    pl.DataFrame({"h": [3, 1], "r": [0, 0], "t": [1, 3], "p": [0.25, 1.0]}).write_parquet(tmp_path / "g.parquet")
    graph = read(tmp_path / "g.parquet", columns=("h", "r", "t"), weight="p")
    assert graph.named() == [("3", "0", "1"), ("1", "0", "3")]
    with pytest.raises(DataError, match="4 columns, not 3"):
        read(tmp_path / "g.parquet")


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "heavy", ""])
def test_bad_weights(tmp_path: Path, weight: str) -> None:
    (tmp_path / "g.tsv").write_text(f"a\tr\tb\t1\nb\tr\tc\t{weight}\n")
    with pytest.raises(ParseError, match="line 2"):
        read(tmp_path / "g.tsv", weight=3)
    assert len(read(tmp_path / "g.tsv", weight=3, skip_bad_lines=True)) == 1


def test_windows_line_ends_blank_lines_and_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_bytes(b"\xef\xbb\xbfa\tr\tb\r\n\r\nb\tr\tc\r\n\n")
    assert read(tmp_path / "g.tsv").named() == [("a", "r", "b"), ("b", "r", "c")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n", b"\r\r\r\n"])
@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "quoted.csv"])
def test_no_carriage_return_of_a_line_end_is_in_a_name(tmp_path: Path, name: str, end: bytes) -> None:
    separator, quote = b"\t" if name == "g.tsv" else b",", b'"' if name == "quoted.csv" else b""
    rows = [[b"a", b"r", b"b"], [b"b", b"r", quote + b"c" + quote], [b"c", b"r", b"a"]]
    lines = [separator.join(row) for row in rows]
    (tmp_path / name).write_bytes(end + end.join(lines) + end.removesuffix(b"\n"))
    expected = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]
    assert read(tmp_path / name).named() == expected
    assert read(tmp_path / name, columns=(0, 1, 2)).named() == expected  # the width is that of the first row


def test_line_ends_within_quotes_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g.csv").write_bytes(b'a,r,"two\r\nlines"\r\nb,r,"one\nand\r\rmore\r"\r\nc,r,"\r\n\r\n"\r\n')
    expected = [("a", "r", "two\r\nlines"), ("b", "r", "one\nand\r\rmore\r"), ("c", "r", "\r\n\r\n")]
    assert read(tmp_path / "g.csv").named() == expected
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 5)
    assert read(tmp_path / "g.csv").named() == expected
    (tmp_path / "classes.csv").write_bytes(b'node,class\r\n"two\r\nlines","x\r\ny"\r\na,z\r\n')
    labels = read(tmp_path / "g.csv", labels=tmp_path / "classes.csv").labels
    assert labels is not None
    assert list(labels.names) == ["x\r\ny", "z"]


def test_a_carriage_return_outside_quotes_is_reported(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_bytes(b'"a","r","b"\r"b","r","c"\r')
    with pytest.raises(ParseError, match="line 1: a carriage return within the line and outside quotes"):
        read(tmp_path / "g.csv")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), None])
def test_null_and_nan_in_parquet_are_not_nodes(tmp_path: Path, value: float | None) -> None:
    frame = pl.DataFrame({"s": [1.0, 2.0], "p": ["r", "r"], "o": [2.0, value], "weight": [1.0, 2.0]})
    frame.write_parquet(tmp_path / "g.parquet")
    with pytest.raises(ParseError, match="line 2: column 'o' is empty, NaN or infinite"):
        read(tmp_path / "g.parquet")
    assert read(tmp_path / "g.parquet", skip_bad_lines=True).named() == [("1.0", "r", "2.0")]
    pl.DataFrame({"node": ["1.0", "2.0"], "class": [1.0, value]}).write_parquet(tmp_path / "l.parquet")
    with pytest.raises(ParseError, match="line 2: the node or its class is empty"):
        read(tmp_path / "g.parquet", skip_bad_lines=True, labels=tmp_path / "l.parquet")


def test_csv_quotes_commas_and_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g.csv").write_text('"a, ""x""",r,"two\n\nlines"\nplain,r,5" disk\n')
    expected = [('a, "x"', "r", "two\n\nlines"), ("plain", "r", '5" disk')]
    assert read(tmp_path / "g.csv").named() == expected
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 5)
    assert read(tmp_path / "g.csv").named() == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a\tr", "fewer than 3"),
        (b"a\tr\tb\tc", "more than 3"),
        (b"a\t\tb", "column 2 is empty"),
        (b"a\tr\t\xff", "not UTF-8"),
        (b"a\tr\tb\0", "NUL"),
    ],
)
def test_malformed_lines_are_named_or_skipped(tmp_path: Path, line: bytes, reason: str) -> None:
    file = tmp_path / "g.tsv"
    file.write_bytes(b"x\tr\ty\n\n" + line + b"\ny\tr\tx\n")
    with pytest.raises(ParseError, match=reason) as caught:
        read(file)
    assert caught.value.line == 3
    assert caught.value.path == str(file)
    assert caught.value.text.startswith("a")
    graph = read(file, skip_bad_lines=True)
    assert graph.named() == [("x", "r", "y"), ("y", "r", "x")]
    assert graph.metadata["skipped_lines"] == 1
    assert graph.metadata["skipped_examples"][0].startswith(f"{file}:3: ")


def test_malformed_quotes_are_skipped_one_line_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text('a,r,b\n"bad"x,r,c\nb,r,c\n')
    with pytest.raises(ParseError, match="line 2: malformed quotes"):
        read(tmp_path / "g.csv")
    assert len(read(tmp_path / "g.csv", skip_bad_lines=True)) == 2


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(names, names, names), min_size=1, max_size=8))
def test_any_name_survives_tsv(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]) -> None:
    file = tmp_path_factory.mktemp("tsv") / "g.tsv"
    file.write_bytes("".join("\t".join(row) + "\n" for row in rows).encode())
    if rows[0][0].startswith("\ufeff"):
        return  # indistinguishable from a byte order mark
    assert read(file, header=False).named() == list(dict.fromkeys(rows))


csv_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(csv_names, csv_names, csv_names), min_size=1, max_size=8),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_name_survives_csv(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]], quoting: Literal[0, 1]
) -> None:
    assume(quoting == csv.QUOTE_ALL or not any("\r" in cell for row in rows for cell in row))
    file = tmp_path_factory.mktemp("csv") / "g.csv"
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened, lineterminator="\n", quoting=quoting).writerows(rows)
    assert read(file, header=False).named() == list(dict.fromkeys(rows))
