"""Another view of a graph: a part of it, its relations dropped, merged, split or turned round, one known of few."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.vocabulary import Vocabulary
from rgcn.sampling.synthetic_graphs import Ids, renumbered


def augmented(graph: KnowledgeGraph, seed: int) -> KnowledgeGraph:
    """The graph's training triples changed at random, a pure function of both; two nodes and a triple are left.

    >>> augmented(KnowledgeGraph.from_triples([("Bern", "capital_of", "Switzerland")]), seed=0)
    KnowledgeGraph('seen 0', 2 nodes, 1 relation, 1 triple)
    """
    rng, triples = np.random.default_rng(seed), np.array(graph.split_triples("train"))
    if not _fits(triples):
        raise DataError("a view of a graph needs a training triple between two nodes; this graph has none")
    for change, share in ((_part, 0.6), (_other_relations, 0.6)):
        if rng.random() < share:
            changed = change(triples, rng)
            triples = changed if _fits(changed) else triples
    return renumbered(triples, rng, f"{graph.name} seen {seed}".strip())


def _fits(triples: Ids) -> bool:
    return len(triples) > 0 and bool((triples[:, [0, 2]] != triples[0, 0]).any())


def _part(triples: Ids, rng: Generator) -> Ids:
    """A fifth of the triples to all of them: those nearest to a few nodes, by hops or by steps of random length."""
    subjects, objects = triples[:, 0], triples[:, 2]
    steps = np.ones(len(triples)) if rng.random() < 0.5 else rng.random(len(triples))
    away = np.full(int(triples[:, [0, 2]].max()) + 1, 1e3)
    away[subjects[rng.integers(len(triples), size=int(rng.integers(1, 6)))]] = 0.0
    for _ in range(12):
        before = away.copy()
        np.minimum.at(away, objects, before[subjects] + steps)
        np.minimum.at(away, subjects, before[objects] + steps)
        if (away == before).all():
            break
    away += rng.random(len(away)) / 2  # which of those equally far, or never reached
    kept = int(np.ceil(rng.uniform(0.2, 1.0) * len(triples)))
    return triples[np.argsort(np.maximum(away[subjects], away[objects]), kind="stable")[:kept]]


def _other_relations(triples: Ids, rng: Generator) -> Ids:
    """Some relations go, become another, become two (by chance, or by what an end takes part in), or are inverted."""
    relation, size = triples[:, 1], int(triples[:, 1].max()) + 1
    shares = rng.choice([0.0, 0.0, 0.1, 0.3], size=(4, 1))  # two views in four lack a kind of change
    gone, merged, split, inverted = rng.random((4, size)) < shares
    becomes = np.where(merged, rng.integers(size, size=size), np.arange(size))
    takes_part = np.isin(triples[:, rng.choice([0, 2])], triples[relation == rng.choice(relation)][:, [0, 2]])
    second = split[relation] & (takes_part if rng.random() < 0.5 else rng.random(len(triples)) < 0.5)
    changed = np.stack([triples[:, 0], becomes[relation] + size * second, triples[:, 2]], axis=1)
    return np.asarray(np.where(inverted[relation, None], changed[:, ::-1], changed)[~gone[relation]])


def with_labels(graph: KnowledgeGraph, seed: int) -> tuple[KnowledgeGraph, Ids]:
    """A view in which one relation is known of few, as labels are, and the triples that ask for it, int64 [A, 3].

    It is one with an object a subject and few objects, if any is. Most of its triples are validation triples of the
    view: not heard, but asked, and those that are heard are asked too. In half of the views its objects are nodes of
    their own, as classes mostly are.
    """
    rng, triples = np.random.default_rng([seed, 1]), np.array(graph.split_triples("train"))
    wide, sizes = int(triples[:, [0, 2]].max()) + 1, np.bincount(triples[:, 1])
    by_end = (np.unique(triples[:, 1] * wide + triples[:, end]) // wide for end in (0, 2))
    subjects, objects = (np.bincount(relation, minlength=len(sizes)) for relation in by_end)
    likely = (sizes >= 20) & (sizes <= 1.2 * subjects) & (5 * objects <= sizes) & (objects > 1)
    chosen = rng.choice(np.flatnonzero(likely if likely.any() else sizes >= min(20, sizes.max())))
    is_label = triples[:, 1] == chosen
    triples[is_label, 2] += wide if rng.random() < 0.5 else 0
    used, ends = np.unique(triples[:, [0, 2]], return_inverse=True)
    triples[:, [0, 2]] = ends.reshape(-1, 2)
    unheard = is_label & (rng.random(len(triples)) < rng.choice([0.5, 0.8, 0.9, 0.95]))
    unheard[np.flatnonzero(is_label)[0]] = False  # a relation that nobody has is none
    nodes = Vocabulary((f"n{i}" for i in range(len(used))), "node")
    splits = np.where(unheard, SPLITS.index("valid"), SPLITS.index("train")).astype(np.int8)
    view = KnowledgeGraph(triples, nodes, graph.relations, triple_splits=splits, name=f"labels in {graph.name}")
    return view, triples[is_label]
