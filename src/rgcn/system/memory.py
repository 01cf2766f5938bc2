"""How much memory a process may use, and how much is free: asked before work begins that may need more."""

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

MEMINFO_FILE, PROCESS_STATUS_FILE = Path("/proc/meminfo"), Path("/proc/self/status")
CGROUP_FOLDER = Path("/sys/fs/cgroup")
MEMORY_VARIABLE = "RGCN_MEMORY"  # environment variable for users; `limit_memory` overrides it

_limit_bytes: int | None = None


def read_proc_bytes(path: Path, name: str) -> int | None:
    """Read a size from a file of lines like "VmRSS:  12 kB"; None if the file or the name is missing."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return int(lines[name].split()[0]) * 1024
    return None


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not tell."""
    return read_proc_bytes(PROCESS_STATUS_FILE, "VmRSS") or 0


def parse_bytes(text: str, source: str = "memory") -> int:
    """Return the number of bytes that a text like "8GiB" stands for.

    Args:
        text: A number with a unit. KB is 1000 bytes; KiB and K are 1024.
        source: The name of the setting in error messages.

    Raises:
        ConfigError: The text is not a size.

    >>> parse_bytes("8GiB"), parse_bytes("500 MB"), parse_bytes("1.5g")
    (8589934592, 500000000, 1610612736)
    """
    match = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(i?)(b?)\s*", text.lower())
    if match is None:
        raise ConfigError(f"{source}: {text!r} is not a size; write one like 8GiB or 500MB")
    number, unit, binary, byte = match.groups()
    return int(float(number) * (1000 if byte and not binary else 1024) ** " kmgt".index(unit or " "))


def release_memory() -> None:
    """Return freed memory to the system.

    Tensors of ever different sizes leave holes, in which glibc keeps gigabytes.
    """
    with contextlib.suppress(OSError, AttributeError):  # other C libraries do not have this function
        ctypes.CDLL(None).malloc_trim(0)


def release_pages(array: Any) -> None:
    """Release the pages of a memory-mapped array that were read; the system reads them again when they are needed.

    Until then they would count as memory of this process.
    """
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def limit_memory(size: int | str | None, source: str = "memory") -> None:
    """Limit the memory that this process, and worker processes that it starts, plan with.

    Args:
        size: Bytes, or a text like "8GiB"; None uses the environment variable RGCN_MEMORY, if it is set.
        source: The name of the setting in error messages.

    Raises:
        ConfigError: The text is not a size.
    """
    global _limit_bytes
    _limit_bytes = parse_bytes(size, source) if isinstance(size, str) else size


def memory_limit() -> int | None:
    """Return the limit of `limit_memory`, else of RGCN_MEMORY, in bytes; None if there is no limit."""
    text = os.environ.get(MEMORY_VARIABLE)
    if _limit_bytes is None and text:
        return parse_bytes(text, f"{MEMORY_VARIABLE} in the environment")
    return _limit_bytes


def available_bytes(device: torch.device | None = None) -> int | None:
    """Return the memory that can still be allocated without swapping; None if the system does not tell.

    Args:
        device: Where to allocate. Anything but a GPU means the memory of this machine, of which each of several
            processes started by torchrun gets an equal share.
    """
    if device is not None and device.type == "cuda":
        import torch

        # PyTorch can use again what it has reserved and not allocated.
        unallocated = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unallocated
    sizes = list[int]()
    if (free := read_proc_bytes(MEMINFO_FILE, "MemAvailable")) is not None:
        processes = os.environ.get("LOCAL_WORLD_SIZE", "1")  # set by torchrun
        sizes.append(free // max(1, int(processes) if processes.isdecimal() else 1))
    with contextlib.suppress(OSError, ValueError):  # the limit of a container; "max" if it has none
        used = int((CGROUP_FOLDER / "memory.current").read_text())
        sizes.append(int((CGROUP_FOLDER / "memory.max").read_text()) - used)
    if (limit := memory_limit()) is not None:
        sizes.append(max(0, limit - resident_bytes()))
    return min(sizes, default=None)
