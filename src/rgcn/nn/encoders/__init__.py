"""How a graph becomes vectors; an encoder a file, behind an interface a page long."""

from rgcn.nn.encoders.base import Encoder, VectorEncoder

__all__ = ["Encoder", "VectorEncoder"]
