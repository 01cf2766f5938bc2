"""The primitives in plain PyTorch: the definition that every faster implementation is compared with.

Every implementation (`cpu`, `gpu`) has these functions with these signatures. None of them computes gradients:
`operations` does, and every gradient is one of these functions again.

A *pair* is a (relation, node) that occurs among the edges. Pairs are sorted by node (then `pairs.pointer`
[num_nodes + 1] says which pairs belong to a node) or by relation (then it is [num_relations + 1]). Values are in the
order of a pattern's entries.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.kernels.sparse import Pairs, SparsePattern, expanded_ranges

# The most numbers that a gathered copy holds; longer lists are processed in chunks.
MAX_GATHERED = 2**24
# Of `layer_update`: the epsilon of LayerNorm, and the least variance, since a square root has no finite slope at zero.
EPSILON, MIN_VARIANCE = 1e-5, 1e-6


def gather_sum(pattern: SparsePattern, value: Tensor | None, x: Tensor) -> Tensor:
    """out[i] = Σ_{entries e of row i} value[e] · x[column[e]].

    PyTorch's embedding bag is this sum: on a CPU it is vectorized, prefetches rows, and runs in parallel over rows, so
    that the order of the additions, and with it every bit, is the same in each run.

    Args:
        pattern: A matrix [num_rows, num_columns].
        value: [num_entries]; None: all one.
        x: [num_columns, width].

    Returns:
        [num_rows, width].
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
    """out[i] = Σ_{entries e of row i} value[e] · left[index[e]] ⊙ x[column[e]].

    Args:
        pattern: A matrix [num_rows, num_columns].
        value: [num_entries]; None: all one.
        index: Rows of `left`, [num_entries].
        left: [m, x_width]; or narrower, [m, x_width / n], then repeated n times along the row.
        x: [num_columns, x_width].
        width: Fold the sum to this width, a divisor of x_width: add up columns that are `width` apart.
        exact: Kernels that read half precision and sum in float32 return the sum in float32.

    Returns:
        [num_rows, width or x_width].
    """
    out = x.new_zeros(pattern.num_rows, x.shape[1])
    if pattern.num_entries == 0 or x.shape[1] == 0:
        return folded(out, width or x.shape[1])
    left = repeated(left, x.shape[1])
    entries = torch.arange(pattern.num_entries, device=x.device, dtype=pattern.column.dtype)
    row_sums = SparsePattern(pattern.pointer, entries, pattern.num_entries)
    step = max(1, MAX_GATHERED // pattern.num_entries)
    for k in range(0, x.shape[1], step):
        columns = slice(k, k + step)
        product = left[:, columns].index_select(0, index) * x[:, columns].index_select(0, pattern.column)
        out[:, columns] = gather_sum(row_sums, value, product)
    return folded(out, width or x.shape[1])


def repeated(table: Tensor, width: int) -> Tensor:
    """Repeat the table's rows side by side up to the width."""
    return table if table.shape[1] in (0, width) else table.repeat(1, width // table.shape[1])


def folded(rows: Tensor, width: int) -> Tensor:
    """Add up the repeats in rows [n, repeats · width] → [n, width]: the transpose of `repeated`."""
    return rows if rows.shape[1] == width else rows.reshape(len(rows), rows.shape[1] // width, width).sum(1)


def entry_product(i: Tensor, left: Tensor, j: Tensor | None, middle: Tensor | None, k: Tensor, right: Tensor) -> Tensor:
    """out[e] = Σ_w left[i[e], w] · middle[j[e], w] · right[k[e], w], for tables [?, width] and indices [num_entries].

    Without j and middle it is ⟨left[i[e]], right[k[e]]⟩, the gradient of `gather_sum` with respect to its values.
    """
    factors = [(i, left), *([] if j is None or middle is None else [(j, middle)]), (k, right)]
    chunk = max(1, MAX_GATHERED // max(1, left.shape[1]))
    chunks = zip(*(torch.split(index, chunk) for index, _ in factors), strict=True)
    rows = ([table.index_select(0, some) for some, (_, table) in zip(part, factors, strict=True)] for part in chunks)
    return torch.cat([reduce(torch.mul, gathered).sum(-1) for gathered in rows])


def combine_bases(coefficients: Tensor, bases: Tensor, pairs: Pairs) -> Tensor:
    """out[p] = Σ_b coefficients[relation[p], b] · bases[node[p], b, :].

    coefficients [num_relations, num_bases], bases [num_nodes, num_bases, width], pairs sorted by node →
    [num_pairs, width].
    """
    out = bases.new_zeros(len(pairs), bases.shape[2])
    for b in range(bases.shape[1]):
        weight = coefficients[:, b].index_select(0, pairs.relation).unsqueeze(1)
        out.addcmul_(weight, bases[:, b, :].index_select(0, pairs.node))
    return out


def spread_bases(coefficients: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """out[n, b, :] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p, :]: the transpose of `combine_bases`.

    rows [num_pairs, width], pairs sorted by node → [num_nodes, num_bases, width].
    """
    num_nodes, num_bases = pairs.num_nodes, coefficients.shape[1]
    by_node = SparsePattern(pairs.pointer, torch.arange(len(pairs), device=rows.device).int(), len(pairs))
    out = rows.new_zeros(num_nodes, num_bases, rows.shape[1])
    for b in range(num_bases):
        out[:, b, :] = gather_sum(by_node, coefficients[:, b].index_select(0, pairs.relation), rows)
    return out


def coefficient_gradient(bases: Tensor, rows: Tensor, pairs: Pairs) -> Tensor:
    """out[r, b] = Σ_{pairs p of relation r} ⟨bases[node[p], b, :], rows[p, :]⟩.

    Pairs sorted by node → [num_relations, num_bases].
    """
    out = bases.new_zeros(pairs.num_relations, bases.shape[1])
    for b in range(bases.shape[1]):
        product = (bases[:, b, :].index_select(0, pairs.node) * rows).sum(-1, keepdim=True)
        out[:, b] = gather_sum(pairs.by_relation, None, product).squeeze(1)
    return out


def grouped_product(x: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
    """out[p, k, :] = x[p, k, :] @ weight[r, k] for each pair p of relation r.

    x [num_pairs, K, in], weight [num_relations, K, in, out], pairs sorted by relation → [num_pairs, K, out].
    """
    out = x.new_empty(x.shape[0], weight.shape[1], weight.shape[3])
    for relation, (begin, end) in _groups(pairs):
        rows = x[begin:end].transpose(0, 1)  # [K, pairs of r, in]
        out[begin:end] = torch.bmm(rows, weight[relation]).transpose(0, 1)
    return out


def grouped_outer(x: Tensor, gradient: Tensor, pairs: Pairs) -> Tensor:
    """out[r, k] = Σ_{pairs p of r} x[p, k, :]ᵀ gradient[p, k, :]: the gradient of `grouped_product`'s weight.

    x [num_pairs, K, in], gradient [num_pairs, K, out], pairs sorted by relation → [num_relations, K, in, out].
    """
    out = x.new_zeros(pairs.num_relations, x.shape[1], x.shape[2], gradient.shape[2])
    for relation, (begin, end) in _groups(pairs):
        out[relation] = torch.bmm(x[begin:end].permute(1, 2, 0), gradient[begin:end].transpose(0, 1))
    return out


def _groups(pairs: Pairs) -> list[tuple[int, tuple[int, int]]]:
    """Return (relation, (begin, end)) of each relation that has pairs."""
    return [(r, (b, e)) for r, (b, e) in enumerate(pairwise(pairs.bounds)) if e > b]


class FactoredGradient(NamedTuple):
    """The factors of a gradient G[n, b] = Σ_{pairs p of n} coefficients[relation[p], b] · rows[p] of bases."""

    coefficients: Tensor
    rows: Tensor
    pairs: Pairs


class AdamSettings(NamedTuple):
    """Settings of Adam, as in `torch.optim.Adam`."""

    lr: float | Tensor
    betas: tuple[float, float]
    eps: float
    weight_decay: float


def adam_bases(
    table: Tensor, first: Tensor, second: Tensor, step: Tensor, gradient: FactoredGradient, settings: AdamSettings
) -> None:
    """Take one step of Adam on a table, in place, for the gradient G = spread_bases(*gradient).

    g = G + weight_decay · w;  m ← m + (1 − β₁)(g − m);  v ← β₂ v + (1 − β₂) g²
    w ← w − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + eps)

    Other implementations never store G.

    Args:
        table: w, [num_nodes, num_bases, width].
        first: m, like w.
        second: v, like w.
        step: t of this step, a scalar tensor.
        gradient: The factors of G.
        settings: lr, betas, eps and weight_decay.
    """
    lr, betas, eps, weight_decay = settings
    g = spread_bases(*gradient).add_(table.detach(), alpha=weight_decay)
    first.lerp_(g, 1 - betas[0])
    second.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    step = step.to(table.dtype)
    size = lr / (1 - betas[0] ** step)
    root = (second / (1 - betas[1] ** step)).sqrt_().add_(eps)
    table.detach().sub_(first / root * size)


def lazy_adam_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    """Take one step of Adam, with the equations of `adam_bases`, on some rows of a table, in place.

    Args:
        tables: w, m, v [n, width], and t [n]: how many steps each row has taken.
        rows: Sorted and distinct, [num_rows], except that the last row may be repeated as padding, which is skipped.
        gradient: [num_rows, width].
        settings: lr, betas, eps and weight_decay.
    """
    lr, betas, eps, weight_decay = settings
    old, m, v, t = (table.detach().index_select(0, rows) for table in tables)
    g = gradient.add(old, alpha=weight_decay)
    m, v, t = m.lerp(g, 1 - betas[0]), v * betas[1] + (1 - betas[1]) * g.square(), t + 1
    steps = t.double()[:, None]
    size, correction = lr / (1 - betas[0] ** steps), (1 - betas[1] ** steps).sqrt()
    new = old - size.to(old.dtype) * m / (v.sqrt() / correction.to(old.dtype) + eps)
    _put_rows(tables, rows, (new, m, v, t))


def adagrad_rows(tables: Sequence[Tensor], rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
    """Take one step of row-wise Adagrad on some rows, in place.

    g = gradient + weight_decay · w;  a ← a + mean g²;  w ← w − lr · g / (√a + eps)

    Args:
        tables: w [n, width], and a [n], one number per row.
        rows: As in `lazy_adam_rows`.
        gradient: [num_rows, width].
        settings: lr, eps and weight_decay; betas are ignored.
    """
    old, total = (table.detach().index_select(0, rows) for table in tables)
    g = gradient.add(old, alpha=settings.weight_decay)
    total = total + g.square().mean(1)
    _put_rows(tables, rows, (old - settings.lr * g / (total.sqrt() + settings.eps)[:, None], total))


def _put_rows(tables: Sequence[Tensor], rows: Tensor, values: Sequence[Tensor]) -> None:
    """Set table[rows] = values in each table; a repeated row gets its first values again."""
    first = torch.cumsum(torch.cat([rows[:1] == rows[:1], rows[1:] != rows[:-1]]), 0) - 1
    for table, new in zip(tables, values, strict=True):
        table.detach().index_copy_(0, rows, new.index_select(0, first))


def count_ranks(
    scores: Tensor, score: Tensor, first: int, row: Tensor, target: Tensor, begin: Tensor, end: Tensor, answers: Tensor
) -> Tensor:
    """Count, for each triple, what its rank among candidate nodes follows from.

    Args:
        scores: Scores of the nodes first .. first + n for each question, [num_questions, n].
        score: The score of each triple, [num_triples].
        first: The first candidate node.
        row: Each triple's question, [num_triples].
        target: Each triple's answer, a node; it need not be among the candidates.
        begin: Where each triple's other known answers begin in `answers`.
        end: Where they end.
        answers: Known answers, all of them candidates.

    Returns:
        int64 [num_triples, 5]: scores greater than the triple's, scores equal to it (its own included), how many of
        either belong to other known answers, and how many scores are NaN.
    """
    if len(scores) != len(row):
        scores = scores.index_select(0, row)
    own, place = score[:, None], target - first
    counts = torch.zeros(len(row), 5, dtype=torch.int64, device=row.device)
    counts[:, 0] = (scores > own).sum(1)
    counts[:, 1] = (scores == own).sum(1)
    counts[:, 4] = scores.isnan().sum(1)
    # The target counts as equal to the triple, even if its score was rounded differently here.
    is_candidate = (place >= 0) & (place < scores.shape[1])
    target_score = scores.gather(1, place.clamp(0, scores.shape[1] - 1)[:, None])
    counts[:, 0] -= (is_candidate[:, None] & (target_score > own)).squeeze(1).long()
    counts[:, 1] += (is_candidate[:, None] & (target_score != own)).squeeze(1).long()
    triple, position = expanded_ranges(begin, end)
    node = answers[position]
    is_other, value, own = node != target[triple], scores[triple, node - first], own[triple, 0]
    counts[:, 2].index_add_(0, triple, ((value > own) & is_other).long())
    counts[:, 3].index_add_(0, triple, ((value == own) & is_other).long())
    return counts
