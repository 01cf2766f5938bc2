"""Decoders: scores of triples from node vectors, for given triples or for a question against all nodes."""

from rgcn.nn.decoders.base import BatchScores, Decoder
from rgcn.nn.decoders.bilinear import BilinearDecoder, QueryDecoder
from rgcn.nn.decoders.complex import ComplEx
from rgcn.nn.decoders.distance import DistanceDecoder
from rgcn.nn.decoders.distmult import DistMult
from rgcn.nn.decoders.rotate import RotatE
from rgcn.nn.decoders.transe import TransE

__all__ = ["BatchScores", "BilinearDecoder", "ComplEx", "Decoder", "DistMult", "DistanceDecoder", "QueryDecoder"]
__all__ += ["RotatE", "TransE"]
