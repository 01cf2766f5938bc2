"""The few operations message passing is made of; `dispatch` decides which implementation computes them."""

from rgcn.kernels.operations import (
    FactoredGradient,
    combine_bases,
    gather_sum,
    grouped_product,
    pair_dot,
    scaled_sum,
    spread_bases,
    take_rows,
)

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
