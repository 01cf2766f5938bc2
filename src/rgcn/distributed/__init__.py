"""Training and prediction in several processes: implementations of `rgcn.placement.Placement`.

placements     `DataParallel` and `Sharded`, on torch.distributed, and the exchange of node rows between processes
sharded_state  tables on disk, of which every process writes its local rows
rendezvous     joining, comparing settings and leaving; noticing a lost rank, and reporting the failure that ends all
launch         `--processes`: a command in several processes, through torchrun's agent
"""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)
