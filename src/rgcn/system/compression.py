"""Read and write files that are compressed, as the suffix of their name tells: gzip, bzip2 and Zstandard."""

import bz2
import gzip
import zlib
from contextlib import AbstractContextManager, nullcontext
from pathlib import PurePath
from typing import IO, Any, Protocol

COMPRESSION_SUFFIXES = {".gz": "gz", ".bz2": "bz2", ".zst": "zst", ".zstd": "zst"}


class ZstdError(Exception):
    """Zstandard data that cannot be decompressed, or end too soon."""


# What a stream from `open_decompressor` raises if its data are damaged or cut short.
DECOMPRESSION_ERRORS = (EOFError, OSError, zlib.error, ZstdError)


class ByteStream(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes; b"" at the end."""


def compression_from_name(path: str | PurePath) -> str | None:
    """Return the compression that a file's name tells, "gz", "bz2" or "zst", or None.

    >>> compression_from_name("graph.nt.ZST"), compression_from_name("graph.nt")
    ('zst', None)
    """
    return COMPRESSION_SUFFIXES.get(PurePath(path).suffix.lower())


def strip_compression_suffix(name: str) -> str:
    """Return a file's name without the suffix of its compression.

    >>> strip_compression_suffix("graph.nt.gz")
    'graph.nt'
    """
    return PurePath(name).stem if compression_from_name(name) else name


def open_decompressor(raw: IO[bytes], compression: str | None) -> ByteStream:
    """Return a stream that reads from `raw` and decompresses."""
    if compression == "gz":
        return gzip.GzipFile(fileobj=raw)
    if compression == "bz2":
        return bz2.BZ2File(raw)
    return _ZstdReader(raw) if compression == "zst" else raw


def open_compressor(raw: IO[bytes], compression: str | None) -> AbstractContextManager[Any]:
    """Return a stream that compresses and writes to `raw`; the same content gives the same bytes."""
    if compression == "gz":
        return gzip.GzipFile("", "wb", fileobj=raw, mtime=0)  # without name and time
    if compression == "bz2":
        return bz2.BZ2File(raw, "wb")
    if compression == "zst":
        import zstandard

        return zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
    return nullcontext(raw)


class _ZstdReader:
    """Reads frame by frame. The library's own stream reader takes a frame that is cut off for a complete one."""

    BLOCK_BYTES = 2048  # a byte of zst expands to at most 32 KiB, so a block to at most 64 MiB

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self._raw, self._unread = raw, b""
        self._open_frame, self._zstd_error = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
        self._frame: Any = None
        self._has_frames = False

    def read(self, size: int = -1, /) -> bytes:
        parts, length = [], 0
        while length < size:
            block, self._unread = self._unread or self._raw.read(self.BLOCK_BYTES), b""
            if not block:
                if self._frame is not None or not self._has_frames:
                    raise ZstdError("the last frame is not complete")
                break
            if self._frame is None:
                self._frame, self._has_frames = self._open_frame(), True
            try:
                part = self._frame.decompress(block)
            except self._zstd_error as error:
                raise ZstdError(str(error)) from None
            if self._frame.eof:
                self._unread, self._frame = self._frame.unused_data, None
            parts.append(part)
            length += len(part)
        return b"".join(parts)
