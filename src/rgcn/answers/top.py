"""The k best of each row of scores, known answers marked or left out: exact, ties in the order of the ids."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from rgcn.answers.marks import Marks
from rgcn.errors import DataError

# A list is kept in order by moving its members; of more than these, sorting everything is cheaper.
LONGEST_LIST = 512
# Fewer comparisons than this are done before a second thread has woken up.
WORTH_A_THREAD = 4_000_000


class Best(NamedTuple):
    """The best k of each question, best first; -1, -inf and False where there are fewer. On the CPU.

    node int64 [q, k], score float [q, k], known bool [q, k]
    """

    node: Tensor
    score: Tensor
    known: Tensor


def best_of(
    scores: Tensor,
    k: int,
    marks: Marks,
    *,
    drop_known: bool,
    candidates: Tensor | None = None,
    floor: float = -torch.inf,
) -> Best:
    """The k best columns of each row of scores [q, n].

    marks       what is known of the answers to each row's question; what examples rule out is left out
    drop_known  whether known answers are left out; else they are marked
    candidates  int64 [n], ascending: the nodes that the columns are; by default all nodes in order
    floor       only scores above it count
    """
    k = min(k, scores.shape[1])
    if candidates is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    compiled = _compiled() if scores.device.type == "cpu" and k <= LONGEST_LIST else None
    if compiled is None or scores.dtype not in (torch.float32, torch.float64):
        return _plainly(scores, k, marks, drop_known, candidates, floor)
    return _in_numba(compiled, scores, k, marks, drop_known, candidates, floor)


def _in_numba(
    compiled: ModuleType, scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor, floor: float
) -> Best:
    size = len(scores)
    found = Best(
        torch.empty(size, k, dtype=torch.int64),
        torch.empty(size, k, dtype=scores.dtype),
        torch.empty(size, k, dtype=torch.bool),
    )
    known = (marks.known.node, marks.known_begin, marks.known_end)
    turned = (marks.turned.node, marks.turned_begin, marks.turned_end)
    given = (scores, candidates, *known, *turned, marks.own)
    lowest = scores.new_full((size,), floor)
    arrays: list[Any] = [tensor.contiguous().numpy() for tensor in given]
    arrays += [drop, lowest.numpy(), *[tensor.numpy() for tensor in found]]
    threads = torch.get_num_threads()
    if threads == 1 or scores.numel() < WORTH_A_THREAD:
        strange = compiled.best(0, size, *arrays)
    else:
        cuts = [size * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            strange = sum(pool.map(lambda cut: compiled.best(*cut, *arrays), pairwise(cuts)))
    if strange:
        _refuse_strange()
    return found


def _plainly(scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor, floor: float) -> Best:
    """In PyTorch, on any device."""
    if bool(scores.isnan().any()):
        _refuse_strange()
    known = _mask(scores, candidates, *marks.known_nodes())
    out = (scores <= floor) | (known if drop else _mask(scores, candidates, *marks.ruled_out()) & ~known)
    if drop:
        out |= _mask(scores, candidates, *marks.ruled_out())
    ordered = torch.sort(scores.masked_fill(out, -torch.inf), dim=1, descending=True, stable=True)
    column, score = ordered.indices[:, :k], ordered.values[:, :k]
    nothing = out.gather(1, column)
    return Best(
        candidates[column].masked_fill(nothing, -1).cpu(),
        score.cpu(),
        (known.gather(1, column) & ~nothing).cpu(),
    )


def _mask(scores: Tensor, candidates: Tensor, row: Tensor, node: Tensor) -> Tensor:
    """bool like the scores: true at these nodes of these rows, as far as they are candidates."""
    mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    if len(candidates):
        column = torch.searchsorted(candidates, node).clamp_(max=len(candidates) - 1)
        is_candidate = candidates[column] == node
        mask[row[is_candidate], column[is_candidate]] = True
    return mask


def _refuse_strange() -> NoReturn:
    raise DataError("the scores contain NaN: nothing can be ranked by them; the training has probably diverged")


@cache
def _compiled() -> ModuleType | None:
    """The numba loop; None where numba does not run. Same answers, another speed."""
    try:
        from rgcn.answers import _best
    except ImportError:
        return None
    return _best
