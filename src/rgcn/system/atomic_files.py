"""Write files atomically: a reader sees the old file or the new one, never half of one."""

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

# Marks temporary files, so that what a killed process left behind can be distinguished from the user's files.
TEMPORARY_PREFIX = ".writing-"

# Libraries written in Rust (polars, safetensors) give the number of a system error only in the text of their errors.
_RUST_ERROR_NUMBER = re.compile(r"\(os error (\d+)\)")
_DISK_ERRORS = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "the disk that holds {} is full")
_DISK_ERRORS[errno.EFBIG] = "{}: a file would be larger than the system allows"

# The umask can only be read by setting it. Read it once: two threads doing so at a time could leave the wrong one.
_UMASK = os.umask(0o077)
os.umask(_UMASK)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file under a temporary name in the same folder, sync it, and rename it to `path`."""
    data = content.encode() if isinstance(content, str) else content
    replace_atomically(path, lambda temporary: temporary.write_bytes(data))


def replace_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the same folder, sync it, and rename it to `path`.

    Args:
        path: The file to create or replace. Missing folders are created.
        write: Called with the path of the temporary file.

    Raises:
        OSError: The system refused to write. It has its error number even if `write` uses a library that raises its
            own exceptions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY_PREFIX}{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        sync(temporary)
        temporary.chmod(0o666 & ~_UMASK)  # mkstemp makes private files; ours get the user's usual permissions
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        number = None if isinstance(error, RgcnError) else _RUST_ERROR_NUMBER.search(str(error))
        if number is not None and getattr(error, "errno", None) is None:
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(path)) from error
        raise
    sync(path.parent)


def write_array(path: Path, dtype: type[np.generic], shape: tuple[int, ...], pieces: Iterable[NDArray[Any]]) -> None:
    """Write an array as .npy, piece by piece, so that it never has to be in memory as a whole.

    Args:
        path: The file to create or replace.
        dtype: Type of the array; pieces are converted to it.
        shape: Shape of the whole array.
        pieces: The array's content in C order.
    """
    import numpy as np

    header = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    contiguous = (np.ascontiguousarray(piece, dtype=dtype) for piece in pieces)
    replace_atomically(path, lambda temporary: write_pieces(temporary, header.getvalue(), contiguous))


def write_pieces(path: Path, header: bytes, pieces: Iterable[NDArray[Any]]) -> None:
    """Write a header, then the bytes of arrays one after the other."""
    with path.open("wb") as file:  # the error of np.save does not tell that the disk is full
        file.write(header)
        for piece in pieces:
            file.write(piece.data if piece.size else b"")


def remove_temporary_files(folder: Path) -> None:
    """Remove what a process that was killed while writing left in a folder."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def disk_error_message(error: BaseException | None, place: object) -> str | None:
    """Say that the disk is full, or that a file would be too large, and what to do.

    Args:
        error: An exception; its causes are searched too.
        place: The file or folder that was written.

    Returns:
        A message, or None if the error has another reason.
    """
    while error is not None and getattr(error, "errno", None) not in _DISK_ERRORS:
        error = error.__cause__ or error.__context__
    if not isinstance(error, OSError) or error.errno is None:
        return None
    reason = _DISK_ERRORS[error.errno].format(place)
    return f"{reason} ({os.strerror(error.errno)}): {disk_error_remedy(error)}, or use another disk"


def disk_error_remedy(error: OSError) -> str:
    """Return what the user can do before writing the same again.

    >>> disk_error_remedy(OSError(errno.EFBIG, "File too large"))
    'raise the limit on the size of files (`ulimit -f unlimited`)'
    """
    if error.errno == errno.EFBIG:
        return "raise the limit on the size of files (`ulimit -f unlimited`)"
    return "free some disk space"


def file_sha256(path: Path, size: int | None = None) -> str:
    """Return the sha256 of a file, or of its first `size` bytes, as hexadecimal digits."""
    digest, remaining = hashlib.sha256(), path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while block := file.read(min(remaining, 1 << 20)):
            digest.update(block)
            remaining -= len(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not is_folder:  # Windows cannot open folders, and some file systems cannot sync them
            raise
