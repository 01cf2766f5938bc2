"""Choose the implementation of each primitive, by device, precision and shape. No other module chooses."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from rgcn.kernels import reference

# Matrices of more numbers than this, per device, are multiplied by a library call for each relation.
MAX_COMPILED_MATRIX = {"cpu": 2048, "cuda": 4096}

use_reference = False  # True within `reference_kernels`


@contextmanager
def reference_kernels() -> Iterator[None]:
    """Compute everything with `reference`, in PyTorch's own operations, as `torch.export` and the like require.

    Call the model once within this context before it is traced: patterns cache results, which must be real tensors.
    """
    global use_reference
    before, use_reference = use_reference, True
    try:
        yield
    finally:
        use_reference = before


@cache
def _load(name: str) -> ModuleType | None:
    """Import the kernels in numba ("cpu") or Triton ("gpu"); None if they do not run here. Only rounding differs."""
    try:
        return import_module(f"rgcn.kernels.{name}")
    except ImportError:
        return None


def kernels_for(x: Tensor) -> ModuleType:
    """Return the module that computes the primitives for tensors like `x`."""
    has_loops = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if use_reference or not (x.is_cuda or has_loops):
        return reference
    return _load("gpu" if x.is_cuda else "cpu") or reference


def product_kernels(x: Tensor, weight: Tensor) -> ModuleType:
    """Return the module for `grouped_product` and `grouped_outer`: our kernels for small matrices, else libraries."""
    is_small = weight.shape[2] * weight.shape[3] <= MAX_COMPILED_MATRIX.get(x.device.type, 0)
    return kernels_for(x) if is_small else reference


def single_threaded_torch() -> AbstractContextManager[None]:
    """Run PyTorch's own operations on one thread, our CPU kernels on several; see `cpu.single_threaded_torch`."""
    kernels = _load("cpu")
    return nullcontext() if kernels is None else kernels.single_threaded_torch()
