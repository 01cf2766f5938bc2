"""Imports on first use: of the names of a package, since PyTorch loads slowly, and of packages that an extra brings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rgcn.errors import ConfigError


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


def import_extra(package: str, extra: str, module: str | None = None) -> Any:
    """A package that only an extra brings, or words that say how to get it."""
    try:
        return import_module(module or package)
    except ModuleNotFoundError as error:
        missing = f"{error.name or package}, which is not installed: pip install"
        raise ConfigError(f"{extra} needs the package {missing} 'rgcn[{extra}]'") from error
    except ImportError as error:
        broken = f"{package}, which is installed but cannot be imported ({str(error)[:300]}): pip install --upgrade"
        raise ConfigError(f"{extra} needs the package {broken} 'rgcn[{extra}]'") from error
