"""Read archives and compressed files that others made.

Members are never written under the names in the archive, and never read beyond the size that is expected.
"""

import fnmatch
import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rgcn.errors import DataError
from rgcn.system.compression import ByteStream

MAX_MEMBERS = 100_000
BLOCK_BYTES = 1 << 20
_READ_ERRORS = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class LimitedReader(io.RawIOBase):
    """Reads at most `limit` bytes from a stream and refuses more, whatever sizes its headers promise.

    >>> LimitedReader(io.BytesIO(b"abcdef"), 4, "x.txt").read()
    Traceback (most recent call last):
    rgcn.errors.DataError: x.txt is larger than the limit of 4 bytes
    """

    def __init__(self, stream: ByteStream, limit: int, name: str) -> None:
        self._stream, self._limit, self._name, self._num_read = stream, limit, name, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer; called by the methods of the base class."""
        # Ask for one byte more than allowed, so that a stream that is too long is noticed.
        block = self._stream.read(min(len(buffer), self._limit - self._num_read + 1))
        self._num_read += len(block)
        if self._num_read > self._limit:
            raise DataError(f"{self._name} is larger than the limit of {self._limit:,} bytes")
        buffer[: len(block)] = block
        return len(block)


class _Member(NamedTuple):
    size: int
    is_folder: bool
    is_regular_file: bool  # not a link, device or pipe
    open: Callable[[], Any]


class Archive:
    """An open archive, whose files can be found by name and read as streams."""

    def __init__(self, name: str, members: Iterator[tuple[str, _Member]]) -> None:
        self.name, self._members = name, dict(islice(members, MAX_MEMBERS))
        if next(members, None) is not None:
            raise DataError(f"{name} has more than {MAX_MEMBERS:,} members")

    def find(self, patterns: Sequence[str]) -> list[str]:
        """Return the sorted names of the members that match the first pattern that any member matches.

        Args:
            patterns: Shell patterns, for the whole name if they have a slash, else for its last part: "*.nt".
        """
        names = [name for name, member in self._members.items() if not member.is_folder]
        for pattern in patterns:
            texts = names if "/" in pattern else [PurePosixPath(name).name for name in names]
            if matches := [name for name, text in zip(names, texts, strict=True) if fnmatch.fnmatchcase(text, pattern)]:
                return sorted(matches)
        raise DataError(f"{self.name} has no member {' or '.join(patterns)}")

    @contextmanager
    def open(self, name: str, *, max_bytes: int) -> Iterator[LimitedReader]:
        """Open a member as a stream.

        Raises:
            DataError: The name leads out of the archive's folder, or the member is missing, a link, damaged or larger
                than `max_bytes`.
        """
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or ":" in parts[0] or "\0" in name:
            raise DataError(f"refused: the archive member {name!r} leads out of its folder")
        member = self._members.get(name)
        if member is None:
            raise DataError(f"{self.name} has no member {name}")
        if not member.is_regular_file:
            raise DataError(f"refused: the archive member {name!r} is a link or not a regular file")
        if member.size > max_bytes:
            raise DataError(f"{name} has {member.size:,} bytes, more than the limit of {max_bytes:,}")
        try:
            with member.open() as stream:
                yield LimitedReader(stream, max_bytes, name)
        except (*_READ_ERRORS, RuntimeError, NotImplementedError) as error:
            raise DataError(f"{self.name}: {name} cannot be read: {error}") from error


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a zip or tar archive, compressed or not.

    Raises:
        DataError: The file is not an archive, is damaged or has too many members.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                yield Archive(path.name, _zip_members(zipped))
        else:
            with tarfile.open(path) as tar:
                members = ((i.name, _Member(i.size, i.isdir(), i.isreg(), partial(tar.extractfile, i))) for i in tar)
                yield Archive(path.name, members)
    except _READ_ERRORS as error:
        raise DataError(f"{path.name} is not a readable archive: {error}") from error


def _zip_members(zipped: zipfile.ZipFile) -> Iterator[tuple[str, _Member]]:
    for info in zipped.infolist():
        file_type = stat.S_IFMT(info.external_attr >> 16)
        is_regular_file = not info.is_dir() and file_type in (0, stat.S_IFREG)
        yield info.filename, _Member(info.file_size, info.is_dir(), is_regular_file, partial(zipped.open, info))


def write_plain(stream: ByteStream, target: Path, *, max_bytes: int) -> None:
    """Copy text to a file with LF line ends, decompressed if it is gzip.

    Raises:
        DataError: The text is larger than `max_bytes`, or the compressed data are damaged.
    """
    plain: Any = io.BufferedReader(LimitedReader(stream, max_bytes, target.name))
    if plain.peek(2)[:2] == b"\x1f\x8b":
        plain = LimitedReader(gzip.GzipFile(fileobj=plain), max_bytes, target.name)
    try:
        with target.open("wb") as out:
            held = b""  # a CR at the end of a block, which may belong to the LF at the start of the next
            while block := plain.read(BLOCK_BYTES):
                block = held + block
                held = b"\r" if block.endswith(b"\r") else b""
                out.write(block.removesuffix(held).replace(b"\r\n", b"\n"))
            out.write(held)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{target.name}: the compressed data are damaged ({error})") from error
