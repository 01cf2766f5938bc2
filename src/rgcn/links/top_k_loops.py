"""The inner loop of top-k on the CPU, in numba: one pass over a row of scores, with memory for the k best only."""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

STRIDE = 32


@_jit
def find_best(  # type: ignore[no-untyped-def]
    first, last, scores, candidates, known, known_begin, known_end, is_excluded, drop, node, score, is_known
):
    """Find the best answers to the questions i = first .. last; equal scores in the order of their columns.

    Nearly every score is below the running k-th best. STRIDE scores at a time are compared with it in vector registers,
    and only if one of them passes are they read one by one.

    Args:
        first: The first question.
        last: The question after the last.
        scores: [q, n].
        candidates: [n]: the nodes of the columns, ascending.
        known: As `AnswerMask`; likewise known_begin, known_end and is_excluded.
        known_begin: [q].
        known_end: [q].
        is_excluded: [q, n].
        drop: Leave out known answers.
        node: [q, k]: result, filled up with -1.
        score: [q, k]: result, filled up with -inf.
        is_known: [q, k]: result, filled up with False.

    Returns:
        The number of scores that are NaN.
    """
    k, width = node.shape[1], scores.shape[1]
    num_nan = 0
    for i in range(first, last):
        values, known_here = scores[i], known[known_begin[i] : known_end[i]]
        lowest, filled = scores.dtype.type(-np.inf), 0
        for start in range(0, width, STRIDE):
            stop = min(start + STRIDE, width)
            passes = 0
            if stop - start == STRIDE:
                for j in range(STRIDE):
                    passes |= not values[start + j] <= lowest  # also true of NaN
            else:
                passes = 1
            if passes == 0:
                continue
            for j in range(start, stop):
                value = values[j]
                if value <= lowest:
                    continue
                if value != value:
                    num_nan += 1
                    continue
                candidate = candidates[j]
                at = np.searchsorted(known_here, candidate)
                already_known = at < len(known_here) and known_here[at] == candidate
                if drop if already_known else is_excluded[i, j]:
                    continue
                place = min(filled, k - 1)
                while place > 0 and score[i, place - 1] < value:
                    score[i, place] = score[i, place - 1]
                    node[i, place] = node[i, place - 1]
                    is_known[i, place] = is_known[i, place - 1]
                    place -= 1
                score[i, place] = value
                node[i, place] = candidate
                is_known[i, place] = already_known
                filled = min(filled + 1, k)
                if filled == k:
                    lowest = score[i, k - 1]
        score[i, filled:] = -np.inf
        node[i, filled:] = -1
        is_known[i, filled:] = False
    return num_nan
