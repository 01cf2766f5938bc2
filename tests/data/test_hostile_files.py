"""Files that are broken, or built to break the reader."""

from __future__ import annotations

import bz2
import gzip
import socket
from pathlib import Path

import pytest
import zstandard

from rgcn.data.reading import read
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
def test_documents_name_the_place_and_say_that_lines_cannot_be_skipped(tmp_path: Path, name: str, text: str) -> None:
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
def test_cut_off_and_mislabelled_compression(tmp_path: Path, name: str, suffix: str) -> None:
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
    monkeypatch.setattr("rgcn.data.xml_entities.EXPANSION_ALWAYS_ALLOWED", 1 << 20)
    body = f'<rdf:Description rdf:about="x:a"><e:p>{"&l;" * 20_000}</e:p></rdf:Description></rdf:RDF>'
    (tmp_path / "g.rdf").write_text(f'<!DOCTYPE r [<!ENTITY l "{"a" * 1000}">]>{XML_HEAD}{body}')
    with pytest.raises(DataError, match="50-fold"):
        read(tmp_path / "g.rdf")


def test_deeply_nested_triple_terms_do_not_overflow_the_stack(tmp_path: Path) -> None:
    nested = "<<( <x:a> <x:p> " * 50_000 + "<x:b>" + " )>>" * 50_000
    (tmp_path / "g.ttl").write_text(f"<x:a> <x:p> {nested} .")
    with pytest.raises(ParseError, match="RDF-star"):
        read(tmp_path / "g.ttl")


def test_nothing_is_fetched_for_a_remote_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", no_network)
    (tmp_path / "g.jsonld").write_text('{"@context": "http://127.0.0.1:9/context", "@id": "x:a", "name": "y"}')
    with pytest.raises(ParseError, match="never touches the network"):
        read(tmp_path / "g.jsonld")


def test_parquet_that_is_none(tmp_path: Path) -> None:
    for data in (b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1", b"a\tr\tb\n"):
        (tmp_path / "g.parquet").write_bytes(data)
        with pytest.raises(ParseError, match="Parquet"):
            read(tmp_path / "g.parquet")
