"""Triples held out for validation and test, where a graph brings no split of its own.

A figure is worth something only if what is held out could be answered and is not given away. So no node and no
relation is left out of training, and triples that say the same thing, (a, parent_of, b) and (b, child_of, a), go to one
side together: kept apart, a model only has to turn them round, as with FB15k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError, NothingToHoldOutError
from rgcn.graph.vocabulary import FACTOR, SEED, SPLITS

if TYPE_CHECKING:
    from rgcn.graph.knowledge_graph import KnowledgeGraph


TRAIN, VALID, TEST = range(len(SPLITS))


def split(
    self: KnowledgeGraph,
    valid: float = 0.1,
    test: float = 0.1,
    *,
    seed: int = 0,
    by: Sequence[Any] | NDArray[Any] | None = None,
) -> KnowledgeGraph:
    """The same graph with a share of its training triples held out for validation, and one for test.

    by  when each triple was said, [T], numbers or anything else that sorts: the latest triples are test, those before
        them valid; None: at random

    Every node and every relation keeps a training triple. Triples between the same two nodes in either direction,
    through relations that overlap, go to one side together; by time they count as said when the first of them was.
    Where so many cannot be held out there are fewer; where none can, DataError. The same seed gives the same split.

    >>> from rgcn import KnowledgeGraph
    >>> ring = KnowledgeGraph.from_triples([(f"n{i}", "next", f"n{(i + j) % 10}") for i in range(10) for j in (1, 2)])
    >>> np.bincount(ring.split(seed=1).triple_splits).tolist()
    [16, 2, 2]
    """
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise DataError(f"shares held out are at least 0, and below 1 together; these are {(valid, test)}")
    splits = np.zeros(len(self), np.int8) if self.triple_splits is None else self.triple_splits.copy()
    learned = np.flatnonzero(splits == TRAIN)
    triples = self.triples[learned]
    group, sizes = _groups(self, triples)
    order = _order(group, len(sizes), None if by is None else _times(self, by)[learned], seed)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place = rank[group]
    spare = np.ones(len(sizes), dtype=bool)
    spare[order[_lowest(place.repeat(2), triples[:, [0, 2]].ravel(), self.num_nodes)]] = False
    spare[order[_lowest(place, triples[:, 1], self.num_relations)]] = False
    candidates = order[::-1][spare[order[::-1]]]
    if (valid or test) and not len(candidates):
        raise NothingToHoldOutError(
            f"none of {len(learned):,} triples can be held out: each is the first of some node or relation"
        )
    side = np.zeros(len(sizes), dtype=np.int8)
    for name, share in ((TEST, test), (VALID, valid)):
        if share:
            # A small graph has few to spare: what is left is shared as the whole would have been.
            rest = sizes[candidates]
            enough = rest.sum() * (share / (share + valid) if name == TEST else 1.0)
            wanted = min(max(1.0, np.rint(share * len(learned))), max(1.0, enough))
            number = int(np.searchsorted(np.cumsum(rest), wanted)) + 1
            side[candidates[:number]] = name
            candidates = candidates[number:]
    splits[learned] = side[group]
    how = "at random" if by is None else "by time, the latest for test"
    metadata = {**self.metadata, "split": f"triples held out {how}, seed {seed}"}
    return replace(self, triple_splits=splits, triple_times=None, metadata=metadata)


def _groups(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which group of triples that say the same each one is in, [t], and how many are in each, [G]."""
    low, high = np.sort(triples[:, [0, 2]], axis=1).T
    pairs, pair = np.unique(low * graph.num_nodes + high, return_inverse=True)
    kind = np.arange(graph.num_relations)
    for overlap in relation_overlaps(triples, graph.num_relations):
        one, other = kind[overlap.relation], kind[overlap.other]
        if one != other:
            kind[kind == other] = one
    _, group, sizes = np.unique(kind[triples[:, 1]] * len(pairs) + pair, return_inverse=True, return_counts=True)
    return group, sizes


def _order(group: NDArray[np.int64], count: int, times: NDArray[np.int64] | None, seed: int) -> NDArray[np.int64]:
    """The groups, [G], in the order in which they are learned: the last are the first to be held out."""
    drawn = np.random.default_rng(seed).permutation(count)
    if times is None:
        return drawn
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, group, times)
    return drawn[np.argsort(first[drawn], kind="stable")]


def _lowest(place: NDArray[np.int64], of: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The lowest place of each thing that occurs, of `count`."""
    found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(found, of, place)
    return found[found < np.iinfo(np.int64).max]


def _times(graph: KnowledgeGraph, by: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    """Numbers in the order of the times, int64 [T]."""
    given = np.asarray(by)
    if given.shape != (len(graph),):
        raise DataError(f"by= takes a time for each of the {len(graph):,} triples; these are of shape {given.shape}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise DataError(f"by=: triple {int(np.flatnonzero(~np.isfinite(given))[0])} (from 0) has no time")
    return np.unique(given, return_inverse=True)[1]


# -- relations that say the same as others ------------------------------------------------------------------

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


# -- samples that do not depend on the order of the input's rows: drawn by a hash of names -----------------------

Keys = NDArray[np.uint64]


def combined_keys(*parts: Keys) -> Keys:
    """uint64 [n]: one hash of several, which depends on their order.

    >>> one, other = np.array([1, 2], dtype=np.uint64), np.array([2, 1], dtype=np.uint64)
    >>> combined_keys(one, other)[0] == combined_keys(other, one)[1]
    np.True_
    >>> combined_keys(one, other)[0] == combined_keys(other, one)[0]
    np.False_
    """
    state = np.full(len(parts[0]), SEED, dtype=np.uint64)
    for part in parts:
        state = (state ^ part) * np.uint64(FACTOR)
        state ^= state >> np.uint64(32)
    return state


def triple_keys(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> Keys:
    """uint64 [n]: a hash of the three names of each triple int64 [n, 3]."""
    subject, relation, object_ = triples.T
    return combined_keys(graph.nodes.keys(subject), graph.relations.keys(relation), graph.nodes.keys(object_))


def label_keys(graph: KnowledgeGraph, nodes: NDArray[np.int64], classes: NDArray[np.int64]) -> Keys:
    """uint64 [n]: a hash of each labelled node's name and its class's."""
    assert graph.labels is not None
    return combined_keys(graph.nodes.keys(nodes), graph.labels.names.keys(classes))


def drawn(keys: Keys, at_most: int) -> NDArray[np.int64]:
    """The positions of the smallest keys, smallest first. Who draws fewer draws the first ones of these.

    >>> drawn(np.array([30, 10, 20], dtype=np.uint64), 2)
    array([1, 2])
    """
    return np.argsort(keys, kind="stable")[:at_most].astype(np.int64)
