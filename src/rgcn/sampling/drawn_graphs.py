"""Graphs drawn from a seed, in which facts follow from other facts: what a model for any graph is trained on.

Whole numbers decide wherever a draw is compared, so that a seed gives the same graph on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, Vocabulary

Ids = NDArray[np.int64]
MOST_TRIPLES = 30_000


def draw_graph(seed: int, kind: str | None = None) -> KnowledgeGraph:
    """A graph of one of the KINDS, or of a kind drawn too; ids and names say nothing about what was drawn.

    >>> draw_graph(1).name == draw_graph(1).name, draw_graph(1, "kin").name
    (True, 'drawn kin 1')
    """
    if kind is not None and kind not in KINDS:
        raise DataError(f"unknown kind of drawn graph {kind!r}; there are {', '.join(KINDS)}")
    rng = np.random.default_rng(seed)
    drawn = list(KINDS)[int(rng.choice(len(KINDS), p=[0.58, 0.16, 0.13, 0.13]))]  # drawn even if given: one stream
    triples = KINDS[kind or drawn](rng)
    kept = rng.permutation(len(triples))[: min(max(300, int(len(triples) * rng.uniform(0.75, 1.0))), MOST_TRIPLES)]
    triples = triples[kept]
    stray = np.flatnonzero(rng.random(len(triples)) < rng.choice([0.0, 0.0, 0.01, 0.05]))
    triples[stray, 2] = triples[rng.permutation(stray), 2]
    return renumbered(triples, rng, f"drawn {kind or drawn} {seed}")


def renumbered(triples: Ids, rng: Generator, name: str = "") -> KnowledgeGraph:
    """The distinct triples, int64 [T, 3], over the nodes and relations they use, numbered and ordered at random."""
    nodes, ends = np.unique(triples[:, [0, 2]], return_inverse=True)
    relations, middles = np.unique(triples[:, 1], return_inverse=True)
    ends = rng.permutation(len(nodes))[ends.reshape(-1, 2)]
    keys = (ends[:, 0] * len(relations) + rng.permutation(len(relations))[middles]) * len(nodes) + ends[:, 1]
    keys = rng.permutation(np.unique(keys))
    first, last = np.divmod(keys, len(nodes))
    return KnowledgeGraph(
        np.stack([*np.divmod(first, len(relations)), last], axis=1),
        Vocabulary((f"n{i}" for i in range(len(nodes))), kind="node"),
        Vocabulary((f"r{i}" for i in range(len(relations))), kind="relation"),
        name=name,
    )


def spread(rng: Generator, low: int, high: int) -> int:
    """A whole number between, small ones as likely as large ones in each doubling."""
    return int(low * (high / low) ** rng.random())


# -- pairs of nodes: sorted whole numbers, subject * num_nodes + object -------------------------------------------


def inverse(pairs: Ids, num_nodes: int) -> Ids:
    return np.unique(pairs % num_nodes * num_nodes + pairs // num_nodes)


def composed(first: Ids, second: Ids, num_nodes: int, rng: Generator, most: int = MOST_TRIPLES) -> Ids:
    """(x, z) for every (x, y) of the first and (y, z) of the second, x other than z.

    Where that would be more than `most`, for some x only: a rule holds for whom it is drawn.
    """
    subjects, middles = np.divmod(first, num_nodes)
    start, stop = np.searchsorted(second, middles * num_nodes), np.searchsorted(second, (middles + 1) * num_nodes)
    order = np.argsort(rng.permutation(num_nodes)[subjects], kind="stable")
    order = order[np.cumsum((stop - start)[order]) <= most]
    counts = (stop - start)[order]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    objects = second[np.repeat(start[order], counts) + within] % num_nodes
    found = np.unique(np.repeat(subjects[order], counts) * num_nodes + objects)
    return found[found // num_nodes != found % num_nodes]


# -- worlds: nodes of hidden types, relations between types, relations that follow from relations -----------------


@dataclass
class _World:
    rng: Generator
    num_nodes: int
    types: Ids
    groups: Ids  # within types: who is in one group likes the same
    popularity: Ids
    places: NDArray[np.float64]
    relations: list[Ids] = field(default_factory=list)

    def members(self) -> Ids:
        """Nodes of one type, in random order."""
        return self.rng.permutation(np.flatnonzero(self.types == self.types[self.rng.integers(self.num_nodes)]))

    def some(self) -> Ids:
        """One of the relations so far, either way round."""
        pairs = self.relations[self.rng.integers(len(self.relations))]
        return pairs if self.rng.random() < 0.6 else inverse(pairs, self.num_nodes)


def _liking(world: _World, size: int) -> Ids:
    """Each group of subjects likes one or two groups of objects, and popular objects more; functional or not."""
    rng, subjects, objects = world.rng, world.members(), world.members()
    degree = int(rng.choice([1, 1, 2, 4, 10]))
    subjects = subjects[: max(size // degree, 2)]
    s = np.repeat(subjects, degree if degree == 1 else rng.integers(1, 2 * degree, size=len(subjects)))
    objects = objects[np.argsort(world.groups[objects], kind="stable")]
    liked = rng.choice(world.groups[objects], size=(world.groups.max() + 1, int(rng.integers(1, 3))))
    wanted = liked[world.groups[s], rng.integers(liked.shape[1], size=len(s))]
    wanted = np.where(rng.random(len(s)) < rng.choice([0.0, 0.1, 0.3]), -1, wanted)  # who likes anything
    weight = np.concatenate([[0], np.cumsum(world.popularity[objects])])
    low = np.where(wanted < 0, 0, weight[np.searchsorted(world.groups[objects], wanted)])
    high = np.where(wanted < 0, weight[-1], weight[np.searchsorted(world.groups[objects], wanted, side="right")])
    return np.unique(s * world.num_nodes + objects[np.searchsorted(weight, rng.integers(low, high), side="right") - 1])


def _attribute(world: _World, size: int) -> Ids:
    """Few objects, many subjects: a class, by group, by place, or by both."""
    rng, subjects = world.rng, world.members()[:size]
    values = world.members()[: int(rng.integers(2, 20))]
    buckets = (world.places[subjects, 0] * len(values)).astype(np.int64)
    by = rng.integers(3)
    if by == 0:
        chosen = buckets
    else:
        code = world.groups[subjects] * 4 + (buckets % 4 if by == 2 else 0)
        chosen = rng.integers(len(values), size=int(code.max()) + 1)[code]
    strays = rng.random(len(subjects)) < rng.choice([0.0, 0.05, 0.2])
    chosen = np.where(strays, rng.integers(len(values), size=len(subjects)), chosen)
    return np.unique(subjects * world.num_nodes + values[chosen])


def _tree(world: _World, size: int) -> Ids:
    """Children to parents."""
    members = world.members()[: size + 1]
    number = np.arange(1, len(members))
    if world.rng.random() < 0.5:
        parents = (number - 1) // world.rng.integers(2, 8)
    else:
        parents = (number * world.rng.random(len(number))).astype(np.int64)
    return np.unique(members[1:] * world.num_nodes + members[parents])


def _same_group(world: _World, size: int) -> Ids:
    """All pairs within small sets."""
    of_each = int(world.rng.integers(2, 9))
    members = world.members()[: max(size // of_each, 2)]
    belongs = np.sort(members * world.num_nodes + np.arange(len(members)) // of_each)
    return composed(belongs, inverse(belongs, world.num_nodes), world.num_nodes, world.rng)


def _near(world: _World, size: int) -> Ids:
    """The nearest few, all around or in one direction."""
    rng, members = world.rng, world.members()[:500]
    east, north = (world.places[members, axis][None] - world.places[members, axis][:, None] for axis in (0, 1))
    distance = east * east + north * north
    allowed = distance > 0
    if rng.random() < 0.5:
        allowed &= (east > abs(north)) if rng.random() < 0.5 else (north > abs(east))
    distance[~allowed] = 9.0
    nearest = np.argsort(distance, axis=1, kind="stable")[: max(size, 2), : int(rng.integers(1, 5))]
    s = np.repeat(np.arange(len(nearest)), nearest.shape[1])
    real = distance[s, nearest.ravel()] < 9.0
    return np.unique(members[s[real]] * world.num_nodes + members[nearest.ravel()[real]])


def _chain(world: _World, size: int) -> Ids:
    """One relation after another: two, at times three."""
    found = composed(world.some(), world.some(), world.num_nodes, world.rng, 2 * size)
    if world.rng.random() < 0.25:
        found = composed(found, world.some(), world.num_nodes, world.rng, 2 * size)
    return found


def _implied(world: _World, size: int) -> Ids:
    """The inverse of a relation, a part of it, or it and another together."""
    pairs = world.some() if world.rng.random() < 0.5 else inverse(world.some(), world.num_nodes)
    if world.rng.random() < 0.3:
        return np.union1d(pairs, world.some())
    return pairs[world.rng.random(len(pairs)) < world.rng.choice([0.4, 0.8, 1.0])]


def _guarded(world: _World, size: int) -> Ids:
    """A relation where its objects have one thing in common."""
    pairs, other = world.some(), world.some()
    common = other[world.rng.integers(len(other))] % world.num_nodes
    return pairs[np.isin(pairs % world.num_nodes, other[other % world.num_nodes == common] // world.num_nodes)]


def _farther(world: _World, size: int) -> Ids:
    """A relation and two or three steps of it: ancestors, once the relation is a tree."""
    step = found = world.some()
    for _ in range(int(world.rng.integers(1, 3))):
        found = np.union1d(found, composed(found, step, world.num_nodes, world.rng, 2 * size))
    return found


Drawing = Callable[[_World, int], Ids]
FACTS: tuple[Drawing, ...] = (_liking, _attribute, _tree, _same_group, _near)
RULES: tuple[Drawing, ...] = (_chain, _implied, _guarded, _farther)


def _world(rng: Generator) -> Ids:
    """Some kinds of facts and some kinds of rules, mixed."""
    num_nodes = spread(rng, 40, 3000)
    num_triples = min(max(num_nodes * spread(rng, 3, 25), 500), MOST_TRIPLES)
    num_relations = spread(rng, 2, min(120, max(num_triples // 40, 4)))
    num_types = int(rng.integers(1, 2 + min(9, num_nodes // 20)))
    types = (num_types * rng.random(num_nodes) * rng.random(num_nodes)).astype(np.int64)  # some large, some small
    in_type = max(num_nodes // (num_types * int(rng.integers(3, 25))), 1)
    groups = types * in_type + rng.integers(in_type, size=num_nodes)
    popularity = 1 + num_nodes // (1 + rng.permutation(num_nodes)) if rng.random() < 0.6 else np.ones_like(types)
    world = _World(rng, num_nodes, types, groups, popularity, rng.random((num_nodes, 2)))
    facts, rules = (
        [kinds[i] for i in rng.permutation(len(kinds))[: int(rng.integers(1, len(kinds) + 1))]]
        for kinds in (FACTS, RULES)
    )
    ruled, total = rng.uniform(0.3, 0.8), 0
    for _ in range(4 * num_relations + 40):
        if total >= 500 and (len(world.relations) >= num_relations or total >= num_triples):
            break
        derived = len(world.relations) > 1 and rng.random() < ruled
        kinds = rules if derived else facts
        size = max(int(2 * rng.random() * num_triples / num_relations), 20)
        pairs = kinds[int(rng.integers(len(kinds)))](world, size)
        if not derived and rng.random() < 0.15:
            pairs = np.union1d(pairs, inverse(pairs, num_nodes))
        if len(pairs) > 2 and len(world.relations) < 120:
            world.relations.append(pairs[rng.random(len(pairs)) < 1.5 * size / len(pairs) + 0.5])
            total += len(world.relations[-1])
    return _listed(world.relations, num_nodes)


def _listed(relations: list[Ids], num_nodes: int) -> Ids:
    """int64 [T, 3] of each relation's pairs."""
    number = np.repeat(np.arange(len(relations)), [len(pairs) for pairs in relations])
    pairs = np.concatenate(relations)
    return np.stack([pairs // num_nodes, number, pairs % num_nodes], axis=1)


# -- small dense graphs ------------------------------------------------------------------------------------------


def _kin(rng: Generator) -> Ids:
    """Nearly every pair has one relation, told by section, generation, sex and age of both."""
    num_nodes = int(rng.integers(35, 170))
    sections, generations, num_relations = int(rng.choice([2, 4, 4, 8])), int(rng.integers(1, 6)), spread(rng, 6, 45)
    section, generation, sex = (rng.integers(most, size=num_nodes) for most in (sections, generations, 2))
    s, o = np.divmod(np.arange(num_nodes * num_nodes), num_nodes)
    code = (section[s] ^ section[o]) if rng.random() < 0.5 else (section[o] - section[s]) % sections
    code = code * 2 * generations + generation[o] - generation[s] + generations
    others = (sex[o], sex[s], (s < o).astype(np.int64), section[s], generation[s])
    for other, share in zip(others, (0.8, 0.5, 0.3, 0.3, 0.2), strict=True):
        code = code * 8 + other if rng.random() < share else code
    used, code = np.unique(code, return_inverse=True)
    table = (num_relations * rng.random(len(used)) * rng.random(len(used))).astype(np.int64)
    wrong = rng.random(len(code)) < rng.choice([0.0, 0.05, 0.1, 0.2])
    relation = table[np.where(wrong, rng.permutation(code), code)]
    kept = (s != o) & (rng.random(len(s)) < rng.choice([1.0, 1.0, 0.8, 0.5]))
    return np.stack([s, relation, o], axis=1)[kept]


def _semantic(rng: Generator) -> Ids:
    """A tree of concepts; what holds between two concepts mostly holds between all below them."""
    num_nodes, num_relations = spread(rng, 60, 400), spread(rng, 8, 80)
    parents = (np.arange(num_nodes) * rng.random(num_nodes) ** 2 / (1 + rng.random(num_nodes))).astype(np.int64)
    below = np.eye(num_nodes, dtype=bool)  # [node, concept]
    for node in range(1, num_nodes):
        below[node] |= below[parents[node]]
    concepts = np.flatnonzero((below.sum(0) > 1) & (below.sum(0) < num_nodes / 2))
    concepts = rng.permutation(concepts if len(concepts) > 2 else np.arange(num_nodes))[: int(rng.integers(4, 30))]
    child = np.arange(1, num_nodes)
    relations = [child * num_nodes + parents[1:], np.flatnonzero(below & ~np.eye(num_nodes, dtype=bool))]
    relations = relations[: int(rng.integers(1, 3))]
    for _ in range(4 * num_relations):
        if len(relations) >= num_relations and sum(map(len, relations)) > 500:
            break
        holds = np.zeros((num_nodes, num_nodes), dtype=bool)
        for a, b in rng.choice(concepts, size=(int(rng.integers(1, 5)), 2)):
            holds |= below[:, a, None] & below[None, :, b]
        holds[below[:, rng.integers(num_nodes)]] = False  # the exception
        if rng.random() < 0.15:
            holds |= holds.T
        pairs = np.flatnonzero(holds)
        pairs = pairs[rng.random(len(pairs)) < rng.choice([0.5, 0.8, 0.95])]
        if rng.random() < 0.2:  # a wider relation
            pairs = np.union1d(pairs, relations[int(rng.integers(len(relations)))])
        if 0 < len(pairs) <= MOST_TRIPLES // 8:
            relations.append(pairs)
    return _listed(relations, num_nodes)


def _blocs(rng: Generator) -> Ids:
    """Few nodes, many relations between blocs of them, some much like others: (hidden traits) M_r (hidden traits)."""
    num_nodes, num_relations, traits = spread(rng, 12, 60), spread(rng, 15, 100), int(rng.integers(2, 6))
    blocs = rng.integers(-3, 4, size=(int(rng.integers(2, 7)), traits))
    hidden = blocs[rng.integers(len(blocs), size=num_nodes)] + rng.integers(-1, 2, size=(num_nodes, traits))
    kinds = rng.integers(-2, 3, size=(int(rng.integers(2, 7)), traits, traits))
    ends = rng.integers(-6, 7, size=(2, num_nodes))  # who does much, and to whom much is done
    relations = []
    for _ in range(num_relations):
        matrix = kinds[rng.integers(len(kinds))] * 2 + rng.integers(-1, 2, size=(traits, traits))
        score = hidden @ matrix @ hidden.T + rng.integers(4) * ends[0][:, None] + rng.integers(4) * ends[1][None, :]
        score += rng.integers(-6, 7, size=score.shape)
        if rng.random() < 0.35:
            score += score.T
        np.fill_diagonal(score, score.min())
        most = min(spread(rng, 4, num_nodes * num_nodes // 2), 2000)
        relations.append(np.sort(np.argsort(-score, axis=None, kind="stable")[:most]))
    return _listed(relations, num_nodes)


KINDS: dict[str, Callable[[Generator], Ids]] = {"world": _world, "kin": _kin, "semantic": _semantic, "blocs": _blocs}
