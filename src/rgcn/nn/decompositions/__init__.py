"""Ways to write the relations' weight matrices with fewer numbers."""

from rgcn.nn.decompositions.base import Cost, Decomposition
from rgcn.nn.decompositions.basis import Basis, BasisRows
from rgcn.nn.decompositions.matrices import BlockDiagonal, BlockWeights, Diagonal, Full, MatrixWeights

__all__ = [
    "Basis",
    "BasisRows",
    "BlockDiagonal",
    "BlockWeights",
    "Cost",
    "Decomposition",
    "Diagonal",
    "Full",
    "MatrixWeights",
]
