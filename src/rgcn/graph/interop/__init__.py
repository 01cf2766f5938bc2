"""The same graph in the forms other libraries and tools expect; each is imported only when it is asked for."""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_names

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__)
