"""Neural network modules: the relational graph convolution, encoders and decoders, and what they are made of.

`RelationalGraphConv` is the convolution of all networks; `RGCNConv` has the arguments of PyTorch Geometric's layer.
"""

from typing import TYPE_CHECKING

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.decoders import (
    BatchScores,
    BilinearDecoder,
    ComplEx,
    Decoder,
    DistanceDecoder,
    DistMult,
    QueryDecoder,
    RotatE,
    TransE,
)
from rgcn.nn.decompositions import Basis, BlockDiagonal, Decomposition, Diagonal, Full
from rgcn.nn.encoders import CRGCNEncoder, Encoder, ERGCNEncoder, LookupEncoder, RGCNEncoder, VectorEncoder
from rgcn.nn.initialization import Initializer
from rgcn.nn.link_network import LinkNetwork, VectorNetwork
from rgcn.nn.path_network import PathEncoder, PathNetwork
from rgcn.nn.popularity import PopularityEncoder, PopularityNetwork
from rgcn.nn.relational_encoder import ConvolutionHead, Head, LinearHead, NodeNetwork, RelationalEncoder
from rgcn.nn.relational_graph_conv import LinearMessages, MessageFunction, RelationalGraphConv
from rgcn.nn.rgcn_conv import RGCNConv
from rgcn.nn.row_tables import NodeEmbedding, NodeFeatures
from rgcn.nn.scorer import Questions, Scorer
from rgcn.nn.universal_network import UniversalEncoder, UniversalNetwork
from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)

__all__ = ["Basis", "BatchScores", "BilinearDecoder", "BlockDiagonal", "CRGCNEncoder", "ComplEx", "ConvolutionHead"]
__all__ += ["Decoder", "Decomposition", "Diagonal", "DistMult", "DistanceDecoder", "ERGCNEncoder", "Encoder", "Full"]
__all__ += ["Head", "Initializer", "LinearHead", "LinearMessages", "LinkNetwork", "LookupEncoder", "MessageFunction"]
__all__ += ["NodeEmbedding", "NodeFeatures", "NodeNetwork", "PathEncoder", "PathNetwork", "PopularityEncoder"]
__all__ += ["PopularityNetwork", "QueryDecoder", "Questions", "RGCNConv", "RGCNEncoder", "ReceptiveField"]
__all__ += ["RelationalAdjacency", "RelationalEncoder", "RelationalGraphConv", "RotatE", "Scorer", "TransE"]
__all__ += ["UniversalEncoder", "UniversalNetwork", "VectorEncoder", "VectorNetwork"]
