"""Graphs to pretrain on: drawn from a seed, with facts that follow from other facts; and other views of a graph.

No draw hangs on the last bit of a float, so that a seed gives the same graph on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary

Ids = NDArray[np.int64]
MOST_TRIPLES = 30_000


def draw_graph(seed: int, kind: str | None = None) -> KnowledgeGraph:
    """A graph of one of the KINDS, or of a kind drawn too; ids and names say nothing about what was drawn.

    >>> draw_graph(1, "kin")
    KnowledgeGraph('drawn kin 1', 136 nodes, 28 relations, 10,975 triples)
    """
    rng = np.random.default_rng(seed)
    drawn = list(KINDS)[int(rng.choice(len(KINDS), p=[0.58, 0.16, 0.13, 0.13]))]  # drawn even if given: one stream
    triples = KINDS[kind or drawn](rng)
    known = max(350, int(len(triples) * rng.choice([0.75, 0.9, 1.0, 1.0])))
    triples = triples[rng.permutation(len(triples))[: min(known, MOST_TRIPLES)]]
    stray = np.flatnonzero(rng.random(len(triples)) < rng.choice([0.0, 0.0, 0.01, 0.05]))
    triples[stray, 2] = triples[rng.permutation(stray), 2]
    return renumbered(triples, rng, f"drawn {kind or drawn} {seed}")


def renumbered(triples: Ids, rng: Generator, name: str = "") -> KnowledgeGraph:
    """The distinct triples, int64 [T, 3], over the nodes and relations they use, numbered and ordered at random."""
    new, sizes = [], []
    for ids in (triples[:, [0, 2]].ravel(), triples[:, 1]):
        used = np.bincount(ids) > 0
        sizes.append(int(used.sum()))
        new.append(rng.permutation(sizes[-1])[np.cumsum(used) - 1])
    s, r, o = new[0][triples[:, 0]], new[1][triples[:, 1]], new[0][triples[:, 2]]
    first, o = np.divmod(rng.permutation(np.unique((s * sizes[1] + r) * sizes[0] + o)), sizes[0])
    kinds = zip(("node", "relation"), sizes, strict=True)
    nodes, relations = (Vocabulary((f"{kind[0]}{i}" for i in range(size)), kind) for kind, size in kinds)
    return KnowledgeGraph(np.stack([*np.divmod(first, sizes[1]), o], axis=1), nodes, relations, name=name)


def spread(rng: Generator, low: int, high: int) -> int:
    """A whole number from low to high, each doubling as likely as the next."""
    return int(low * (high / low) ** rng.random())


# -- pairs of nodes, as sorted whole numbers subject * num_nodes + object -----------------------------------------


def inverse(pairs: Ids, num_nodes: int) -> Ids:
    return np.unique(pairs % num_nodes * num_nodes + pairs // num_nodes)


def composed(first: Ids, second: Ids, num_nodes: int, rng: Generator, most: int = MOST_TRIPLES) -> Ids:
    """(x, z), x not z, for (x, y) of the first and (y, z) of the second; for some x only, if there are too many."""
    subjects, middles = np.divmod(first, num_nodes)
    start, stop = np.searchsorted(second, middles * num_nodes), np.searchsorted(second, (middles + 1) * num_nodes)
    order = np.argsort(rng.permutation(num_nodes)[subjects], kind="stable")
    order = order[np.cumsum((stop - start)[order]) <= most]
    counts = (stop - start)[order]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    objects = second[np.repeat(start[order], counts) + within] % num_nodes
    found = np.unique(np.repeat(subjects[order], counts) * num_nodes + objects)
    return np.asarray(found[found // num_nodes != found % num_nodes])


def listed(relations: list[Ids], num_nodes: int) -> Ids:
    """int64 [T, 3] of each relation's pairs."""
    number = np.repeat(np.arange(len(relations)), [len(pairs) for pairs in relations])
    subjects, objects = np.divmod(np.concatenate(relations), num_nodes)
    return np.stack([subjects, number, objects], axis=1)


# -- worlds: nodes have hidden types and groups, and a place on a grid; some relations follow from others ---------


@dataclass
class _World:
    rng: Generator
    types: Ids  # of the nodes, ascending
    alike: int  # so many nodes, one after another, are a group
    columns: int  # of the grid, on which they stand one after another too
    relations: list[Ids] = field(default_factory=list)

    def members(self, most: int = MOST_TRIPLES) -> Ids:
        """Nodes of one type."""
        members = np.flatnonzero(self.types == self.rng.choice(self.types))
        return np.sort(self.rng.permutation(members)[:most])

    def liking(self, size: int) -> Ids:
        """A group likes one or two groups, their first members most; others like whom everybody likes."""
        rng, degree = self.rng, int(self.rng.choice([1, 1, 2, 4, 10]))
        subjects, objects = self.members(max(size // degree, 2)), self.members()
        s = np.repeat(subjects, degree if degree == 1 else rng.integers(1, 2 * degree, size=len(subjects)))
        liked = rng.integers(len(objects), size=(len(self.types), int(rng.integers(1, 3))))
        skewed = rng.random(len(s)) * rng.random(len(s))
        o = liked[s // self.alike, rng.integers(liked.shape[1], size=len(s))] + (self.alike * skewed).astype(np.int64)
        anyone = rng.random(len(s)) < rng.choice([0.0, 0.1, 0.3])
        o = np.where(anyone, (len(objects) * skewed * rng.random(len(s))).astype(np.int64), o)
        return np.unique(s * len(self.types) + objects[o % len(objects)])

    def attribute(self, size: int) -> Ids:
        """Few objects, many subjects, as classes have: by number, by group, or by group and place."""
        rng, s, values = self.rng, self.members(size), self.members(int(self.rng.integers(2, 20)))
        table = rng.integers(len(values), size=(len(self.types), 4))
        by_number = np.arange(len(s)) * len(values) // len(s)
        o = (by_number, table[s // self.alike, 0], table[s // self.alike, s % self.columns % 4])[rng.integers(3)]
        o = np.where(rng.random(len(s)) < rng.choice([0.0, 0.05, 0.2]), rng.permutation(o), o)
        return np.unique(s * len(self.types) + values[o])

    def tree(self, size: int) -> Ids:
        """Children to parents."""
        members, number = self.rng.permutation(self.members(size + 1)), np.arange(size)
        even = self.rng.random() < 0.5
        parents = number // self.rng.integers(2, 8) if even else (number * self.rng.random(size)).astype(np.int64)
        return np.unique(members[1:] * len(self.types) + members[parents[: len(members) - 1]])

    def same_set(self, size: int) -> Ids:
        """All pairs within small sets."""
        of_each = int(self.rng.integers(2, 9))
        s = self.members(max(size // of_each, 2))
        belongs = np.sort(s * len(self.types) + s // of_each)
        return composed(belongs, inverse(belongs, len(self.types)), len(self.types), self.rng)

    def beside(self, size: int) -> Ids:
        """The next on the grid: to the east, to the north, or between the two."""
        s = self.members(size)
        o = s + self.rng.choice([1, 2, self.columns, self.columns + 1])
        return np.asarray((s * len(self.types) + o)[o < len(self.types)])

    def ruled(self, rule: int, size: int) -> Ids:
        """What follows from relations so far, each either way round."""
        rng, nodes = self.rng, len(self.types)
        first, second, third = (self.relations[i] for i in rng.integers(len(self.relations), size=3))
        first, second = (inverse(pairs, nodes) if rng.random() < 0.4 else pairs for pairs in (first, second))
        after = composed(first, first if rule == 3 else second, nodes, rng, 2 * size)
        if rule == 0:  # a chain of two, at times of three
            return composed(after, third, nodes, rng, 2 * size) if rng.random() < 0.25 else after
        if rule == 1:  # the relation, or most of it
            return np.asarray(first[rng.random(len(first)) < rng.choice([0.4, 0.8, 1.0])])
        if rule == 2:  # the relation where its objects have one thing in common
            alike = second[second % nodes == rng.choice(second) % nodes] // nodes
            return first[np.isin(first % nodes, alike)]
        return np.union1d(first, after if rule == 3 else second)  # grandparents too; one or the other


FACTS = (_World.liking, _World.attribute, _World.tree, _World.same_set, _World.beside)


def _world(rng: Generator) -> Ids:
    """Some kinds of facts and some kinds of rules, mixed."""
    num_nodes = spread(rng, 40, 3000)
    num_triples = min(max(num_nodes * spread(rng, 3, 25), 500), MOST_TRIPLES)
    num_relations = spread(rng, 2, min(120, max(num_triples // 40, 4)))
    num_types = int(rng.integers(1, 2 + min(9, num_nodes // 20)))
    types = np.sort((num_types * rng.random(num_nodes) * rng.random(num_nodes)).astype(np.int64))  # large and small
    world = _World(rng, types, alike=spread(rng, 2, 30), columns=spread(rng, 3, 30))
    facts, rules = (rng.permutation(5)[: int(rng.integers(1, 6))] for _ in range(2))
    ruled, total = rng.uniform(0.4, 0.85), 0
    while len(world.relations) < 120 and total < num_triples:
        if len(world.relations) >= num_relations and total > max(num_triples // 3, 500):
            break
        size = max(int(2 * rng.random() * num_triples / num_relations), 20)
        if len(world.relations) > 1 and rng.random() < ruled:
            pairs = world.ruled(rng.choice(rules), size)
        else:
            pairs = FACTS[rng.choice(facts)](world, size)
            pairs = np.union1d(pairs, inverse(pairs, num_nodes)) if rng.random() < 0.15 else pairs
        if len(pairs) > 2:
            world.relations.append(pairs[rng.random(len(pairs)) < 1.5 * size / len(pairs) + 0.5])
            total += len(world.relations[-1])
    return listed(world.relations, num_nodes)


# -- small and dense ----------------------------------------------------------------------------------------------


def _kin(rng: Generator) -> Ids:
    """Nearly every pair has one relation, told by section, generation, sex and age of both."""
    num_nodes, sections, generations = int(rng.integers(35, 170)), int(rng.choice([2, 4, 4, 8])), rng.integers(2, 6)
    section, generation, sex = (rng.integers(most, size=num_nodes) for most in (sections, generations, 2))
    s, o = np.divmod(np.arange(num_nodes * num_nodes), num_nodes)
    code = (section[s] ^ section[o]) if rng.random() < 0.5 else (section[o] - section[s]) % sections
    code = code * 2 * generations + generation[o] - generation[s] + generations
    for other, share in ((sex[o], 0.7), (sex[s], 0.4), (s < o, 0.2), (section[s], 0.15), (generation[s], 0.1)):
        code = code * 8 + other if rng.random() < share else code
    code = np.unique(code, return_inverse=True)[1]
    table = (spread(rng, 10, 80) * rng.random(len(code)) * rng.random(len(code))).astype(np.int64)
    wrong = rng.random(len(code)) < rng.choice([0.0, 0.0, 0.03, 0.1])
    relation = table[np.where(wrong, rng.permutation(code), code)]
    kept = (s != o) & (rng.random(len(s)) < rng.choice([1.0, 1.0, 0.95, 0.6]))
    return np.asarray(np.stack([s, relation, o], axis=1)[kept])


def _semantic(rng: Generator) -> Ids:
    """A tree of concepts; what holds between two concepts mostly holds between all below them."""
    num_nodes, num_relations = spread(rng, 60, 400), spread(rng, 8, 80)
    parents = (np.arange(num_nodes) * rng.random(num_nodes) * rng.random(num_nodes)).astype(np.int64)
    below = np.eye(num_nodes, dtype=bool)  # [node, concept]
    for node in range(1, num_nodes):
        below[node] |= below[parents[node]]
    concepts = 1 + ((num_nodes - 1) * rng.random(30) * rng.random(30)).astype(np.int64)[: int(rng.integers(4, 30))]
    relations = [np.flatnonzero(below & ~np.eye(num_nodes, dtype=bool))][: int(rng.integers(2))]
    relations.append(np.arange(1, num_nodes) * num_nodes + parents[1:])
    while len(relations) < num_relations or sum(map(len, relations)) < 500:
        holds = np.zeros((num_nodes, num_nodes), dtype=bool)
        for a, b in rng.choice(concepts, size=(int(rng.integers(1, 5)), 2)):
            holds |= below[:, a, None] & below[None, :, b]
        holds[below[:, rng.integers(1, num_nodes)]] = False  # the exception
        pairs = np.flatnonzero(holds | holds.T if rng.random() < 0.15 else holds)
        pairs = pairs[rng.random(len(pairs)) < rng.choice([0.7, 0.95, 1.0, 1.0])][: MOST_TRIPLES // 8]
        wider = rng.random() < 0.2
        relations.append(np.union1d(pairs, relations[rng.integers(len(relations))]) if wider else pairs)
    return listed(relations, num_nodes)


def _blocs(rng: Generator) -> Ids:
    """Few nodes and many relations between blocs of them, some much like others: where x_s M_r x_o is high."""
    num_nodes, traits = spread(rng, 12, 60), int(rng.integers(2, 6))
    blocs = rng.integers(-3, 4, size=(int(rng.integers(2, 7)), traits))
    hidden = blocs[rng.integers(len(blocs), size=num_nodes)] + rng.integers(-1, 2, size=(num_nodes, traits))
    kinds = rng.integers(-2, 3, size=(int(rng.integers(2, 7)), traits, traits))
    does, suffers = rng.integers(-6, 7, size=(2, num_nodes))
    relations = []
    for _ in range(spread(rng, 15, 100)):
        matrix = kinds[rng.integers(len(kinds))] * 2 + rng.integers(-1, 2, size=(traits, traits))
        score = hidden @ matrix @ hidden.T + rng.integers(4) * does[:, None] + rng.integers(4) * suffers[None, :]
        score += rng.integers(-3, 4, size=score.shape)
        score = score + score.T if rng.random() < 0.35 else score
        most = min(spread(rng, 10, num_nodes * num_nodes // 2), 2000)
        order = np.argsort(-score, axis=None, kind="stable")
        relations.append(order[order // num_nodes != order % num_nodes][:most])
    return listed(relations, num_nodes)


KINDS: dict[str, Callable[[Generator], Ids]] = {"world": _world, "kin": _kin, "semantic": _semantic, "blocs": _blocs}


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
