"""What a training step of link prediction sees: sampled positive edges, corrupted triples, batches made in advance."""

from rgcn.sampling.edges import EdgeSampler, NeighborhoodEdges, UniformEdges
from rgcn.sampling.negatives import Negatives, corrupt
from rgcn.sampling.prefetch import prefetched

__all__ = ["EdgeSampler", "Negatives", "NeighborhoodEdges", "UniformEdges", "corrupt", "prefetched"]
