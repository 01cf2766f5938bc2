"""Several processes that train and ask one model: implementations of `rgcn.placement.Placement`, and what they need.

placements     DataParallel and Sharded, on torch.distributed, and rows of nodes that travel between processes
sharded_state  tables on disk of which every process writes its own rows
rendezvous     processes join, agree and leave, notice a rank that is lost, or report the failure that ends all
launch         `--processes`: a command in several processes, through torchrun's agent
"""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_names

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__)
