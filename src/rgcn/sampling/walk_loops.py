"""The inner loops of the samplers, in numba, with a random generator whose state is one 64-bit word (splitmix64).

The generator is implemented here so that a seed gives the same edges on every platform and with every version of NumPy,
and so that the whole sampling state of a run is one integer.
"""

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

# Steele, Lea and Flood (2014). All are uint64: numba converts mixed signed and unsigned integers to floats.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_TWO_32 = np.uint64(1 << 32)


@_jit
def _mix(z):  # type: ignore[no-untyped-def]
    """Return the splitmix64 hash of a word."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@_jit
def below(state, bound):  # type: ignore[no-untyped-def]
    """Draw an exactly uniform integer in 0 .. bound - 1, bound < 2³² (Lemire 2019); divides only in rare cases."""
    n = np.uint64(bound)
    while True:
        state[0] += _GOLDEN
        product = (_mix(state[0]) >> _32) * n
        low = product & _LOW
        if low >= n or low >= (_TWO_32 - n) % n:
            return np.int64(product >> _32)


@_jit
def draw_neighborhood(state, pointer, incident, starts, visited, picked, frontier, out):  # type: ignore[no-untyped-def]
    """Fill `out` with distinct edges, each a uniform unpicked half-edge among those that touch a visited node.

    Every half-edge enters and leaves the frontier at most once.

    Args:
        state: The state of the random generator.
        pointer: [N + 1]: the half-edges of node v are incident[pointer[v] : pointer[v + 1]].
        incident: Edge · 2³² + node at its other end. One number, so that a draw reads one place in memory less.
        starts: Every node that has an edge; is shuffled.
        visited: Scratch [N].
        picked: Scratch [E].
        frontier: Scratch [2E].
        out: Result.
    """
    visited[:] = False
    picked[:] = False
    filled, unstarted = 0, len(starts)
    for i in range(len(out)):
        while True:
            if filled == 0:
                # All edges of all visited nodes are picked, so only unvisited nodes have unpicked edges.
                k = below(state, unstarted)
                node = starts[k]
                unstarted -= 1
                starts[k] = starts[unstarted]
                if visited[node]:
                    continue
                visited[node] = True
                for p in range(pointer[node], pointer[node + 1]):
                    frontier[filled] = incident[p]
                    filled += 1
            k = below(state, filled)
            half = frontier[k]
            filled -= 1
            frontier[k] = frontier[filled]
            edge = half >> 32
            # The other half of a picked edge may still be in the frontier. Dropping it now keeps the draw uniform.
            if not picked[edge]:
                break
        picked[edge] = True
        out[i] = edge
        other = half & 0xFFFFFFFF
        if not visited[other]:
            visited[other] = True
            for p in range(pointer[other], pointer[other + 1]):
                if incident[p] >> 32 != edge:
                    frontier[filled] = incident[p]
                    filled += 1


@_jit
def draw_uniform(state, deck, swaps, out):  # type: ignore[no-untyped-def]
    """Draw distinct numbers from a sorted deck [E], then restore its order, so that a draw takes O(len(out))."""
    size = len(deck)
    for i in range(len(out)):
        k = i + below(state, size - i)
        swaps[i] = k
        deck[i], deck[k] = deck[k], deck[i]
        out[i] = deck[i]
    for i in range(len(out) - 1, -1, -1):
        deck[i], deck[swaps[i]] = deck[swaps[i]], deck[i]


@_jit
def draw_mask(key, origin, num_triples, rate, loop_rate, out):  # type: ignore[no-untyped-def]
    """Set out[e] to 0 if edge e is dropped, else to 1.

    The draw follows from the key and the origin of the edge alone. A triple and its inverse edge have the same origin
    and are dropped together, in every layer, and only the edges that are needed are drawn.
    """
    for e in range(len(origin)):
        word = _mix(_mix(key + np.uint64(origin[e]) * _GOLDEN) + _GOLDEN)
        least = rate if origin[e] < num_triples else loop_rate
        out[e] = 1.0 if np.float64(word >> np.uint64(11)) * 2.0**-53 >= least else 0.0


@_jit
def draw_fan_out(key, pointer, relation, targets, names, most, edges, factor, ends):  # type: ignore[no-untyped-def]
    """Draw at most `most` edges of each target and relation; all sets of them are equally likely.

    The edges of a target are adjacent and sorted by relation. The end of a run of one relation is found by search, so
    that a hub costs no more than its relations. The draw for a target follows from the key and its name alone, in
    whichever process and batch.

    Args:
        key: Seed of the draws.
        pointer: The edges of a target begin at pointer[target].
        relation: Relation of each edge.
        targets: Rows of the targets.
        names: A number for each target that is the same in all processes.
        most: Maximum number of edges per target and relation.
        edges: Result: the drawn edges, ascending for each target.
        factor: Result: degree / drawn of each edge.
        ends: Result [targets]: where the edges of each target end.

    Returns:
        The number of drawn edges.
    """
    filled, state = 0, np.empty(1, dtype=np.uint64)
    for i in range(len(targets)):
        state[0] = _mix(_mix(key + np.uint64(names[i]) * _GOLDEN) + _GOLDEN)
        begin, last = pointer[targets[i]], pointer[targets[i] + 1]
        while begin < last:
            width = 1
            while begin + width < last and relation[begin + width] == relation[begin]:
                width *= 2
            # The run ends after begin + width // 2, at begin + width at the latest.
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
                # Floyd's algorithm: draw from 0 .. count - keep + k, or take the last if it was drawn before. Keep
                # sorted.
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
