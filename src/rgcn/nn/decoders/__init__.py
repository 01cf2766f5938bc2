"""Decoders: from the vectors of two nodes and a relation to a score. One file each."""

from rgcn.nn.decoders.base import BilinearDecoder, Decoder
from rgcn.nn.decoders.distmult import DistMult

__all__ = ["BilinearDecoder", "Decoder", "DistMult"]
