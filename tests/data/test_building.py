"""Test graphs built on disk: equal to those read into memory for every parser, and never incomplete."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyoxigraph import RdfFormat, parse, serialize

import rgcn
from rgcn.data import graph_builder as building
from rgcn.data import graph_store, reading, triple_rows
from rgcn.data.files import find_files
from rgcn.data.line_scanning import line_triples, table_triples
from rgcn.errors import DataError, RgcnError
from rgcn.graph import name_loops
from rgcn.graph.vocabulary import NAMES_PER_BLOCK, StoredNames, name_hash, name_hashes
from rgcn.system import atomic_files as atomic
from rgcn.system import threads

PER_EXAMPLE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def compiled(monkeypatch):
    """Treat every file as large, and sort in small pieces."""
    monkeypatch.setattr(reading, "MIN_LARGE_BYTES", 0)
    monkeypatch.setattr(triple_rows, "MIN_LOOP_ROWS", -1)
    monkeypatch.setattr(triple_rows, "PIECE_ROWS", 5)


def outcome(path: Path, **options):
    """Return all parts of the graph that was read, or the error message."""
    try:
        graph = rgcn.read(path, **options)
    except RgcnError as error:
        return str(error)
    return graph.fingerprint, list(graph.nodes), graph.triples.tolist(), dict(graph.metadata)


def both_ways(path: Path, monkeypatch, **options):
    """Read with the parsers only, and with compiled loops that fall back to the parsers."""
    with monkeypatch.context() as now:
        now.setattr(reading, "MIN_LARGE_BYTES", 1 << 60)
        plainly = outcome(path, **options)
    with monkeypatch.context() as now:
        now.setattr(reading, "MIN_LARGE_BYTES", 0)
        now.setattr(triple_rows, "MIN_LOOP_ROWS", -1)
        now.setattr(triple_rows, "PIECE_ROWS", 5)
        return plainly, outcome(path, **options)


# -- names ------------------------------------------------------------------------------------------------


@PER_EXAMPLE
@given(st.lists(st.binary(max_size=40), min_size=1))
def test_a_name_has_one_hash_in_python_numpy_and_numba(names):
    lengths = np.array([len(name) for name in names], dtype=np.int64)
    text, starts = np.frombuffer(b"".join(names), dtype=np.uint8), np.cumsum(lengths) - lengths
    hashes = np.empty(len(names), dtype=np.uint32)
    name_loops.hash_all(text, starts, lengths, hashes)
    assert hashes.tolist() == [name_hash(name) for name in names] == name_hashes(text, starts, lengths).tolist()


@PER_EXAMPLE
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), unique=True))
def test_stored_names_are_a_list_with_an_index(names):
    stored = StoredNames.of(names)
    assert (list(stored), stored[:], len(stored)) == (names, tuple(names), len(names))
    assert [stored.get(name) for name in names] == list(range(len(names)))
    assert stored.get("another name, of more than twenty letters") is None
    assert rgcn.graph.Vocabulary(stored) == rgcn.graph.Vocabulary(names)


def test_names_are_read_over_the_ends_of_blocks():
    names = [f"n{i}" for i in range(2 * NAMES_PER_BLOCK + 1)]
    assert list(StoredNames.of(names)) == names


def test_slots_with_missing_names_are_reported(tmp_path):
    names = StoredNames.of(["a", "b"])
    with pytest.raises(DataError, match="damaged"):
        StoredNames(names.text, names.ends, np.full(8, 7, dtype=np.int32)).get("c")
    many = np.zeros(1 << 13, dtype=np.int32)  # every slot is taken by another name
    with pytest.raises(DataError, match="damaged"):
        StoredNames(names.text, names.ends, many).get("c")


# -- lines of RDF -----------------------------------------------------------------------------------------

IRI_PARTS = st.sampled_from(
    [*"abzAZ09-._~!$&'()*+,;=:@/?#%[]|^`{}<> \"\\\t", "//", "%41", "%zz", "é", "\u009f", "日", "\ue000", "\ufdd0", "😀"]
)
IRIS = st.one_of(
    st.sampled_from(["http://a/b", "urn:x", "http://a.b/c?d#e", "http://user@a:80/", "http://a:b", "a:", "http://"]),
    st.builds(
        lambda scheme, parts: scheme + "".join(parts),
        st.sampled_from(["http://a", "http://a/", "http:", "urn:", "1:", ""]),
        st.lists(IRI_PARTS, max_size=4),
    ),
).map(lambda iri: f"<{iri}>")
LITERAL_PARTS = st.sampled_from(
    [
        *"ab \t'<>@^\x01\x7fé\u0085\ufffe\uffff\ufffd日😀\ue000\r\"",
        *('\\"', "\\\\", "\\n", "\\r", "\\t", "\\b", "\\f", "\\'", "\\u00e9", "\\x"),
    ]
)
SUFFIXES = st.sampled_from(
    [
        *("", "@en", "@EN", "@en-us", "@zh-hant", "@e", "@abcd", "@en-", "@en-abc", "@en--ltr", "@12"),
        *("^^<http://a/t>", "^^<t>", "^^", "^<http://a/t>", "^^<http://www.w3.org/2001/XMLSchema#strings>"),
        "^^<http://www.w3.org/2001/XMLSchema#string>",
        "^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>",
    ]
)
LITERALS = st.builds(lambda parts, end: f'"{"".join(parts)}"{end}', st.lists(LITERAL_PARTS, max_size=4), SUFFIXES)
BLANKS = st.sampled_from(["_:a", "_:b1", "_:a1b2", "_:0", "_:a-b", "_:a.b", "_:", "_:é", "_:a.", "_:A"])
TERMS = st.one_of(IRIS, IRIS, LITERALS, BLANKS)
GAPS = st.sampled_from([" ", " ", " ", " ", "\t", "  ", "", "\r"])
STATEMENTS = st.builds(
    lambda s, p, o, g, gaps, end: f"{s}{gaps[0]}{p}{gaps[1]}{o}{gaps[2]}{g}{end}",
    TERMS,
    IRIS,
    TERMS,
    st.sampled_from(["", "", "", "<http://a/g> ", "_:g\t", "<g> ", '"g" ']),
    st.tuples(GAPS, GAPS, GAPS),
    st.sampled_from([".", ".", ".", ". # said", " .", "", ". .", ".\r", ".\u2028"]),
)
OTHERS = st.sampled_from(["", " ", "# a remark", "# é", "#\r<a:s> <a:p> <a:o> .", "\x00", "x"])
LINES = st.one_of(STATEMENTS, STATEMENTS, OTHERS)


def found_names(found) -> list[str]:
    ends, relations = (
        [found.text[s : s + n].tobytes().decode() for s, n in zip(*spans[:2], strict=True)] for spans in found[1:]
    )
    return [name for s, r, o in zip(ends[::2], relations, ends[1::2], strict=True) for name in (s, r, o)]


@settings(PER_EXAMPLE, max_examples=400)
@given(STATEMENTS, st.booleans())
def test_compiled_loops_and_parser_agree_on_accepted_lines(line, quads):
    data = f"{line}\n".encode()
    found = line_triples(data, quads, True, True, lambda lines: None)
    if found is None or not len(found.relations.starts):
        return
    names = found_names(found)
    terms = [f"<{name}>" if name[0] not in '"_' else name for name in names]
    assert len(names) == 3
    format = RdfFormat.N_QUADS if quads else RdfFormat.N_TRIPLES
    canonical = serialize(parse(data, format=format), format=RdfFormat.N_QUADS).decode()
    assert canonical.startswith(" ".join(terms) + " ")


@settings(PER_EXAMPLE, max_examples=40)
@given(st.lists(LINES, max_size=8), st.booleans(), st.sampled_from(["keep", "drop"]), st.sampled_from(["nt", "nq"]))
def test_compiled_loops_and_parser_agree_on_any_lines(tmp_path, monkeypatch, lines, skip, literals, format):
    path = tmp_path / f"graph.{format}"
    path.write_bytes("\n".join([*lines, "<http://a/s> <http://a/p> <http://a/o> ."]).encode())
    plainly, compiled = both_ways(path, monkeypatch, skip_bad_lines=skip, literals=literals)
    assert compiled == plainly


@settings(PER_EXAMPLE, max_examples=40)
@given(st.binary(max_size=6), st.booleans())
def test_invalid_utf8_is_never_accepted(content, in_literal):
    object_ = b'"' + content + b'"' if in_literal else b"<http://a/" + content + b">"
    data = b"<http://a/s> <http://a/p> " + object_ + b" .\n"
    found = line_triples(data, False, True, True, lambda lines: None)
    if found is not None and len(found.relations.starts):
        assert serialize(parse(data, format=RdfFormat.N_TRIPLES), format=RdfFormat.N_QUADS) == data


def test_every_character_of_a_literal_or_iri_equals_that_of_the_parser():
    for code in [
        *range(1, 0x250),
        *range(0x7F0, 0x810),
        *range(0xD7F0, 0xD800),
        0xE000,
        0xFFFD,
        0xFFFE,
        0xFFFF,
        0x10FFFF,
    ]:
        for object_ in (
            f'"{chr(code)}"',
            f"<http://a/{chr(code)}>",
            f"<http://a{chr(code)}>",
            f"<http://a#{chr(code)}>",
        ):
            data = f"<http://a/s> <http://a/p> {object_} .\n".encode()
            found = line_triples(data, False, True, True, lambda lines: None)
            if found is not None and len(found.relations.starts):
                assert serialize(parse(data, format=RdfFormat.N_TRIPLES), format=RdfFormat.N_QUADS) == data


def test_plain_lines_need_no_parser():
    lines = [
        '<http://a/é?b=%20#c>\t<urn:p>\t"a\\\\b\\"\\n é😀"@en-us\t.\r',
        '_:a1 <http://a.org/p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> <http://a/graph> .',
        "# a remark",
        "",
        "_:a1 <http://a.org/p> _:b .",
    ]
    found = line_triples("\n".join(lines).encode(), True, True, True, lambda odd: pytest.fail(f"odd: {odd}"))
    assert found_names(found)[:3] == ["http://a/é?b=%20#c", "urn:p", '"a\\\\b\\"\\n é😀"@en-us']
    assert len(found.relations.starts) == 3


def test_blank_nodes_of_two_files_stay_apart(tmp_path, monkeypatch):
    for name in ("a.nt", "b.nt"):
        (tmp_path / name).write_text('_:x <http://a/p> "1" .\n<http://a/s> <http://a/p> _:x .\n')
    plainly, compiled = both_ways(tmp_path, monkeypatch)
    assert compiled == plainly
    assert compiled[1] == ["_:f0_x", '"1"', "http://a/s", "_:f1_x"]


# -- rows of tables -----------------------------------------------------------------------------------------

CELLS = st.sampled_from(
    [b"a", b"b", b"c d", "é".encode(), b"", b'"', b'"q"', b"\xff", b"\xed\xa0\x80", b"a\rb", b"\0", b"a\r"]
)
ROWS = st.lists(CELLS, min_size=1, max_size=4)


@settings(PER_EXAMPLE, max_examples=60)
@given(
    st.lists(st.tuples(ROWS, st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n", b"\n\r\n", b"\r\r\n"])), max_size=6),
    st.booleans(),
    st.sampled_from(["tsv", "csv"]),
)
def test_any_rows_are_read_as_without_loops(tmp_path, monkeypatch, rows, skip, format):
    separator = {"tsv": b"\t", "csv": b","}[format]
    path = tmp_path / f"graph.{format}"
    with monkeypatch.context() as now:  # a block each, so that the first one is not all there is
        now.setattr("rgcn.data.files.BLOCK_BYTES", 8)
        first = separator.join([b"first", b"is", b"plain"]) + b"\n"
        path.write_bytes(first + b"".join(separator.join(row) + end for row, end in rows))
        plainly, compiled = both_ways(path, monkeypatch, skip_bad_lines=skip, header=False)
    assert compiled == plainly


def test_a_line_ends_with_any_number_of_carriage_returns():
    data = b"a\tr\tb\r\r\n\r\r\nb\tr\tc\r\n\r\nc\tr\ta\r\r\r\n"
    assert found_names(table_triples(data, b"\t", False, 3, [0, 1, 2])) == [*"arb", *"brc", *"cra"]
    data = b"<urn:a> <urn:r> <urn:b> .\r\r\n\r\r\n<urn:b> <urn:r> <urn:c> .\r\n"
    found = line_triples(data, False, True, True, lambda odd: pytest.fail(f"odd: {odd}"))
    assert found_names(found) == ["urn:a", "urn:r", "urn:b", "urn:b", "urn:r", "urn:c"]


def test_columns_may_stand_anywhere_and_twice(tmp_path, monkeypatch):
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"{i}\ta{i % 3}\tx\tb{i % 4}\tr\n" for i in range(50)))
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 64)
    for columns in ([1, 4, 3], [3, -1, 1], [1, 4, 1]):
        plainly, compiled = both_ways(path, monkeypatch, columns=columns)
        assert compiled == plainly


def test_ids_do_not_depend_on_threads(tmp_path, monkeypatch, compiled):
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"n{i * 7 % 97}\tr{i % 5}\tn{i * 31 % 89}\n" for i in range(2000)))
    monkeypatch.setattr("rgcn.data.files.BLOCK_BYTES", 100)
    found = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(threads, "available_cores", lambda cores=cores: cores)
        found.append(outcome(path))
    assert found[0] == found[1] == found[2]
    firsts = list(dict.fromkeys(name for i in range(2000) for name in (f"n{i * 7 % 97}", f"n{i * 31 % 89}")))
    assert found[0][1] == firsts


# -- sorting ------------------------------------------------------------------------------------------------


@PER_EXAMPLE
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3, st.integers(0, 2), st.floats(0, 9))), st.booleans(), st.booleans())
def test_the_first_of_equal_triples_stays_with_the_earliest_time(monkeypatch, rows, split, timed):
    triples = np.array([row[:3] for row in rows], dtype=np.int32).reshape(-1, 3)
    keys = [row[: 3 + split] for row in rows]
    first = [keys.index(key) == i for i, key in enumerate(keys)]
    earliest = [min(row[4] for row, other in zip(rows, keys, strict=True) if other == key) for key in keys]
    for few, compared in ((-1, 64), (-1, 2), (1000, 64)):
        monkeypatch.setattr(triple_rows, "MIN_LOOP_ROWS", few)
        monkeypatch.setattr(triple_rows, "MAX_COMPARED_ROWS", compared)
        monkeypatch.setattr(triple_rows, "PIECE_ROWS", 3)
        splits = np.array([row[3] for row in rows], dtype=np.int8) if split else None
        times = np.array([row[4] for row in rows], dtype=np.float64) if timed else None
        kept = triple_rows.distinct(triples, splits, times, 4)
        assert kept.tolist() == first
        if times is not None:
            assert times[kept].tolist() == [time for time, is_first in zip(earliest, first, strict=True) if is_first]
        pointer, touching = triple_rows.incidence(triples, 4)
        graph = rgcn.KnowledgeGraph(triples, rgcn.graph.Vocabulary("abcd"), rgcn.graph.Vocabulary("rstu"))
        assert pointer.tolist() == graph._incidence[0].tolist()
        assert [int(i) for piece in touching for i in piece] == graph._incidence[1].tolist()


# -- building -------------------------------------------------------------------------------------------------


def folder_of_splits(folder: Path) -> Path:
    folder.mkdir()
    for split, rows in {"train": 60, "valid": 10, "test": 12}.items():
        lines = "".join(f"n{i * 5 % 17}\tr{i % 3}\tn{i * i % 19}\n" for i in range(rows))
        (folder / f"{split}.tsv").write_text(lines)
    return folder


def inputs(tmp_path: Path) -> dict[str, tuple[Path, dict]]:
    (tmp_path / "w.csv").write_text("subject,relation,object,weight\n" + "a,r,b,0.5\na,r,b,2\nb,r,c,1\n")
    (tmp_path / "t.csv").write_text("s,p,o,year\n" + "a,r,b,2001\nb,r,c,1999\na,r,b,1990\n")
    with gzip.open(tmp_path / "g.nt.gz", "wt") as file:
        file.writelines(f'<http://a/n{i % 9}> <http://a/p{i % 2}> "v{i * i % 7}\\u00e9"@en .\n' for i in range(40))
        file.write("<http://a/n1> <http://a/kind> <http://a/K> .\n<http://a/n2> <http://a/kind> <http://a/L> .\n")
    (tmp_path / "g.ttl").write_text("@prefix e: <http://e/> . e:a e:p [ e:q 1, 2 ] . e:b e:p e:a .")
    (tmp_path / "classes.tsv").write_text("a\tfirst\nb\tsecond\n")
    return {
        "splits": (folder_of_splits(tmp_path / "splits"), {}),
        "weights": (tmp_path / "w.csv", {"labels": tmp_path / "classes.tsv"}),
        "times": (tmp_path / "t.csv", {"columns": ["s", "p", "o"], "time": "year"}),
        "literals": (tmp_path / "g.nt.gz", {}),
        "no literals": (tmp_path / "g.nt.gz", {"literals": "drop"}),
        "labels from a relation": (tmp_path / "g.nt.gz", {"labels_from": "http://a/kind"}),
        "turtle": (tmp_path / "g.ttl", {}),
    }


@pytest.mark.parametrize("large", [False, True])
def test_a_built_graph_is_the_one_that_is_read(tmp_path, monkeypatch, large):
    for name, (path, options) in inputs(tmp_path).items():
        monkeypatch.setattr(reading, "MIN_LARGE_BYTES", 0 if large else 1 << 60)
        expected = rgcn.read(path, **options)
        out = tmp_path / "built" / name
        built = rgcn.read(path, out=out, **options)
        opened = rgcn.read(out)
        for graph in (built, opened):
            assert graph.fingerprint == expected.fingerprint, name
            assert dict(graph.metadata).items() <= dict(expected.metadata).items()
            assert graph.name == expected.name
            assert [graph.neighbors(n) for n in range(len(graph.nodes))] == [
                expected.neighbors(n) for n in range(len(expected.nodes))
            ]
        assert not list(out.glob("building*"))


@pytest.mark.parametrize("lost", ["names", "triples.npy", "incidence", "graph.json"])
def test_an_interrupted_build_is_resumed_after_the_reading_stage(tmp_path, monkeypatch, lost):
    path, out = folder_of_splits(tmp_path / "splits"), tmp_path / "graph"
    place = {
        "names": (graph_store, "write_names"),
        "triples.npy": (building, "find_distinct_rows"),
        "incidence": (graph_store, "write_incidence"),
        "graph.json": (reading, "write_remaining_parts"),
    }
    with monkeypatch.context() as now:
        now.setattr(*place[lost], lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rgcn.read(path, out=out)
    assert not (out / "graph.json").exists()
    with pytest.raises(DataError, match="is not complete"):
        rgcn.read(out)
    if lost != "names":  # the files are not read again
        monkeypatch.setattr(building, "TripleCollector", None)
    assert rgcn.read(path, out=out).fingerprint == rgcn.read(path).fingerprint


def test_a_build_with_changed_labels_is_restarted_at_the_writing_stage(tmp_path, monkeypatch):
    path, options = inputs(tmp_path)["labels from a relation"]
    out = tmp_path / "graph"
    with monkeypatch.context() as now:
        now.setattr(graph_store, "write_remaining_parts", lambda *given: 1 / 0)  # all but the last is written
        with pytest.raises(ZeroDivisionError):
            rgcn.read(path, out=out, **options)
    assert rgcn.read(path, out=out, **options).fingerprint == rgcn.read(path, **options).fingerprint


def test_concurrent_builds_in_one_folder_are_refused(tmp_path):
    path, out = folder_of_splits(tmp_path / "splits"), tmp_path / "graph"
    other = building.GraphBuild(out, "another")
    files = find_files(path)
    with other.open(files), pytest.raises(DataError, match="another process"):
        rgcn.read(path, out=out)


def test_a_build_of_another_input_is_restarted_and_other_folders_are_kept(tmp_path, monkeypatch):
    path, out = folder_of_splits(tmp_path / "splits"), tmp_path / "graph"
    with monkeypatch.context() as now:
        now.setattr(reading, "write_remaining_parts", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rgcn.read(path, out=out)
    (path / "train.tsv").write_text("x\ty\tz\n")
    assert "x" in rgcn.read(path, out=out).nodes
    with pytest.raises(DataError, match="holds a graph already"):
        rgcn.read(path, out=out)
    with pytest.raises(DataError, match="not empty"):
        rgcn.read(path, out=path)
    with pytest.raises(DataError, match="is a built graph"):
        rgcn.read(out, literals="drop")


@pytest.mark.parametrize("text", ["", "a\tb\tc\nd\te\n"])
def test_a_failed_build_leaves_no_files(tmp_path, text):
    (tmp_path / "graph.tsv").write_text(text)
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "new", tmp_path / "empty"):
        with pytest.raises(DataError, match=r"no triples|columns"):
            rgcn.read(tmp_path / "graph.tsv", out=out)
    assert sorted(at.name for at in tmp_path.iterdir()) == ["empty", "graph.tsv"]
    assert not list((tmp_path / "empty").iterdir())


def test_a_full_disk_is_reported_before_and_during_a_build(tmp_path, monkeypatch):
    path, out = folder_of_splits(tmp_path / "splits"), tmp_path / "graph"
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as now:
        now.setattr(shutil, "disk_usage", lambda place: usage._replace(free=100))
        with pytest.raises(DataError, match=r"takes about .* of disk, and .* free: use another disk"):
            rgcn.read(path, out=out)

    def full(path, header, pieces):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as now:
        now.setattr(atomic, "write_pieces", full)
        with pytest.raises(DataError, match=r"is full .* the same command continues"):
            rgcn.read(path, out=out)
    assert rgcn.read(path, out=out).fingerprint == rgcn.read(path).fingerprint


def test_a_missing_or_damaged_part_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_store, "MAX_VERIFIED_BYTES", 0)
    whole = tmp_path / "whole"
    rgcn.read(folder_of_splits(tmp_path / "splits"), out=whole)
    for part in json.loads((whole / "graph.json").read_text())["parts"]:
        for damage in (Path.unlink, lambda at: at.write_bytes(at.read_bytes()[:-1])):
            copy = tmp_path / "copy"
            shutil.copytree(whole, copy)
            damage(copy / part)
            with pytest.raises(DataError, match=part.replace(".", r"\.")):
                rgcn.read(copy)
            shutil.rmtree(copy)


def test_triples_of_a_mapped_graph_are_read_when_asked_for_and_checked_then(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_store, "MAX_VERIFIED_BYTES", 0)
    monkeypatch.setattr(graph_store, "MAX_IN_MEMORY_BYTES", 0)
    expected = rgcn.read(folder_of_splits(tmp_path / "splits"), out=tmp_path / "graph")
    graph = rgcn.read(tmp_path / "graph")
    assert (len(graph), "triples" in vars(graph)) == (len(expected), False)
    assert graph.triples_at(np.array([3, 1])).tolist() == expected.triples[[3, 1]].tolist()
    assert graph.neighbors("n5") == expected.neighbors("n5")
    assert "triples" not in vars(graph)
    assert graph.triples.dtype == np.int64
    assert graph.with_triples(np.ones(len(graph), dtype=bool)).fingerprint == expected.fingerprint
    np.load(tmp_path / "graph" / "triples.npy", mmap_mode="r+")[4, 2] = 1000
    damaged = rgcn.read(tmp_path / "graph")
    with pytest.raises(DataError, match="triple 4"):
        damaged.triples  # noqa: B018
    with pytest.raises(DataError, match="has no name"):
        damaged.triples_at(np.array([4]))


def test_many_relations_and_a_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MIN_LARGE_BYTES", 0)
    monkeypatch.setattr(triple_rows, "PIECE_ROWS", 10_000)
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"hub\tr{i % 100_000}\tn{i % 70_000}\n" for i in range(210_000)))
    graph = rgcn.read(path, out=tmp_path / "graph")
    assert (graph.num_relations, len(graph), graph.degrees().max()) == (100_000, 210_000, 210_000)
    assert graph.relations["r99999"] == 99_999


def test_rows_of_half_characters_are_left_to_the_parser():
    for odd in (b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xff", b"\0", b"\r"):
        assert table_triples(b"a\tb\t" + odd + b"\n", b"\t", False, 3, [0, 1, 2]) is None
    for code in (*range(0x80, 0x900), *range(0xD000, 0xD800), 0xE000, 0xFFFF, 0x10000, 0x10FFFF):
        assert table_triples(f"a\t{chr(code)}\tb".encode(), b"\t", False, 3, [0, 1, 2]) is not None
