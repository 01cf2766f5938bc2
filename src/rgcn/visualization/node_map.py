"""A map of nodes: where they stand, what they are colored by, who is near to them, and how far it can be believed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import local_name
from rgcn.predict import OpenModel
from rgcn.visualization.projection import FEWEST, Integers, nearest, same_class_share, trustworthiness, two_dimensional
from rgcn.visualization.vectors import NodeVectors, predictions

MOST, NEAR, CLASS_NEIGHBORS, TRUST_NEIGHBORS = 5000, 6, 10, 15
FEWEST_LABELLED = 20
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


class Coloring(NamedTuple):
    """A way to color a map."""

    key: str  # a word for programs
    title: str  # after "color by"
    explanation: str  # a sentence on what the groups are
    groups: list[Group]  # the largest first, muted ones last
    of: Integers  # [n]: each point's group


class NodeMap:
    """Nodes on a plane: at most `most` of the candidates (`nodes_shown`), their places, and what they are.

    split    "test": classes of test nodes may be seen
    on_step  called `STEPS[method]` times
    """

    def __init__(
        self,
        vectors: NodeVectors,
        candidates: Integers,
        *,
        method: str = "tsne",
        seed: int = 0,
        most: int = MOST,
        split: str | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        self.vectors, self.opened, self.seed = vectors, vectors.opened, seed
        graph, classes = self.opened.graph, shown_classes(self.opened.graph)
        self.candidates = len(candidates)  # of how many the nodes were taken
        self.labelled = int((classes[candidates] >= 0).sum())  # of these; more than the nodes: the map shows a draw
        # [n]: their ids, labelled ones first, then the best connected; training triples of each
        self.nodes = nodes = nodes_shown(graph, candidates, most, seed)
        self.degree = graph.degrees("train")[nodes]
        numbers = vectors.gather(nodes)
        self.method = method if len(nodes) >= FEWEST else "pca"
        self.places = two_dimensional(numbers, self.method, seed, on_step)  # [n, 2]
        # [n, k]: the nearest by their vectors, nearest first, as positions in `nodes`
        self.near = nearest(numbers, NEAR).numbers
        # What a classifier says of each; None for link prediction.
        self.answers = predictions(self.opened, nodes) if self.opened.classes else None
        self.colorings = colorings(self.opened, nodes, None if self.answers is None else self.answers.class_, split)
        # Whether the 15 nearest on the map are near by their vectors: 1 always, 0.5 about by chance.
        self.trustworthiness = trustworthiness(numbers, self.places, TRUST_NEIGHBORS)
        # Of the 10 nearest labelled on the map the mean share of the class; the same by vectors: what the map could
        # show at best. Outside the test split, because figures guide choices.
        hidden = 0 if graph.labels is None else graph.labels.num_classes
        rows = np.flatnonzero((classes[nodes] >= 0) & (classes[nodes] < hidden))
        self.same_class, self.same_class_whole = (
            same_class_share(points[rows], classes[nodes[rows]], CLASS_NEIGHBORS)
            if len(rows) >= FEWEST_LABELLED
            else None
            for points in (self.places, numbers)
        )

    def as_dict(self) -> dict[str, Any]:
        quality = {name: getattr(self, name) for name in ("trustworthiness", "same_class", "same_class_whole")}
        rounded = {name: None if value is None else round(value, 4) for name, value in quality.items()}
        counts = {"nodes": len(self.nodes), "candidates": self.candidates}
        return {"method": self.method, "seed": self.seed, **counts, **rounded}


def shown_classes(graph: KnowledgeGraph, with_test: bool = False) -> Integers:
    """[N]: each node's class, -1 without one; test nodes are a class of their own, kept from sight and every choice."""
    classes = np.full(graph.num_nodes, -1, dtype=np.int64)
    if graph.labels is not None:
        hidden = (graph.labels.splits == SPLITS.index("test")) & (not with_test)
        classes[graph.labels.nodes] = np.where(hidden, graph.labels.num_classes, graph.labels.classes)
    return classes


def nodes_shown(graph: KnowledgeGraph, candidates: Integers, most: int, seed: int = 0) -> Integers:
    """At most `most` of the candidates: those with a label, then those in the most triples.

    Where the labelled ones alone are too many, the classes take turns, each giving one of its nodes at random until
    there are enough: as many are drawn of each class, or all it has; `seed` decides which.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c"), ("b", "likes", "d")])
    >>> [kg.nodes[i] for i in nodes_shown(kg, np.arange(4), 2)]
    ['b', 'a']
    """
    classes = shown_classes(graph)
    is_labelled = classes[candidates] >= 0
    if is_labelled.sum() > most:
        shuffled = np.random.default_rng(seed).permutation(np.sort(candidates[is_labelled]))
        by_class = np.argsort(classes[shuffled], kind="stable")
        _, first, size = np.unique(classes[shuffled][by_class], return_index=True, return_counts=True)
        turn = np.arange(len(shuffled)) - np.repeat(first, size)
        candidates = shuffled[by_class][np.argsort(turn, kind="stable")[:most]]
        is_labelled = np.ones(most, dtype=bool)
    order = np.lexsort((candidates, -graph.degrees("train")[candidates], ~is_labelled))
    return np.asarray(candidates[order][:most])


# -- colors ------------------------------------------------------------------------------------------------


def colorings(
    opened: OpenModel, nodes: Integers, predicted: Integers | None = None, split: str | None = None
) -> list[Coloring]:
    """Every way these nodes can be colored, the one that tells most first; by `predicted` [n] classes, too.

    split  "test" shows the classes of test nodes too; else they are kept from sight, as from every choice
    """
    made, labels = [by_kind(opened, nodes)], opened.graph.labels
    if labels is not None and len(labels):
        group, hidden = shown_classes(opened.graph, split == "test")[nodes], labels.num_classes
        words = "The class each labelled node truly has."
        if (group == hidden).any():
            words += " Those of test nodes are kept from sight; --split test shows them."
        names = [opened.titles.class_(number) for number in range(labels.num_classes)]
        muted = {hidden: "test nodes, class not shown", -1: "nodes without a class"}
        place = 0 if opened.classes else 1
        made.insert(place, _coloring("class", "class", words, group, names, muted))
    if predicted is not None:
        names = [opened.titles.class_(number) for number in range(len(opened.model.classes_))]
        words = "The class the model finds likeliest, also for nodes that no class was meant for."
        made.insert(1, _coloring("predicted", "predicted class", words, predicted, names, {}))
    return made


def by_kind(opened: OpenModel, nodes: Integers) -> Coloring:
    """A node's type where the graph has types; else the part it plays, of several the one that most nodes share.

    Countries are subjects of many relations, and would fall into as many groups if each went by its most frequent one.
    """
    role, names = _roles(opened)
    kind, type_names = _types(opened, nodes)
    group = np.where(kind >= 0, kind, np.where(role[nodes] >= 0, role[nodes] + len(type_names), -1))
    words = "The part of each node in its triples: of several, the one that most nodes share."
    if (kind >= 0).any():
        words = "The type of each node; without one, the part it has in its triples."
    if opened.graph.triple_splits is not None:
        words += " Training triples only."
    return _coloring("kind", "kind of node", words, group, [*type_names, *names], {-1: "nodes in no triple"})


def _roles(opened: OpenModel) -> tuple[Integers, list[str]]:
    """[N] the part each node has, -1 for none; and what the parts are called."""
    graph, count = opened.graph, opened.graph.num_relations
    subjects, relations, objects = graph.split_triples("train").T
    pairs = np.concatenate([subjects * 2 * count + relations, objects * 2 * count + relations + count])
    node, part = np.divmod(np.unique(pairs), 2 * count)
    shared = np.bincount(part, minlength=2 * count)
    order = np.lexsort((part, -shared[part], node))
    first_node, first = np.unique(node[order], return_index=True)
    role = np.full(graph.num_nodes, -1, dtype=np.int64)
    role[first_node] = part[order][first]
    titles = [path_end(opened.titles.relation(number)) for number in range(count)]
    return role, [f"{part} of {title}" for part in ("subject", "object") for title in titles]


def _types(opened: OpenModel, nodes: Integers) -> tuple[Integers, list[str]]:
    """[n] the type of each node, -1 for none, of several the rarest among the largest groups; what types are called."""
    graph, triples = opened.graph, opened.graph.split_triples("train")
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
    key: str, title: str, words: str, group: Integers, names: Sequence[str], muted: dict[int, str]
) -> Coloring:
    """Groups in order of size; those beyond the palette become one, the muted ones come last."""
    numbers, of, counts = np.unique(group, return_inverse=True, return_counts=True)
    colored = [i for i in np.argsort(-counts, kind="stable").tolist() if int(numbers[i]) not in muted]
    most = MOST_GROUPS + (len(colored) == MOST_GROUPS + 1)  # a single one is as easily named as called the rest
    made = [(names[int(numbers[i])], [i], False) for i in colored[:most]]
    made.append((f"{len(colored) - most:,} rarer ones", colored[most:], True))
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
