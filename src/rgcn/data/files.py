"""Find files, tell their format from their names, and read their bytes safely, compressed or not."""

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
from rgcn.plugins import READERS, Registry
from rgcn.system import compression
from rgcn.system.compression import compression_from_name, strip_compression_suffix

PathLike = str | os.PathLike[str]

SPLIT_NAMES = {"train": "train", "valid": "valid", "dev": "valid", "test": "test"}

# A file is refused for its compression ratio and not for its size: triples are compressed ten- to fiftyfold, and gzip
# reaches at most 1030. The first bytes are always allowed. They are read in a second or two, so a bomb is refused soon.
MAX_EXPANSION_RATIO = 250
EXPANSION_ALWAYS_ALLOWED = 16 << 20
MAX_LINE_BYTES = 64 << 20
BLOCK_BYTES = 4 << 20
UTF8_BOM = b"\xef\xbb\xbf"
# How much text compressed triples expand to, about. Parquet is compressed too.
TEXT_RATIOS = {"compressed": 8, "parquet": 4}


@dataclass(frozen=True)
class SourceFile:
    """A file of triples.

    Attributes:
        path: Where the file is.
        format: The name of its reader.
        split: The split that its triples belong to, if it is a file of one split.
    """

    path: Path
    format: str
    split: str | None = None


def option_hint(key: str, value: object) -> str:
    """Return how to set an option of `read` in Python and on the command line, for error messages.

    >>> option_hint("header", False)
    'header=False (to query a graph: --data header=false; to train: --set data.header=false)'
    """
    text = f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
    data, setting = shlex.quote(text), shlex.quote(f"data.{text}")
    return f"{key}={value!r} (to query a graph: --data {data}; to train: --set {setting})"


def resolve_format(name: str) -> str:
    """Return the format that a format's name, a suffix or a reader's dotted name stands for.

    Raises:
        DataError: There is no such format.

    >>> resolve_format("turtle"), resolve_format(".owl")
    ('ttl', 'rdf')
    """
    if READERS.problem(name) is None:
        return name
    if found := component_for_suffix(READERS, name.lower().lstrip(".").replace("-", "").replace("/", "")):
        return found
    raise DataError(f"unknown format {name!r}; known are {_known_formats()}")


def format_from_name(path: PathLike) -> str | None:
    """Return the format that a file's name tells, ignoring a compression suffix, or None.

    >>> format_from_name("graph.nt.gz"), format_from_name("train.txt"), format_from_name("notes.doc")
    ('nt', 'tsv', None)
    """
    return component_for_suffix(READERS, file_suffix(path))


def component_for_suffix(registry: Registry, suffix: str) -> str | None:
    """Return the name of the first component that reads files with this suffix; built-in components come first."""
    for name in registry.names():
        try:
            if suffix in registry.resolve(name).suffixes:
                return name
        except ConfigError as error:  # noqa: PERF203 - a broken third-party package must not hide the user's files
            warnings.warn(str(error), stacklevel=3)
    return None


def bare_name(path: PathLike) -> str:
    """Return a file's name without the suffixes of its compression and format.

    >>> bare_name("data/train.txt.gz"), bare_name("v1.2.nt")
    ('train', 'v1.2')
    """
    name = strip_compression_suffix(Path(path).name)
    return Path(name).stem if format_from_name(name) else name


def existing_path(path: PathLike, kind: str = "file or folder") -> Path:
    """Return the path of a file or folder that exists.

    Args:
        path: The path to check.
        kind: What the path should be, for the error.

    Raises:
        DataError: There is nothing at the path (the message has the closest names), or a pipe or device.
    """
    path = Path(path)
    if path.is_file() or path.is_dir():
        return path
    if path.exists():
        mode = path.stat().st_mode
        found = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise DataError(
            f"{path} is {found}, not a file. rgcn must know the size of what it reads, and reads some parts twice: "
            "write the data to a file, and read that file"
        )
    if (link := broken_link(path)) is not None:
        raise DataError(f"no such {kind}: {link}")
    if not path.parent.is_dir():
        raise DataError(f"no such {kind}: {path} (the folder {path.parent} does not exist either)")
    near = ", ".join(map(repr, similar_paths(path)))
    raise DataError(f"no such {kind}: {path}.{near and f' Did you mean {near}?'}")


def similar_paths(path: Path) -> list[str]:
    """Return the files and folders with the names most similar to that of a missing path, in the same folder."""
    names = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
    return [str(path.parent / name) for name in close_matches(path.name, names)]


def broken_link(path: Path) -> str | None:
    """Return a description of the symbolic link in a path that leads nowhere, or None."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            try:
                part.stat()
            except OSError as error:
                if error.errno == errno.ELOOP:
                    return f"{part} is a symbolic link that leads back to itself"
            return f"{part} is a symbolic link to {part.readlink()}, which does not exist"
    return None


def find_files(
    path: PathLike | Mapping[str, PathLike], format: str | None = None, exclude: Iterable[Path] = ()
) -> list[SourceFile]:
    """Return the files of triples at a path, in reading order.

    Args:
        path: A file; a mapping {"train": file, "valid": file, "test": file}; or a folder. A folder that has a file
            named `train` (train.txt, train.tsv.gz, ...) is read as splits, any other folder as all its readable files
            sorted by name.
        format: The format of all files; None tells it from their names.
        exclude: Files in the folder that hold no triples, such as labels.

    Raises:
        DataError: There is no such file or none that can be read, or it is unclear which files hold triples.
    """
    forced = None if format is None else resolve_format(format)
    if isinstance(path, Mapping):
        return _in_split_order([_source_file(file, forced, split) for split, file in split_paths(path)])
    path = existing_path(path)
    if not path.is_dir():
        return [_source_file(path, forced)]
    return _files_in_folder(path, forced, {file.resolve() for file in exclude})


def split_paths(paths: Mapping[str, PathLike], kind: str = "file") -> Iterator[tuple[str, Path]]:
    """Yield (split, file) for a user's mapping from splits to files."""
    for name, path in paths.items():
        if name not in SPLIT_NAMES:
            raise DataError(f"unknown split {name!r} of a {kind}; splits are called train, valid (or dev) and test")
        file = existing_path(path, kind)
        if file.is_dir():
            raise DataError(f"the {name} split must be a file, but {file} is a folder")
        yield SPLIT_NAMES[name], file


def _files_in_folder(folder: Path, forced: str | None, exclude: set[Path]) -> list[SourceFile]:
    entries = sorted((e for e in folder.iterdir() if e.is_file() and not e.name.startswith(".")), key=lambda e: e.name)
    candidates = [entry for entry in entries if entry.resolve() not in exclude]
    if forced is not None:
        candidates = [entry for entry in candidates if file_suffix(entry) in READERS.resolve(forced).suffixes]
    files = [SourceFile(entry, format) for entry in candidates if (format := forced or format_from_name(entry))]
    if not files:
        names = ", ".join(entry.name for entry in entries[:5]) or "nothing"
        raise DataError(f"no readable files in {folder} (it holds {names}); known formats are {_known_formats()}")
    stems = [Path(strip_compression_suffix(file.path.name)).stem.lower() for file in files]
    if "train" in stems:
        splits = map(SPLIT_NAMES.get, stems)
        return _in_split_order([replace(file, split=split) for file, split in zip(files, splits, strict=True) if split])
    kinds = {READERS.resolve(file.format).plural or f"{file.format} files": file.path.name for file in reversed(files)}
    if len(kinds) > 1:
        first, second, *_ = (f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise DataError(
            f"{folder} holds both {first} and {second}, and a table may hold labels rather than triples; name the "
            f"file, or choose a format, e.g. {option_hint('format', files[0].format)}"
        )
    return files


def _in_split_order(files: list[SourceFile]) -> list[SourceFile]:
    """Sort the files of splits. Train is first, so that nodes that only other splits have are numbered last."""
    by_split: dict[str, SourceFile] = {}
    for file in files:
        other = by_split.setdefault(str(file.split), file)
        if other is not file:
            raise DataError(f"two files for the {file.split} split: {other.path} and {file.path}")
    if "train" not in by_split:
        raise DataError("there is no train split")
    return [by_split[split] for split in ("train", "valid", "test") if split in by_split]


def _source_file(path: Path, forced: str | None, split: str | None = None) -> SourceFile:
    if format := forced or format_from_name(path):
        return SourceFile(path, format, split)
    raise DataError(
        f"the format of {path} does not follow from its name; set it, e.g. {option_hint('format', 'nt')}; known are "
        f"{_known_formats()}"
    )


def _known_formats() -> str:
    return ", ".join(READERS.names()) + " (each also with .gz, .bz2 or .zst behind it)"


def file_suffix(path: PathLike) -> str:
    """Return the suffix that tells a file's format: lower case, without dot and compression."""
    return Path(strip_compression_suffix(Path(path).name)).suffix.lower().lstrip(".")


def expected_bytes(files: Iterable[SourceFile]) -> int:
    """Estimate from the sizes of files how much text they hold."""
    kinds = ((file.path, "compressed" if compression_from_name(file.path) else file.format) for file in files)
    return sum(path.stat().st_size * TEXT_RATIOS.get(kind, 1) for path, kind in kinds)


class ByteSource:
    """Reads a file's bytes, decompressed; refuses damaged files and decompression bombs.

    Args:
        path: The file.
        on_progress: Called after each read with the number of bytes it took from the file, before decompression.

    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.tsv.gz").write_bytes(gzip.compress(b"a line"))
    ...     with ByteSource(Path(folder, "a.tsv.gz")) as source:
    ...         source.read(100)
    b'a line'
    """

    def __init__(self, path: Path, on_progress: Callable[[float], None] | None = None) -> None:
        self.path, self._on_progress, self._decompressed, self._num_reported = path, on_progress, 0, 0
        try:
            self._raw = path.open("rb")
        except OSError as error:
            raise DataError(f"cannot open {path}: {error.strerror}") from None
        kind = compression_from_name(path)
        self._stream = compression.open_decompressor(self._raw, kind) if kind else self._raw

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes (a few more from zst); b"" at the end.

        Raises:
            DataError: The data are damaged or a decompression bomb.
        """
        try:
            data = self._stream.read(size)
        except compression.DECOMPRESSION_ERRORS as error:
            reason = f"the {compression_from_name(self.path) or 'file'} data are damaged or cut short ({error})"
            raise ParseError(str(self.path), None, "", reason) from None
        self._decompressed += len(data)
        position = self._raw.tell()
        if self._on_progress is not None and position > self._num_reported:
            self._on_progress(position - self._num_reported)
        self._num_reported = position
        if self._decompressed > max(EXPANSION_ALWAYS_ALLOWED, MAX_EXPANSION_RATIO * position):
            raise DataError(
                f"{self.path} expands more than {MAX_EXPANSION_RATIO}-fold, to over {self._decompressed >> 20} MiB. "
                "This looks like a decompression bomb; decompress it yourself if you trust it"
            )
        return data

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *error: object) -> None:
        self._raw.close()


class LineBlock(NamedTuple):
    """Some whole lines of a file, and the number of the first one, from 1."""

    first_line: int
    data: bytes


def line_blocks(source: ByteSource, quoted: bool = False) -> Iterator[LineBlock]:
    """Yield a file in blocks of a few MiB that end where a line ends.

    Args:
        source: The file.
        quoted: Whether a block must not end within double quotes, where a line end belongs to the field (CSV).
    """
    first_line, data = 1, b""
    while chunk := source.read(BLOCK_BYTES):
        if first_line == 1 and not data:
            chunk = chunk.removeprefix(UTF8_BOM)
        data += chunk
        end = data.rfind(b"\n") + 1
        is_too_long = len(data) > MAX_LINE_BYTES
        if not end and is_too_long:
            reason = f"a line of more than {MAX_LINE_BYTES >> 20} MiB; is this a text file?"
            raise ParseError(str(source.path), first_line, data[:100].decode(errors="replace"), reason)
        if end and (is_too_long or not quoted or data.count(b'"', 0, end) % 2 == 0):
            yield LineBlock(first_line, data[:end])
            first_line += data.count(b"\n", 0, end)
            data = data[end:]
    if data:
        yield LineBlock(first_line, data)


def decoded_lines(block: LineBlock, path: Path, bad_lines: BadLines) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line of a block, with the carriage returns before its end.

    Lines that are not UTF-8, or have a NUL byte, are reported to `bad_lines` instead.
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
    """Handles malformed lines: the first raises an error, or all are counted and the first few remembered.

    Args:
        skip: Whether to count malformed lines.
    """

    MAX_EXAMPLES = 5

    def __init__(self, skip: bool) -> None:
        self.skip, self.count, self.examples = skip, 0, list[str]()

    def report(self, path: Path, line: int, text: str, reason: str, advice: str = "") -> None:
        """Raise ParseError, or count the line.

        Args:
            path: The file.
            line: The line's number, from 1.
            text: The line.
            reason: What is wrong with the line.
            advice: What the user can do; the end of the error message.
        """
        if not self.skip:
            raise ParseError(str(path), line, text, f"{reason}; {advice}" if advice else reason)
        self.count += 1
        if len(self.examples) < self.MAX_EXAMPLES:
            self.examples.append(f"{path}:{line}: {reason}")
