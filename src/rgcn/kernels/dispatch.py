"""Which implementation computes a primitive: decided here, and nowhere else."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from torch import Tensor

from rgcn.kernels import reference

# Below this many multiplications per row a library call per relation costs more than the product itself.
SMALL_PRODUCT = 2048


@cache
def _cpu() -> ModuleType | None:
    """The numba kernels; None where numba does not run. The results differ by rounding only, the speed by more."""
    try:
        from rgcn.kernels import cpu
    except ImportError:
        return None
    return cpu


def _compiled_for(tensor: Tensor) -> ModuleType | None:
    if tensor.device.type == "cpu" and tensor.dtype.is_floating_point and tensor.element_size() >= 4:
        return _cpu()
    return None


def bases_kernels(x: Tensor) -> ModuleType:
    """Who computes `combine_bases`, `spread_bases` and `coefficient_gradient` for tensors like `x`."""
    return _compiled_for(x) or reference


def product_kernels(x: Tensor, weight: Tensor) -> ModuleType:
    """Who computes `grouped_product` and `grouped_outer`: numba for small matrices, PyTorch for diagonals and large."""
    _, _, width_in, width_out = weight.shape
    if 1 < width_in * width_out <= SMALL_PRODUCT:
        return _compiled_for(x) or reference
    return reference


def dot_kernels(x: Tensor) -> ModuleType:
    """Who computes `entry_dot`."""
    return _compiled_for(x) or reference
