"""Decompositions: ways to write the matrices W_r of a convolution with fewer parameters."""

from rgcn.nn.decompositions.base import Cost, Decomposition
from rgcn.nn.decompositions.basis import Basis, OneHotBasisWeights
from rgcn.nn.decompositions.matrices import BlockDiagonal, BlockWeights, Diagonal, Full, MatrixWeights

__all__ = ["Basis", "BlockDiagonal", "BlockWeights", "Cost", "Decomposition", "Diagonal", "Full", "MatrixWeights"]
__all__ += ["OneHotBasisWeights"]
