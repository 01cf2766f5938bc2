"""The inner loops of the edge samplers, in numba, with a random generator of one 64-bit word (splitmix64).

The generator is written out here so that a seed means the same edges on every platform and with every version of numpy,
and so that a run's whole sampling state is one integer.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

# Steele, Lea and Flood (2014). All uint64: numba turns a mixture of signed and unsigned integers into floats.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_TWO_32 = np.uint64(1 << 32)


@_jit
def _mixed(z):  # type: ignore[no-untyped-def]
    """A word that looks random, of any word."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@_jit
def below(state, bound):  # type: ignore[no-untyped-def]
    """A uniform integer in 0 .. bound - 1, bound < 2³², exactly uniform (Lemire 2019); divides only in rare cases."""
    n = np.uint64(bound)
    while True:
        state[0] += _GOLDEN
        product = (_mixed(state[0]) >> _32) * n
        low = product & _LOW
        if low >= n or low >= (_TWO_32 - n) % n:
            return np.int64(product >> _32)


@_jit
def neighborhood(state, pointer, incident, starts, seen, picked, frontier, out):  # type: ignore[no-untyped-def]
    """Fill `out` with distinct edges, each a uniform unpicked half-edge among those that touch a seen node.

    incident[pointer[v] : pointer[v + 1]] are the half-edges of node v, each edge · 2³² + node at its other end: one
    number, so that a draw touches one place in memory less. starts holds every node that has an edge. starts, seen [N],
    picked [E] and frontier [2E] are scratch. Every half-edge enters and leaves the frontier at most once.
    """
    seen[:] = False
    picked[:] = False
    filled, unstarted = 0, len(starts)
    for i in range(len(out)):
        while True:
            if filled == 0:
                # All edges of all seen nodes are picked, so a node still has unpicked edges exactly if it is unseen.
                k = below(state, unstarted)
                node = starts[k]
                unstarted -= 1
                starts[k] = starts[unstarted]
                if seen[node]:
                    continue
                seen[node] = True
                for p in range(pointer[node], pointer[node + 1]):
                    frontier[filled] = incident[p]
                    filled += 1
            k = below(state, filled)
            half = frontier[k]
            filled -= 1
            frontier[k] = frontier[filled]
            edge = half >> 32
            # The other half of an edge picked before may still be here: dropping it now leaves the draw uniform.
            if not picked[edge]:
                break
        picked[edge] = True
        out[i] = edge
        other = half & 0xFFFFFFFF
        if not seen[other]:
            seen[other] = True
            for p in range(pointer[other], pointer[other + 1]):
                if incident[p] >> 32 != edge:
                    frontier[filled] = incident[p]
                    filled += 1


@_jit
def uniform(state, deck, swaps, out):  # type: ignore[no-untyped-def]
    """Deal distinct cards from a sorted deck [E], then put it back in order, so that a draw costs O(len(out))."""
    size = len(deck)
    for i in range(len(out)):
        k = i + below(state, size - i)
        swaps[i] = k
        deck[i], deck[k] = deck[k], deck[i]
        out[i] = deck[i]
    for i in range(len(out) - 1, -1, -1):
        deck[i], deck[swaps[i]] = deck[swaps[i]], deck[i]


@_jit
def kept(key, origin, num_triples, rate, loop_rate, out):  # type: ignore[no-untyped-def]
    """out[e]: 0 where edge e is dropped, else 1. It follows from the key and the edge's origin alone: a triple and its
    inverse share their fate, in every layer, and nothing is drawn for edges that nobody asks about."""
    for e in range(len(origin)):
        word = _mixed(_mixed(key + np.uint64(origin[e]) * _GOLDEN) + _GOLDEN)
        least = rate if origin[e] < num_triples else loop_rate
        out[e] = 1.0 if np.float64(word >> np.uint64(11)) * 2.0**-53 >= least else 0.0


@_jit
def fan_out(key, pointer, relation, targets, names, most, edges, factor, ends):  # type: ignore[no-untyped-def]
    """Draw at most so many edges of each target and relation, all sets of them alike; how many edges there are.

    What is drawn for a target follows from the key and its name, a number, alone: whoever draws it, and with whom.

    The edges of a target stand together from pointer[target], sorted by relation. edges, factor: the drawn ones,
    ascending for each target, and how many each stands for, degree / kept. ends [targets]: where each target's end.
    Of a run only its ends are looked for, so that a hub costs no more than its relations.
    """
    filled, state = 0, np.empty(1, dtype=np.uint64)
    for i in range(len(targets)):
        state[0] = _mixed(_mixed(key + np.uint64(names[i]) * _GOLDEN) + _GOLDEN)
        begin, last = pointer[targets[i]], pointer[targets[i] + 1]
        while begin < last:
            width = 1
            while begin + width < last and relation[begin + width] == relation[begin]:
                width *= 2
            # The run ends after begin + width // 2 and not after begin + width.
            low, high = begin + width // 2, min(begin + width, last)
            while low + 1 < high:
                middle = (low + high) // 2
                if relation[middle] == relation[begin]:
                    low = middle
                else:
                    high = middle
            count = high - begin
            keep = min(count, most)
            for k in range(keep):
                # Floyd's: a number of 0 .. count - keep + k, or the last of these where it was drawn before; sorted in.
                place, number = filled + k, begin + k
                if keep < count:
                    number = begin + below(state, count - keep + k + 1)
                    for p in range(filled, filled + k):
                        if edges[p] == number:
                            number = begin + count - keep + k
                            break
                    while place > filled and edges[place - 1] > number:
                        edges[place] = edges[place - 1]
                        place -= 1
                edges[place] = number
                factor[filled + k] = count / keep
            filled += keep
            begin = high
        ends[i] = filled
    return filled
