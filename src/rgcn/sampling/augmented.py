"""Another view of a graph: part of it, its relations dropped, merged, split or turned round, one nearly hidden."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.sampling.drawn_graphs import Ids, renumbered


def augmented(graph: KnowledgeGraph, seed: int) -> KnowledgeGraph:
    """The graph's training triples changed at random, a pure function of both; two nodes and a triple are left.

    >>> pair = KnowledgeGraph.from_triples([("Bern", "capital_of", "Switzerland")])
    >>> augmented(pair, seed=0)
    KnowledgeGraph(2 nodes, 1 relation, 1 triple)
    """
    rng = np.random.default_rng([seed, len(graph)])
    triples = np.array(graph.split_triples("train"))
    if not _fits(triples):
        raise DataError("a view of a graph needs a triple between two nodes in training; this graph has none")
    for change, share in ((_part, 0.6), (_dropped, 0.3), (_merged, 0.3), (_split, 0.3), (_turned, 0.4), (_veiled, 0.3)):
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
    away = np.full(int(max(subjects.max(), objects.max())) + 1, 1e3)
    away[subjects[rng.integers(len(triples), size=int(rng.integers(1, 6)))]] = 0.0
    for _ in range(12):
        before = away.copy()
        np.minimum.at(away, objects, before[subjects] + steps)
        np.minimum.at(away, subjects, before[objects] + steps)
        if (away == before).all():
            break
    away += rng.random(len(away)) * 0.5  # which of those equally far, and of those never reached
    kept = int(np.ceil(rng.uniform(0.2, 1.0) * len(triples)))
    return triples[np.argsort(np.maximum(away[subjects], away[objects]), kind="stable")[:kept]]


def _some_relations(triples: Ids, rng: Generator, most: float) -> Ids:
    """Some of the relations, at least one, at most that share of them."""
    relations = np.unique(triples[:, 1])
    return rng.permutation(relations)[: 1 + int(rng.uniform(0, most) * len(relations))]


def _dropped(triples: Ids, rng: Generator) -> Ids:
    return triples[~np.isin(triples[:, 1], _some_relations(triples, rng, 0.3))]


def _merged(triples: Ids, rng: Generator) -> Ids:
    """Some relations become another one each."""
    becomes = np.arange(triples[:, 1].max() + 1)
    chosen = _some_relations(triples, rng, 0.3)
    becomes[chosen] = rng.choice(np.unique(triples[:, 1]), size=len(chosen))
    return np.stack([triples[:, 0], becomes[triples[:, 1]], triples[:, 2]], axis=1)


def _split(triples: Ids, rng: Generator) -> Ids:
    """Some relations become two, at random or by whether an end takes part in one other relation."""
    split = triples.copy()
    for relation in _some_relations(triples, rng, 0.2)[:20]:
        rows = np.flatnonzero(triples[:, 1] == relation)
        other = triples[triples[:, 1] == triples[rng.integers(len(triples)), 1]]
        if rng.random() < 0.5 or (other[:, 1] == relation).all():
            leaving = rng.random(len(rows)) < 0.5
        else:
            leaving = np.isin(triples[rows, rng.choice([0, 2])], other[:, [0, 2]])
        split[rows[leaving], 1] = split[:, 1].max() + 1
    return split


def _turned(triples: Ids, rng: Generator) -> Ids:
    """Some relations point the other way."""
    turned = np.isin(triples[:, 1], _some_relations(triples, rng, 0.5))
    return np.where(turned[:, None], triples[:, ::-1], triples)


def _veiled(triples: Ids, rng: Generator) -> Ids:
    """Most edges of one relation go, as most labels do: of one with an object a subject and few objects, if any."""
    wide, size = int(triples[:, [0, 2]].max()) + 1, np.bincount(triples[:, 1])
    subjects, objects = (
        np.bincount(np.unique(triples[:, 1] * wide + triples[:, end]) // wide, minlength=len(size)) for end in (0, 2)
    )
    likely = (size >= 20) & (size <= 1.2 * subjects) & (5 * objects <= size)
    if not likely.any():
        likely = size >= min(20, size.max())
    chosen = rng.choice(np.flatnonzero(likely))
    return triples[(triples[:, 1] != chosen) | (rng.random(len(triples)) > rng.choice([0.5, 0.8, 0.9, 0.95]))]
