"""Names of a package that are imported when they are first used: loading PyTorch takes longer than many commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str, names: Mapping[str, Sequence[str]] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a package, which imports its modules, and names that they define, on first use.

    Args:
        package: The package's `__name__`.
        names: For each of its modules, the names that the package offers as its own.

    >>> import rgcn
    >>> rgcn.nn.decoders.DistMult  # no module of rgcn.nn was imported before
    <class 'rgcn.nn.decoders.DistMult'>
    """
    module_of = {name: module for module, offered in (names or {}).items() for name in offered}

    def find(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return vars(sys.modules[package]).setdefault(name, value)

    return find
