"""Models asked over HTTP: an API, the explorer page, and a process that stays up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgcn.serve.address import Address, Limits
from rgcn.system.lazy import import_extra, lazy_names

if TYPE_CHECKING:
    from rgcn.serve.graph_endpoints import line
    from rgcn.serve.served_model import Served
    from rgcn.serve.server import create_app, load_models, serve

__all__ = ["Address", "Limits", "Served", "create_app", "line", "load_models", "serve"]

_find = lazy_names(__name__, {"server": ("Served", "create_app", "line", "load_models", "serve")})


def __getattr__(name: str) -> Any:
    """What needs PyTorch or the extra, when it is first used: whether an address can be had needs neither."""
    if name in __all__:
        for package in ("starlette", "msgspec", "uvicorn", "httptools", "prometheus_client"):
            import_extra(package, "serve")
    return _find(name)
