"""How triples are scored from node vectors; a decoder a file, behind an interface a page long."""

from rgcn.nn.decoders.base import BatchScores, BilinearDecoder, Decoder
from rgcn.nn.decoders.distmult import DistMult

__all__ = ["BatchScores", "BilinearDecoder", "Decoder", "DistMult"]
