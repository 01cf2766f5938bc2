"""Relations that say the same as others, the same way round or the other: what leaks from one into the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

AT_A_TIME = 1 << 22  # meetings of two relations in one pair of nodes, counted at once


class RelationOverlap(NamedTuple):
    """`other` holds a `share` of the pairs of nodes of `relation`; `inverse`: the other way round."""

    relation: int
    other: int
    share: float
    inverse: bool


def relation_overlaps(
    triples: NDArray[np.int64], num_relations: int, *, above: float = 0.5, of: Sequence[int] | None = None
) -> list[RelationOverlap]:
    """Every two relations of which the second holds more than that share of the first's pairs of nodes.

    share(r, q) = |{(s, o) : (s, r, o) and (s, q, o)}| / |{(s, o) : (s, r, o)}|; `inverse`: with (o, q, s). A symmetric
    relation is its own inverse. The share is one of the first relation: of a small one inside a large one, only
    (small, large) may be listed. `of`: only where the first is one of these. Triples that recur count once.

    >>> triples = np.array([[0, 0, 1], [2, 0, 3], [1, 1, 0], [3, 1, 2], [4, 1, 5]])
    >>> relation_overlaps(triples, 2)[0]
    RelationOverlap(relation=0, other=1, share=1.0, inverse=True)
    """
    if not len(triples):
        return []
    subject, relation, object_ = triples.T
    num_nodes = int(triples[:, [0, 2]].max()) + 1
    forward = subject * num_nodes + object_
    order = np.lexsort((relation, forward))
    order = order[np.append(True, (np.diff(forward[order]) != 0) | (np.diff(relation[order]) != 0))]
    subject, relation, object_, forward = subject[order], relation[order], object_[order], forward[order]
    codes, start = np.unique(forward, return_index=True)  # `relation` holds those of each pair of nodes side by side
    holders = np.diff(np.append(start, len(relation)))
    size = np.bincount(relation, minlength=num_relations)

    asking = np.argsort(relation, kind="stable")
    if of is not None:
        asking = asking[np.isin(relation[asking], of)]
    found = []
    for inverse, code in ((False, forward), (True, object_ * num_nodes + subject)):
        pair = np.minimum(np.searchsorted(codes, code[asking]), len(codes) - 1)
        there = codes[pair] == code[asking]
        pair, first = pair[there], relation[asking][there]
        # Cut between relations. One relation meets at most every triple once: a part is bounded by both.
        until = np.cumsum(holders[pair])
        last_of = np.flatnonzero(np.diff(first, append=-1))
        cuts = last_of[np.flatnonzero(np.diff(until[last_of] // AT_A_TIME, append=-1))] + 1
        for begin, end in pairwise([0, *cuts.tolist()]):
            here, many = pair[begin:end], holders[pair[begin:end]]
            place = np.arange(many.sum()) + np.repeat(start[here] - np.cumsum(many) + many, many)
            met = np.repeat(first[begin:end], many) * num_relations + relation[place]
            both, shared = np.unique(met, return_counts=True)
            share = shared / size[both // num_relations]
            for key, value in zip(both[share > above].tolist(), share[share > above].tolist(), strict=True):
                r, q = divmod(key, num_relations)
                if inverse or r != q:
                    found.append(RelationOverlap(r, q, value, inverse))
    return sorted(found, key=lambda overlap: (overlap.relation, -overlap.share, overlap.other, overlap.inverse))
