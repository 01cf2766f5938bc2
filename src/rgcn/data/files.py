"""Finding files, telling their format by name, and reading their bytes safely, compressed or not."""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from rgcn.axis_tables import READERS
from rgcn.data.formats import reader_of_ending
from rgcn.errors import DataError, ParseError, close_matches

PathLike = str | os.PathLike[str]

COMPRESSION_SUFFIXES = {".gz": "gz", ".bz2": "bz2", ".zst": "zst", ".zstd": "zst"}
SPLIT_NAMES = {"train": "train", "valid": "valid", "dev": "valid", "test": "test"}

# A file may be refused for what it expands to, not for being large: real triples shrink ten- to fiftyfold, gzip at its
# utmost reaches 1030. What is always allowed is read in a second or two, so that a bomb is refused that soon.
MAX_EXPANSION_RATIO = 250
EXPANSION_ALWAYS_ALLOWED = 16 << 20
MAX_LINE_BYTES = 64 << 20
# Brackets or elements within each other. People's files stay below a few dozen; the parsers of RDF/XML and JSON-LD take
# time or stack that grows with the depth for everything inside.
MAX_NESTING = 500
BLOCK_BYTES = 4 << 20
UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceFile:
    """One file to read: where, in which format (the name of its reader), and for which split of the triples."""

    path: Path
    format: str
    split: str | None = None

    @property
    def is_rdf(self) -> bool:
        return READERS.find(self.format).is_rdf


def known_format(name: str) -> str:
    """The format a name or suffix stands for; a reader's dotted name is one of its own.

    >>> known_format("turtle"), known_format(".owl")
    ('ttl', 'rdf')
    """
    if READERS.problem(name) is None:
        return name
    found = reader_of_ending(name.lower().lstrip(".").replace("-", "").replace("/", ""))
    if found is not None:
        return found
    raise DataError(f"unknown format {name!r}; known are {_formats_in_words()}")


def format_of(path: PathLike) -> str | None:
    """The format a file's name tells, looking through a compression suffix; None where it tells nothing.

    >>> format_of("graph.nt.gz"), format_of("train.txt"), format_of("notes.doc")
    ('nt', 'tsv', None)
    """
    return reader_of_ending(_ending(path))


def bare_name(path: PathLike) -> str:
    """A file's name without the suffixes of compression and format.

    >>> bare_name("data/train.txt.gz"), bare_name("v1.2.nt")
    ('train', 'v1.2')
    """
    name = _without_compression(Path(path).name)
    return Path(name).stem if format_of(name) else name


def existing(path: PathLike, what: str = "file or folder") -> Path:
    """The path, if there is something; else an error with the closest names beside it."""
    found = Path(path)
    if found.exists():
        return found
    folder = found.parent
    if not folder.is_dir():
        raise DataError(f"no such {what}: {found} (the folder {folder} does not exist either)")
    near = close_matches(found.name, sorted(entry.name for entry in folder.iterdir()))
    hint = f" Did you mean {', '.join(repr(str(folder / name)) for name in near)}?" if near else ""
    raise DataError(f"no such {what}: {found}.{hint}")


def find_files(
    path: PathLike | Mapping[str, PathLike], format: str | None = None, leave_out: Iterable[Path] = ()
) -> list[SourceFile]:
    """The files to read, in reading order.

    A mapping {"train": ..., "valid": ..., "test": ...} names the splits; a folder holding a file named `train`
    (train.txt, train.tsv.gz, ...) is read as its splits, any other folder as all its readable files sorted by name.
    `leave_out` are files that lie there for another purpose, such as labels.
    """
    forced = None if format is None else known_format(format)
    if isinstance(path, Mapping):
        return _named_splits(path, forced)
    place = existing(path)
    if place.is_dir():
        return _in_folder(place, forced, {other.resolve() for other in leave_out})
    return [_source(place, forced)]


def _named_splits(paths: Mapping[str, PathLike], forced: str | None) -> list[SourceFile]:
    sources = []
    for name, path in paths.items():
        if name not in SPLIT_NAMES:
            raise DataError(f"unknown split {name!r}; splits are called train, valid (or dev) and test")
        file = existing(path, "file")
        if file.is_dir():
            raise DataError(f"the {name} split must be a file, but {file} is a folder")
        sources.append(_source(file, forced, SPLIT_NAMES[name]))
    return _in_split_order(sources)


def _in_folder(folder: Path, forced: str | None, leave_out: set[Path]) -> list[SourceFile]:
    entries = sorted((e for e in folder.iterdir() if e.is_file() and not e.name.startswith(".")), key=lambda e: e.name)
    wanted = [e for e in entries if e.resolve() not in leave_out]
    if forced is not None:
        wanted = [e for e in wanted if _ending(e) in READERS.find(forced).endings]
    readable = [SourceFile(e, found) for e in wanted if (found := forced or format_of(e)) is not None]
    if not readable:
        there = ", ".join(e.name for e in entries[:5]) or "nothing"
        raise DataError(f"no readable files in {folder} (it holds {there}); known formats are {_formats_in_words()}")
    stems = [Path(_without_compression(file.path.name)).stem.lower() for file in readable]
    if "train" in stems:
        return _in_split_order(
            [
                SourceFile(file.path, file.format, SPLIT_NAMES[stem])
                for file, stem in zip(readable, stems, strict=True)
                if stem in SPLIT_NAMES
            ]
        )
    kinds = {READERS.find(file.format).plural or f"{file.format} files": file.path.name for file in reversed(readable)}
    if len(kinds) > 1:
        first, second, *_ = (f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise DataError(
            f"{folder} holds both {first} and {second}, and a table may be labels rather than triples; name the file, "
            f"or say which to read, e.g. format={readable[0].format!r}"
        )
    return readable


def _in_split_order(sources: list[SourceFile]) -> list[SourceFile]:
    """Train first, so that nodes only the other splits know are numbered after those of train."""
    by_split: dict[str, SourceFile] = {}
    for source in sources:
        other = by_split.setdefault(str(source.split), source)
        if other is not source:
            raise DataError(f"two files for the {source.split} split: {other.path} and {source.path}")
    if "train" not in by_split:
        raise DataError("there is no train split")
    return [by_split[split] for split in ("train", "valid", "test") if split in by_split]


def _source(path: Path, forced: str | None, split: str | None = None) -> SourceFile:
    found = forced or format_of(path)
    if found is None:
        raise DataError(
            f"the format of {path} cannot be told from its name; give format=, one of {_formats_in_words()}"
        )
    return SourceFile(path, found, split)


def _formats_in_words() -> str:
    return ", ".join(READERS.names()) + " (each also with .gz, .bz2 or .zst behind it)"


def _ending(path: PathLike) -> str:
    return Path(_without_compression(Path(path).name)).suffix.lower().lstrip(".")


def _without_compression(name: str) -> str:
    return Path(name).stem if Path(name).suffix.lower() in COMPRESSION_SUFFIXES else name


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class ByteSource:
    """A file's bytes, expanded while they are read, with an eye on damage and on bombs.

    `on_progress` is told how many bytes of the file itself (not of its expansion) each read has taken.

    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.tsv.gz").write_bytes(gzip.compress(b"a line"))
    ...     with ByteSource(Path(folder, "a.tsv.gz")) as source:
    ...         source.read(100)
    b'a line'
    """

    def __init__(self, path: Path, on_progress: Callable[[float], None] | None = None) -> None:
        self.path = path
        self._on_progress = on_progress
        self._expanded = self._reported = 0
        try:
            self._raw = path.open("rb")
        except OSError as error:
            raise DataError(f"cannot open {path}: {error.strerror}") from None
        self._compression = COMPRESSION_SUFFIXES.get(path.suffix.lower())
        self._stream = _expanding(self._raw, self._compression)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes (a few more from zst); b"" at the end."""
        try:
            data = self._stream.read(size)
        except (EOFError, OSError, zlib.error, _ZstdError) as error:
            raise ParseError(
                str(self.path), None, "", f"the {self._compression or 'file'} data are damaged or cut short ({error})"
            ) from None
        self._expanded += len(data)
        taken = self._raw.tell()
        if self._on_progress is not None and taken > self._reported:
            self._on_progress(taken - self._reported)
            self._reported = taken
        self._refuse_bomb(taken)
        return data

    def _refuse_bomb(self, taken: int) -> None:
        if self._expanded > EXPANSION_ALWAYS_ALLOWED and self._expanded > MAX_EXPANSION_RATIO * taken:
            raise DataError(
                f"{self.path} expands more than {MAX_EXPANSION_RATIO}-fold, to over {self._expanded >> 20} MiB: "
                "this looks like a decompression bomb; expand it yourself if you trust it"
            )

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _ZstdError(Exception):
    """Zstandard data that do not decode, or end too soon."""


class _ZstdReader:
    """Frames one after the other; the library's own stream reader takes a cut-off frame for a complete one."""

    PIECE = 2048  # one byte of zst may stand for 32 KiB, so a piece never expands beyond 64 MiB

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self._raw = raw
        self._new_frame: Callable[[], Any] = zstandard.ZstdDecompressor().decompressobj
        self._error = zstandard.ZstdError
        self._frame: Any = None
        self._left_over = b""
        self._frames = 0

    def read(self, size: int, /) -> bytes:
        parts, length = [], 0
        while length < size:
            piece = self._left_over or self._raw.read(self.PIECE)
            self._left_over = b""
            if not piece:
                if self._frame is not None or not self._frames:
                    raise _ZstdError("the last frame is not complete")
                break
            if self._frame is None:
                self._frame = self._new_frame()
                self._frames += 1
            try:
                part = self._frame.decompress(piece)
            except self._error as error:
                raise _ZstdError(str(error)) from None
            if self._frame.eof:
                self._left_over = self._frame.unused_data
                self._frame = None
            parts.append(part)
            length += len(part)
        return b"".join(parts)


def _expanding(raw: IO[bytes], compression: str | None) -> _Readable:
    if compression == "gz":
        return gzip.GzipFile(fileobj=raw)
    if compression == "bz2":
        return bz2.BZ2File(raw)
    if compression == "zst":
        return _ZstdReader(raw)
    return raw


@dataclass(frozen=True)
class LineBlock:
    """Some whole lines of a file; `first_line` is the number of the first, from 1."""

    first_line: int
    data: bytes


def line_blocks(source: ByteSource, quoted: bool = False) -> Iterator[LineBlock]:
    """The file in blocks of a few MiB that end where a line ends.

    With `quoted` (CSV) a block does not end inside double quotes, where a line end belongs to the field.
    """
    first_line, held = 1, b""
    while chunk := source.read(BLOCK_BYTES):
        if first_line == 1 and not held:
            chunk = chunk.removeprefix(UTF8_BOM)
        held += chunk
        cut = held.rfind(b"\n") + 1
        too_long = len(held) > MAX_LINE_BYTES
        if not cut and too_long:
            raise ParseError(
                str(source.path),
                first_line,
                held[:100].decode(errors="replace"),
                f"a line of more than {MAX_LINE_BYTES >> 20} MiB; is this a text file?",
            )
        if cut and (too_long or not quoted or held.count(b'"', 0, cut) % 2 == 0):
            yield LineBlock(first_line, held[:cut])
            first_line += held.count(b"\n", 0, cut)
            held = held[cut:]
    if held:
        yield LineBlock(first_line, held)


class BadLines:
    """What becomes of malformed lines: the first raises, or all are counted and the first few remembered."""

    EXAMPLES = 5

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.count = 0
        self.examples: list[str] = []

    def report(self, path: Path, line: int, text: str, reason: str) -> None:
        """Raise ParseError, or note the line as skipped."""
        if not self.skip:
            raise ParseError(str(path), line, text, reason)
        self.count += 1
        if len(self.examples) < self.EXAMPLES:
            self.examples.append(f"{path}:{line}: {reason}")
