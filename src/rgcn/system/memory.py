"""How much memory there is, asked before work begins that may need more."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.errors import ConfigError

if TYPE_CHECKING:
    import torch

MEMINFO, STATUS, CGROUP = Path("/proc/meminfo"), Path("/proc/self/status"), Path("/sys/fs/cgroup")
LIMIT = "RGCN_MEMORY"  # environment variable for users, read where `limit_memory` was not called

_limit: int | None = None


def size_in(path: Path, name: str) -> int | None:
    """Bytes that a file of lines such as "VmRSS:  12 kB" gives under a name; None where there are none."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return int(lines[name].split()[0]) * 1024
    return None


def held_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    return size_in(STATUS, "VmRSS") or 0


def bytes_of(words: str) -> int:
    """A size as people write it; ValueError where it is none.

    >>> bytes_of("8GiB"), bytes_of("500 MB"), bytes_of("1.5g")
    (8589934592, 500000000, 1610612736)
    """
    found = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(i?)(b?)\s*", words.lower())
    if found is None:
        raise ValueError(f"{words!r} is no size, such as 8GiB or 500MB")
    number, unit, binary, byte = found.groups()
    return int(float(number) * (1000 if byte and not binary else 1024) ** " kmgt".index(unit or " "))


def give_back() -> None:
    """Hand freed memory back to the system. Tensors of ever other sizes leave holes, in which glibc keeps gigabytes."""
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def let_go(array: Any) -> None:
    """Let go of what was read of a mapped array: its pages count as this process's memory, and can be read again."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def limit_memory(size: int | str | None, source: str = "memory") -> None:
    """Let this process, and worker processes that it starts, plan with no more than this much memory.

    Args:
        size: Bytes, or words such as "8GiB"; None: what RGCN_MEMORY says, if it is set.
        source: What an error calls the setting.

    Raises:
        ConfigError: The words are no size.
    """
    global _limit
    _limit = _checked_size(size, source) if isinstance(size, str) else size


def memory_limit() -> int | None:
    """Bytes that this process may hold, by `limit_memory`, else by RGCN_MEMORY; None where nobody set a limit."""
    words = os.environ.get(LIMIT)
    return _checked_size(words, f"{LIMIT} in the environment") if _limit is None and words else _limit


def _checked_size(words: str, source: str) -> int:
    try:
        return bytes_of(words)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None


def available_bytes(device: torch.device | None = None) -> int | None:
    """Memory that can still be had without swapping, here or on a GPU, as far as the system tells."""
    if device is not None and device.type == "cuda":
        import torch

        # What PyTorch holds and does not use is free to it.
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    free, sharing = size_in(MEMINFO, "MemAvailable"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    found = [
        None if free is None else free // max(1, int(sharing) if sharing.isdecimal() else 1)
    ]  # by processes that torchrun started on this machine
    with contextlib.suppress(OSError, ValueError):  # a container's own limit; "max" where it has none
        found.append(int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text()))
    limit = memory_limit()
    if limit is not None:
        found.append(max(0, limit - held_bytes()))
    return min((size for size in found if size is not None), default=None)
