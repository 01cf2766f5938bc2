"""What the figures were measured on: processor, GPU, and versions of what took part."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rgcn.version import __version__

HARDWARE = ("cpu", "cores", "gpu", "system")
PACKAGES = ("torch", "numba", "numpy", "triton", "torch-geometric")


def describe_machine() -> dict[str, Any]:
    """cpu, cores, gpu (None where there is none), python, system, and a version for each package (None: absent)."""
    from rgcn.runs.environment import environment

    here = environment()
    return {
        **{key: here["hardware"][key] for key in HARDWARE},
        "python": here["versions"]["python"],
        "rgcn": __version__,
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
