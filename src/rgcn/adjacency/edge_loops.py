"""Edges put in their order where they will stay, in numba: nothing is held beside them, whatever the size of the graph.

Loaded for graphs worth compiling for; `edge_order` says the same in PyTorch.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

FEW = 32  # edges into a target that are put in order one by one


@_jit
def fill_edges(triples, num_relations, inverse, self_loops, pointer, relation, source, origin):  # type: ignore[no-untyped-def]
    """Write every edge to its target's place, along triples first, then against them, then the self-loops.

    pointer [N + 1] must be zero; it will say where each target's edges begin.
    """
    num_nodes, loop = len(pointer) - 1, num_relations * (2 if inverse else 1)
    for t in range(len(triples)):
        pointer[triples[t, 2] + 1] += 1
        if inverse:
            pointer[triples[t, 0] + 1] += 1
    for n in range(num_nodes):
        pointer[n + 1] += pointer[n] + (1 if self_loops else 0)
    place = pointer[:-1].copy()
    for backwards in range(2 if inverse else 1):
        for t in range(len(triples)):
            node = triples[t, 0] if backwards else triples[t, 2]
            at = place[node]
            place[node] += 1
            relation[at] = triples[t, 1] + backwards * num_relations
            source[at] = triples[t, 2] if backwards else triples[t, 0]
            origin[at] = t
    if self_loops:
        for n in range(num_nodes):
            at = place[n]
            source[at] = n
            relation[at] = loop
            origin[at] = len(triples) + n


@_jit
def sort_rows(pointer, num_sources, relation, source, origin):  # type: ignore[no-untyped-def]
    """Put each target's edges in the order of relation and source; equal ones stay as they stand."""
    for n in range(len(pointer) - 1):
        begin, end = pointer[n], pointer[n + 1]
        if end - begin <= FEW:
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
def share_of_run(pointer, relation, weight):  # type: ignore[no-untyped-def]
    """weight [E]: one over how many edges have the same target and relation."""
    for n in range(len(pointer) - 1):
        begin = pointer[n]
        while begin < pointer[n + 1]:
            end = begin + 1
            while end < pointer[n + 1] and relation[end] == relation[begin]:
                end += 1
            weight[begin:end] = np.float32(1.0) / np.float32(end - begin)
            begin = end
