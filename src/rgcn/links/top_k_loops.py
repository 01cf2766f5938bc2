"""The inner loop of top-k on the CPU, in numba: one pass over a row of scores, and no memory but the k best."""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

STRIDE = 32


@_jit
def _is_in(nodes, first, last, wanted):  # type: ignore[no-untyped-def]
    """Whether nodes[first : last], ascending, has the wanted one."""
    a, b = first, last
    while a < b:
        middle = (a + b) >> 1
        if nodes[middle] < wanted:
            a = middle + 1
        else:
            b = middle
    return a < last and nodes[a] == wanted


@_jit
def best(  # type: ignore[no-untyped-def]
    first, last, scores, candidates, known, known_begin, known_end, out, drop, node, score, is_known
):
    """The best answers of the questions i = first .. last, best first, equal scores in the order of their columns.

    scores[i]                   a score for each candidate; candidate j is the node candidates[j], ascending
    known, out                  see `Marks`; known answers are left out where `drop`, those that rules forbid always
    node, score, is_known [i]   what is found: filled up with -1, -inf, False. Returns how many scores were no number.

    A running k-th best makes nearly every score too low to be looked at: STRIDE of them are compared at once, in
    vector registers, and only where one passes are they read one by one.
    """
    k, width = node.shape[1], scores.shape[1]
    strange = 0
    for i in range(first, last):
        values = scores[i]
        low, found = scores.dtype.type(-np.inf), 0
        for start in range(0, width, STRIDE):
            stop = min(start + STRIDE, width)
            passes = 0
            if stop - start == STRIDE:
                for j in range(STRIDE):
                    passes |= not values[start + j] <= low  # also true of NaN
            else:
                passes = 1
            if passes == 0:
                continue
            for j in range(start, stop):
                value = values[j]
                if value <= low:
                    continue
                if value != value:
                    strange += 1
                    continue
                candidate = candidates[j]
                already = _is_in(known, known_begin[i], known_end[i], candidate)
                if already:
                    if drop:
                        continue
                elif out[i, j]:
                    continue
                place = min(found, k - 1)
                while place > 0 and score[i, place - 1] < value:
                    score[i, place] = score[i, place - 1]
                    node[i, place] = node[i, place - 1]
                    is_known[i, place] = is_known[i, place - 1]
                    place -= 1
                score[i, place] = value
                node[i, place] = candidate
                is_known[i, place] = already
                found = min(found + 1, k)
                if found == k:
                    low = score[i, k - 1]
        for place in range(found, k):
            score[i, place] = -np.inf
            node[i, place] = -1
            is_known[i, place] = False
    return strange
