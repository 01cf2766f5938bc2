"""What a training step sees: sampled positive edges, corrupted triples, receptive fields of a batch; drawn ahead."""

from rgcn.sampling.edges import EdgeSampler

__all__ = ["EdgeSampler"]
