"""Finding files, telling their format by name, and reading their bytes safely, compressed or not."""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rgcn.errors import ConfigError, DataError, ParseError, close_matches
from rgcn.plugins import READERS, Axis
from rgcn.system.compression import DAMAGE, compression_of, expanding, without_compression

PathLike = str | os.PathLike[str]

SPLIT_NAMES = {"train": "train", "valid": "valid", "dev": "valid", "test": "test"}

# A file may be refused for what it expands to, not for being large: real triples shrink ten- to fiftyfold, gzip at its
# utmost reaches 1030. What is always allowed is read in a second or two, so that a bomb is refused that soon.
MAX_EXPANSION_RATIO = 250
EXPANSION_ALWAYS_ALLOWED = 16 << 20
MAX_LINE_BYTES = 64 << 20
BLOCK_BYTES = 4 << 20
UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceFile:
    """One file to read: where, in which format (the name of its reader), and for which split of the triples."""

    path: Path
    format: str
    split: str | None = None


def said(key: str, value: object) -> str:
    """How to say something of how files are read: in Python, and on the command line.

    >>> said("header", False)
    'header=False (asking a graph: --data header=false; training: --set data.header=false)'
    """
    given = f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
    asking, training = shlex.quote(given), shlex.quote(f"data.{given}")
    return f"{key}={value!r} (asking a graph: --data {asking}; training: --set {training})"


def known_format(name: str) -> str:
    """The format a name or suffix stands for; a reader's dotted name is one of its own.

    >>> known_format("turtle"), known_format(".owl")
    ('ttl', 'rdf')
    """
    if READERS.problem(name) is None:
        return name
    if found := by_ending(READERS, name.lower().lstrip(".").replace("-", "").replace("/", "")):
        return found
    raise DataError(f"unknown format {name!r}; known are {_formats_in_words()}")


def format_of(path: PathLike) -> str | None:
    """The format a file's name tells, looking through a compression suffix; None where it tells nothing.

    >>> format_of("graph.nt.gz"), format_of("train.txt"), format_of("notes.doc")
    ('nt', 'tsv', None)
    """
    return by_ending(READERS, ending_of(path))


def by_ending(axis: Axis, ending: str) -> str | None:
    """Which member reads files that end so; built-in ones come first, and installed ones are only loaded after them."""
    for name in axis.names():
        try:
            if ending in axis.find(name).endings:
                return name
        except ConfigError as error:  # noqa: PERF203 - another's broken package should not hide the user's files
            warnings.warn(str(error), stacklevel=3)
    return None


def bare_name(path: PathLike) -> str:
    """A file's name without the suffixes of compression and format.

    >>> bare_name("data/train.txt.gz"), bare_name("v1.2.nt")
    ('train', 'v1.2')
    """
    name = without_compression(Path(path).name)
    return Path(name).stem if format_of(name) else name


def existing(path: PathLike, what: str = "file or folder") -> Path:
    """The path of a file or folder; DataError with the closest names where there is none, and for a pipe or device."""
    found = Path(path)
    if found.is_file() or found.is_dir():
        return found
    if found.exists():
        raise DataError(
            f"{found} is {_kind_in_words(found)}, not a file. rgcn must know the size of what it reads, and reads some "
            "parts twice: write what comes through it to a file, and give that file"
        )
    if (link := broken_link(found)) is not None:
        raise DataError(f"no such {what}: {link}")
    folder = found.parent
    if not folder.is_dir():
        raise DataError(f"no such {what}: {found} (the folder {folder} does not exist either)")
    near = close_matches(found.name, sorted(entry.name for entry in folder.iterdir()))
    hint = f" Did you mean {', '.join(repr(str(folder / name)) for name in near)}?" if near else ""
    raise DataError(f"no such {what}: {found}.{hint}")


def broken_link(path: Path) -> str | None:
    """What is wrong where a symbolic link on the way to the path leads nowhere; None where none does."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            try:
                part.stat()
            except OSError as error:
                if error.errno == errno.ELOOP:
                    return f"{part} is a symbolic link that leads back to itself"
            return f"{part} is a symbolic link to {part.readlink()}, which is not there"
    return None


def _kind_in_words(path: Path) -> str:
    """What something is that is neither a file nor a folder."""
    mode = path.stat().st_mode
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


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
        return _in_split_order([_source(file, forced, split) for split, file in named_splits(path)])
    place = existing(path)
    if place.is_dir():
        return _in_folder(place, forced, {other.resolve() for other in leave_out})
    return [_source(place, forced)]


def named_splits(paths: Mapping[str, PathLike], what: str = "file") -> Iterator[tuple[str, Path]]:
    """(split, its file), as a user names them."""
    for name, path in paths.items():
        if name not in SPLIT_NAMES:
            raise DataError(f"unknown split {name!r} of a {what}; splits are called train, valid (or dev) and test")
        file = existing(path, what)
        if file.is_dir():
            raise DataError(f"the {name} split must be a file, but {file} is a folder")
        yield SPLIT_NAMES[name], file


def _in_folder(folder: Path, forced: str | None, leave_out: set[Path]) -> list[SourceFile]:
    entries = sorted((e for e in folder.iterdir() if e.is_file() and not e.name.startswith(".")), key=lambda e: e.name)
    wanted = [e for e in entries if e.resolve() not in leave_out]
    if forced is not None:
        wanted = [e for e in wanted if ending_of(e) in READERS.find(forced).endings]
    readable = [SourceFile(e, found) for e in wanted if (found := forced or format_of(e)) is not None]
    if not readable:
        there = ", ".join(e.name for e in entries[:5]) or "nothing"
        raise DataError(f"no readable files in {folder} (it holds {there}); known formats are {_formats_in_words()}")
    stems = [Path(without_compression(file.path.name)).stem.lower() for file in readable]
    if "train" in stems:
        named = [(file, SPLIT_NAMES.get(stem)) for file, stem in zip(readable, stems, strict=True)]
        return _in_split_order([replace(file, split=split) for file, split in named if split])
    kinds = {READERS.find(file.format).plural or f"{file.format} files": file.path.name for file in reversed(readable)}
    if len(kinds) > 1:
        first, second, *_ = (f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise DataError(
            f"{folder} holds both {first} and {second}, and a table may be labels rather than triples; name the file, "
            f"or say which to read, e.g. {said('format', readable[0].format)}"
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
    if found := forced or format_of(path):
        return SourceFile(path, found, split)
    example = said("format", "nt")
    raise DataError(
        f"the format of {path} cannot be told from its name; say it, e.g. {example}; known are {_formats_in_words()}"
    )


def _formats_in_words() -> str:
    return ", ".join(READERS.names()) + " (each also with .gz, .bz2 or .zst behind it)"


def ending_of(path: PathLike) -> str:
    return Path(without_compression(Path(path).name)).suffix.lower().lstrip(".")


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
        self._stream = expanding(self._raw, compression_of(path))

    def read(self, size: int) -> bytes:
        """Up to `size` bytes (a few more from zst); b"" at the end."""
        try:
            data = self._stream.read(size)
        except DAMAGE as error:
            reason = f"the {compression_of(self.path) or 'file'} data are damaged or cut short ({error})"
            raise ParseError(str(self.path), None, "", reason) from None
        self._expanded += len(data)
        taken = self._raw.tell()
        if self._on_progress is not None and taken > self._reported:
            self._on_progress(taken - self._reported)
            self._reported = taken
        if self._expanded > EXPANSION_ALWAYS_ALLOWED and self._expanded > MAX_EXPANSION_RATIO * taken:
            raise DataError(
                f"{self.path} expands more than {MAX_EXPANSION_RATIO}-fold, to over {self._expanded >> 20} MiB: "
                "this looks like a decompression bomb; expand it yourself if you trust it"
            )
        return data

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *error: object) -> None:
        self._raw.close()


class LineBlock(NamedTuple):
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
            reason = f"a line of more than {MAX_LINE_BYTES >> 20} MiB; is this a text file?"
            raise ParseError(str(source.path), first_line, held[:100].decode(errors="replace"), reason)
        if cut and (too_long or not quoted or held.count(b'"', 0, cut) % 2 == 0):
            yield LineBlock(first_line, held[:cut])
            first_line += held.count(b"\n", 0, cut)
            held = held[cut:]
    if held:
        yield LineBlock(first_line, held)


def decoded_lines(block: LineBlock, path: Path, bad_lines: BadLines) -> Iterator[tuple[int, str]]:
    """The lines of a block and their numbers, each with the carriage returns before its end.

    A line that is no text, or has a NUL byte in it, is a bad one.
    """
    for number, line in enumerate(block.data.split(b"\n"), block.first_line):
        reason = "a NUL byte" if b"\0" in line else None
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode(errors="replace")
            reason = f"not UTF-8 text ({error.reason} at byte {error.start + 1})"
        if reason is None:
            yield number, text
        else:
            bad_lines.report(path, number, text, reason)


class BadLines:
    """What becomes of malformed lines: the first raises, or all are counted and the first few remembered."""

    EXAMPLES = 5

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.count = 0
        self.examples: list[str] = []

    def report(self, path: Path, line: int, text: str, reason: str, way_out: str = "") -> None:
        """Raise ParseError, whose message ends with the way out, or note the line as skipped."""
        if not self.skip:
            raise ParseError(str(path), line, text, f"{reason}; {way_out}" if way_out else reason)
        self.count += 1
        if len(self.examples) < self.EXAMPLES:
            self.examples.append(f"{path}:{line}: {reason}")
