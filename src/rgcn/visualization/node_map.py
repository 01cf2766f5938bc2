"""A map of nodes: where they stand, what they are, who is near to them, and how far the map can be believed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rgcn.graph import KnowledgeGraph
from rgcn.predict import OpenModel
from rgcn.predict.answer_tables import ClassAnswers
from rgcn.visualization.coloring import Coloring, colorings, shown_classes
from rgcn.visualization.mapping import FEWEST, two_dimensional
from rgcn.visualization.neighborhoods import Floats, Integers, nearest, same_class_share, trustworthiness
from rgcn.visualization.vectors import NodeVectors, predictions

MOST, NEAR, CLASS_NEIGHBORS, TRUST_NEIGHBORS = 5000, 6, 10, 15
FEWEST_LABELLED = 20


@dataclass(frozen=True, eq=False)
class NodeMap:
    """Nodes on a plane."""

    opened: OpenModel
    vectors: NodeVectors
    method: str
    seed: int
    nodes: Integers  # [n]: their ids, labelled ones first, then the best connected
    candidates: int  # of how many they were taken
    labelled: int  # how many of these have a label; more than n: the map shows a draw of them
    places: Floats  # [n, 2]
    near: Integers  # [n, k]: the nearest by their vectors, nearest first, as positions in `nodes`
    degree: Integers  # [n]: training triples of each
    colorings: list[Coloring]
    answers: ClassAnswers | None  # what a classifier says of each; None for link prediction
    trustworthiness: float  # whether the 15 nearest on the map are near by their vectors: 1 always, 0.5 about by chance
    same_class: float | None = None  # of the 10 nearest labelled on the map, outside test, the mean share of the class
    same_class_whole: float | None = None  # the same by vectors: what the map could show at best

    def as_dict(self) -> dict[str, Any]:
        quality = {name: getattr(self, name) for name in ("trustworthiness", "same_class", "same_class_whole")}
        counts = {"nodes": len(self.nodes), "candidates": self.candidates}
        rounded = {name: None if value is None else round(value, 4) for name, value in quality.items()}
        return {"method": self.method, "seed": self.seed, **counts, **rounded}


def make_map(
    vectors: NodeVectors,
    candidates: Integers,
    *,
    method: str = "tsne",
    seed: int = 0,
    most: int = MOST,
    split: str | None = None,
    on_step: Callable[[], None] | None = None,
) -> NodeMap:
    """Choose at most `most` of the candidates (`nodes_shown`), give them places, and say what they are.

    split    "test": classes of test nodes may be seen
    on_step  called `STEPS[method]` times
    """
    opened = vectors.opened
    nodes = nodes_shown(opened.graph, candidates, most, seed)
    numbers = vectors.gather(nodes)
    method = "pca" if len(nodes) < FEWEST else method
    places = two_dimensional(numbers, method, seed, on_step)
    said = predictions(opened, nodes) if opened.classes else None
    labels, classes = opened.graph.labels, shown_classes(opened.graph)
    rows = np.flatnonzero((classes[nodes] >= 0) & (classes[nodes] < (0 if labels is None else labels.num_classes)))
    judged = (places, numbers) if len(rows) >= FEWEST_LABELLED else ()  # outside the test split: figures guide choices
    same_class = [same_class_share(points[rows], classes[nodes[rows]], CLASS_NEIGHBORS) for points in judged]
    return NodeMap(
        opened,
        vectors,
        method,
        seed,
        nodes,
        len(candidates),
        int((classes[candidates] >= 0).sum()),
        places,
        nearest(numbers, NEAR).numbers,
        opened.graph.degrees("train")[nodes],
        colorings(opened, nodes, None if said is None else said.class_, split),
        said,
        trustworthiness(numbers, places, TRUST_NEIGHBORS),
        *same_class,
    )


def nodes_shown(graph: KnowledgeGraph, candidates: Integers, most: int, seed: int = 0) -> Integers:
    """At most `most` of the candidates: those with a label, then those in the most triples.

    Where the labelled ones alone are too many, as many are drawn of each class, or all it has; `seed` decides which.

    >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c"), ("b", "likes", "d")])
    >>> [kg.nodes[i] for i in nodes_shown(kg, np.arange(4), 2)]
    ['b', 'a']
    """
    classes = shown_classes(graph)
    labelled = classes[candidates] >= 0
    if labelled.sum() > most:
        candidates, labelled = _drawn(candidates[labelled], classes, most, seed), np.ones(most, dtype=bool)
    order = np.lexsort((candidates, -graph.degrees("train")[candidates], ~labelled))
    return np.asarray(candidates[order][:most])


def _drawn(labelled: Integers, classes: Integers, most: int, seed: int) -> Integers:
    """The classes take turns, each giving one of its nodes at random, until there are `most`."""
    shuffled = np.random.default_rng(seed).permutation(np.sort(labelled))
    by_class = np.argsort(classes[shuffled], kind="stable")
    _, first, size = np.unique(classes[shuffled][by_class], return_index=True, return_counts=True)
    turn = np.arange(len(shuffled)) - np.repeat(first, size)
    return shuffled[by_class][np.argsort(turn, kind="stable")[:most]]
