"""What a training ran on: versions, hardware, and the state of the user's own folder under git."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("rgcn", "torch", "numpy", "numba", "triton", "polars", "pyoxigraph", "safetensors")
# What the bits of a result may depend on: where one of these changes, a resumed run may end with other last digits.
DECISIVE = ("python", "rgcn", "torch", "numpy", "numba", "triton", "cpu", "cores", "threads", "gpu")


def environment() -> dict[str, Any]:
    """Versions, hardware, git state of the working folder and the command; plain values, ready for JSON."""
    import torch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "versions": versions,
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "memory_bytes": _memory(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "git": _git_state(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def decisive_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two environments that may change a result's last digits, in words."""
    old = {**before.get("versions", {}), **before.get("hardware", {})}
    new = {**now["versions"], **now["hardware"]}
    return [f"{key} {old[key]} → {new.get(key)}" for key in DECISIVE if key in old and old[key] != new.get(key)]


def _git_state() -> dict[str, Any] | None:
    """Commit, branch and whether anything is uncommitted; None outside a repository, or without git."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        commit, branch = git("rev-parse", "HEAD"), git("rev-parse", "--abbrev-ref", "HEAD")
        changed = bool(git("status", "--porcelain", "--untracked-files=no"))
        return {"commit": commit, "branch": branch, "changed": changed}
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    with suppress(OSError, StopIteration):  # only Linux has it
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
