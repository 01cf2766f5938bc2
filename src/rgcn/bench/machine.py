"""What the figures were measured on: processor, memory, GPU, and versions of what took part."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numba", "numpy", "triton", "torch-geometric")
CPUINFO = Path("/proc/cpuinfo")


def describe_machine() -> dict[str, Any]:
    """cpu, cores, gpu (None where there is none), python, system, and a version for each package (None: absent)."""
    import rgcn

    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "gpu": _gpu(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "rgcn": rgcn.__version__,
        **{name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
