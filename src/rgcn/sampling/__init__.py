"""What a training step sees: sampled positive edges, corrupted triples, receptive fields of a batch; drawn ahead."""

from rgcn.sampling.edges import EdgeSampler, NeighborhoodEdges, ScatteredEdges, ShuffledEdges, UniformEdges, prefetched
from rgcn.sampling.hidden import HiddenTriples
from rgcn.sampling.negatives import Negatives, SharedNegatives, corrupt, share
from rgcn.sampling.receptive_fields import FieldSampler

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
