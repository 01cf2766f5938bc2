"""Models asked over HTTP: an API, the explorer page, and a process that stays up."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgcn.extras import import_extra

# Whether an address can be had needs no PyTorch, so each name brings in its own file only when it is first used.
_FILES = {
    "Address": "address",
    "Limits": "limits",
    "Served": "served",
    "create_app": "app",
    "line": "about",
    "load_models": "server",
    "serve": "server",
}
_PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")

if TYPE_CHECKING:
    from rgcn.serve.about import line
    from rgcn.serve.address import Address
    from rgcn.serve.app import create_app
    from rgcn.serve.limits import Limits
    from rgcn.serve.served import Served
    from rgcn.serve.server import load_models, serve

__all__ = ["Address", "Limits", "Served", "create_app", "line", "load_models", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'rgcn.serve' has no attribute {name!r}")
    if _FILES[name] in ("app", "server"):
        for package in _PACKAGES:
            import_extra(package, "serve")
    value = getattr(import_module(f"rgcn.serve.{_FILES[name]}"), name)
    globals()[name] = value
    return value
