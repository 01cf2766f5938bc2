"""`KnowledgeGraph`: what every reader returns, and every model takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import libraries, splitting
from rgcn.graph.vocabulary import SPLITS, Ids, NodeKind, NodeLabels, Vocabulary
from rgcn.system.formatting import format_count, html_table
from rgcn.system.memory import release_pages

if TYPE_CHECKING:
    import os

    from rgcn.graph.statistics import GraphStatistics
    from rgcn.graph.titles import NameLookup


DEGREE_BLOCK_ROWS = 1 << 21
ARRAYS = {
    "triples": np.int64,
    "node_kinds": np.uint8,
    "triple_splits": np.int8,
    "features": np.float32,
    "edge_weights": np.float32,
    "triple_times": np.float64,
}
BLOCK_ROWS = 1 << 18
DAMAGED_INDEX = "the index of the stored graph's triples is damaged: `rgcn data check` says which part of it"
ARRAYS_OF_NODES, ARRAYS_OF_TRIPLES = ("node_kinds", "features"), ("triple_splits", "edge_weights", "triple_times")


class Neighbor(NamedTuple):
    """A triple, seen from one of its nodes."""

    relation: str
    node: str
    outgoing: bool


@dataclass(frozen=True, eq=False, repr=False)
class KnowledgeGraph:
    """Triples (subject, relation, object) over named nodes and relations. Immutable.

    Args:
        triples: Subject, relation and object ids, int64 [num_triples, 3].
        nodes: The names of nodes. The name of a literal is its N-Triples form, ``"42"^^<...integer>``.
        relations: The names of relations.
        node_kinds: A `NodeKind` for each node, uint8 [num_nodes]; None if all are IRIs or plain names.
        labels: The classes of some nodes, for node classification.
        triple_splits: Indices into ("train", "valid", "test"), int8 [num_triples], for link prediction; None without a
            split.
        features: Node features, float32 [num_nodes, num_features].
        edge_weights: Non-negative weights of the triples, float32 [num_triples]; None if all are one.
        triple_times: A time for each triple, float64 [num_triples], for `split(by=...)`, which removes them.
        name: The name of the data set.
        metadata: JSON-like values, for example the prefixes of names and how the graph was made.

    Raises:
        DataError: Arrays have a wrong shape, or refer to something that does not exist.

    >>> kg = KnowledgeGraph.from_triples([("Bern", "capital_of", "Switzerland"), ("Oslo", "capital_of", "Norway")])
    >>> kg
    KnowledgeGraph(4 nodes, 1 relation, 2 triples)
    >>> kg.neighbors("Norway")
    [Neighbor(relation='capital_of', node='Oslo', outgoing=False)]
    """

    triples: NDArray[np.int64]
    nodes: Vocabulary
    relations: Vocabulary
    node_kinds: NDArray[np.uint8] | None = None
    labels: NodeLabels | None = None
    triple_splits: NDArray[np.int8] | None = None
    features: NDArray[np.float32] | None = None
    edge_weights: NDArray[np.float32] | None = None
    triple_times: NDArray[np.float64] | None = None
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        triples = np.asarray(self.triples)
        if triples.size and triples.dtype.kind not in "iu":  # 0.9 would silently become node 0
            raise DataError(f"triples must be whole numbers, not {triples.dtype}")
        self._copy_arrays(*ARRAYS)
        self._check()
        self._checked_rows(self.triples, 0)

    def _copy_arrays(self, *names: str) -> None:
        """Copy arrays of the caller, who may write to them, and make the copies read-only.

        An array that is read-only and owns its memory is not copied.
        """
        for name in names:
            value, dtype = getattr(self, name), ARRAYS[name]
            if value is not None:
                is_array = type(value) is np.ndarray and value.dtype == dtype and value.base is None
                array = value if is_array and not value.flags.writeable else np.array(value, dtype=dtype)
                if name == "triples" and not array.size:
                    array = array.reshape(0, 3)
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    @property
    def is_stored(self) -> bool:
        """True if the triples are mapped from a file and have not all been read yet."""
        return False

    @cached_property
    def _rows(self) -> NDArray[Any]:
        """The triples; of a stored graph as mapped from the file, possibly int32 and not checked."""
        return self.triples

    def triples_at(self, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Return the triples at these positions, int64 [n, 3]. A stored graph reads only them from its file."""
        return np.asarray(self.triples[rows])

    def _checked_rows(self, rows: NDArray[Any], first: int | None) -> NDArray[np.int64]:
        """Return rows as int64. Raise if a node or a relation has no name; `first` is the number of the first row."""
        sizes = np.array([self.num_nodes, self.num_relations, self.num_nodes])
        if len(rows) and (rows.min() < 0 or (rows.max(axis=0) >= sizes).any()):
            row = int(np.flatnonzero(((rows < 0) | (rows >= sizes)).any(1))[0])
            position = "" if first is None else f"triple {first + row} (from 0) "
            raise DataError(
                f"a triple refers to a node or relation that has no name: {position}is {tuple(rows[row].tolist())}, "
                f"with {self.num_nodes} nodes and {self.num_relations} relations"
            )
        return np.asarray(rows, dtype=np.int64)

    def _check(self) -> None:
        if self._rows.ndim != 2 or self._rows.shape[1] != 3:
            raise DataError(f"triples must have shape [T, 3], not {list(self._rows.shape)}")
        lengths = dict.fromkeys(ARRAYS_OF_NODES, self.num_nodes) | dict.fromkeys(ARRAYS_OF_TRIPLES, len(self))
        for attribute, length in lengths.items():
            value = getattr(self, attribute)
            if value is not None and len(value) != length:
                raise DataError(f"{attribute} has {len(value)} rows where {length} are needed")
        if self.features is not None and (self.features.ndim != 2 or not np.isfinite(self.features).all()):
            raise DataError("features must be a finite matrix [nodes, features]")
        if self.edge_weights is not None and not (np.isfinite(self.edge_weights) & (self.edge_weights >= 0)).all():
            raise DataError("edge weights must be finite and not negative")
        if self.triple_splits is not None and not np.isin(self.triple_splits, range(len(SPLITS))).all():
            raise DataError(f"a triple's split is none of {', '.join(SPLITS)}")
        if self.labels is not None and not ((self.labels.nodes >= 0) & (self.labels.nodes < self.num_nodes)).all():
            raise DataError("a label refers to a node that is not in the graph")

    # -- construction ----------------------------------------------------------------------------------

    @classmethod
    def from_triples(
        cls,
        triples: Iterable[tuple[str, str, str]],
        *,
        labels: Mapping[str, str] | None = None,
        test_labels: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> KnowledgeGraph:
        """Make a graph from triples of names; ids follow the order of first appearance.

        Args:
            triples: (subject, relation, object) names.
            labels: Node name -> class name, for training.
            test_labels: Node name -> class name, for test.
            **attributes: Further fields of the graph, for example `features`.
        """
        nodes, relations, ids = dict[str, int](), dict[str, int](), []
        for s, r, o in triples:
            subject, relation = nodes.setdefault(s, len(nodes)), relations.setdefault(r, len(relations))
            ids.append((subject, relation, nodes.setdefault(o, len(nodes))))
        names = Vocabulary(nodes, kind="node"), Vocabulary(relations, kind="relation")
        graph = cls(np.array(ids, dtype=np.int64).reshape(-1, 3), *names, **attributes)
        if labels is None and test_labels is None:
            return graph
        return graph.with_labels({"train": labels or {}, "test": test_labels or {}})

    def with_labels(self, by_split: Mapping[str, Mapping[str, str]]) -> KnowledgeGraph:
        """Replace the labels.

        Args:
            by_split: Split -> node name -> class name.
        """
        for split in by_split:
            if split not in SPLITS:
                raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
        classes: dict[str, int] = {}
        rows = [
            (self.nodes.id(node), classes.setdefault(class_name, len(classes)), SPLITS.index(split))
            for split, pairs in by_split.items()
            for node, class_name in pairs.items()
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        names = Vocabulary(classes, kind="class")
        return replace(self, labels=NodeLabels(table[:, 0], table[:, 1], names, table[:, 2].astype(np.int8)))

    # -- size and display ------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    @property
    def num_relations(self) -> int:
        """The number of relations."""
        return len(self.relations)

    @property
    def num_triples(self) -> int:
        """The number of triples."""
        return len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        others, sizes = [], {"node": self.num_nodes, "relation": self.num_relations, "triple": len(self)}
        if self.labels is not None:
            others.append(f"{len(self.labels):,} labels in {self.labels.num_classes} classes")
        if self.features is not None:
            others.append(f"{self.features.shape[1]} features")
        if self.edge_weights is not None:
            others.append("weighted")
        counts = [format_count(size, word) for word, size in sizes.items()]
        return f"KnowledgeGraph({', '.join([repr(self.name)] * bool(self.name) + counts + others)})"

    def _repr_html_(self) -> str:
        counts = {"triples": len(self), "nodes": self.num_nodes, "relations": self.num_relations}
        if self.labels is not None:
            counts |= {"labels": len(self.labels), "classes": self.labels.num_classes}
        if self.features is not None:
            counts["features"] = self.features.shape[1]
        return html_table([{"": name, self.name or "graph": f"{count:,}"} for name, count in counts.items()])

    def statistics(self) -> GraphStatistics:
        """Compute counts, degrees and relation frequencies."""
        from rgcn.graph.statistics import GraphStatistics

        return GraphStatistics.of(self)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of names, triples, labels, splits, features and weights: the same for equal graphs."""
        digest = hashlib.sha256()
        for names in (self.nodes, self.relations):
            _digest_names(digest, names)
        # Times were added later: the fingerprint of a graph without them must not change.
        present = [name for name in ARRAYS if name != "triple_times" or self.triple_times is not None]
        arrays = [
            (self._rows if name == "triples" else getattr(self, name), np.dtype(ARRAYS[name])) for name in present
        ]
        if self.labels is not None:
            _digest_names(digest, self.labels.names)
            arrays += [(each, each.dtype) for each in (self.labels.nodes, self.labels.classes, self.labels.splits)]
        for array, dtype in arrays:
            digest.update(b"-" if array is None else f"{dtype.str}{array.shape}".encode())
            for first in range(0, 0 if array is None else len(array), BLOCK_ROWS):  # converted a block at a time
                digest.update(np.ascontiguousarray(array[first : first + BLOCK_ROWS], dtype=dtype).data)
        return digest.hexdigest()

    # -- lookup ----------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> NameLookup:
        """Finds nodes, relations and classes by name, title or prefix."""
        from rgcn.graph.titles import NameLookup, Titles

        return NameLookup(Titles(self))

    def kind(self, node: str | int) -> NodeKind:
        """Return whether a node is an IRI, a literal or a blank node."""
        index = self.nodes.id(node)
        return NodeKind.IRI if self.node_kinds is None else NodeKind(int(self.node_kinds[index]))

    @property
    def is_literal(self) -> NDArray[np.bool_]:
        """Which nodes are literals, bool [num_nodes]."""
        if self.node_kinds is None:
            return np.zeros(self.num_nodes, dtype=bool)
        return np.asarray(self.node_kinds == NodeKind.LITERAL)

    def split_triples(self, split: str) -> NDArray[np.int64]:
        """Return the triples of one split, int64 [n, 3].

        Args:
            split: "train", "valid", "test" or "all". Without a split, all triples are "train".
        """
        mask = self.split_mask(split)
        return self.triples if mask is None else self.triples_at(np.flatnonzero(mask))

    def num_triples_in(self, split: str) -> int:
        """Return the number of triples of one split."""
        mask = self.split_mask(split)
        return len(self) if mask is None else int(np.count_nonzero(mask))

    def split_mask(self, split: str) -> NDArray[np.bool_] | None:
        """Return which triples belong to a split, bool [num_triples], or None if all do.

        Raises:
            DataError: There is no such split.
        """
        if split == "all" or (split == "train" and self.triple_splits is None):
            return None
        if split not in SPLITS:
            raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)} and all")
        if self.triple_splits is None:
            raise DataError(
                f"the graph has no {split} triples, because it was read without splits: call `split`, or read a folder "
                "with files called train, valid and test"
            )
        return np.asarray(self.triple_splits == SPLITS.index(split))

    @cached_property
    def search_folder(self) -> Path | None:
        """The folder of a stored graph, if it contains an index of names."""
        return None

    def degrees(self, split: str = "all") -> NDArray[np.int64]:
        """Count how often each node is the subject or the object in a split, int64 [num_nodes]."""
        counts, size = np.zeros(self.num_nodes, dtype=np.int64), max(DEGREE_BLOCK_ROWS, self.num_nodes)
        rows = self.split_triples(split)
        for begin in range(0, len(rows), size):  # in blocks, because bincount copies its input
            counts += np.bincount(rows[begin : begin + size, ::2].ravel(), minlength=self.num_nodes)
        return counts

    def named(self, triples: NDArray[np.int64] | None = None) -> list[tuple[str, str, str]]:
        """Return triples of ids [n, 3], by default all of the graph, as triples of names."""
        subject, relation, object_ = (self.triples if triples is None else triples).T
        columns = self.nodes.names_of(subject), self.relations.names_of(relation), self.nodes.names_of(object_)
        return list(zip(*columns, strict=True))

    @cached_property
    def relation_counts(self) -> NDArray[np.int64]:
        """The number of triples of each relation, int64 [num_relations]."""
        counts = np.zeros(self.num_relations, dtype=np.int64)
        for first in range(0, len(self), BLOCK_ROWS):
            rows = self.triples_at(slice(first, first + BLOCK_ROWS))
            counts += np.bincount(rows[:, 1], minlength=self.num_relations)
        release_pages(self._rows)
        return counts

    def incident_triples(self, nodes: Ids) -> tuple[Ids, Ids, Ids]:
        """Find the triples of some nodes; a self-loop occurs twice.

        Args:
            nodes: Node ids, int64 [k].

        Returns:
            For each triple the index of its node in `nodes` [n], the row of the triple [n], and its columns [3, n].
        """
        begin, count = self._incidence[0][nodes], self.num_incident_triples(nodes)
        index = np.repeat(np.arange(len(nodes)), count)
        rows = self._indexed(np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count) + begin[index])
        return index, rows, self.triples_at(rows).T

    def num_incident_triples(self, nodes: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Count the triples of each node, int64 [n]; a self-loop counts twice."""
        pointer, triple_ids = self._incidence
        begin, end = pointer[:-1][nodes], pointer[1:][nodes]
        if len(begin) and (begin.min() < 0 or end.max() > len(triple_ids) or (begin > end).any()):
            raise DataError(DAMAGED_INDEX)
        return np.asarray(end - begin)

    def triples_of_node(self, node: int, limit: int | None = None) -> NDArray[np.int64]:
        """Return the rows of at most `limit` triples of a node, int64 [n]; a self-loop occurs twice."""
        count = int(self.num_incident_triples(np.array([node]))[0])
        begin = int(self._incidence[0][node])
        return self._indexed(slice(begin, begin + (count if limit is None else min(count, limit))))

    def _indexed(self, positions: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Return the rows of triples at positions of the index. A stored index is checked when it is read."""
        rows = self._incidence[1][positions].astype(np.int64, copy=False)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise DataError(DAMAGED_INDEX)
        return rows

    @cached_property
    def _incidence(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The triples of each node in CSR form: (pointer [num_nodes + 1], rows of triples [2 num_triples])."""
        ends = np.concatenate([self.triples[:, 0], self.triples[:, 2]])
        order = np.argsort(ends, kind="stable")
        pointer = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=self.num_nodes))])
        return pointer.astype(np.int64), order % max(len(self), 1)

    def neighbors(self, node: str | int, limit: int | None = None) -> list[Neighbor]:
        """List the triples of a node, outgoing ones first, at most `limit`."""
        index = self.nodes.id(node)
        numbers = self.triples_of_node(index, limit)
        rows, is_first = self.triples_at(numbers), np.zeros(len(numbers), dtype=bool)
        is_first[np.unique(numbers, return_index=True)[1]] = True
        outgoing = is_first & (rows[:, 0] == index)  # a self-loop occurs a second time, as incoming
        ends = np.where(outgoing, rows[:, 2], rows[:, 0])
        return list(map(Neighbor, self.relations.names_of(rows[:, 1]), self.nodes.names_of(ends), outgoing.tolist()))

    # -- subgraphs -------------------------------------------------------------------------------------

    def subgraph(self, nodes: Iterable[str | int]) -> KnowledgeGraph:
        """Return the induced subgraph: these nodes, the triples between them, and the relations they use."""
        keep = np.zeros(self.num_nodes, dtype=bool)
        keep[self.nodes.ids(nodes)] = True
        return self._restricted(keep, keep[self.triples[:, 0]] & keep[self.triples[:, 2]])

    def without_relations(self, relations: Iterable[str | int]) -> KnowledgeGraph:
        """Remove relations and their triples. All nodes stay and keep their ids."""
        removed = self.relations.ids(relations)
        return self._restricted(np.ones(self.num_nodes, dtype=bool), ~np.isin(self.triples[:, 1], removed))

    def within_hops(self, nodes: Iterable[str | int], hops: int) -> NDArray[np.bool_]:
        """Return which nodes are at most `hops` triples from the given ones, in any direction, bool [num_nodes]."""
        if hops < 0:
            raise DataError("hops must not be negative")
        reached = np.zeros(self.num_nodes, dtype=bool)
        reached[self.nodes.ids(nodes)] = True
        for _ in range(hops):
            reached[self.triples[reached[self.triples[:, 0]] | reached[self.triples[:, 2]], ::2]] = True
        return reached

    def prune(self, hops: int) -> KnowledgeGraph:
        """Keep the part of the graph within `hops` of the labeled nodes.

        A model of L layers reads nothing further away than L hops, so `hops >= L` changes none of its predictions for
        labeled nodes. A triple is kept if one of its nodes is within `hops - 1`, so that a message over it can count.
        """
        if self.labels is None:
            raise DataError("pruning needs labeled nodes; this graph has none")
        if hops < 1:
            raise DataError("pruning needs at least one hop")
        keep = self.within_hops(self.labels.nodes.tolist(), hops - 1)
        keep_triple = keep[self.triples[:, 0]] | keep[self.triples[:, 2]]
        keep[self.triples[keep_triple, ::2]] = True
        return self._restricted(keep, keep_triple)

    def with_triples(self, keep: NDArray[np.bool_]) -> KnowledgeGraph:
        """Keep the triples where `keep`, bool [num_triples], is True. All nodes and relations stay."""
        return replace(self, triples=self.triples[keep], **self._shortened_names(ARRAYS_OF_TRIPLES, keep))

    def without_test_labels(self) -> KnowledgeGraph:
        """Remove the test labels, and classes that only those have, so that tuning cannot see them.

        Classes are renumbered in the order of names, so that not even their order depends on test labels.

        >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b")], labels={"a": "x"}, test_labels={"b": "y"})
        >>> kg.without_test_labels().labels
        NodeLabels(1 nodes, 1 classes; train 1)
        """
        labels = self.labels
        if labels is None:
            return self
        kept = np.flatnonzero(labels.splits != SPLITS.index("test"))
        kept = kept[np.argsort(labels.nodes[kept], kind="stable")]
        classes = labels.names.names_of(labels.classes[kept])
        names = Vocabulary(sorted(set(classes)), kind="class")
        return replace(self, labels=NodeLabels(labels.nodes[kept], names.ids(classes), names, labels.splits[kept]))

    def without_test_triples(self) -> KnowledgeGraph:
        """Remove the test triples, and nodes that occur only in those, so that tuning cannot see them.

        >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b"), ("a", "knows", "c")], triple_splits=np.array([0, 2]))
        >>> kg.without_test_triples()
        KnowledgeGraph(2 nodes, 1 relation, 1 triple)
        """
        if self.triple_splits is None:
            return self
        remaining = self.with_triples(self.triple_splits != SPLITS.index("test"))
        return remaining.subgraph(np.unique(remaining.triples[:, [0, 2]]).tolist())

    split = splitting.split

    def _restricted(self, keep_node: NDArray[np.bool_], keep_triple: NDArray[np.bool_]) -> KnowledgeGraph:
        """Keep some nodes and triples, and the relations that these triples use, in the same order."""
        triples = self.triples[keep_triple]
        keep_relation = np.bincount(triples[:, 1], minlength=self.num_relations) > 0
        new_node, new_relation = (np.where(keep, np.cumsum(keep) - 1, -1) for keep in (keep_node, keep_relation))
        return replace(
            self,
            triples=np.stack([new_node[triples[:, 0]], new_relation[triples[:, 1]], new_node[triples[:, 2]]], axis=1),
            nodes=self.nodes.take(np.flatnonzero(keep_node).tolist()),
            relations=self.relations.take(np.flatnonzero(keep_relation).tolist()),
            labels=None if self.labels is None else self.labels.remap(new_node),
            **self._shortened_names(ARRAYS_OF_NODES, keep_node),
            **self._shortened_names(ARRAYS_OF_TRIPLES, keep_triple),
        )

    def _shortened_names(self, attributes: Iterable[str], keep: NDArray[np.bool_]) -> dict[str, Any]:
        """Select rows of those arrays that are not None."""
        return {name: value[keep] for name in attributes if (value := getattr(self, name)) is not None}

    # -- other libraries (docs/guides/other-libraries.md) -------------------------------------------------

    to_networkx = libraries.to_networkx
    to_pandas = libraries.to_pandas
    to_polars = libraries.to_polars
    to_pykeen = libraries.to_pykeen
    to_pyg = libraries.to_pyg
    from_pyg = staticmethod(libraries.from_pyg)

    def to_rdf(
        self, path: str | os.PathLike[str], *, format: str | None = None, base: str = "urn:rgcn:", split: str = "all"
    ) -> int:
        """Write the triples of a split to an RDF file.

        Args:
            path: The file; its ending determines the format.
            format: The format, where the ending does not tell it, for example "nt" or "ttl".
            base: The prefix of IRIs made of names that are no IRIs.
            split: "train", "valid", "test" or "all".

        Returns:
            The number of triples written.
        """
        from rgcn.graph.rdf_terms import to_rdf

        return to_rdf(self, path, format=format, base=base, split=split)


def _digest_names(digest: Any, names: Vocabulary) -> None:
    for number, block in enumerate(names.encoded_blocks()):
        digest.update(b"\x1e" * bool(number) + b"\x1e".join(block))
    digest.update(b"\x1d")


class StoredGraph(KnowledgeGraph):
    """A graph whose triples are mapped from the folder that `rgcn.data.graph_store` wrote.

    `triples` reads and checks all triples on first use; `triples_at` reads some. A changed copy
    (`dataclasses.replace`), or one sent to another process, is a plain `KnowledgeGraph` in memory.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> KnowledgeGraph:  # type: ignore[misc]
        """Return a plain graph, so that `dataclasses.replace` does; `open` makes stored ones."""
        return KnowledgeGraph(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return KnowledgeGraph, tuple(getattr(self, each.name) for each in fields(self))

    @classmethod
    def open(cls, rows: NDArray[Any], incidence: tuple[NDArray[Any], NDArray[Any]], **others: Any) -> StoredGraph:
        """Make a graph of triples in a file.

        Args:
            rows: The triples, int32 or int64 [num_triples, 3].
            incidence: Their index: the pointer [num_nodes + 1] and the rows of each node's triples.
            **others: The other fields of a `KnowledgeGraph`; and, if they are known, `fingerprint` and `search_folder`.
        """
        graph: StoredGraph = object.__new__(cls)
        for name, value in {"_rows": rows, "_incidence": incidence, "metadata": {}, **others}.items():
            object.__setattr__(graph, name, value)
        graph._copy_arrays(*ARRAYS_OF_NODES, *ARRAYS_OF_TRIPLES)
        graph._check()
        if not isinstance(rows, np.memmap):
            _ = graph.triples  # a small graph is in memory: check it now
        return graph

    @cached_property
    def triples(self) -> NDArray[np.int64]:
        """All triples, int64 [num_triples, 3], read and checked on first use."""
        triples = self._checked_rows(self._rows, 0)
        triples.setflags(write=False)
        return triples

    @property
    def is_stored(self) -> bool:
        """True until all triples have been read."""
        return "triples" not in vars(self)

    def triples_at(self, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Return the triples at these positions, int64 [n, 3]; only they are read."""
        if not self.is_stored:
            return super().triples_at(rows)
        try:
            return self._checked_rows(self._rows[rows], None)
        except IndexError as error:
            raise DataError(f"the stored graph is damaged: it has no such triple ({error})") from None

    def degrees(self, split: str = "all") -> NDArray[np.int64]:
        """Count how often each node is the subject or the object in a split, int64 [num_nodes]."""
        return self.num_incident_triples(slice(None)) if split == "all" else super().degrees(split)
