"""Reading what strangers packed: nothing is unpacked by the names they chose, nor beyond the size that is expected."""

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
CHUNK = 1 << 20
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class LimitedReader(io.RawIOBase):
    """Reads at most `limit` bytes from a stream and refuses the rest: sizes in headers may lie.

    >>> LimitedReader(io.BytesIO(b"abcdef"), 4, "x.txt").read()
    Traceback (most recent call last):
    rgcn.errors.DataError: x.txt is larger than the limit of 4 bytes
    """

    def __init__(self, stream: ByteStream, limit: int, name: str) -> None:
        self._stream, self._limit, self._name, self._seen = stream, limit, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        # one more than allowed, so that too much is noticed
        block = self._stream.read(min(len(buffer), self._limit - self._seen + 1))
        self._seen += len(block)
        if self._seen > self._limit:
            raise DataError(f"{self._name} is larger than the limit of {self._limit:,} bytes")
        buffer[: len(block)] = block
        return len(block)


class _Member(NamedTuple):
    size: int
    is_folder: bool
    is_plain: bool  # no link, device or pipe
    open: Callable[[], Any]


class Archive:
    """An open archive: its plain files can be found by pattern and read as streams, and that is all."""

    def __init__(self, name: str, members: Iterator[tuple[str, _Member]]) -> None:
        self.name, self._members = name, dict(islice(members, MAX_MEMBERS))
        if next(members, None) is not None:
            raise DataError(f"more than {MAX_MEMBERS:,} members")

    def find(self, patterns: Sequence[str]) -> list[str]:
        """Members, by name, of the first pattern that any matches: a whole name with a slash, or one for base names."""
        names = [name for name, member in self._members.items() if not member.is_folder]
        for pattern in patterns:
            if "/" in pattern:
                found = [n for n in names if n == pattern]
            else:
                found = [n for n in names if fnmatch.fnmatchcase(PurePosixPath(n).name, pattern)]
            if found:
                return sorted(found)
        raise DataError(f"{self.name} has no member {' or '.join(patterns)}")

    @contextmanager
    def open(self, name: str, *, max_bytes: int) -> Iterator[LimitedReader]:
        """One member as a stream; refuses names that climb out, links, and what is larger than `max_bytes`."""
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or ":" in parts[0] or "\0" in name:
            raise DataError(f"refused: the archive member {name!r} leads out of its folder")
        member = self._members.get(name)
        if member is None:
            raise DataError(f"no member {name}")
        if not member.is_plain:
            raise DataError(f"refused: the archive member {name!r} is a link or no plain file")
        if member.size > max_bytes:
            raise DataError(f"{name} has {member.size:,} bytes, more than the limit of {max_bytes:,}")
        try:
            with member.open() as stream:
                yield LimitedReader(stream, max_bytes, name)
        except (*_DAMAGE, RuntimeError, NotImplementedError) as error:
            raise DataError(f"{self.name}: {name} cannot be read: {error}") from error


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The archive, whichever of tar (compressed or not) and zip it is."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                yield Archive(path.name, _zip_members(zipped))
        else:
            with tarfile.open(path) as tar:
                members = ((i.name, _Member(i.size, i.isdir(), i.isreg(), partial(tar.extractfile, i))) for i in tar)
                yield Archive(path.name, members)
    except _DAMAGE as error:
        raise DataError(f"{path.name} is no readable archive: {error}") from error


def _zip_members(zipped: zipfile.ZipFile) -> Iterator[tuple[str, _Member]]:
    for info in zipped.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        is_plain = not info.is_dir() and kind in (0, stat.S_IFREG)
        yield info.filename, _Member(info.file_size, info.is_dir(), is_plain, partial(zipped.open, info))


def write_plain(stream: ByteStream, target: Path, *, max_bytes: int) -> None:
    """Copy text to `target`, decompressed if it is gzip, with LF line ends."""
    plain: Any = io.BufferedReader(LimitedReader(stream, max_bytes, target.name))
    if plain.peek(2)[:2] == b"\x1f\x8b":
        plain = LimitedReader(gzip.GzipFile(fileobj=plain), max_bytes, target.name)
    try:
        with target.open("wb") as out:
            held = b""  # a CR at the end of a block waits for the LF that may follow
            while block := plain.read(CHUNK):
                block = held + block
                held = b"\r" if block.endswith(b"\r") else b""
                out.write(block[: len(block) - len(held)].replace(b"\r\n", b"\n"))
            out.write(held)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{target.name}: the compressed data are damaged ({error})") from error
