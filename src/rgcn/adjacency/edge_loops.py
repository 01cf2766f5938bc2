"""Loops that write edges to their place and sort them there, in numba, without extra memory for large graphs.

`operator.sort_edges` does the same in PyTorch, for graphs that are too small to compile loops for.
"""

# mypy: disable-error-code="no-untyped-def"

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

MAX_INSERTION_SORT = 32  # edges into a target that are sorted by insertion


@_jit
def fill_edges(triples, num_relations, inverse, self_loops, pointer, relation, source, origin):
    """Write every edge to its target's place: along triples first, then inverses, then self-loops.

    pointer [num_nodes + 1] must be zero on entry; afterwards it says where each target's edges begin.
    """
    num_nodes, loop = len(pointer) - 1, num_relations * (2 if inverse else 1)
    for t in range(len(triples)):
        pointer[triples[t, 2] + 1] += 1
        if inverse:
            pointer[triples[t, 0] + 1] += 1
    for n in range(num_nodes):
        pointer[n + 1] += pointer[n] + (1 if self_loops else 0)
    place = pointer[:-1].copy()
    for is_inverse in range(2 if inverse else 1):
        for t in range(len(triples)):
            node = triples[t, 0] if is_inverse else triples[t, 2]
            at = place[node]
            place[node] += 1
            relation[at] = triples[t, 1] + is_inverse * num_relations
            source[at] = triples[t, 2] if is_inverse else triples[t, 0]
            origin[at] = t
    if self_loops:
        for n in range(num_nodes):
            at = place[n]
            source[at] = n
            relation[at] = loop
            origin[at] = len(triples) + n


@_jit
def sort_rows(pointer, num_sources, relation, source, origin):
    """Sort each target's edges by relation and source; equal ones keep their order."""
    for n in range(len(pointer) - 1):
        begin, end = pointer[n], pointer[n + 1]
        if end - begin <= MAX_INSERTION_SORT:
            for i in range(begin + 1, end):
                r, s, o = relation[i], source[i], origin[i]
                at = i
                while at > begin and (relation[at - 1] > r or (relation[at - 1] == r and source[at - 1] > s)):
                    relation[at], source[at], origin[at] = relation[at - 1], source[at - 1], origin[at - 1]
                    at -= 1
                relation[at], source[at], origin[at] = r, s, o
            continue
        key = relation[begin:end].astype(np.int64) * num_sources + source[begin:end]
        order = np.argsort(key, kind="mergesort")
        relation[begin:end] = relation[begin:end][order]
        source[begin:end] = source[begin:end][order]
        origin[begin:end] = origin[begin:end][order]


@_jit
def run_weights(pointer, relation, weight):
    """Set weight [num_edges] to one over the number of edges with the same target and relation."""
    for n in range(len(pointer) - 1):
        begin = pointer[n]
        while begin < pointer[n + 1]:
            end = begin + 1
            while end < pointer[n + 1] and relation[end] == relation[begin]:
                end += 1
            weight[begin:end] = np.float32(1.0) / np.float32(end - begin)
            begin = end
