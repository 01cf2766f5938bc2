"""Read triples from RDF files: N-Triples, N-Quads, Turtle, TriG, RDF/XML and JSON-LD."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pyoxigraph import RdfFormat, parse, serialize

from rgcn.data.files import UTF8_BOM, BadLines, ByteSource, LineBlock, SourceFile, line_blocks
from rgcn.data.line_scanning import TripleSpans, line_triples
from rgcn.data.rdf_guards import JsonGuard, XmlGuard
from rgcn.data.readers import Reading, TripleReader
from rgcn.errors import DataError, ParseError
from rgcn.graph import NodeKind, Vocabulary
from rgcn.graph.rdf_terms import RDF_ENDINGS
from rgcn.system.threads import map_in_threads

LINE_FORMATS = ("nt", "nq")
QUAD_FORMATS = ("nq", "trig", "jsonld")
QUADS_PER_BLOCK = 50_000
MAX_TRIPLE_TERM_DEPTH = 500
MAX_WORD_BYTES = 4 << 20  # of a name in Turtle, which the parser scans again whenever more of it arrives
MIN_TRIPLE_BYTES = 17  # if lines are shorter on average, most of them are blank or comments

# Turtle and TriG need none: their parser handles brackets nested 500,000 deep in seconds.
_GUARDS: dict[str, Any] = {"rdf": XmlGuard, "jsonld": JsonGuard}
_FORMAT_TITLES = {"ttl": "Turtle", "trig": "TriG", "rdf": "RDF/XML", "jsonld": "JSON-LD"}
# An unclosed string reaches to the end. Otherwise each quote in it would be tried as the beginning of a string.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)')
_NOT_IN_A_WORD = (b" ", b"\n", b'"', b"\t", b"\r", b"+")
_BLANK_LINES = re.compile(rb"\n[ \t\r\n]+")
_OBJECT = r'^(<<|<[^>]*>|_:[^ ]+|"(?:[^"\\]|\\.)*"(?:@[^ ]+|\^\^<[^>]*>)?)'
_ENDLESS_WORD = f"a name or a literal of more than {MAX_WORD_BYTES >> 20} MiB without a space; is this a text file?"
_NO_TRIPLE_TERMS = "triple terms (RDF-star, RDF 1.2) are not supported: a node is an IRI, a literal or a blank node"


class _RdfReader(TripleReader):
    """Reads triples from RDF; graph names are dropped.

    The name of an IRI is the IRI, that of a literal its N-Triples form, and that of a blank node `_:`, the file's
    prefix and its label. If the parser invents labels, blank nodes are called b0, b1, ... by first appearance instead.
    """

    plural = "RDF"
    is_rdf = True

    def read(self, reading: Reading) -> None:
        file, by_line = reading.file, reading.file.format in LINE_FORMATS
        name_of = _term_names(reading.blank_prefix, relabel=not by_line)
        for quads in _from_lines(reading, name_of) if by_line else _from_document(reading):
            if isinstance(quads, TripleSpans):
                reading.collector.add_spans(quads, file.split)
                continue
            terms = _terms(quads, file)
            if not reading.keep_literals:
                terms = terms.filter(~terms["object"].str.starts_with('"'))
            reading.collector.add(*terms.get_columns(), split=file.split, name_of=name_of)


class NTriplesReader(_RdfReader):
    """Reads N-Triples."""

    suffixes = RDF_ENDINGS["nt"]


class NQuadsReader(_RdfReader):
    """Reads N-Quads."""

    suffixes = RDF_ENDINGS["nq"]


class TurtleReader(_RdfReader):
    """Reads Turtle."""

    suffixes = RDF_ENDINGS["ttl"]


class TriGReader(_RdfReader):
    """Reads TriG."""

    suffixes = RDF_ENDINGS["trig"]


class RdfXmlReader(_RdfReader):
    """Reads RDF/XML."""

    suffixes = RDF_ENDINGS["rdf"]


class JsonLdReader(_RdfReader):
    """Reads JSON-LD."""

    suffixes = RDF_ENDINGS["jsonld"]


def node_kinds(names: Vocabulary) -> NDArray[np.uint8]:
    """Return the kind of each name, uint8 [num_names], by its first character.

    >>> node_kinds(Vocabulary(["http://example.org/a", '"42"', "_:b0"])).tolist()
    [0, 1, 2]
    """
    kinds = np.zeros(256, dtype=np.uint8)  # 0 is an IRI
    kinds[list(b'"_')] = int(NodeKind.LITERAL), int(NodeKind.BLANK)
    if names.stored_names is not None and len(names):
        return np.asarray(kinds[names.stored_names.text[np.concatenate([[0], names.stored_names.ends[:-1]])]])
    beginnings = b"".join(b"".join([name[:1] for name in block]) for block in names.encoded_blocks())
    return np.asarray(kinds[np.frombuffer(beginnings, dtype=np.uint8)])


def _term_names(blank_prefix: str, relabel: bool) -> Callable[[str], str]:
    labels: dict[str, str] = {}

    def name_of(term: str) -> str:
        if term[0] == "<":
            return term[1:-1]
        if term[0] == '"':
            return term
        if relabel:
            return labels.setdefault(term, f"_:{blank_prefix}b{len(labels)}")
        return f"_:{blank_prefix}{term[2:]}"

    return name_of


def _terms(quads: bytes, file: SourceFile) -> pl.DataFrame:
    """Return the columns subject, relation and object of quads serialized by pyoxigraph.

    Splitting N-Quads with polars is faster than asking each quad in Python for its terms. In this canonical form there
    is a single space between terms, and only literals contain other spaces.
    """
    lines = pl.DataFrame({"line": quads.decode().split("\n")[:-1]}, schema={"line": pl.String})
    parts = lines.select(pl.col("line").str.splitn(" ", 3).struct.rename_fields(["subject", "relation", "rest"]))
    rest = pl.col("rest")
    object_ = rest.str.extract(_OBJECT, 1) if file.format in QUAD_FORMATS else rest.str.strip_suffix(" .")
    terms = parts.unnest("line").select("subject", "relation", object_.alias("object"))
    if terms["object"].str.starts_with("<<").any():
        raise ParseError(str(file.path), None, "", _NO_TRIPLE_TERMS)
    return terms


def _from_block(reading: Reading, block: LineBlock) -> bytes:
    data, quads = block.data, None
    if data.count(b"\n") * MIN_TRIPLE_BYTES > len(data):  # the parser is slow on blank lines
        data = _BLANK_LINES.sub(b"\n", data)
    if b"\0" not in data and not (b"<<" in data and any(map(_has_triple_term, data.split(b"\n")))):
        with suppress(SyntaxError):
            quads = _normalized(data, reading.file.format)
    return _line_by_line(reading.file, block, reading.bad_lines) if quads is None else quads


def _from_lines(reading: Reading, name_of: Callable[[str], str]) -> Iterator[TripleSpans | bytes]:
    """Yield serialized quads, or for large graphs the triples that compiled loops found in blocks of plain lines."""
    if not reading.collector.large:
        yield from (_from_block(reading, block) for block in line_blocks(reading.source))
        return

    def names(lines: list[bytes]) -> list[tuple[str, str, str]] | None:
        joined = b"\n".join(lines)
        # These lines may hold several statements, or none: the whole block needs the parser.
        if any(mark in joined for mark in (b"\r", b"\0", b"<<")) or any(line.lstrip()[:1] == b"#" for line in lines):
            return None
        try:
            terms = _terms(_normalized(joined, reading.file.format), reading.file)
        except SyntaxError:
            return None
        triples = [(name_of(s), name_of(p), name_of(o)) for s, p, o in terms.iter_rows()]
        return triples if len(triples) == len(lines) else None

    quads, blanks = reading.file.format in QUAD_FORMATS, not reading.blank_prefix
    find = partial(line_triples, quads=quads, blanks=blanks, keep_literals=reading.keep_literals, parse=names)
    for block, found in map_in_threads(line_blocks(reading.source), lambda block: find(block.data)):
        yield _from_block(reading, block) if found is None else found


def _line_by_line(file: SourceFile, block: LineBlock, bad_lines: BadLines) -> bytes:
    parts = []
    for number, line in enumerate(block.data.split(b"\n"), block.first_line):
        reason = "a NUL byte" if b"\0" in line else _NO_TRIPLE_TERMS if _has_triple_term(line) else None
        if line and reason is None:
            try:
                parts.append(_normalized(line, file.format))
            except SyntaxError as error:
                reason = _reason(error)
        if reason is not None:
            bad_lines.report(file.path, number, line.decode(errors="replace"), reason)
    return b"".join(parts)


def _has_triple_term(line: bytes) -> bool:
    """Return whether << occurs outside a literal. Checked first, because deep nesting overflows the parser's stack."""
    return b"<<" in line and not line.lstrip().startswith(b"#") and b"<<" in _STRING.sub(b"", line)


def _normalized(data: bytes, format: str) -> bytes:
    return _serialized(parse(data, format=RdfFormat.from_extension(format)))


def _serialized(quads: Iterator[Any]) -> bytes:
    try:
        return serialize(quads, format=RdfFormat.N_QUADS) or b""
    except MemoryError as error:  # pyoxigraph's error for a term that is too long
        if "buffer maximal size" not in str(error):
            raise
        raise SyntaxError("a literal or name longer than the parser holds (16 MiB, or 8 in JSON-LD)") from None


def _from_document(reading: Reading) -> Iterator[bytes]:
    file, reader = reading.file, _DocumentReader(reading.file, reading.source)
    try:
        parser = parse(cast("IO[bytes]", reader), format=RdfFormat.from_extension(file.format))
        quads = reader.reset_triple_terms(parser)
        size = 1  # XML forgets its prefixes at the end, Turtle may declare more until then
        while block := _serialized(islice(quads, size)):
            reading.collector.declare(parser.prefixes)
            yield block
            size = QUADS_PER_BLOCK
    except SyntaxError as error:
        reason, number = _reason(error), error.lineno
        if reading.bad_lines.skip:
            title = _FORMAT_TITLES[file.format]
            reason += f" (bad lines cannot be skipped in {title}: a statement may span several lines)"
        text = "" if number is None else _line_at(file.path, number)[1]
        raise ParseError(str(file.path), number, text, reason) from None


class _DocumentReader:
    """The file that pyoxigraph reads from. It makes the checks that the parser lacks."""

    def __init__(self, file: SourceFile, source: ByteSource) -> None:
        self._source, self._has_triple_terms = source, file.format in ("ttl", "trig")
        self._guard = _GUARDS[file.format](file.path) if file.format in _GUARDS else None
        self._at_start, self._buffer, self._last_bytes = True, BytesIO(), b""
        self._open_triple_terms = self._word_bytes = 0

    def read(self, size: int) -> bytes:
        while not (piece := self._buffer.read(size)) and (data := self._source.read(1 << 16)):
            self._buffer = BytesIO(self._checked(data))
        return piece

    def reset_triple_terms(self, quads: Iterator[Any]) -> Iterator[Any]:
        """Yield the same quads. Each proves that no triple term is open, so brackets before it were only text."""
        for quad in quads:
            self._open_triple_terms = 0
            yield quad

    def _checked(self, data: bytes) -> bytes:
        if self._at_start:
            data, self._at_start = data.removeprefix(UTF8_BOM), False
        if b"\0" in data:
            line, _ = _line_at(self._source.path, None)
            raise ParseError(str(self._source.path), line, "", "a NUL byte; text in UTF-8 is expected")
        if self._has_triple_terms:
            self._open_triple_terms += (self._last_bytes + data).count(b"<<(")
            self._last_bytes = data[-2:]
            # No name contains these; long literals contain quotes, spaces or, if they are base64, plus signs.
            self._word_bytes = 0 if any(end in data for end in _NOT_IN_A_WORD) else self._word_bytes + len(data)
            if (is_deep := self._open_triple_terms > MAX_TRIPLE_TERM_DEPTH) or self._word_bytes > MAX_WORD_BYTES:
                raise ParseError(str(self._source.path), None, "", _NO_TRIPLE_TERMS if is_deep else _ENDLESS_WORD)
        if self._guard is not None:
            self._guard.check(data)
        return data


def _line_at(path: Path, wanted: int | None) -> tuple[int | None, str]:
    """Return a line by number, or the first with a NUL byte. The file is read again, so that lines need no counting."""
    with suppress(DataError), ByteSource(path) as source:
        for block in line_blocks(source):
            for number, line in enumerate(block.data.removesuffix(b"\n").split(b"\n"), block.first_line):
                if number == wanted or (wanted is None and b"\0" in line):
                    return number, line.decode(errors="replace")
    return None, ""


def _reason(error: SyntaxError) -> str:
    """Return pyoxigraph's message without the position, which is relative to a block."""
    reason = re.sub(r"^Parser error (at|between) line \d+[^:]*: ", "", error.msg)
    if "No scheme found in an absolute IRI" in reason:
        reason += "; relative IRIs are only understood where the file itself declares a base"
    if "LoadDocumentCallback" in reason:
        return "the file refers to a remote @context, but reading never touches the network: write it into the file"
    return reason
