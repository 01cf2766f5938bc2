"""Files that are compressed, as their names tell: reading what they expand to, and writing them."""

import bz2
import gzip
import zlib
from contextlib import AbstractContextManager, nullcontext
from pathlib import PurePath
from typing import IO, Any, Protocol

COMPRESSION_SUFFIXES = {".gz": "gz", ".bz2": "bz2", ".zst": "zst", ".zstd": "zst"}


class ZstdError(Exception):
    """Zstandard data that do not decode, or end too soon."""


DAMAGE = (EOFError, OSError, zlib.error, ZstdError)  # what a stream raises whose data are damaged or cut short


class ByteStream(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes: ...


def compression_of(path: str | PurePath) -> str | None:
    """
    >>> compression_of("graph.nt.ZST"), compression_of("graph.nt")
    ('zst', None)
    """
    return COMPRESSION_SUFFIXES.get(PurePath(path).suffix.lower())


def without_compression(name: str) -> str:
    """A file's name without the suffix of its compression."""
    return PurePath(name).stem if compression_of(name) else name


def expanding(raw: IO[bytes], compression: str | None) -> ByteStream:
    """What compressed bytes stand for."""
    if compression == "gz":
        return gzip.GzipFile(fileobj=raw)
    if compression == "bz2":
        return bz2.BZ2File(raw)
    return _ZstdReader(raw) if compression == "zst" else raw


def compressing(raw: IO[bytes], compression: str | None) -> AbstractContextManager[Any]:
    """A stream that writes to `raw`; the same content gives the same bytes."""
    if compression == "gz":
        return gzip.GzipFile("", "wb", fileobj=raw, mtime=0)  # no name and no time
    if compression == "bz2":
        return bz2.BZ2File(raw, "wb")
    if compression == "zst":
        import zstandard

        return zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
    return nullcontext(raw)


class _ZstdReader:
    """Frames one after the other; the library's own stream reader takes a cut-off frame for a complete one."""

    PIECE = 2048  # one byte of zst may stand for 32 KiB, so a piece never expands beyond 64 MiB

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self._raw, self._left_over = raw, b""
        self._new_frame, self._error = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
        self._frame: Any = None
        self._frames = 0

    def read(self, size: int = -1, /) -> bytes:
        parts, length = [], 0
        while length < size:
            piece = self._left_over or self._raw.read(self.PIECE)
            self._left_over = b""
            if not piece:
                if self._frame is not None or not self._frames:
                    raise ZstdError("the last frame is not complete")
                break
            if self._frame is None:
                self._frame = self._new_frame()
                self._frames += 1
            try:
                part = self._frame.decompress(piece)
            except self._error as error:
                raise ZstdError(str(error)) from None
            if self._frame.eof:
                self._left_over, self._frame = self._frame.unused_data, None
            parts.append(part)
            length += len(part)
        return b"".join(parts)
