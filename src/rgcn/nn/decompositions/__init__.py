"""Ways to write the relations' weight matrices with fewer numbers."""

from rgcn.nn.decompositions.base import Cost, Decomposition, OneHotSpace, OneHotWeights, RelationWeights, WeightShape
from rgcn.nn.decompositions.basis import Basis
from rgcn.nn.decompositions.block_diagonal import BlockDiagonal
from rgcn.nn.decompositions.diagonal import Diagonal
from rgcn.nn.decompositions.full import Full

__all__ = [
    "Basis",
    "BlockDiagonal",
    "Cost",
    "Decomposition",
    "Diagonal",
    "Full",
    "OneHotSpace",
    "OneHotWeights",
    "RelationWeights",
    "WeightShape",
]
