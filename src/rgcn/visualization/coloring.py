"""What the points of a map are colored by: their class, what the model says, or what kind of node they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels
from rgcn.graph.titles import local_name
from rgcn.predict import OpenModel
from rgcn.visualization.neighborhoods import Integers

# Seven colors in three shapes; what is rarer shares one more group.
MOST_GROUPS = 21
LONGEST_PATH = 36
TYPE_RELATIONS = frozenset({"type", "instanceof", "isa", "p31", "kind"})


@dataclass(frozen=True)
class Group:
    """Points of one color. muted: they are the background, and have no color of their own."""

    title: str
    count: int
    muted: bool = False


@dataclass(frozen=True, eq=False)
class Coloring:
    """A way to color a map."""

    key: str  # a word for programs
    title: str  # after "color by"
    explanation: str  # a sentence on what the groups are
    groups: list[Group]  # the largest first, muted ones last
    of: Integers  # [n]: each point's group


def colorings(
    opened: OpenModel, nodes: Integers, predicted: Integers | None = None, split: str | None = None
) -> list[Coloring]:
    """Every way these nodes can be colored, the one that tells most first; by `predicted` [n] classes, too.

    split  "test" shows the classes of test nodes too; else they are kept from sight, as from every choice
    """
    made, labels = [by_kind(opened, nodes)], opened.graph.labels
    if labels is not None and len(labels):
        made.insert(0 if opened.classes else 1, by_class(opened, nodes, labels, split == "test"))
    if predicted is not None:
        names = [opened.titles.class_(number) for number in range(len(opened.model.classes_))]
        words = "The class the model finds likeliest, also for nodes that no class was meant for."
        made.insert(1, _coloring("predicted", "predicted class", words, predicted, names))
    return made


def shown_classes(graph: KnowledgeGraph, with_test: bool = False) -> Integers:
    """[N]: each node's class, -1 without one; test nodes are a class of their own, kept from sight and every choice."""
    classes = np.full(graph.num_nodes, -1, dtype=np.int64)
    if graph.labels is not None:
        hidden = (graph.labels.splits == SPLITS.index("test")) & (not with_test)
        classes[graph.labels.nodes] = np.where(hidden, graph.labels.num_classes, graph.labels.classes)
    return classes


def by_class(opened: OpenModel, nodes: Integers, labels: NodeLabels, with_test: bool) -> Coloring:
    group, hidden = shown_classes(opened.graph, with_test)[nodes], labels.num_classes
    words = "The class each labelled node truly has."
    if (group == hidden).any():
        words += " Those of test nodes are kept from sight; --split test shows them."
    names = [opened.titles.class_(number) for number in range(labels.num_classes)]
    muted = {hidden: "test nodes, class not shown", -1: "nodes without a class"}
    return _coloring("class", "class", words, group, names, muted)


def by_kind(opened: OpenModel, nodes: Integers) -> Coloring:
    """A node's type where the graph has types; else the part it plays, of several the one that most nodes share.

    Countries are subjects of many relations, and would fall into as many groups if each went by its most frequent one.
    """
    role, names = _roles(opened)
    kind, type_names = _types(opened, nodes)
    role, typed = role[nodes], kind >= 0
    group = np.where(typed, kind, np.where(role >= 0, role + len(type_names), -1))
    words = "The part of each node in its triples: of several, the one that most nodes share."
    if typed.any():
        words = "The type of each node; without one, the part it has in its triples."
    if opened.graph.triple_splits is not None:
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
    return role, [
        f"{part} of {path_end(opened.titles.relation(r))}" for part in ("subject", "object") for r in range(count)
    ]


def _types(opened: OpenModel, nodes: Integers) -> tuple[Integers, list[str]]:
    """[n] the type of each node, -1 for none, of several the rarest among the largest groups; what types are called."""
    graph = opened.graph
    triples = graph.split_triples("train")
    bare = [local_name(name).replace("_", "").replace(" ", "").lower() for name in graph.relations]
    triples = triples[np.isin(triples[:, 1], [number for number, name in enumerate(bare) if name in TYPE_RELATIONS])]
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
    # A title may still have the namespace that even a literal may have.
    return kind, [local_name(opened.titles.of(number)) for number in types.tolist()]


def _coloring(
    key: str, title: str, words: str, group: Integers, names: Sequence[str], muted: dict[int, str] | None = None
) -> Coloring:
    """Groups in order of size; those beyond the palette become one, the muted ones come last."""
    muted = muted or {}
    numbers, of, counts = np.unique(group, return_inverse=True, return_counts=True)
    colored = [i for i in np.argsort(-counts, kind="stable").tolist() if int(numbers[i]) not in muted]
    most = MOST_GROUPS + (len(colored) == MOST_GROUPS + 1)  # a single one is as easily named as called the rest
    made = [(names[int(numbers[i])], [i], False) for i in colored[:most]]
    if rest := colored[most:]:
        made.append((f"{len(rest):,} rarer ones", rest, True))
    made += [(called, np.flatnonzero(numbers == number).tolist(), True) for number, called in muted.items()]
    made = [one for one in made if one[1]]
    place = np.empty(len(numbers), dtype=np.int64)
    for number, (_, members, _) in enumerate(made):
        place[members] = number
    groups = [Group(called, int(counts[members].sum()), is_muted) for called, members, is_muted in made]
    return Coloring(key, title, words, groups, place[of])


def path_end(path: str) -> str:
    """What people call a relation: of a long path its last parts.

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
