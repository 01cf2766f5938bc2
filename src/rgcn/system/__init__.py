"""The machine: files, compression, memory, threads, environment variables, progress bars, terminal, formatting."""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)
