"""The inner loop of ranking on the CPU, in numba: one pass over a row of scores, and no memory but the row's."""

from __future__ import annotations

import numba

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def count(first, last, scores, row, target, begin, end, answers, out):  # type: ignore[no-untyped-def]
    """out[i] = greater, equal, known greater, known equal, not-a-number, for the triples i = first .. last.

    Triple i is scores[row[i], target[i]]; answers[begin[i] : end[i]] are the known answers of its query.
    """
    for i in range(first, last):
        values = scores[row[i]]
        own = values[target[i]]
        greater, equal, strange = 0, 0, 0
        for j in range(scores.shape[1]):
            value = values[j]
            greater += value > own
            equal += value == own
            strange += value != value  # only NaN is not itself
        known_greater, known_equal = 0, 0
        for p in range(begin[i], end[i]):
            if answers[p] != target[i]:
                known_greater += values[answers[p]] > own
                known_equal += values[answers[p]] == own
        out[i, 0] = greater
        out[i, 1] = equal
        out[i, 2] = known_greater
        out[i, 3] = known_equal
        out[i, 4] = strange
