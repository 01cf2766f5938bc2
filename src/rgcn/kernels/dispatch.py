"""Which implementation computes a primitive: decided here, by device, precision and shape, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from rgcn.kernels import reference

# Above this many multiplications per row a library call per relation is worth its launch.
SMALL_PRODUCT = {"cpu": 2048, "cuda": 4096}

plain = False  # whether within `plain_kernels`


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Within, everything is computed by `reference`, in PyTorch's own operations: for `torch.export` and the like.

    Call the model once, within, before it is traced: what patterns remember must be made of real numbers.
    """
    global plain
    before, plain = plain, True
    try:
        yield
    finally:
        plain = before


@cache
def _module(name: str) -> ModuleType | None:
    """The kernels in numba ("cpu") or Triton ("gpu"); None where they do not run. Results differ by rounding only."""
    try:
        return import_module(f"rgcn.kernels.{name}")
    except ImportError:
        return None


def kernels_for(x: Tensor) -> ModuleType:
    """Who computes the primitives for tensors like `x`."""
    if plain:
        return reference
    if x.device.type == "cuda":
        return _module("gpu") or reference
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        return _module("cpu") or reference
    return reference


def product_kernels(x: Tensor, weight: Tensor) -> ModuleType:
    """Who computes `grouped_product` and `grouped_outer`: compiled loops for small matrices, libraries for large."""
    largest = SMALL_PRODUCT.get(x.device.type, 0)
    return kernels_for(x) if weight.shape[2] * weight.shape[3] <= largest else reference


def own_threads() -> AbstractContextManager[None]:
    """Within, on a CPU, only these kernels run on several threads; see `cpu.own_threads`."""
    kernels = _module("cpu")
    return nullcontext() if kernels is None else kernels.own_threads()
