"""Neural network modules: the relational graph convolution, encoders and decoders, and what they are made of.

`RelationalGraphConv` is the convolution of all networks; `RGCNConv` has the arguments of PyTorch Geometric's layer.
"""

from typing import TYPE_CHECKING

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.nn.decoders import BatchScores, BilinearDecoder, Decoder, DistMult
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

__all__ = ["Basis", "BatchScores", "BilinearDecoder", "BlockDiagonal", "CRGCNEncoder", "ConvolutionHead", "Decoder"]
__all__ += ["Decomposition", "Diagonal", "DistMult", "ERGCNEncoder", "Encoder", "Full", "Head", "Initializer"]
__all__ += ["LinearHead", "LinearMessages", "LinkNetwork", "LookupEncoder", "MessageFunction", "NodeEmbedding"]
__all__ += ["NodeFeatures", "NodeNetwork", "PathEncoder", "PathNetwork", "PopularityEncoder", "PopularityNetwork"]
__all__ += ["Questions", "RGCNConv", "RGCNEncoder", "ReceptiveField", "RelationalAdjacency", "RelationalEncoder"]
__all__ += ["RelationalGraphConv", "Scorer", "UniversalEncoder", "UniversalNetwork", "VectorEncoder", "VectorNetwork"]
