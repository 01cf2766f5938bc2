"""The vectors a model has learned, of nodes and of relations, as tables with everything that is known of these.

Nodes come a part at a time, so that their vectors never have to be in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.graph import SPLITS
from rgcn.look.neighborhoods import Floats, Integers
from rgcn.predict import OpenModel, predict_classes

VECTOR = "vector"
# A part is small beside a graph's weights, and large beside the cost of looking up what its nodes hear.
NODES_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class NodeVectors:
    """The vectors of a model's nodes.

    layer  of a model with states layer by layer, the layer after which they are taken: -2 the last hidden one, -1 the
           last
    """

    opened: OpenModel
    layer: int | None = None

    @classmethod
    def of(cls, opened: OpenModel, layer: int | None = None) -> NodeVectors:
        """layer None: what tells most, the last hidden one of a classifier."""
        return cls(opened, opened.model.vector_layer(layer))

    @property
    def width(self) -> int:
        """Numbers a node."""
        return int(self.take(np.zeros(1, dtype=np.int64)).shape[1])

    @property
    def words(self) -> str:
        """What the vectors are, in a few words."""
        return self.opened.model.vector_words(self.layer)

    def take(self, nodes: Integers) -> Floats:
        """[n, width]: the vectors of some nodes, at once."""
        return self.opened.model.vectors(nodes, self.layer)

    def gather(self, nodes: Integers, on_nodes: Callable[[int], None] | None = None) -> Floats:
        """The same for any number of nodes, computed a part at a time."""
        parts = []
        for part in in_parts(nodes):
            parts.append(self.take(part))
            if on_nodes is not None:
                on_nodes(len(part))
        return np.concatenate(parts)


def in_parts(nodes: Integers) -> Iterator[Integers]:
    """Node ids, `NODES_AT_ONCE` at a time."""
    for first in range(0, len(nodes), NODES_AT_ONCE):
        yield nodes[first : first + NODES_AT_ONCE]


@dataclass(frozen=True, eq=False)
class RelationVectors:
    """What a model has learned of each relation.

    forward  float32 [R, width]
    inverse  float32 [R, width] where the inverse has weights of its own, as in a classifier's layers; else None
    words    what the numbers are
    """

    forward: Floats
    inverse: Floats | None
    words: str

    @property
    def whole(self) -> Floats:
        """[R, width or twice that]: both directions of a relation, one behind the other."""
        return self.forward if self.inverse is None else np.concatenate([self.forward, self.inverse], axis=1)


def relation_vectors(opened: OpenModel) -> RelationVectors:
    """What a model holds of its relations; DataError where that is nothing to be compared."""
    forward, inverse, words = opened.model.relation_vectors()
    return RelationVectors(forward.numpy(), None if inverse is None else inverse.numpy(), words)


@dataclass(frozen=True, eq=False)
class NodeTable:
    """A table of nodes: name, title, class and split where labelled, what a classifier says, vector.

    nodes  ids, in the order the table shall have
    """

    vectors: NodeVectors
    nodes: Integers

    def __len__(self) -> int:
        return len(self.nodes)

    def parts(self, on_nodes: Callable[[int], None] | None = None) -> Iterator[pl.DataFrame]:
        """The table, some thousands of rows at a time, so that it never has to be in memory as a whole.

        on_nodes  called with how many nodes a part had, once that is written
        """
        graph, label_of = self.vectors.opened.graph, None
        if graph.labels is not None:
            label_of = np.full(graph.num_nodes, -1, dtype=np.int64)  # where a node's label stands, -1 for none
            label_of[graph.labels.nodes] = np.arange(len(graph.labels))
        for part in in_parts(self.nodes):
            rows = None if label_of is None else label_of[part].tolist()
            yield pl.DataFrame([*self._columns(part, rows), vector_column(self.vectors.take(part))])
            if on_nodes is not None:
                on_nodes(len(part))

    def _columns(self, nodes: Integers, label_rows: list[int] | None) -> list[pl.Series]:
        opened, labels = self.vectors.opened, self.vectors.opened.graph.labels
        columns = [
            pl.Series("name", [opened.graph.nodes[node] for node in nodes.tolist()], pl.String),
            pl.Series("title", [opened.titles.of(node) for node in nodes.tolist()], pl.String),
        ]
        if labels is not None and label_rows is not None:
            classes = [None if row < 0 else labels.names[int(labels.classes[row])] for row in label_rows]
            splits = [None if row < 0 else SPLITS[int(labels.splits[row])] for row in label_rows]
            columns += [pl.Series("class", classes, pl.String), pl.Series("split", splits, pl.String)]
        if opened.answers("classes"):
            predicted, score, probability = predictions(opened, nodes)
            said = [opened.model.classes_[number] for number in predicted.tolist()]
            shares = [None] * len(said) if probability is None else probability
            columns += [
                pl.Series("predicted", said, pl.String),
                pl.Series("score", score, pl.Float32),
                pl.Series("probability", shares, pl.Float32),
            ]
        return columns


def predictions(opened: OpenModel, nodes: Integers) -> tuple[Integers, Floats, Floats | None]:
    """A classifier's class of each node [n], its score [n], and its probability [n] where that is calibrated."""
    found = list(predict_classes(opened, nodes, NODES_AT_ONCE))
    shares = [part.probability for part in found if part.probability is not None]
    return (
        np.concatenate([part.class_ for part in found]),
        np.concatenate([part.score for part in found]),
        np.concatenate(shares) if shares else None,
    )


def relation_table(opened: OpenModel) -> pl.DataFrame:
    """A table of relations: name, title, number of training triples, vector; a row more for each inverse, if any."""
    graph, vectors = opened.graph, relation_vectors(opened)
    names, titles = list(graph.relations), [opened.titles.relation(number) for number in range(graph.num_relations)]
    counts = relation_counts(opened)
    directions = [vectors.forward] if vectors.inverse is None else [vectors.forward, vectors.inverse]
    times = len(directions)
    columns = [
        pl.Series("name", names * times, pl.String),
        pl.Series("title", titles * times, pl.String),
        pl.Series("triples", np.tile(counts, times), pl.Int64),
    ]
    if times > 1:
        columns.append(pl.Series("inverse", np.repeat([False, True], len(names)), pl.Boolean))
    return pl.DataFrame([*columns, vector_column(np.concatenate(directions))])


def relation_counts(opened: OpenModel) -> Integers:
    """[R]: training triples of each relation."""
    return np.bincount(opened.graph.split_triples("train")[:, 1], minlength=opened.graph.num_relations)


def vector_column(vectors: NDArray[np.float32]) -> pl.Series:
    """Vectors [n, width] as a column of fixed-size lists."""
    return pl.Series(VECTOR, np.ascontiguousarray(vectors), pl.Array(pl.Float32, vectors.shape[1]))
