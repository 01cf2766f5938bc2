"""ComplEx (Trouillon et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from rgcn.nn.decoders.bilinear import BilinearDecoder


class ComplEx(BilinearDecoder):
    """The decoder f(s, r, o) = Re(Σ_i s_i r_i ō_i) over complex vectors (+ b_s[s] + b_r[r] + b_o[o] with biases).

    Trouillon et al., "Complex embeddings for simple link prediction", 2016. The complex conjugate ō distinguishes
    subjects from objects: a relation with real r is symmetric, one with imaginary r is antisymmetric.

    A vector `[2 k]` holds the real parts of k complex numbers, then their imaginary parts: `dim` must be even.

    Args: as for `BilinearDecoder`.

    Shapes: node vectors `[n, 2 k]`, relation ids int64 `[n]` → scores `[n]`.

    >>> decoder = ComplEx(num_relations=1, dim=2)
    >>> _ = decoder.relation.data.copy_(torch.tensor([[0.0, 1.0]]))  # r = i
    >>> one, i = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> relation = torch.tensor([0])
    >>> decoder.score(one, relation, i).item(), decoder.score(i, relation, one).item()  # 1·i·(-i), i·i·1
    (1.0, -1.0)
    """

    is_complex = True

    def object_query(self, subject: Tensor, relation: Tensor) -> Tensor:
        """Return s r."""
        return complex_product(subject, relation)

    def subject_query(self, relation: Tensor, object: Tensor) -> Tensor:
        """Return r̄ o, since Re(s r ō) = Re(s · conj(r̄ o))."""
        return complex_product(object, relation, conjugate=True)


def complex_product(x: Tensor, y: Tensor, conjugate: bool = False) -> Tensor:
    """Multiply complex numbers, or by the conjugates of `y`; real parts come first: `[n, 2 k]` each → `[n, 2 k]`.

    >>> complex_product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))  # (1 + 2i)(3 + 4i)
    tensor([[-5., 10.]])
    """
    (a, b), (c, d) = x.tensor_split(2, dim=1), y.tensor_split(2, dim=1)
    if conjugate:
        return torch.cat([a * c + b * d, b * c - a * d], dim=1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=1)
