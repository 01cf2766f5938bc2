"""The few operations message passing is made of; `dispatch` decides which implementation computes them."""

from rgcn.kernels.operations import (
    combine_bases,
    gather_sum,
    grouped_product,
    pair_dot,
    scaled_sum,
    spread_bases,
    take_rows,
)
from rgcn.kernels.reference import FactoredGradient

__all__ = [
    "FactoredGradient",
    "combine_bases",
    "gather_sum",
    "grouped_product",
    "pair_dot",
    "scaled_sum",
    "spread_bases",
    "take_rows",
]
