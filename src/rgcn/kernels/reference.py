"""The primitives in plain PyTorch: the definition every faster implementation is compared with.

Words: a *pair* is a (relation, node) that occurs. Pairs come sorted by node (then `pointer` [nodes + 1] says which
pairs belong to a node) or by relation (then `pointer` [relations + 1] says which pairs belong to a relation).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor


def gather_sum(pointer: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
    """out[i] = Σ_{e = pointer[i] .. pointer[i+1]} value[e] · x[index[e]]

    pointer [rows + 1], index [entries], value [entries] or None (all one), x [n, width] → [rows, width].
    PyTorch's embedding bag is this very sum: on a CPU it is vectorized, prefetches the rows it will read, and runs in
    parallel over rows, so that the order of the additions, and with it every bit, is the same in each run.
    """
    if x.shape[0] == 0 or index.numel() == 0 or x.shape[1] == 0:
        return x.new_zeros(pointer.numel() - 1, x.shape[1])
    return F.embedding_bag(
        index, x.contiguous(), pointer, mode="sum", per_sample_weights=value, include_last_offset=True
    )


def entry_dot(row: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """out[e] = ⟨left[row[e]], right[column[e]]⟩: the gradient of `gather_sum` with respect to its values."""
    chunk = max(1, 2**24 // max(1, left.shape[1]))
    parts = [
        (left.index_select(0, r) * right.index_select(0, c)).sum(-1)
        for r, c in zip(torch.split(row, chunk), torch.split(column, chunk), strict=True)
    ]
    return torch.cat(parts)


def combine_bases(coefficients: Tensor, bases: Tensor, pointer: Tensor, relation: Tensor, node: Tensor) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b, :]

    coefficients [R, B], bases [n, B, width], pairs sorted by node → [pairs, width].
    """
    out = bases.new_zeros(relation.numel(), bases.shape[2])
    for b in range(bases.shape[1]):
        weight = coefficients[:, b].index_select(0, relation).unsqueeze(1)
        out.addcmul_(weight, bases[:, b, :].index_select(0, node))
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pointer: Tensor, relation: Tensor, node: Tensor) -> Tensor:
    """out[n, b, :] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p, :]: the transpose of `combine_bases`.

    rows [pairs, width] → [n, B, width].
    """
    num_nodes, num_bases = pointer.numel() - 1, coefficients.shape[1]
    pairs = torch.arange(relation.numel(), device=rows.device)
    out = rows.new_zeros(num_nodes, num_bases, rows.shape[1])
    for b in range(num_bases):
        out[:, b, :] = gather_sum(pointer, pairs, coefficients[:, b].index_select(0, relation), rows)
    return out


def coefficient_gradient(
    bases: Tensor, rows: Tensor, pointer: Tensor, relation: Tensor, node: Tensor, num_relations: int
) -> Tensor:
    """out[r, b] = Σ_{pairs p of relation r} ⟨bases[node[p], b, :], rows[p, :]⟩ → [R, B]."""
    out = bases.new_zeros(num_relations, bases.shape[1])
    for b in range(bases.shape[1]):
        out[:, b].index_add_(0, relation, (bases[:, b, :].index_select(0, node) * rows).sum(-1))
    return out


def grouped_product(x: Tensor, weight: Tensor, pointer: Tensor, bounds: Sequence[int] | None = None) -> Tensor:
    """out[p, k, :] = x[p, k, :] @ weight[r, k] for each pair p of relation r.

    x [pairs, K, in], weight [R, K, in, out], pairs sorted by relation, pointer [R + 1] → [pairs, K, out]. `bounds` are
    pointer's numbers on the host, if known: asking a GPU for them means waiting for it.
    """
    if weight.shape[2:] == (1, 1):  # a diagonal: no product, a scaling
        counts = pointer[1:] - pointer[:-1]
        return x * torch.repeat_interleave(weight.squeeze(3), counts, dim=0, output_size=x.shape[0])
    out = x.new_empty(x.shape[0], weight.shape[1], weight.shape[3])
    for relation, (begin, end) in _groups(pointer, bounds):
        rows = x[begin:end].transpose(0, 1)  # [K, pairs of r, in]
        out[begin:end] = torch.bmm(rows, weight[relation]).transpose(0, 1)
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pointer: Tensor, bounds: Sequence[int] | None = None) -> Tensor:
    """out[r, k] = Σ_{pairs p of r} x[p, k, :]ᵀ gradient[p, k, :]: the gradient of `grouped_product`'s weight.

    x [pairs, K, in], gradient [pairs, K, out] → [R, K, in, out].
    """
    if x.shape[2] == gradient.shape[2] == 1:
        pairs = torch.arange(x.shape[0], device=x.device)
        return gather_sum(pointer, pairs, None, (x * gradient).flatten(1)).view(-1, x.shape[1], 1, 1)
    out = x.new_zeros(pointer.numel() - 1, x.shape[1], x.shape[2], gradient.shape[2])
    for relation, (begin, end) in _groups(pointer, bounds):
        out[relation] = torch.bmm(x[begin:end].permute(1, 2, 0), gradient[begin:end].transpose(0, 1))
    return out


def _groups(pointer: Tensor, bounds: Sequence[int] | None) -> list[tuple[int, tuple[int, int]]]:
    """(relation, (begin, end)) of each relation that has pairs."""
    bounds = pointer.tolist() if bounds is None else bounds
    return [(r, (b, e)) for r, (b, e) in enumerate(pairwise(bounds)) if e > b]
