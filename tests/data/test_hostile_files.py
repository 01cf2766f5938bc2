"""Test broken files, and files that were made to harm the reader."""

from __future__ import annotations

import bz2
import gzip
import os
import socket
from pathlib import Path

import polars as pl
import pytest
import zstandard

from rgcn.data.reading import read
from rgcn.data.registry import path_or_dataset
from rgcn.errors import DataError, ParseError

GOOD = "<x:a> <x:p> <x:b> .\n"
XML_HEAD = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"<x:a> <x:p> nonsense .", "line 3"),
        (b"<x:a> <x:p> <x:b>", "dot"),
        (b"<a> <x:p> <x:b> .", "base"),
        (b'<x:a> <x:p> "\xff" .', "UTF-8"),
        (b'<x:a> <x:p> "\0" .', "NUL"),
        (b'<x:a> <x:p> "\\uD800" .', "unicode"),
        (b"<x:a> <x:p> " + b"<<( <x:a> <x:p> " * 50_000 + b"<x:b>" + b" )>>" * 50_000 + b" .", "RDF-star"),
    ],
)
@pytest.mark.parametrize("suffix", ["nt", "nq"])
def test_bad_line_is_named_or_skipped(tmp_path: Path, line: bytes, reason: str, suffix: str) -> None:
    file = tmp_path / f"g.{suffix}"
    file.write_bytes(GOOD.encode() + b"# comment\n" + line + b"\n<x:b> <x:p> <x:a> .\n")
    with pytest.raises(ParseError, match=reason) as caught:
        read(file)
    assert (caught.value.path, caught.value.line) == (str(file), 3)
    assert caught.value.text.encode()[:8] == line[:8]
    graph = read(file, skip_bad_lines=True)
    assert len(graph) == 2
    assert graph.metadata["skipped_lines"] == 1
    assert f"{file}:3: " in graph.metadata["skipped_examples"][0]


def test_only_the_first_skipped_lines_are_remembered(tmp_path: Path) -> None:
    (tmp_path / "g.nt").write_text(GOOD + "bad\n" * 9)
    graph = read(tmp_path / "g.nt", skip_bad_lines=True)
    assert graph.metadata["skipped_lines"] == 9
    assert len(graph.metadata["skipped_examples"]) == 5
    (tmp_path / "g.nt").write_text("bad\n")
    with pytest.raises(DataError, match=r"no triples in .*1 bad lines were skipped"):
        read(tmp_path / "g.nt", skip_bad_lines=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.ttl", GOOD + "<x:a> <x:p> ; ; nonsense .\n"),
        ("g.trig", "<x:g> {\n<x:a> <x:p> }}\n"),
        ("g.rdf", XML_HEAD + "\n<e:a></e:b></rdf:RDF>"),
        ("g.jsonld", '{"@id": "x:a",\n "x:p" "x:b"}'),
    ],
)
def test_document_errors_name_the_position_and_that_lines_cannot_be_skipped(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ParseError) as caught:
        read(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)
    if caught.value.line is not None:
        assert caught.value.text == text.split("\n")[caught.value.line - 1]
    with pytest.raises(ParseError, match="cannot be skipped"):
        read(tmp_path / name, skip_bad_lines=True)


@pytest.mark.parametrize("name", ["g.ttl", "g.rdf", "g.jsonld", "g.trig"])
def test_nul_and_broken_utf8_in_documents(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\n\n\0")
    with pytest.raises(ParseError, match="line 3: a NUL byte"):
        read(tmp_path / name)
    (tmp_path / name).write_bytes(b'<x:a> <x:p> "\xff\xfe" .')
    with pytest.raises(ParseError):
        read(tmp_path / name)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
@pytest.mark.parametrize("name", ["g.nt", "g.tsv", "g.ttl", "g.parquet"])
def test_cut_off_and_mislabeled_compression(tmp_path: Path, name: str, suffix: str) -> None:
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.ZstdCompressor().compress}[suffix]
    lines = "".join(f"<x:a{i * 7919 % 1000}> <x:p> <x:b{i}> .\n" for i in range(2000))
    whole = compress(lines.encode())
    file = tmp_path / f"{name}.{suffix}"
    for damaged in (whole[:-20], whole[: len(whole) // 2], b"this is not compressed at all"):
        file.write_bytes(damaged)
        with pytest.raises(ParseError, match="damaged or cut short"):
            read(file, skip_bad_lines=True)


def test_several_zst_frames_are_one_file(tmp_path: Path) -> None:
    compress = zstandard.ZstdCompressor().compress
    (tmp_path / "g.nt.zst").write_bytes(compress(GOOD.encode()) + compress(b"<x:b> <x:p> <x:c> .\n"))
    assert len(read(tmp_path / "g.nt.zst")) == 2


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_decompression_bombs(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.ZstdCompressor().compress}[suffix]
    (tmp_path / f"g.nt.{suffix}").write_bytes(compress(GOOD.encode() * 100_000))
    monkeypatch.setattr("rgcn.data.files.EXPANSION_ALWAYS_ALLOWED", 1 << 20)
    monkeypatch.setattr("rgcn.data.files.MAX_EXPANSION_RATIO", 50)
    with pytest.raises(DataError, match="bomb"):
        read(tmp_path / f"g.nt.{suffix}")


@pytest.mark.parametrize("name", ["g.nt", "g.tsv", "g.csv"])
def test_endless_line(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgcn.data.files.MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 4096)
    (tmp_path / name).write_text("a" * 50_000)
    with pytest.raises(ParseError, match="line 1: a line of more than"):
        read(tmp_path / name)


def billion_laughs() -> str:
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    return f'<!ENTITY l0 "ha">{levels}'


@pytest.mark.parametrize(
    "entities",
    [
        billion_laughs(),
        f'<!ENTITY l11 "{"a" * 100_000}">',
        '<!ENTITY l11 SYSTEM "file:///etc/passwd">',
        '<!ENTITY % l11 "x">',
        "<!-- " + "x" * 65_470 + " -->" + billion_laughs(),
    ],
)
def test_entity_bombs_are_refused(tmp_path: Path, entities: str) -> None:
    body = '<rdf:Description rdf:about="x:a"><e:p>&l11;</e:p></rdf:Description></rdf:RDF>'
    (tmp_path / "g.rdf").write_text(f'<?xml version="1.0"?><!DOCTYPE r [{entities}]>{XML_HEAD}{body}')
    with pytest.raises(DataError, match="entity"):
        read(tmp_path / "g.rdf")


def test_many_references_to_one_entity_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgcn.data.rdf_guards.ENTITY_EXPANSION_ALWAYS_ALLOWED", 1 << 20)
    body = f'<rdf:Description rdf:about="x:a"><e:p>{"&l;" * 20_000}</e:p></rdf:Description></rdf:RDF>'
    (tmp_path / "g.rdf").write_text(f'<!DOCTYPE r [<!ENTITY l "{"a" * 1000}">]>{XML_HEAD}{body}')
    with pytest.raises(DataError, match="50-fold"):
        read(tmp_path / "g.rdf")


def test_deeply_nested_triple_terms_do_not_overflow_the_stack(tmp_path: Path) -> None:
    nested = "<<( <x:a> <x:p> " * 50_000 + "<x:b>" + " )>>" * 50_000
    (tmp_path / "g.ttl").write_text(f"<x:a> <x:p> {nested} .")
    with pytest.raises(ParseError, match="RDF-star"):
        read(tmp_path / "g.ttl")


# -- depth -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"x:p":' * 5000 + '"x"' + "}" * 5000,
        '{"x:p":[' * 5000 + '"x"' + "]}" * 5000,
        '{"@id":"x:a","x:p":' + "[" * 5000 + "1" + "]" * 5000 + "}",
        '{"x:unused":' * 50_000,
        '{"]}":"]}]}","x:p":' * 5000,
        '{"\\\\\\"]}":' * 5000,
        "\n" * 65_533 + '{"\\"}":' + '{"x:p":' * 5000,  # the end of a piece is inside the escape
    ],
)
def test_deeply_nested_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "g.jsonld").write_text(text)
    with pytest.raises(DataError, match="nested more than 500 deep"):
        read(tmp_path / "g.jsonld")


def test_brackets_in_json_strings_are_text(tmp_path: Path) -> None:
    nodes = ",".join(f'{{"@id":"x:{i}","x:p":"[[[[{{\\"{{{{\\\\"}}' for i in range(5000))
    (tmp_path / "g.jsonld").write_text(f"[{nodes}]")
    assert len(read(tmp_path / "g.jsonld")) == 5000


XML_NEST = "<e:a><e:b>"


@pytest.mark.parametrize(
    "text",
    [
        XML_HEAD + XML_NEST * 50_000,
        XML_HEAD + '<e:a><e:b rdf:parseType="Resource">' * 1000,
        XML_HEAD + (XML_NEST + "<!-- </e:b></e:a> -->") * 1000,
        XML_HEAD + (XML_NEST + "<![CDATA[</e:b></e:a>]]>") * 1000,
        XML_HEAD + (XML_NEST + "<?x </e:b></e:a>?>") * 1000,
        XML_HEAD + "<e:a e:x='/>'><e:b e:x=\"></e:b\">" * 1000,
        XML_HEAD + "<e:a e:x='\"'><e:b e:x=\"'/>\">" * 1000,
        XML_HEAD + "<e:a>/><e:b>/>" * 1000,
        "<!-- " + "x" * 65_530 + " -->" + XML_HEAD + XML_NEST * 1000,
    ],
)
def test_deeply_nested_xml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "g.rdf").write_text(text)
    with pytest.raises(DataError, match=r"nested more than 500 deep|not XML: not well-formed"):
        read(tmp_path / "g.rdf")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'<!DOCTYPE x "<!--">{XML_HEAD}{XML_NEST * 1000}', "not XML: syntax error"),
        (f'<!DOCTYPE x [ <!ENTITY a "<?"> ]>{XML_HEAD}{XML_NEST * 1000}', "nested more than 500 deep"),
        (XML_HEAD + (XML_NEST + '<!DOCTYPE x "</e:b></e:a>">') * 1000, "not XML: not well-formed"),
    ],
)
def test_elements_inside_a_document_type_are_counted(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "g.rdf").write_text(text)
    with pytest.raises(DataError, match=reason):
        read(tmp_path / "g.rdf")


def test_an_element_of_many_attributes_is_refused(tmp_path: Path) -> None:
    for quote in "\"'":
        attributes = " ".join(f"e:a{i}={quote}1{quote}" for i in range(1001))
        (tmp_path / "g.rdf").write_text(f"{XML_HEAD}<e:a {attributes}/></rdf:RDF>")
        with pytest.raises(DataError, match="more than 1,000 attributes"):
            read(tmp_path / "g.rdf")
    (tmp_path / "g.rdf").write_text(f'{XML_HEAD}<e:a e:b="{"1" * (2 << 20)}')
    with pytest.raises(DataError, match="a tag is longer than 1024 KiB"):
        read(tmp_path / "g.rdf")


@pytest.mark.parametrize(
    "filler", [" ", "<!-- <e:x> -->", "<e:p><![CDATA[<e:x>]]></e:p>", "<e:p><e:c e:q='a>b'/></e:p><e:p>it's > 1</e:p>"]
)
def test_many_elements_that_are_not_nested_are_read(tmp_path: Path, filler: str) -> None:
    doctype = '<!DOCTYPE r [\n<!-- names -->\n<!ENTITY e "http://e/">\n]>'
    body = "".join(f'<e:a rdf:about="&e;{i}">{filler}<e:b rdf:resource="x:/{i}"/></e:a>\n' for i in range(3000))
    (tmp_path / "g.rdf").write_text(f'<?xml version="1.0"?>\n{doctype}\n{XML_HEAD}\n{body}</rdf:RDF>')
    assert len(read(tmp_path / "g.rdf")) >= 6000


@pytest.mark.parametrize(("opening", "closing"), [("[ <x:p> ", " ]"), ("( ", " )")])
def test_deeply_nested_turtle_is_read(tmp_path: Path, opening: str, closing: str) -> None:
    (tmp_path / "g.ttl").write_text(f"<x:a> <x:p> {opening * 20_000}<x:b>{closing * 20_000} .")
    assert len(read(tmp_path / "g.ttl")) > 20_000


# -- length ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["g.nt", "g.nq", "g.ttl", "g.trig", "g.jsonld"])
def test_a_literal_longer_than_the_parser_holds(tmp_path: Path, name: str) -> None:
    long = "a " * (9 << 20)
    text = f'{{"@id":"x:a","x:p":"{long}"}}' if name == "g.jsonld" else f'{GOOD}<x:a> <x:p> "{long}" .\n{GOOD}'
    (tmp_path / name).write_text(text)
    with pytest.raises(ParseError, match="a literal or name longer than the parser holds"):
        read(tmp_path / name)
    if name in ("g.nt", "g.nq"):
        graph = read(tmp_path / name, skip_bad_lines=True)
        assert (len(graph), graph.metadata["skipped_lines"]) == (1, 1)


@pytest.mark.parametrize("name", ["g.ttl", "g.trig"])
def test_an_endless_word_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD + "a" * (5 << 20))
    with pytest.raises(ParseError, match="a name or a literal of more than 4 MiB without a space"):
        read(tmp_path / name)


def test_parquet_of_one_row_many_times(tmp_path: Path) -> None:
    row = pl.DataFrame({"s": ["a"], "r": ["r"], "o": ["b"]})
    row.select(pl.all().repeat_by(2_000_000).explode()).write_parquet(tmp_path / "g.parquet", row_group_size=2_000_000)
    with pytest.raises(DataError, match="2,000,000 rows in"):
        read(tmp_path / "g.parquet")


def test_quotes_that_are_never_closed(tmp_path: Path) -> None:
    file = tmp_path / "g.csv"
    file.write_text('a,r,"' + "b" * 200_000 + "\na,r,b\n")
    with pytest.raises(ParseError, match="a quote is not closed within 128 KiB"):
        read(file)
    with pytest.raises(ParseError, match="a quote is not closed within 128 KiB"):
        read(file, header=True)
    assert len(read(file, skip_bad_lines=True)) == 1
    file.write_text('a","\n' * 600_000)
    with pytest.raises(ParseError, match="rows cannot be separated"):
        read(file, skip_bad_lines=True)


def test_escaped_quotes_are_parsed_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / "g.nt").write_text('<x:a> <x:p> <<"' + '\\"' * 300_000)
    with pytest.raises(ParseError, match="RDF-star"):
        read(tmp_path / "g.nt")


@pytest.mark.parametrize(
    ("name", "line"), [("g.nt", GOOD), ("g.nq", GOOD), ("g.tsv", "a\tr\tb\n"), ("g.csv", "a,r,b\n")]
)
def test_blank_lines_are_passed_over_and_counted(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / name).write_text("\n" * (9 << 20) + line + "\n\n" + line + "\nbad\n")
    with pytest.raises(ParseError) as caught:
        read(tmp_path / name)
    assert caught.value.line == (9 << 20) + 6
    graph = read(tmp_path / name, skip_bad_lines=True)
    assert (len(graph), graph.metadata["skipped_lines"]) == (1, 1)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
@pytest.mark.parametrize("name", ["g.nt", "g.ttl", "g.rdf", "g.jsonld", "g.tsv"])
def test_a_bomb_of_newlines_is_refused_before_it_is_large(tmp_path: Path, name: str, suffix: str) -> None:
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.ZstdCompressor().compress}[suffix]
    (tmp_path / f"{name}.{suffix}").write_bytes(compress(b"\n" * (24 << 20)))
    with pytest.raises(DataError, match="expands more than 250-fold"):
        read(tmp_path / f"{name}.{suffix}")


def test_nothing_is_fetched_for_a_remote_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", no_network)
    (tmp_path / "g.jsonld").write_text('{"@context": "http://127.0.0.1:9/context", "@id": "x:a", "name": "y"}')
    with pytest.raises(ParseError, match="never touches the network"):
        read(tmp_path / "g.jsonld")


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\n")
    os.mkfifo(tmp_path / "pipe.tsv")
    words = r"pipe.tsv is a pipe, not a file\. .*: write the data to a file"
    for given in (
        {"path": tmp_path / "pipe.tsv"},
        {"path": {"train": tmp_path / "pipe.tsv"}},
        {"path": tmp_path / "g.tsv", "labels": tmp_path / "pipe.tsv"},
        {"path": tmp_path / "g.tsv", "features": tmp_path / "pipe.tsv"},
    ):
        with pytest.raises(DataError, match=words):
            read(**given)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="/dev/null is a device, not a file"):
        read("/dev/null", format="nt")
    (tmp_path / "pipe.tsv").rename(tmp_path / "pipe.nt")
    assert len(read(tmp_path)) == 1  # of a folder, files are read


def test_a_dangling_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "loop.nt").symlink_to(tmp_path / "loop.nt")
    (tmp_path / "gone.nt").symlink_to("nothing.nt")
    (tmp_path / "g.nt").write_text(GOOD)
    for reader in (read, path_or_dataset):
        with pytest.raises(DataError, match=r"loop.nt is a symbolic link that leads back to itself") as looped:
            reader(tmp_path / "loop.nt")
        with pytest.raises(DataError, match=r"gone.nt is a symbolic link to nothing.nt, which does not exist") as gone:
            reader(tmp_path / "gone.nt")
        with pytest.raises(DataError, match=r"loop.nt is a symbolic link"):
            reader(tmp_path / "loop.nt" / "g.nt")
        assert "Did you mean" not in f"{looped.value}{gone.value}"
    with pytest.raises(DataError, match=r"gone.nt is a symbolic link to nothing.nt"):
        read(tmp_path / "g.nt", out=tmp_path / "gone.nt")
    with pytest.raises(DataError, match=r"loop.nt is a symbolic link"):
        read(tmp_path / "g.nt", features=tmp_path / "loop.nt")


def test_invalid_parquet_is_reported(tmp_path: Path) -> None:
    for data in (b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1", b"a\tr\tb\n"):
        (tmp_path / "g.parquet").write_bytes(data)
        with pytest.raises(ParseError, match="Parquet"):
            read(tmp_path / "g.parquet")
