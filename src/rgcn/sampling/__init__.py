"""What a training step sees: sampled positive edges, corrupted triples, receptive fields of a batch; drawn ahead."""

from rgcn.sampling.edges import (
    EdgeSampler,
    FieldSampler,
    NeighborhoodEdges,
    ScatteredEdges,
    ShuffledEdges,
    UniformEdges,
    prefetched,
)
from rgcn.sampling.negatives import HiddenTriples, Negatives, SharedNegatives, corrupt, share

__all__ = [
    "EdgeSampler",
    "FieldSampler",
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
