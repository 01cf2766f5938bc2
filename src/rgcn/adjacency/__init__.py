"""The adjacency matrices A_r of all relations of a graph, as one linear operator.

Each triple (s, r, o) becomes an edge s → o with relation r and an inverse edge o → s with relation r + R, where R is
the number of relations. Each node gets a self-loop with the last relation. H = Σ_r A_r X W_r then sums over the edges
into each target.
"""

from rgcn.adjacency.operator import Aggregation, Normalization, RelationalAdjacency
from rgcn.adjacency.receptive_field import ReceptiveField
from rgcn.adjacency.structure import EdgeStructure
from rgcn.kernels.sparse import Pairs

__all__ = ["Aggregation", "EdgeStructure", "Normalization", "Pairs", "ReceptiveField", "RelationalAdjacency"]
