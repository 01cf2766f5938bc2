"""A map of nodes: positions, colors, nearest neighbors, and measures of its quality."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np

from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.graph.titles import local_name
from rgcn.predict import OpenModel
from rgcn.visualization.projection import (
    MIN_POINTS,
    Integers,
    nearest,
    project_to_plane,
    same_class_share,
    trustworthiness,
)
from rgcn.visualization.vectors import NodeVectors, predictions

MAX_NODES, NUM_NEIGHBORS, CLASS_NEIGHBORS, TRUST_NEIGHBORS = 5000, 6, 10, 15
MIN_LABELLED = 20
MAX_GROUPS = 21  # seven colors in three shapes; rarer groups share one more
MAX_PATH_LENGTH = 36
TYPE_RELATIONS = frozenset({"type", "instanceof", "isa", "p31", "kind"})


@dataclass(frozen=True)
class Group:
    """Points of one color."""

    title: str
    count: int
    is_muted: bool = False  # background, without a color of its own


class Coloring(NamedTuple):
    """A way to color a map."""

    key: str  # for programs
    title: str  # after "color by"
    explanation: str  # a sentence about the groups
    groups: list[Group]  # the largest first, muted ones last
    group_of: Integers  # [n]: each point's group


class NodeMap:
    """A map of at most `most` of the candidate nodes (`select_nodes`).

    Args:
        vectors: The vectors of the nodes.
        candidates: int64 [m]: node ids.
        method: As for `project_to_plane`; PCA if there are fewer than `MIN_POINTS` nodes.
        seed: Seed of the selection and the projection.
        most: Maximum number of nodes.
        split: "test" shows the classes of test nodes.
        on_step: Called `STEPS[method]` times.
    """

    def __init__(
        self,
        vectors: NodeVectors,
        candidates: Integers,
        *,
        method: str = "tsne",
        seed: int = 0,
        most: int = MAX_NODES,
        split: str | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        """Select, project and color the nodes."""
        self.vectors, self.opened, self.seed = vectors, vectors.opened, seed
        graph, classes = self.opened.graph, visible_classes(self.opened.graph)
        self.candidates = len(candidates)
        self.labelled = int((classes[candidates] >= 0).sum())  # labelled candidates
        # Node ids [n], labelled ones first, then by degree; degrees [n] in the training triples
        self.nodes = nodes = select_nodes(graph, candidates, most, seed)
        self.degree = graph.degrees("train")[nodes]
        numbers = vectors.gather(nodes)
        self.method = method if len(nodes) >= MIN_POINTS else "pca"
        self.places = project_to_plane(numbers, self.method, seed, on_step)  # [n, 2]
        # Nearest nodes by vectors [n, k], nearest first, as indices into `nodes`
        self.near = nearest(numbers, NUM_NEIGHBORS).numbers
        # Predicted classes; None for link prediction
        self.answers = predictions(self.opened, nodes) if self.opened.classes else None
        self.colorings = colorings(self.opened, nodes, None if self.answers is None else self.answers.class_, split)
        self.trustworthiness = trustworthiness(numbers, self.places, TRUST_NEIGHBORS)
        # Share of the nearest labelled nodes with the same class, on the map and by vectors (the best a map could
        # show). Without test nodes, because metrics guide choices.
        hidden = 0 if graph.labels is None else graph.labels.num_classes
        rows = np.flatnonzero((classes[nodes] >= 0) & (classes[nodes] < hidden))
        self.same_class, self.same_class_whole = (
            same_class_share(points[rows], classes[nodes[rows]], CLASS_NEIGHBORS) if len(rows) >= MIN_LABELLED else None
            for points in (self.places, numbers)
        )

    def _repr_html_(self) -> str:
        """Return the first coloring as SVG, for a notebook; `map_page` has names and the others."""
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        points = 100 * (self.places - low) / max(float((high - low).max()), 1e-12)
        _, title, _, groups, group_of = self.colorings[0]
        colors = ["gray" if group.is_muted else f"hsl({137 * i % 360} 60% 50%)" for i, group in enumerate(groups)]
        dots = (
            f'<circle cx="{x:.1f}" cy="{100 - y:.1f}" r="0.8" fill="{colors[i]}"/>'
            for (x, y), i in zip(points.tolist(), group_of.tolist(), strict=True)
        )
        key = "".join(
            f'<span style="color: {c}">● {escape(g.title)}</span> ' for g, c in zip(groups, colors, strict=True)
        )
        drawing = f'<svg viewBox="-1 -1 102 102" style="max-width: 36rem" role="img">{"".join(dots)}</svg>'
        return f"<div>{drawing}<p>{escape(title)}: {key}</p></div>"

    def as_dict(self) -> dict[str, Any]:
        """Return method, sizes and quality for JSON."""
        quality = {name: getattr(self, name) for name in ("trustworthiness", "same_class", "same_class_whole")}
        rounded = {name: None if value is None else round(value, 4) for name, value in quality.items()}
        counts = {"nodes": len(self.nodes), "candidates": self.candidates}
        return {"method": self.method, "seed": self.seed, **counts, **rounded}


def visible_classes(graph: KnowledgeGraph, with_test: bool = False) -> Integers:
    """Return the class of each node, [N]: -1 without a label. Test nodes are hidden as one more class."""
    classes = np.full(graph.num_nodes, -1, dtype=np.int64)
    if graph.labels is not None:
        hidden = (graph.labels.splits == SPLITS.index("test")) & (not with_test)
        classes[graph.labels.nodes] = np.where(hidden, graph.labels.num_classes, graph.labels.classes)
    return classes


def select_nodes(graph: KnowledgeGraph, candidates: Integers, most: int, seed: int = 0) -> Integers:
    """Return at most `most` of the candidates: those with a label, then those in the most triples.

    If the labelled nodes alone are too many, the same number is drawn from each class, or all that it has.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c"), ("b", "likes", "d")])
    >>> [kg.nodes[i] for i in select_nodes(kg, np.arange(4), 2)]
    ['b', 'a']
    """
    classes = visible_classes(graph)
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
    """Return the ways to color nodes, the most informative first.

    Args:
        opened: The model.
        nodes: int64 [n].
        predicted: int64 [n]: predicted classes.
        split: "test" shows the classes of test nodes, which are otherwise hidden.
    """
    result, labels = [by_kind(opened, nodes)], opened.graph.labels
    if labels is not None and len(labels):
        group, hidden = visible_classes(opened.graph, split == "test")[nodes], labels.num_classes
        words = "The class each labelled node truly has."
        if (group == hidden).any():
            words += " Those of test nodes are hidden; --split test shows them."
        names = [opened.titles.class_(number) for number in range(labels.num_classes)]
        muted = {hidden: "test nodes, class not shown", -1: "nodes without a class"}
        place = 0 if opened.classes else 1
        result.insert(place, _coloring("class", "class", words, group, names, muted))
    if predicted is not None:
        names = [opened.titles.class_(number) for number in range(len(opened.model.classes_))]
        words = "The most likely class, also for nodes that have no label."
        result.insert(1, _coloring("predicted", "predicted class", words, predicted, names, {}))
    return result


def by_kind(opened: OpenModel, nodes: Integers) -> Coloring:
    """Color nodes by type or, without types, by role (subject or object of a relation).

    Of several roles the one that most nodes share is used. The most frequent role of each node would split countries,
    which are subjects of many relations, into as many groups.
    """
    role, names = _roles(opened)
    kind, type_names = _types(opened, nodes)
    group = np.where(kind >= 0, kind, np.where(role[nodes] >= 0, role[nodes] + len(type_names), -1))
    words = "The role of each node in its triples: of several, the one that most nodes share."
    if (kind >= 0).any():
        words = "The type of each node; without one, its role in its triples."
    if opened.graph.triple_splits is not None:
        words += " Training triples only."
    return _coloring("kind", "kind of node", words, group, [*type_names, *names], {-1: "nodes in no triple"})


def _roles(opened: OpenModel) -> tuple[Integers, list[str]]:
    """Return the role of each node [N], -1 for none, and the names of the roles."""
    graph, count = opened.graph, opened.graph.num_relations
    subjects, relations, objects = graph.split_triples("train").T
    pairs = np.concatenate([subjects * 2 * count + relations, objects * 2 * count + relations + count])
    node, part = np.divmod(np.unique(pairs), 2 * count)
    shared = np.bincount(part, minlength=2 * count)
    order = np.lexsort((part, -shared[part], node))
    first_node, first = np.unique(node[order], return_index=True)
    role = np.full(graph.num_nodes, -1, dtype=np.int64)
    role[first_node] = part[order][first]
    titles = [shorten_path(opened.titles.relation(number)) for number in range(count)]
    return role, [f"{part} of {title}" for part in ("subject", "object") for title in titles]


def _types(opened: OpenModel, nodes: Integers) -> tuple[Integers, list[str]]:
    """Return the type of each node [n], -1 for none, and the names of the types.

    Of several types the rarest among the largest groups is used.
    """
    graph, triples = opened.graph, opened.graph.split_triples("train")
    bare = [local_name(name).replace("_", "").replace(" ", "").lower() for name in graph.relations]
    triples = triples[np.isin(triples[:, 1], [number for number, name in enumerate(bare) if name in TYPE_RELATIONS])]
    place = np.full(graph.num_nodes, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    triples = triples[place[triples[:, 0]] >= 0]
    types, of, counts = np.unique(triples[:, 2], return_inverse=True, return_counts=True)
    is_kept = np.zeros(len(types), dtype=bool)
    is_kept[np.argsort(-counts, kind="stable")[:MAX_GROUPS]] = True
    # The rarest type that is kept is written last.
    order = np.lexsort((of, -counts[of], is_kept[of]))
    kind = np.full(len(nodes), -1, dtype=np.int64)
    kind[place[triples[order, 0]]] = of[order]
    # Titles, even of literals, may have a namespace.
    return kind, [local_name(opened.titles.of(number)) for number in types.tolist()]


def _coloring(
    key: str, title: str, words: str, group: Integers, names: Sequence[str], muted: dict[int, str]
) -> Coloring:
    """Return groups in order of size: those beyond the palette are merged, muted ones come last."""
    numbers, of, counts = np.unique(group, return_inverse=True, return_counts=True)
    colored = [i for i in np.argsort(-counts, kind="stable").tolist() if int(numbers[i]) not in muted]
    most = MAX_GROUPS + (len(colored) == MAX_GROUPS + 1)  # a single rest is shown by its name
    result = [(names[int(numbers[i])], [i], False) for i in colored[:most]]
    result.append((f"{len(colored) - most:,} rarer ones", colored[most:], True))
    result += [(name, np.flatnonzero(numbers == number).tolist(), True) for number, name in muted.items()]
    result = [one for one in result if one[1]]
    place = np.empty(len(numbers), dtype=np.int64)
    for number, (_, members, _) in enumerate(result):
        place[members] = number
    groups = [Group(name, int(counts[members].sum()), is_muted) for name, members, is_muted in result]
    return Coloring(key, title, words, groups, place[of])


def shorten_path(path: str) -> str:
    """Shorten the name of a relation: of a long path return the last parts.

    >>> shorten_path("/film/film/genre"), shorten_path("/music/performance_role/regular_performances./music/group/role")
    ('/film/film/genre', '…/music/group/role')
    """
    if len(path) <= MAX_PATH_LENGTH or "/" not in path:
        return path
    parts = path.split("/")
    end = parts.pop()
    while parts and len(parts[-1]) + len(end) < MAX_PATH_LENGTH - 2 and not parts[-1].endswith("."):
        end = f"{parts.pop()}/{end}"
    return f"…/{end}" if parts else end
