"""What the points of a map are colored by: their class, what the model says, or what kind of node they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import local_name
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.predict import OpenModel

# Seven colors in three shapes; what is rarer shares one more group.
MOST_GROUPS = 21
LONGEST_PATH = 36
TYPE_RELATIONS = frozenset({"type", "instanceof", "isa", "p31", "kind"})

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Points of one color. muted: they are the background, and have no color of their own."""

    title: str
    count: int
    muted: bool = False


@dataclass(frozen=True, eq=False)
class Coloring:
    """A way to color a map.

    key          a word for programs
    title        after "color by"
    explanation  a sentence on what the groups are
    groups       the largest first, muted ones last
    of           int64 [n]: each point's group
    """

    key: str
    title: str
    explanation: str
    groups: list[Group]
    of: Integers


def colorings(
    opened: OpenModel, nodes: Integers, predicted: Integers | None = None, split: str | None = None
) -> list[Coloring]:
    """Every way these nodes can be colored, the one that tells most first.

    predicted  [n]: the class that a classifier finds likeliest for each; None: not colored by it
    split      "test" shows the classes of test nodes too; else they are kept from sight, as from every choice
    """
    graph = opened.graph
    made = [by_kind(opened, nodes)]
    if graph.labels is not None and len(graph.labels):
        made.insert(0 if opened.answers("classes") else 1, by_class(opened, nodes, split == "test"))
    if predicted is not None:
        made.insert(1, by_prediction(opened, predicted))
    return made


def by_class(opened: OpenModel, nodes: Integers, with_test: bool) -> Coloring:
    labels = opened.graph.labels
    assert labels is not None
    hidden = labels.num_classes
    group = np.full(opened.graph.num_nodes, -1, dtype=np.int64)
    is_test = labels.splits == SPLITS.index("test")
    group[labels.nodes] = np.where(is_test & (not with_test), hidden, labels.classes)
    group = group[nodes]
    words = "The class each labelled node truly has."
    if (group == hidden).any():
        words += " Those of test nodes are kept from sight; --split test shows them."
    names = [opened.titles.class_(number) for number in range(labels.num_classes)]
    muted = {hidden: "test nodes, class not shown", -1: "nodes without a class"}
    return _coloring("class", "class", words, group, names, muted)


def by_prediction(opened: OpenModel, predicted: Integers) -> Coloring:
    names = [opened.titles.class_(number) for number in range(len(opened.model.classes_))]
    words = "The class the model finds likeliest, also for nodes that no class was meant for."
    return _coloring("predicted", "predicted class", words, predicted, names, {})


def by_kind(opened: OpenModel, nodes: Integers) -> Coloring:
    """A node's type where the graph has types; else the part it plays, subject or object of some relation.

    Of several it is the part that most nodes share: countries are subjects of many relations, and would fall into as
    many groups if each went by its most frequent one.
    """
    graph = opened.graph
    role, names = _roles(opened)
    role = role[nodes]
    kind, type_names = _types(opened, nodes)
    typed = kind >= 0
    group = np.where(typed, kind, np.where(role >= 0, role + len(type_names), -1))
    words = "The part of each node in its triples: of several, the one that most nodes share."
    if typed.any():
        words = "The type of each node; without one, the part it has in its triples."
    if graph.triple_splits is not None:
        words += " Training triples only."
    return _coloring("kind", "kind of node", words, group, [*type_names, *names], {-1: "nodes in no triple"})


def _roles(opened: OpenModel) -> tuple[Integers, list[str]]:
    """[N] the part each node has, -1 for none; and what the parts are called."""
    graph, count = opened.graph, opened.graph.num_relations
    triples = graph.split_triples("train")
    as_subject = triples[:, 0] * 2 * count + triples[:, 1]
    as_object = triples[:, 2] * 2 * count + triples[:, 1] + count
    pair = np.unique(np.concatenate([as_subject, as_object]))
    node, part = pair // (2 * count), pair % (2 * count)
    shared = np.bincount(part, minlength=2 * count)
    order = np.lexsort((part, -shared[part], node))
    first_node, first = np.unique(node[order], return_index=True)
    role = np.full(graph.num_nodes, -1, dtype=np.int64)
    role[first_node] = part[order][first]
    titles = [relation_title(opened, number) for number in range(count)]
    return role, [*(f"subject of {title}" for title in titles), *(f"object of {title}" for title in titles)]


def _types(opened: OpenModel, nodes: Integers) -> tuple[Integers, list[str]]:
    """[n] the type of each node, -1 for none; and what the types are called.

    Of several types it is the rarest that is still among the largest groups: everything is a Thing, too.
    """
    graph = opened.graph
    triples = graph.split_triples("train")
    triples = triples[np.isin(triples[:, 1], _type_relations(graph))]
    place = np.full(graph.num_nodes, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    triples = triples[place[triples[:, 0]] >= 0]
    types, of, counts = np.unique(triples[:, 2], return_inverse=True, return_counts=True)
    kept = np.zeros(len(types), dtype=bool)
    kept[np.argsort(-counts, kind="stable")[:MOST_GROUPS]] = True
    # Later writes win: the rarest type that is kept is written last.
    order = np.lexsort((of, -counts[of], kept[of]))
    kind = np.full(len(nodes), -1, dtype=np.int64)
    kind[place[triples[order, 0]]] = of[order]
    return kind, [node_title(opened, number) for number in types.tolist()]


def _type_relations(graph: KnowledgeGraph) -> list[int]:
    def bare(name: str) -> str:
        return local_name(name).replace("_", "").replace(" ", "").lower()

    return [number for number, name in enumerate(graph.relations) if bare(name) in TYPE_RELATIONS]


def _coloring(
    key: str, title: str, words: str, group: Integers, names: Sequence[str], muted: dict[int, str]
) -> Coloring:
    """Groups in order of size; those beyond the palette become one, the muted ones come last."""
    numbers, counts = np.unique(group, return_counts=True)
    colored = [i for i in np.argsort(-counts, kind="stable").tolist() if int(numbers[i]) not in muted]
    shown, rest = colored[:MOST_GROUPS], colored[MOST_GROUPS:]
    if len(rest) == 1:  # as easily named as called the rest
        shown, rest = colored, []
    groups = [Group(names[int(numbers[i])], int(counts[i])) for i in shown]
    new = np.full(len(numbers), -1, dtype=np.int64)
    new[shown] = np.arange(len(shown))
    if rest:
        new[rest] = len(groups)
        groups.append(Group(f"{len(rest):,} rarer ones", int(counts[rest].sum()), muted=True))
    for number, called in muted.items():
        for i in np.flatnonzero(numbers == number).tolist():
            new[i] = len(groups)
            groups.append(Group(called, int(counts[i]), muted=True))
    return Coloring(key, title, words, groups, new[np.searchsorted(numbers, group)])


def node_title(opened: OpenModel, node: int) -> str:
    """What people call a node, without the namespace that even a literal may have."""
    return local_name(opened.titles.of(node))


def relation_title(opened: OpenModel, number: int) -> str:
    """What people call a relation: of a long path its last parts."""
    return path_end(opened.titles.relation(number))


def path_end(path: str) -> str:
    """
    >>> path_end("/film/film/genre"), path_end("/music/performance_role/regular_performances./music/group/role")
    ('/film/film/genre', '…/music/group/role')
    """
    if len(path) <= LONGEST_PATH or "/" not in path:
        return path
    parts = path.split("/")
    end = parts.pop()
    while parts and len(parts[-1]) + len(end) < LONGEST_PATH - 2 and not parts[-1].endswith("."):
        end = f"{parts.pop()}/{end}"
    return f"…/{end}" if parts else end
