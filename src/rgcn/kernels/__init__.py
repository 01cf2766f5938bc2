"""The operations that message passing consists of, differentiable; `dispatch` chooses the implementation."""

from rgcn.kernels.operations import combine_bases as combine_bases
from rgcn.kernels.operations import gather_sum as gather_sum
from rgcn.kernels.operations import grouped_product as grouped_product
from rgcn.kernels.operations import pair_dot as pair_dot
from rgcn.kernels.operations import scaled_sum as scaled_sum
from rgcn.kernels.operations import spread_bases as spread_bases
from rgcn.kernels.operations import take_rows as take_rows
from rgcn.kernels.reference import FactoredGradient as FactoredGradient
