"""How much memory there is, asked before work begins that may need more."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def size_in(path: Path, name: str) -> int | None:
    """Bytes that a file of lines such as "VmRSS:  12 kB" gives under a name; None where there are none."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return int(lines[name].split()[0]) * 1024
    return None


def available_bytes(device: torch.device | None = None) -> int | None:
    """Memory that can still be had without swapping, here or on a GPU, as far as the system tells."""
    if device is not None and device.type == "cuda":
        import torch

        # What PyTorch holds and does not use is free to it.
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    found = [size_in(MEMINFO, "MemAvailable")]
    with contextlib.suppress(OSError, ValueError):  # a container's own limit; "max" where it has none
        found.append(int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text()))
    return min((size for size in found if size is not None), default=None)
