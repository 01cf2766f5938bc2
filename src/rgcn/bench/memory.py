"""How much memory a process holds, held at most, and may still have."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

STATUS, CLEAR, MEMINFO = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def status_bytes(field: str) -> int | None:
    """A size from /proc/self/status, such as VmRSS; None where there is none."""
    with contextlib.suppress(OSError):
        for line in STATUS.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == field:
                return int(rest.split()[0]) * 1024
    return None


class HostMemory:
    """Peaks of this process's memory over what it holds when this is made: the process at rest.

    Linux tells the resident memory now and at its highest, and forgets the latter when asked; elsewhere only the
    highest since the start is known, so that a peak below an earlier one reads as zero.
    """

    def __init__(self) -> None:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # freed pages, lest the next allocations use them unseen
            ctypes.CDLL(None).malloc_trim(0)
        self.method = "VmHWM" if _forget_peak() else "ru_maxrss"
        self.at_rest = (status_bytes("VmRSS") if self.method == "VmHWM" else _largest_ever()) or 0

    def peak(self) -> int:
        """Most bytes over the process at rest since it was made or `restart` was called."""
        now = status_bytes("VmHWM") if self.method == "VmHWM" else _largest_ever()
        return max((now or 0) - self.at_rest, 0)

    def restart(self) -> None:
        """Forget the peak, not what the process at rest held."""
        if self.method == "VmHWM":
            _forget_peak()


class DeviceMemory:
    """The same of a GPU: bytes that PyTorch's tensors hold, nothing subtracted."""

    method = "cuda"

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        gc.collect()
        torch.cuda.empty_cache()
        self.restart()

    def peak(self) -> int:
        return int(torch.cuda.max_memory_allocated(self._device))

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


def available_bytes() -> int | None:
    """Memory that can still be had here without swapping, as far as the system tells."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # a container's own limit; "max" where it has none
        found.append(int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text()))
    return min(found) if found else None


def limit_memory(more: int) -> None:
    """Let this process have so many bytes more than it has now; beyond, an allocation fails instead of the machine."""
    size = status_bytes("VmSize")
    if size is not None:
        resource.setrlimit(resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))


def _forget_peak() -> bool:
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return status_bytes("VmHWM") is not None


def _largest_ever() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
