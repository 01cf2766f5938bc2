"""What a training step of link prediction sees: sampled positive edges, corrupted triples, batches made in advance."""

from rgcn.sampling.edges import EdgeSampler, NeighborhoodEdges, UniformEdges, prefetched
from rgcn.sampling.negatives import Negatives, corrupt

__all__ = ["EdgeSampler", "Negatives", "NeighborhoodEdges", "UniformEdges", "corrupt", "prefetched"]
