"""The heart: all the matrices A_r of a graph as one linear operator.

From triples (s, r, o) over N nodes and R relations it makes edges: s → o under r; its inverse o → s under r + R; and
for each node a self-loop under the last relation. H = Σ_r A_r X W_r then sums, for each target node, over its edges.
"""

from rgcn.adjacency.operator import Aggregation, Normalization, RelationalAdjacency
from rgcn.adjacency.receptive_field import ReceptiveField
from rgcn.adjacency.structure import EdgeStructure
from rgcn.kernels.sparse import Pairs

__all__ = ["Aggregation", "EdgeStructure", "Normalization", "Pairs", "ReceptiveField", "RelationalAdjacency"]
