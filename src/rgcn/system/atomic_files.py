"""Writing so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.errors import RgcnError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Temporary files begin with this: what a killed process left behind can be told from what someone put there.
TEMPORARY_PREFIX = ".writing-"


# What libraries written in Rust (polars, safetensors) say of an error of the system, and nowhere else.
_ERROR_NUMBER = re.compile(r"\(os error (\d+)\)")
_NO_ROOM = {
    errno.ENOSPC: "the disk that holds {} is full",
    errno.EDQUOT: "the disk that holds {} is full",
    errno.EFBIG: "{}: a file would be larger than the system allows",
}

# The user's own, which can only be read by setting it; once, for two threads at a time would leave the wrong one.
UMASK = os.umask(0o077)
os.umask(UMASK)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name in the same folder, sync, and rename over `path`."""
    data = content.encode() if isinstance(content, str) else content
    replace_atomically(path, lambda temporary: temporary.write_bytes(data))


def replace_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the same folder; then sync it, and rename it over `path`.

    An error of the system is an OSError with its number, whatever library `write` uses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY_PREFIX}{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        sync(temporary)
        temporary.chmod(0o666 & ~UMASK)  # mkstemp makes it private; what we write is as open as the user's files
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        number = None if isinstance(error, RgcnError) else _ERROR_NUMBER.search(str(error))
        if number is not None and getattr(error, "errno", None) is None:
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(path)) from error
        raise
    sync(path.parent)


def write_array(path: Path, dtype: type[np.generic], shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write an array as .npy, piece by piece."""
    import numpy as np

    header = BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    contiguous = (np.ascontiguousarray(piece, dtype=dtype) for piece in pieces)
    replace_atomically(path, lambda at: write_pieces(at, header.getvalue(), contiguous))


def write_pieces(path: Path, header: bytes, pieces: Iterable[NDArray[Any]]) -> None:
    """A header, then arrays back to back."""
    with path.open("wb") as file:  # not np.save, whose error does not tell a full disk
        file.write(header)
        for piece in pieces:
            file.write(piece.data if piece.size else b"")


def remove_temporaries(folder: Path) -> None:
    """Remove what a process that was killed in the middle of a write left in a folder."""
    for left in folder.glob(f"{TEMPORARY_PREFIX}*"):
        remove(left)


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def full_disk(error: BaseException | None, place: object) -> str | None:
    """What helps, where an error came of a full disk or of a limit on the size of files; None for other errors."""
    while error is not None and getattr(error, "errno", None) not in _NO_ROOM:
        error = error.__cause__ or error.__context__
    if not isinstance(error, OSError) or error.errno is None:
        return None
    words = _NO_ROOM[error.errno].format(place)
    return f"{words} ({os.strerror(error.errno)}): {remedy(error)}, or use another disk"


def remedy(error: OSError) -> str:
    """What to do before the same is written again.

    >>> remedy(OSError(errno.EFBIG, "File too large"))
    'raise the limit on the size of files (`ulimit -f unlimited`)'
    """
    if error.errno == errno.EFBIG:
        return "raise the limit on the size of files (`ulimit -f unlimited`)"
    return "free some room"


def sha256_of(path: Path, size: int | None = None) -> str:
    """The sha256 of a file, or of its first `size` bytes, in hexadecimal digits."""
    digest, left = hashlib.sha256(), path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while block := file.read(min(left, 1 << 20)):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not is_folder:  # Windows opens no folders, and not every file system syncs them
            raise
