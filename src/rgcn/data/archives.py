"""Reading chosen members of archives that strangers packed: nothing is unpacked by the names they chose."""

from __future__ import annotations

import fnmatch
import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from rgcn.errors import DataError

MAX_MEMBERS = 100_000
CHUNK = 1 << 20
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class ArchiveError(DataError):
    """An archive is damaged, lacks a member, or holds one that must not be read."""


class Readable(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class LimitedReader:
    """Reads at most `limit` bytes from a stream and refuses the rest: sizes in headers may lie.

    >>> import io
    >>> LimitedReader(io.BytesIO(b"abcdef"), 4, "x.txt").read()
    Traceback (most recent call last):
    rgcn.data.archives.ArchiveError: x.txt is larger than the limit of 4 bytes
    """

    def __init__(self, stream: Readable, limit: int, name: str) -> None:
        self._stream, self._limit, self._name, self._seen = stream, limit, name, 0

    def read(self, size: int = -1, /) -> bytes:
        room = self._limit - self._seen + 1  # one more than allowed, so that too much is noticed
        block = self._stream.read(room if size < 0 else min(size, room))
        self._seen += len(block)
        if self._seen > self._limit:
            raise ArchiveError(f"{self._name} is larger than the limit of {self._limit:,} bytes")
        return block

    def blocks(self) -> Iterator[bytes]:
        while block := self.read(CHUNK):
            yield block


class Archive:
    """An open archive: its plain files can be found by pattern and read as streams, and that is all."""

    def __init__(self, name: str, opened: _Tar | _Zip) -> None:
        self.name, self._opened = name, opened

    def find(self, patterns: Sequence[str]) -> list[str]:
        """Members matching the first pattern that any member matches, by name.

        A pattern with a slash is the whole name of a member; one without is matched against base names.
        """
        names = self._opened.names()
        for pattern in patterns:
            if "/" in pattern:
                found = [n for n in names if n == pattern]
            else:
                found = [n for n in names if fnmatch.fnmatchcase(PurePosixPath(n).name, pattern)]
            if found:
                return sorted(found)
        raise ArchiveError(f"{self.name} has no member {' or '.join(patterns)}")

    @contextmanager
    def open(self, member: str, *, max_bytes: int) -> Iterator[LimitedReader]:
        """One member as a stream; refuses names that climb out, links, and what is larger than `max_bytes`."""
        check_name(member)
        size = self._opened.size_of_plain_file(member)
        if size > max_bytes:
            raise ArchiveError(f"{member} has {size:,} bytes, more than the limit of {max_bytes:,}")
        try:
            with self._opened.open(member) as stream:
                yield LimitedReader(stream, max_bytes, member)
        except (*_DAMAGE, RuntimeError, NotImplementedError) as error:
            raise ArchiveError(f"{self.name}: {member} cannot be read: {error}") from error


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The archive, whichever of tar (compressed or not) and zip it is."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                yield Archive(path.name, _Zip(zipped))
        else:
            with tarfile.open(path) as tar:
                yield Archive(path.name, _Tar(tar))
    except _DAMAGE as error:
        raise ArchiveError(f"{path.name} is no readable archive: {error}") from error


def check_name(member: str) -> None:
    """Refuse a member whose name would lead outside the folder it is unpacked in.

    >>> check_name("../../etc/passwd")
    Traceback (most recent call last):
    rgcn.data.archives.ArchiveError: refused: the archive member '../../etc/passwd' leads out of its folder
    """
    parts = member.replace("\\", "/").split("/")
    if member.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in member:
        raise ArchiveError(f"refused: the archive member {member!r} leads out of its folder")


class _Tar:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members: dict[str, tarfile.TarInfo] = {}
        for count, info in enumerate(tar):
            if count >= MAX_MEMBERS:
                raise ArchiveError(f"more than {MAX_MEMBERS:,} members")
            self._members[info.name] = info

    def names(self) -> list[str]:
        return [name for name, info in self._members.items() if not info.isdir()]

    def size_of_plain_file(self, member: str) -> int:
        info = self._members.get(member)
        if info is None:
            raise ArchiveError(f"no member {member}")
        if not info.isreg():  # links, devices, pipes
            raise ArchiveError(f"refused: the archive member {member!r} is a link or no plain file")
        return info.size

    def open(self, member: str) -> IO[bytes]:
        return cast("IO[bytes]", self._tar.extractfile(self._members[member]))


class _Zip:
    def __init__(self, zipped: zipfile.ZipFile) -> None:
        self._zip = zipped
        if len(zipped.infolist()) > MAX_MEMBERS:
            raise ArchiveError(f"more than {MAX_MEMBERS:,} members")

    def names(self) -> list[str]:
        return [info.filename for info in self._zip.infolist() if not info.is_dir()]

    def size_of_plain_file(self, member: str) -> int:
        try:
            info = self._zip.getinfo(member)
        except KeyError:
            raise ArchiveError(f"no member {member}") from None
        mode = info.external_attr >> 16
        if info.is_dir() or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
            raise ArchiveError(f"refused: the archive member {member!r} is a link or no plain file")
        return info.file_size

    def open(self, member: str) -> IO[bytes]:
        return self._zip.open(member)
