"""Generate graphs to pretrain on, in which some triples follow from others; and augment given graphs.

No draw depends on the last bit of a float, so that a seed gives the same graph on every machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import SPLITS, KnowledgeGraph, Vocabulary

Ids = NDArray[np.int64]
MAX_TRIPLES = 30_000


def draw_graph(seed: int, kind: str | None = None) -> KnowledgeGraph:
    """Generate a graph of one of the KINDS, by default of a random one. Ids and names carry no information.

    >>> draw_graph(1, "kin")
    KnowledgeGraph('drawn kin 1', 136 nodes, 28 relations, 10,975 triples)
    """
    rng = np.random.default_rng(seed)
    # Drawn even if the kind is given, for the same random stream.
    drawn = list(KINDS)[int(rng.choice(len(KINDS), p=[0.58, 0.16, 0.13, 0.13]))]
    triples = KINDS[kind or drawn](rng)
    size = max(350, int(len(triples) * rng.choice([0.75, 0.9, 1.0, 1.0])))
    triples = triples[rng.permutation(len(triples))[: min(size, MAX_TRIPLES)]]
    noisy = np.flatnonzero(rng.random(len(triples)) < rng.choice([0.0, 0.0, 0.01, 0.05]))
    triples[noisy, 2] = triples[rng.permutation(noisy), 2]
    return renumbered(triples, rng, f"drawn {kind or drawn} {seed}")


def renumbered(triples: Ids, rng: Generator, name: str = "") -> KnowledgeGraph:
    """Return a graph of the distinct triples int64 [T, 3], with random ids and order; unused nodes are dropped."""
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


def log_uniform(rng: Generator, low: int, high: int) -> int:
    """Draw an integer from low to high whose logarithm is uniform."""
    return int(low * (high / low) ** rng.random())


# -- pairs of nodes, as sorted integers subject * num_nodes + object ----------------------------------------------


def inverse(pairs: Ids, num_nodes: int) -> Ids:
    """Return the pairs with subject and object exchanged."""
    return np.unique(pairs % num_nodes * num_nodes + pairs // num_nodes)


def compose(first: Ids, second: Ids, num_nodes: int, rng: Generator, most: int = MAX_TRIPLES) -> Ids:
    """Return the pairs (x, z), x not z, of (x, y) in the first and (y, z) in the second relation.

    If there are more than `most`, only those of randomly chosen x are returned.
    """
    subjects, middles = np.divmod(first, num_nodes)
    start, stop = np.searchsorted(second, middles * num_nodes), np.searchsorted(second, (middles + 1) * num_nodes)
    order = np.argsort(rng.permutation(num_nodes)[subjects], kind="stable")
    order = order[np.cumsum((stop - start)[order]) <= most]
    counts = (stop - start)[order]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    objects = second[np.repeat(start[order], counts) + within] % num_nodes
    result = np.unique(np.repeat(subjects[order], counts) * num_nodes + objects)
    return np.asarray(result[result // num_nodes != result % num_nodes])


def triples_of(relations: list[Ids], num_nodes: int) -> Ids:
    """Return triples int64 [T, 3] from the pairs of each relation."""
    number = np.repeat(np.arange(len(relations)), [len(pairs) for pairs in relations])
    subjects, objects = np.divmod(np.concatenate(relations), num_nodes)
    return np.stack([subjects, number, objects], axis=1)


# -- worlds: nodes have latent types, groups and grid positions; some relations follow from others ----------------


@dataclass
class _World:
    """A graph under construction.

    Args:
        rng: Random generator.
        types: Latent type of each node, ascending.
        group_size: Number of consecutive nodes that form a group.
        columns: Columns of the grid on which the nodes lie in order.
        relations: The pairs of each relation.
    """

    rng: Generator
    types: Ids
    group_size: int
    columns: int
    relations: list[Ids] = field(default_factory=list)

    def members(self, most: int = MAX_TRIPLES) -> Ids:
        """Draw nodes of one type."""
        members = np.flatnonzero(self.types == self.rng.choice(self.types))
        return np.sort(self.rng.permutation(members)[:most])

    def affinity(self, size: int) -> Ids:
        """A group is linked to one or two groups, mostly to their first members; some links go to popular nodes."""
        rng, degree = self.rng, int(self.rng.choice([1, 1, 2, 4, 10]))
        subjects, objects = self.members(max(size // degree, 2)), self.members()
        s = np.repeat(subjects, degree if degree == 1 else rng.integers(1, 2 * degree, size=len(subjects)))
        liked = rng.integers(len(objects), size=(len(self.types), int(rng.integers(1, 3))))
        skewed = rng.random(len(s)) * rng.random(len(s))
        o = liked[s // self.group_size, rng.integers(liked.shape[1], size=len(s))]
        o = o + (self.group_size * skewed).astype(np.int64)
        anyone = rng.random(len(s)) < rng.choice([0.0, 0.1, 0.3])
        o = np.where(anyone, (len(objects) * skewed * rng.random(len(s))).astype(np.int64), o)
        return np.unique(s * len(self.types) + objects[o % len(objects)])

    def attribute(self, size: int) -> Ids:
        """Few objects and many subjects, like classes: by node number, by group, or by group and grid position."""
        rng, s, values = self.rng, self.members(size), self.members(int(self.rng.integers(2, 20)))
        table = rng.integers(len(values), size=(len(self.types), 4))
        by_number, group = np.arange(len(s)) * len(values) // len(s), s // self.group_size
        o = (by_number, table[group, 0], table[group, s % self.columns % 4])[rng.integers(3)]
        o = np.where(rng.random(len(s)) < rng.choice([0.0, 0.05, 0.2]), rng.permutation(o), o)
        return np.unique(s * len(self.types) + values[o])

    def tree(self, size: int) -> Ids:
        """A tree, from children to parents."""
        members, number = self.rng.permutation(self.members(size + 1)), np.arange(size)
        even = self.rng.random() < 0.5
        parents = number // self.rng.integers(2, 8) if even else (number * self.rng.random(size)).astype(np.int64)
        return np.unique(members[1:] * len(self.types) + members[parents[: len(members) - 1]])

    def same_set(self, size: int) -> Ids:
        """All pairs of nodes within small sets."""
        of_each = int(self.rng.integers(2, 9))
        s = self.members(max(size // of_each, 2))
        belongs = np.sort(s * len(self.types) + s // of_each)
        return compose(belongs, inverse(belongs, len(self.types)), len(self.types), self.rng)

    def neighbor(self, size: int) -> Ids:
        """The next node on the grid: to the east, to the north, or north-east."""
        s = self.members(size)
        o = s + self.rng.choice([1, 2, self.columns, self.columns + 1])
        return np.asarray((s * len(self.types) + o)[o < len(self.types)])

    def derived(self, rule: int, size: int) -> Ids:
        """A relation that follows from existing ones or their inverses by a rule."""
        rng, nodes = self.rng, len(self.types)
        first, second, third = (self.relations[i] for i in rng.integers(len(self.relations), size=3))
        first, second = (inverse(pairs, nodes) if rng.random() < 0.4 else pairs for pairs in (first, second))
        after = compose(first, first if rule == 3 else second, nodes, rng, 2 * size)
        if rule == 0:  # a chain of two relations, sometimes three
            return compose(after, third, nodes, rng, 2 * size) if rng.random() < 0.25 else after
        if rule == 1:  # a copy of the relation, or of most of it
            return np.asarray(first[rng.random(len(first)) < rng.choice([0.4, 0.8, 1.0])])
        if rule == 2:  # the relation, restricted to objects with a common attribute
            alike = second[second % nodes == rng.choice(second) % nodes] // nodes
            return first[np.isin(first % nodes, alike)]
        return np.union1d(first, after if rule == 3 else second)  # a relation and its square, or the union of two


BASE_RELATIONS = (_World.affinity, _World.attribute, _World.tree, _World.same_set, _World.neighbor)


def _world(rng: Generator) -> Ids:
    """A mixture of base relations and derived relations."""
    num_nodes = log_uniform(rng, 40, 3000)
    num_triples = min(max(num_nodes * log_uniform(rng, 3, 25), 500), MAX_TRIPLES)
    num_relations = log_uniform(rng, 2, min(120, max(num_triples // 40, 4)))
    num_types = int(rng.integers(1, 2 + min(9, num_nodes // 20)))
    types = np.sort((num_types * rng.random(num_nodes) * rng.random(num_nodes)).astype(np.int64))  # large and small
    world = _World(rng, types, group_size=log_uniform(rng, 2, 30), columns=log_uniform(rng, 3, 30))
    bases, rules = (rng.permutation(5)[: int(rng.integers(1, 6))] for _ in range(2))
    derived_share, total = rng.uniform(0.4, 0.85), 0
    while len(world.relations) < 120 and total < num_triples:
        if len(world.relations) >= num_relations and total > max(num_triples // 3, 500):
            break
        size = max(int(2 * rng.random() * num_triples / num_relations), 20)
        if len(world.relations) > 1 and rng.random() < derived_share:
            pairs = world.derived(rng.choice(rules), size)
        else:
            pairs = BASE_RELATIONS[rng.choice(bases)](world, size)
            pairs = np.union1d(pairs, inverse(pairs, num_nodes)) if rng.random() < 0.15 else pairs
        if len(pairs) > 2:
            world.relations.append(pairs[rng.random(len(pairs)) < 1.5 * size / len(pairs) + 0.5])
            total += len(world.relations[-1])
    return triples_of(world.relations, num_nodes)


# -- small, dense graphs ------------------------------------------------------------------------------------------


def _kin(rng: Generator) -> Ids:
    """A kinship system: nearly every pair has one relation, by section, generation, sex and age of both nodes."""
    num_nodes, sections, generations = int(rng.integers(35, 170)), int(rng.choice([2, 4, 4, 8])), rng.integers(2, 6)
    section, generation, sex = (rng.integers(most, size=num_nodes) for most in (sections, generations, 2))
    s, o = np.divmod(np.arange(num_nodes * num_nodes), num_nodes)
    code = (section[s] ^ section[o]) if rng.random() < 0.5 else (section[o] - section[s]) % sections
    code = code * 2 * generations + generation[o] - generation[s] + generations
    for other, share in ((sex[o], 0.7), (sex[s], 0.4), (s < o, 0.2), (section[s], 0.15), (generation[s], 0.1)):
        code = code * 8 + other if rng.random() < share else code
    code = np.unique(code, return_inverse=True)[1]
    table = (log_uniform(rng, 10, 80) * rng.random(len(code)) * rng.random(len(code))).astype(np.int64)
    wrong = rng.random(len(code)) < rng.choice([0.0, 0.0, 0.03, 0.1])
    relation = table[np.where(wrong, rng.permutation(code), code)]
    is_kept = (s != o) & (rng.random(len(s)) < rng.choice([1.0, 1.0, 0.95, 0.6]))
    return np.asarray(np.stack([s, relation, o], axis=1)[is_kept])


def _semantic(rng: Generator) -> Ids:
    """A tree of concepts: a relation between two concepts mostly holds for all of their descendants."""
    num_nodes, num_relations = log_uniform(rng, 60, 400), log_uniform(rng, 8, 80)
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
        pairs = pairs[rng.random(len(pairs)) < rng.choice([0.7, 0.95, 1.0, 1.0])][: MAX_TRIPLES // 8]
        wider = rng.random() < 0.2
        relations.append(np.union1d(pairs, relations[rng.integers(len(relations))]) if wider else pairs)
    return triples_of(relations, num_nodes)


def _blocs(rng: Generator) -> Ids:
    """Few nodes in blocs, and many relations, some alike: the pairs with the highest x_s M_r x_o."""
    num_nodes, traits = log_uniform(rng, 12, 60), int(rng.integers(2, 6))
    blocs = rng.integers(-3, 4, size=(int(rng.integers(2, 7)), traits))
    hidden = blocs[rng.integers(len(blocs), size=num_nodes)] + rng.integers(-1, 2, size=(num_nodes, traits))
    kinds = rng.integers(-2, 3, size=(int(rng.integers(2, 7)), traits, traits))
    does, suffers = rng.integers(-6, 7, size=(2, num_nodes))
    relations = []
    for _ in range(log_uniform(rng, 15, 100)):
        matrix = kinds[rng.integers(len(kinds))] * 2 + rng.integers(-1, 2, size=(traits, traits))
        score = hidden @ matrix @ hidden.T + rng.integers(4) * does[:, None] + rng.integers(4) * suffers[None, :]
        score += rng.integers(-3, 4, size=score.shape)
        score = score + score.T if rng.random() < 0.35 else score
        most = min(log_uniform(rng, 10, num_nodes * num_nodes // 2), 2000)
        order = np.argsort(-score, axis=None, kind="stable")
        relations.append(order[order // num_nodes != order % num_nodes][:most])
    return triples_of(relations, num_nodes)


KINDS: dict[str, Callable[[Generator], Ids]] = {"world": _world, "kin": _kin, "semantic": _semantic, "blocs": _blocs}


def augment(graph: KnowledgeGraph, seed: int) -> KnowledgeGraph:
    """Return a random view of a graph's training triples, with at least two nodes and one triple.

    Args:
        graph: The graph.
        seed: The view follows from graph and seed alone.

    Raises:
        DataError: If the graph has no training triple between two nodes.

    >>> augment(KnowledgeGraph.from_triples([("Bern", "capital_of", "Switzerland")]), seed=0)
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
    """Return 20 to 100 % of the triples: those nearest to a few nodes, by hops or by edges of random length."""
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
    away += rng.random(len(away)) / 2  # random order of triples at the same distance, and of unreachable ones
    num_kept = int(np.ceil(rng.uniform(0.2, 1.0) * len(triples)))
    return triples[np.argsort(np.maximum(away[subjects], away[objects]), kind="stable")[:num_kept]]


def _other_relations(triples: Ids, rng: Generator) -> Ids:
    """Drop, merge, split (at random, or by another relation of an end) or invert some relations."""
    relation, size = triples[:, 1], int(triples[:, 1].max()) + 1
    shares = rng.choice([0.0, 0.0, 0.1, 0.3], size=(4, 1))  # two views in four lack a kind of change
    dropped, merged, split, inverted = rng.random((4, size)) < shares
    becomes = np.where(merged, rng.integers(size, size=size), np.arange(size))
    takes_part = np.isin(triples[:, rng.choice([0, 2])], triples[relation == rng.choice(relation)][:, [0, 2]])
    second = split[relation] & (takes_part if rng.random() < 0.5 else rng.random(len(triples)) < 0.5)
    changed = np.stack([triples[:, 0], becomes[relation] + size * second, triples[:, 2]], axis=1)
    return np.asarray(np.where(inverted[relation, None], changed[:, ::-1], changed)[~dropped[relation]])


def node_classification_view(graph: KnowledgeGraph, seed: int) -> tuple[KnowledgeGraph, Ids]:
    """Return a view in which one relation plays the part of node labels, and its triples int64 [A, 3].

    The relation is functional and has few objects, if there is such a relation. Most of its triples are validation
    triples of the view: they are predicted, but not part of the message-passing graph. In half of the views its objects
    become nodes of their own, as classes usually are.
    """
    rng, triples = np.random.default_rng([seed, 1]), np.array(graph.split_triples("train"))
    wide, sizes = int(triples[:, [0, 2]].max()) + 1, np.bincount(triples[:, 1])
    by_end = (np.unique(triples[:, 1] * wide + triples[:, end]) // wide for end in (0, 2))
    subjects, objects = (np.bincount(relation, minlength=len(sizes)) for relation in by_end)
    is_labeling = (sizes >= 20) & (sizes <= 1.2 * subjects) & (5 * objects <= sizes) & (objects > 1)
    chosen = rng.choice(np.flatnonzero(is_labeling if is_labeling.any() else sizes >= min(20, sizes.max())))
    is_label = triples[:, 1] == chosen
    triples[is_label, 2] += wide if rng.random() < 0.5 else 0
    used, ends = np.unique(triples[:, [0, 2]], return_inverse=True)
    triples[:, [0, 2]] = ends.reshape(-1, 2)
    is_held_out = is_label & (rng.random(len(triples)) < rng.choice([0.5, 0.8, 0.9, 0.95]))
    is_held_out[np.flatnonzero(is_label)[0]] = False  # at least one label stays in training
    nodes = Vocabulary((f"n{i}" for i in range(len(used))), "node")
    splits = np.where(is_held_out, SPLITS.index("valid"), SPLITS.index("train")).astype(np.int8)
    view = KnowledgeGraph(triples, nodes, graph.relations, triple_splits=splits, name=f"labels in {graph.name}")
    return view, triples[is_label]
