"""Split the triples of a graph into training, validation and test; find relations that overlap; sample by hash.

Held-out triples must be answerable and must not leak. So every node and every relation keeps a training triple, and
triples with the same meaning, such as (a, parent_of, b) and (b, child_of, a), stay in the same split. Otherwise a model
only has to invert training triples, which is the known leak of FB15k.
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
    """Hold out a share of the training triples for validation, and a share for test.

    Every node and every relation keeps a training triple. Triples between the same two nodes, in either direction,
    stay in the same split if their relations overlap; their time is that of the earliest of them. If so many triples
    cannot be held out, fewer are.

    Args:
        self: The graph.
        valid: The share for validation, from 0 to 1.
        test: The share for test, from 0 to 1.
        seed: The same seed gives the same split.
        by: A time for each triple, [num_triples], numbers or other values that can be sorted: the latest triples become
            test, those before them validation. None: at random.

    Raises:
        NothingToHoldOutError: No triple can be held out.

    >>> from rgcn import KnowledgeGraph
    >>> ring = KnowledgeGraph.from_triples([(f"n{i}", "next", f"n{(i + j) % 10}") for i in range(10) for j in (1, 2)])
    >>> np.bincount(ring.split(seed=1).triple_splits).tolist()
    [16, 2, 2]
    """
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise DataError(f"the shares must be at least 0, and below 1 together; these are {(valid, test)}")
    splits = np.zeros(len(self), np.int8) if self.triple_splits is None else self.triple_splits.copy()
    training = np.flatnonzero(splits == TRAIN)
    triples = self.triples[training]
    group, sizes = _groups(self, triples)
    order = np.random.default_rng(seed).permutation(len(sizes))  # the last groups are held out first
    if by is not None:
        order = order[np.argsort(_lowest(_times(self, by)[training], group, len(sizes))[order], kind="stable")]
    position = np.argsort(order)[group]
    can_hold_out = np.ones(len(sizes), dtype=bool)
    can_hold_out[order[_lowest(position.repeat(2), triples[:, [0, 2]].ravel(), self.num_nodes)]] = False
    can_hold_out[order[_lowest(position, triples[:, 1], self.num_relations)]] = False
    candidates = order[::-1][can_hold_out[order[::-1]]]
    if (valid or test) and not len(candidates):
        raise NothingToHoldOutError(
            f"none of {len(training):,} triples can be held out: each is the first of some node or relation"
        )
    split_of_group = np.zeros(len(sizes), dtype=np.int8)
    for number, share in ((TEST, test), (VALID, valid)):
        if share:
            # If a small graph has too few candidates, they are divided in proportion to the shares.
            remaining = sizes[candidates]
            available = remaining.sum() * (share / (share + valid) if number == TEST else 1.0)
            wanted = min(max(1.0, np.rint(share * len(training))), max(1.0, available))
            count = int(np.searchsorted(np.cumsum(remaining), wanted)) + 1
            split_of_group[candidates[:count]] = number
            candidates = candidates[count:]
    splits[training] = split_of_group[group]
    how = "at random" if by is None else "by time, the latest for test"
    metadata = {**self.metadata, "split": f"triples held out {how}, seed {seed}"}
    return replace(self, triple_splits=splits, triple_times=None, metadata=metadata)


def _groups(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group triples with the same meaning: (group of each triple [num_triples], size of each group [num_groups])."""
    low, high = np.sort(triples[:, [0, 2]], axis=1).T
    pairs, pair = np.unique(low * graph.num_nodes + high, return_inverse=True)
    kind = np.arange(graph.num_relations)
    for overlap in find_relation_overlaps(triples, graph.num_relations):
        kind[kind == kind[overlap.other]] = kind[overlap.relation]
    _, group, sizes = np.unique(kind[triples[:, 1]] * len(pairs) + pair, return_inverse=True, return_counts=True)
    return group, sizes


def _lowest(values: NDArray[np.int64], owners: NDArray[np.int64], num_owners: int) -> NDArray[np.int64]:
    """Return the lowest value of each owner that occurs, in the order of owners."""
    lowest = np.full(num_owners, np.iinfo(np.int64).max)
    np.minimum.at(lowest, owners, values)
    return lowest[lowest < np.iinfo(np.int64).max]


def _times(graph: KnowledgeGraph, by: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    """Replace times by their ranks, int64 [num_triples]."""
    times = np.asarray(by)
    if times.shape != (len(graph),):
        raise DataError(f"by= takes a time for each of the {len(graph):,} triples; these have the shape {times.shape}")
    if times.dtype.kind == "f" and not np.isfinite(times).all():
        raise DataError(f"by=: triple {int(np.flatnonzero(~np.isfinite(times))[0])} (from 0) has no time")
    return np.unique(times, return_inverse=True)[1]


# -- relations that overlap -------------------------------------------------------------------------------------

BLOCK_PAIRS = 1 << 22  # pairs of triples that are counted at once


class RelationOverlap(NamedTuple):
    """The `share` of the node pairs of `relation` that `other` has too, in the same or the `inverse` direction."""

    relation: int
    other: int
    share: float
    inverse: bool


def find_relation_overlaps(
    triples: NDArray[np.int64], num_relations: int, *, above: float = 0.5, of: Sequence[int] | None = None
) -> list[RelationOverlap]:
    """Find relations that connect the same pairs of nodes.

    share(r, q) = |{(s, o) : (s, r, o) and (s, q, o)}| / |{(s, o) : (s, r, o)}|; for the inverse direction (o, q, s)
    instead of (s, q, o). A symmetric relation is its own inverse. The share refers to the first relation: if a small
    relation is part of a large one, only (small, large) may be listed. Repeated triples count once.

    Args:
        triples: int64 [num_triples, 3].
        num_relations: The number of relations.
        above: List only overlaps with a larger share.
        of: List only overlaps of these relations; None: of all.

    >>> triples = np.array([[0, 0, 1], [2, 0, 3], [1, 1, 0], [3, 1, 2], [4, 1, 5]])
    >>> find_relation_overlaps(triples, 2)[0]
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
    pairs, start = np.unique(forward, return_index=True)  # relation[start[i] : start[i + 1]] connect the i-th pair
    num_connecting = np.diff(np.append(start, len(relation)))
    size = np.bincount(relation, minlength=num_relations)

    rows = np.argsort(relation, kind="stable")
    if of is not None:
        rows = rows[np.isin(relation[rows], of)]
    overlaps = []
    for inverse, code in ((False, forward), (True, object_ * num_nodes + subject)):
        pair = np.minimum(np.searchsorted(pairs, code[rows]), len(pairs) - 1)
        exists = pairs[pair] == code[rows]
        pair, first = pair[exists], relation[rows][exists]
        # Blocks end between two relations. A relation meets every triple at most once, which bounds a block.
        until = np.cumsum(num_connecting[pair])
        last_of = np.flatnonzero(np.diff(first, append=-1))
        cuts = last_of[np.flatnonzero(np.diff(until[last_of] // BLOCK_PAIRS, append=-1))] + 1
        for begin, end in pairwise([0, *cuts.tolist()]):
            here, counts = pair[begin:end], num_connecting[pair[begin:end]]
            position = np.arange(counts.sum()) + np.repeat(start[here] - np.cumsum(counts) + counts, counts)
            met = np.repeat(first[begin:end], counts) * num_relations + relation[position]
            both, shared = np.unique(met, return_counts=True)
            share = shared / size[both // num_relations]
            for key, value in zip(both[share > above].tolist(), share[share > above].tolist(), strict=True):
                r, q = divmod(key, num_relations)
                if inverse or r != q:
                    overlaps.append(RelationOverlap(r, q, value, inverse))
    return sorted(overlaps, key=lambda overlap: (overlap.relation, -overlap.share, overlap.other, overlap.inverse))


# -- samples drawn by a hash of names: they do not depend on the order of the input ---------------------------------

Hashes = NDArray[np.uint64]


def combine_hashes(*parts: Hashes) -> Hashes:
    """Combine several hashes uint64 [n] into one, which depends on their order.

    >>> one, other = np.array([1, 2], dtype=np.uint64), np.array([2, 1], dtype=np.uint64)
    >>> combine_hashes(one, other)[0] == combine_hashes(other, one)[1]
    np.True_
    >>> combine_hashes(one, other)[0] == combine_hashes(other, one)[0]
    np.False_
    """
    state = np.full(len(parts[0]), SEED, dtype=np.uint64)
    for part in parts:
        state = (state ^ part) * np.uint64(FACTOR)
        state ^= state >> np.uint64(32)
    return state


def triple_hashes(graph: KnowledgeGraph, triples: NDArray[np.int64]) -> Hashes:
    """Hash the three names of each triple int64 [n, 3], uint64 [n]."""
    subject, relation, object_ = triples.T
    return combine_hashes(graph.nodes.hashes(subject), graph.relations.hashes(relation), graph.nodes.hashes(object_))


def label_hashes(graph: KnowledgeGraph, nodes: NDArray[np.int64], classes: NDArray[np.int64]) -> Hashes:
    """Hash the name of each labeled node and of its class, uint64 [n]."""
    assert graph.labels is not None
    return combine_hashes(graph.nodes.hashes(nodes), graph.labels.names.hashes(classes))


def smallest_hashes(hashes: Hashes, max_count: int) -> NDArray[np.int64]:
    """Return the positions of the smallest hashes, smallest first. A smaller sample is a prefix of a larger one.

    >>> smallest_hashes(np.array([30, 10, 20], dtype=np.uint64), 2)
    array([1, 2])
    """
    return np.argsort(hashes, kind="stable")[:max_count].astype(np.int64)
