"""Packages that are unknown to rgcn, written into a folder of the path."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rgcn import plugins

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from in_process import rgcn as command

__all__ = ["command", "forgotten", "installed", "written_package"]


def written_package(folder: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a module that can be imported, but is not allowed."""
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(str(folder))
    forgotten(name, monkeypatch)


def forgotten(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the state of a new process: the module is not loaded, and no package is allowed."""
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv(plugins.ALLOW_VARIABLE, "")
    monkeypatch.setattr(plugins, "_allowed", [])


@contextmanager
def installed(folder: Path, group: str, line: str) -> Iterator[None]:
    """Pretend that a package with this entry point is installed."""
    about = folder / "stranger-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
    plugins._installed.cache_clear()
    try:
        yield
    finally:
        for file in about.iterdir():
            file.unlink()
        about.rmdir()
        plugins._installed.cache_clear()
