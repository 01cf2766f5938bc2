"""Packages that only an extra brings."""

import importlib
from typing import Any

from rgcn.errors import ConfigError


def import_extra(package: str, extra: str, module: str | None = None) -> Any:
    """A package that only an extra brings, or words that say how to get it."""
    try:
        return importlib.import_module(module or package)
    except ModuleNotFoundError as error:
        missing = f"{error.name or package}, which is not installed: pip install"
        raise ConfigError(f"{extra} needs the package {missing} 'rgcn[{extra}]'") from error
    except ImportError as error:
        broken = f"{package}, which is installed but cannot be imported ({str(error)[:300]}): pip install --upgrade"
        raise ConfigError(f"{extra} needs the package {broken} 'rgcn[{extra}]'") from error
