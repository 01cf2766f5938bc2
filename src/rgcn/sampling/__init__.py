"""What a training step of link prediction sees: sampled positive edges, corrupted triples, batches made in advance."""

from rgcn.sampling.edges import EdgeSampler, NeighborhoodEdges, ScatteredEdges, ShuffledEdges, UniformEdges, prefetched
from rgcn.sampling.hidden import HiddenTriples
from rgcn.sampling.negatives import Negatives, SharedNegatives, corrupt, share

__all__ = [
    "EdgeSampler",
    "HiddenTriples",
    "Negatives",
    "NeighborhoodEdges",
    "ScatteredEdges",
    "SharedNegatives",
    "ShuffledEdges",
    "UniformEdges",
    "corrupt",
    "prefetched",
    "share",
]
