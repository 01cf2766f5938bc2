"""Small modules, a concept a file; none of them knows which task it serves."""

from typing import TYPE_CHECKING

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.decompositions import Basis, BlockDiagonal, Diagonal, Full
from rgcn.nn.initialization import Initializer
from rgcn.nn.relational_encoder import RelationalEncoder
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.nn.rgcn_conv import RGCNConv
from rgcn.system.lazy import lazy_names

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Basis",
    "BlockDiagonal",
    "Diagonal",
    "Full",
    "Initializer",
    "RGCNConv",
    "ReceptiveField",
    "RelationalAdjacency",
    "RelationalEncoder",
    "RelationalGraphConv",
]
