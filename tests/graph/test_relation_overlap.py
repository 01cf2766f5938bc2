"""Overlaps of relations agree with their definition, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgcn.graph import splitting
from rgcn.graph.splitting import RelationOverlap, relation_overlaps

TRIPLES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 4)), max_size=40)


def by_definition(triples: list[tuple[int, int, int]], above: float) -> set[RelationOverlap]:
    pairs: dict[int, set[tuple[int, int]]] = {}
    for s, r, o in triples:
        pairs.setdefault(r, set()).add((s, o))
    found = set()
    for r, mine in pairs.items():
        for q, theirs in pairs.items():
            for inverse in (False, True):
                shared = mine & ({(o, s) for s, o in theirs} if inverse else theirs)
                if len(shared) / len(mine) > above and (inverse or r != q):
                    found.add(RelationOverlap(r, q, len(shared) / len(mine), inverse))
    return found


@given(TRIPLES, st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.sampled_from([1, 7, 1 << 22]))
def test_overlaps_are_those_of_the_definition(triples, above, at_a_time):
    array = np.array(triples, dtype=np.int64).reshape(-1, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "AT_A_TIME", at_a_time)
        found = relation_overlaps(array, 6, above=above)
        some = relation_overlaps(array, 6, above=above, of=[1, 4])
    assert len(found) == len(set(found))
    assert set(found) == by_definition(triples, above)
    assert some == [overlap for overlap in found if overlap.relation in (1, 4)]


def test_ten_thousand_relations_and_a_million_triples():
    generator = np.random.default_rng(0)
    triples = generator.integers(0, 10_000, (1_000_000, 3))
    leaking = triples[triples[:, 1] == 7][:, [2, 1, 0]]
    leaking[:, 1] = 9_999
    triples = np.concatenate([triples[triples[:, 1] != 9_999], leaking])
    assert relation_overlaps(triples, 10_000) == [(7, 9_999, 1.0, True), (9_999, 7, 1.0, True)]
