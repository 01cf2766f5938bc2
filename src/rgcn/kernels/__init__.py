"""The few operations message passing is made of; `dispatch` decides which implementation computes them."""

from rgcn.kernels.operations import combine_bases, gather_sum, grouped_product, pair_dot, spread_bases

__all__ = ["combine_bases", "gather_sum", "grouped_product", "pair_dot", "spread_bases"]
