"""Import on first use: names of a package, since PyTorch loads slowly, and packages that only an extra installs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rgcn.errors import ConfigError


def lazy_attributes(package: str, names: Mapping[str, Sequence[str]] | None = None) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that imports its modules, and names from them, on first use.

    Args:
        package: The package's `__name__`.
        names: For each module of the package, the names that the package offers as its own.

    >>> import rgcn
    >>> rgcn.nn.decoders.DistMult  # no module of rgcn.nn was imported before
    <class 'rgcn.nn.decoders.distmult.DistMult'>
    """
    module_of = {name: module for module, exported in (names or {}).items() for name in exported}

    def get(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return vars(sys.modules[package]).setdefault(name, value)

    return get


def import_extra(package: str, extra: str, module: str | None = None) -> Any:
    """Import a package that only an extra installs.

    Args:
        package: The package's name on the package index.
        extra: The extra, as in `pip install 'rgcn[extra]'`.
        module: The module to import, if it is not called like the package.

    Raises:
        ConfigError: The package is missing or cannot be imported; the message has the command that installs it.
    """
    try:
        return import_module(module or package)
    except ImportError as error:
        problem, command = f"{package}, which is installed but cannot be imported ({error!s:.300})", "install --upgrade"
        if isinstance(error, ModuleNotFoundError):
            problem, command = f"{error.name or package}, which is not installed", "install"
        raise ConfigError(f"{extra} needs the package {problem}: pip {command} 'rgcn[{extra}]'") from error
