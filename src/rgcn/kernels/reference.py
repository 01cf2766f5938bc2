"""The primitives in plain PyTorch: the definition every faster implementation is compared with.

Every implementation has these functions with these signatures. None of them knows of gradients: `operations` does, and
every gradient is one of these functions again.

Words: a *pair* is a (relation, node) that occurs. Pairs come sorted by node (then `pairs.pointer` [nodes + 1] says
which pairs belong to a node) or by relation (then it is [relations + 1]). Values are in the order of a pattern's
entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.kernels.sparse import Pairs, SparsePattern

# Numbers that a gathered copy may hold at once; longer lists are taken in chunks.
CHUNK = 2**24
# Of a path layer's update: LayerNorm's, and from where variances count, for a root's slope has no bound at zero.
EPSILON, LEAST_VARIANCE = 1e-5, 1e-6


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    """out[i] = Σ_{entries e of row i} value[e] · x[column[e]]

    value [entries] or None (all one), x [columns, width] → [rows, width].
    PyTorch's embedding bag is this very sum: on a CPU it is vectorized, prefetches the rows it will read, and runs in
    parallel over rows, so that the order of the additions, and with it every bit, is the same in each run.
    """
    if x.shape[0] == 0 or pattern.num_entries == 0 or x.shape[1] == 0:
        return x.new_zeros(pattern.num_rows, x.shape[1])
    pointer = pattern.pointer.to(pattern.column.dtype)
    return F.embedding_bag(
        pattern.column, x.contiguous(), pointer, mode="sum", per_sample_weights=value, include_last_offset=True
    )


def gather_product_sum(
    pattern: SparsePattern,
    value: Tensor | None,
    index: Tensor,
    left: Tensor,
    x: Tensor,
    width: int | None = None,
    exact: bool = False,
) -> Tensor:
    """out[i] = Σ_{entries e of row i} value[e] · left[index[e]] ⊙ x[column[e]]

    value [entries] or None, index [entries], left [m, width], x [columns, width] → [rows, width]. A narrower `left`
    [m, width / n] is repeated n times along the row.

    width  fold the sum to so many columns, which divide those of x
    exact  kernels that take half precision and sum in float32 do not round the sum
    """
    out = x.new_zeros(pattern.num_rows, x.shape[1])
    if pattern.num_entries == 0 or x.shape[1] == 0:
        return folded(out, width or x.shape[1])
    left = repeated(left, x.shape[1])
    # A column at a time: then the products are one number an entry, and the sum is gather_sum's.
    entries = torch.arange(pattern.num_entries, device=x.device, dtype=pattern.column.dtype)
    summing = SparsePattern(pattern.pointer, entries, pattern.num_entries)
    step = max(1, CHUNK // pattern.num_entries)
    for k in range(0, x.shape[1], step):
        columns = slice(k, k + step)
        product = left[:, columns].index_select(0, index) * x[:, columns].index_select(0, pattern.column)
        out[:, columns] = gather_sum(summing, value, product)
    return folded(out, width or x.shape[1])


def repeated(table: Tensor, width: int) -> Tensor:
    """The table's rows, as often side by side as make up the width."""
    return table if table.shape[1] in (0, width) else table.repeat(1, width // table.shape[1])


def folded(rows: Tensor, width: int) -> Tensor:
    """The transpose of `repeated`: rows [n, repeats · width] → [n, width]."""
    return rows if rows.shape[1] == width else rows.reshape(len(rows), rows.shape[1] // width, width).sum(1)


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    """out[e] = Σ_w left[i[e], w] · middle[j[e], w] · right[k[e], w]. [entries]

    Without j and middle, ⟨left[i[e]], right[k[e]]⟩: the gradient of `gather_sum` with respect to its values.
    """
    factors = [(i, left), *([] if j is None or middle is None else [(j, middle)]), (k, right)]
    chunk = max(1, CHUNK // max(1, left.shape[1]))
    chunks = zip(*(torch.split(index, chunk) for index, _ in factors), strict=True)
    rows = ([table.index_select(0, some) for some, (_, table) in zip(part, factors, strict=True)] for part in chunks)
    return torch.cat([reduce(torch.mul, gathered).sum(-1) for gathered in rows])


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b, :]

    coefficients [R, B], bases [n, B, width], pairs sorted by node → [pairs, width].
    """
    out = bases.new_zeros(len(pairs), bases.shape[2])
    for b in range(bases.shape[1]):
        weight = coefficients[:, b].index_select(0, pairs.relation).unsqueeze(1)
        out.addcmul_(weight, bases[:, b, :].index_select(0, pairs.node))
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """out[n, b, :] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p, :]: the transpose of `combine_bases`.

    rows [pairs, width], pairs sorted by node → [n, B, width].
    """
    num_nodes, num_bases = pairs.num_nodes, coefficients.shape[1]
    of_node = SparsePattern(pairs.pointer, torch.arange(len(pairs), device=rows.device).int(), len(pairs))
    out = rows.new_zeros(num_nodes, num_bases, rows.shape[1])
    for b in range(num_bases):
        out[:, b, :] = gather_sum(of_node, coefficients[:, b].index_select(0, pairs.relation), rows)
    return out


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """out[r, b] = Σ_{pairs p of relation r} ⟨bases[node[p], b, :], rows[p, :]⟩ → [R, B]; pairs sorted by node."""
    out = bases.new_zeros(pairs.num_relations, bases.shape[1])
    for b in range(bases.shape[1]):
        product = (bases[:, b, :].index_select(0, pairs.node) * rows).sum(-1, keepdim=True)
        out[:, b] = gather_sum(pairs.by_relation, None, product).squeeze(1)
    return out


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    """out[p, k, :] = x[p, k, :] @ weight[r, k] for each pair p of relation r.

    x [pairs, K, in], weight [R, K, in, out], pairs sorted by relation → [pairs, K, out].
    """
    out = x.new_empty(x.shape[0], weight.shape[1], weight.shape[3])
    for relation, (begin, end) in _groups(pairs):
        rows = x[begin:end].transpose(0, 1)  # [K, pairs of r, in]
        out[begin:end] = torch.bmm(rows, weight[relation]).transpose(0, 1)
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    """out[r, k] = Σ_{pairs p of r} x[p, k, :]ᵀ gradient[p, k, :]: the gradient of `grouped_product`'s weight.

    x [pairs, K, in], gradient [pairs, K, out], pairs sorted by relation → [R, K, in, out].
    """
    out = x.new_zeros(pairs.num_relations, x.shape[1], x.shape[2], gradient.shape[2])
    for relation, (begin, end) in _groups(pairs):
        out[relation] = torch.bmm(x[begin:end].permute(1, 2, 0), gradient[begin:end].transpose(0, 1))
    return out


def _groups(pairs: Pairs) -> list[tuple[int, tuple[int, int]]]:
    """(relation, (begin, end)) of each relation that has pairs."""
    return [(r, (b, e)) for r, (b, e) in enumerate(pairwise(pairs.bounds)) if e > b]


class FactoredGradient(NamedTuple):
    """A gradient G[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p] that nobody has written out yet."""

    coefficients: Tensor
    rows: Tensor
    pairs: Pairs


class AdamSettings(NamedTuple):
    lr: float | Tensor
    betas: tuple[float, float]
    eps: float
    weight_decay: float


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    """One step of Adam on table [n, B, width], in place, for the gradient G = spread_bases(*gradient).

    g = G + weight_decay · w;  m ← m + (1 − β₁)(g − m);  v ← β₂ v + (1 − β₂) g²
    w ← w − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + eps)

    first, second: m and v; step: t of this step, a scalar tensor. Other implementations never write G out.
    """
    lr, betas, eps, weight_decay = settings
    written = spread_bases(*gradient).add_(table.detach(), alpha=weight_decay)
    first.lerp_(written, 1 - betas[0])
    second.mul_(betas[1]).addcmul_(written, written, value=1 - betas[1])
    step = step.to(table.dtype)
    size = lr / (1 - betas[0] ** step)
    root = (second / (1 - betas[1] ** step)).sqrt_().add_(eps)
    table.detach().sub_(first / root * size)


def lazy_adam_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    """`adam_bases`' equations for some rows [m] of tables w, m, v [n, width] and t [n], a row's own count, in place.

    rows are sorted and distinct, but for the last, which may stand again until the end: there nothing is done.
    """
    lr, betas, eps, weight_decay = settings
    old, m, v, t = (table.detach().index_select(0, rows) for table in tables)
    written = gradient.add(old, alpha=weight_decay)
    m, v, t = m.lerp(written, 1 - betas[0]), v * betas[1] + (1 - betas[1]) * written.square(), t + 1
    taken = t.double()[:, None]
    size, correction = lr / (1 - betas[0] ** taken), (1 - betas[1] ** taken).sqrt()
    new = old - size.to(old.dtype) * m / (v.sqrt() / correction.to(old.dtype) + eps)
    _put_rows(tables, rows, (new, m, v, t))


def adagrad_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    """Row-wise Adagrad on rows, as above, of tables w [n, width] and a [n], one number a row; betas mean nothing.

    g = gradient + weight_decay · w;  a ← a + mean g²;  w ← w − lr · g / (√a + eps)
    """
    old, total = (table.detach().index_select(0, rows) for table in tables)
    written = gradient.add(old, alpha=settings.weight_decay)
    total = total + written.square().mean(1)
    _put_rows(tables, rows, (old - settings.lr * written / (total.sqrt() + settings.eps)[:, None], total))


def _put_rows(tables: Sequence[Tensor], rows: Tensor, values: Sequence[Tensor]) -> None:
    """table[rows] = values, for each; where a row stands again, its first values are written again."""
    first = torch.cumsum(torch.cat([rows[:1] == rows[:1], rows[1:] != rows[:-1]]), 0) - 1
    for table, new in zip(tables, values, strict=True):
        table.detach().index_copy_(0, rows, new.index_select(0, first))


def count_ranks(
    scores: Tensor, own: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    """int64 [c, 5]: scores greater than the triple's own, equal to it (itself among them), how many of either are
    other known answers, and how many scores are NaN.

    Triple i has the score own[i], and stands among scores [u, n] of the nodes first .. first + n in row[i]; or nowhere,
    if its target is another node. Known answers among these nodes are answers[begin[i] : end[i]].
    """
    if len(scores) != len(row):
        scores = scores.index_select(0, row)
    own, count, place = own[:, None], end - begin, target - first
    counts = torch.zeros(len(row), 5, dtype=torch.int64, device=row.device)
    counts[:, 0] = (scores > own).sum(1)
    counts[:, 1] = (scores == own).sum(1)
    counts[:, 4] = scores.isnan().sum(1)
    there = (place >= 0) & (place < scores.shape[1])
    itself = scores.gather(1, place.clamp(0, scores.shape[1] - 1)[:, None])
    counts[:, 0] -= (there[:, None] & (itself > own)).squeeze(1).long()
    counts[:, 1] += (there[:, None] & (itself != own)).squeeze(1).long()
    of = torch.repeat_interleave(count)  # the triple that each known answer is for
    node = answers[torch.arange(len(of), device=of.device) + (begin - torch.cumsum(count, 0) + count)[of]]
    other, value, own = node != target[of], scores[of, node - first], own[of, 0]
    counts[:, 2].index_add_(0, of, ((value > own) & other).long())
    counts[:, 3].index_add_(0, of, ((value == own) & other).long())
    return counts
