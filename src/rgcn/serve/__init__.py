"""Serve models over HTTP: an API, the explorer page, and the server process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgcn.serve.address import Address, Limits
from rgcn.system.lazy import import_extra, lazy_attributes

if TYPE_CHECKING:
    from rgcn.serve.common_endpoints import model_summary
    from rgcn.serve.served_model import ServedModel
    from rgcn.serve.server import create_app, load_models, serve

__all__ = ["Address", "Limits", "ServedModel", "create_app", "load_models", "model_summary", "serve"]

_find = lazy_attributes(__name__, {"server": ("ServedModel", "create_app", "load_models", "model_summary", "serve")})


def __getattr__(name: str) -> Any:
    """Load names that need PyTorch or the extra `serve` on first use, so that an address is checked before that."""
    if name in __all__:
        for package in ("starlette", "msgspec", "uvicorn", "httptools", "prometheus_client"):
            import_extra(package, "serve")
    return _find(name)
