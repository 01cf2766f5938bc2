"""The one form in which data leave `data/` and enter everything else."""

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
from rgcn.graph.vocabulary import SPLITS, NodeKind, NodeLabels, Vocabulary
from rgcn.system.formatting import count, html_table
from rgcn.system.memory import let_go

if TYPE_CHECKING:
    import os

    from rgcn.graph.statistics import GraphStatistics
    from rgcn.graph.titles import NameLookup


ROWS_COUNTED = 1 << 22  # at once
ARRAYS = {
    "triples": np.int64,
    "node_kinds": np.uint8,
    "triple_splits": np.int8,
    "features": np.float32,
    "edge_weights": np.float32,
    "triple_times": np.float64,
}
DIGESTED_AT_ONCE = 1 << 18  # rows
DAMAGED_INDEX = "the index of the stored graph's triples is damaged: `rgcn data check` says which part of it"
ARRAYS_OF_NODES, ARRAYS_OF_TRIPLES = ("node_kinds", "features"), ("triple_splits", "edge_weights", "triple_times")


class Neighbor(NamedTuple):
    """One triple seen from one of its ends."""

    relation: str
    node: str
    outgoing: bool


@dataclass(frozen=True, eq=False, repr=False)
class KnowledgeGraph:
    """Triples (subject, relation, object) over named nodes and relations. Immutable.

    triples       int64 [T, 3]   subject id, relation id, object id
    nodes                        names; a literal's name is its N-Triples form, `"42"^^<...integer>`
    relations                    names
    node_kinds    uint8 [N]      a `NodeKind` each; None: all are IRIs (plain names)
    labels                       classes of some nodes, for node classification
    triple_splits int8 [T]       index into ("train", "valid", "test"), for link prediction; None: no split
    features      float32 [N, F] given node features, or None
    edge_weights  float32 [T]    non-negative weights of the triples, or None (all one)
    triple_times  float64 [T]    when each triple was said, for `split(by=...)`; a split graph has none, or None

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
        given = np.asarray(self.triples)
        if given.size and given.dtype.kind not in "iu":  # 0.9 would silently become node 0
            raise DataError(f"triples must be whole numbers, not {given.dtype}")
        self._own_arrays(*ARRAYS)
        self._check()
        self._named_rows(self.triples, 0)

    def _own_arrays(self, *names: str) -> None:
        """Copy the arrays that were given, so that nobody can write to them any more."""
        for name in names:
            value = getattr(self, name)
            if value is not None:
                array = _own(value, ARRAYS[name])
                if name == "triples" and not array.size:
                    array = array.reshape(0, 3)
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    @property
    def stored(self) -> bool:
        """Whether its triples lie in a file, mapped, and were not asked for all at once yet."""
        return False

    @cached_property
    def _rows(self) -> NDArray[Any]:
        """The triples as they lie: of a stored graph in a file, as int32 where they fit, and not yet checked."""
        return self.triples

    def triples_at(self, places: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """int64 [k, 3]: some of the triples, by their numbers; of a stored graph no others are read."""
        return np.asarray(self.triples[places])

    def _named_rows(self, rows: NDArray[Any], first: int | None) -> NDArray[np.int64]:
        """Rows of triples as int64, all of whose nodes and relations have names."""
        sizes = np.array([self.num_nodes, self.num_relations, self.num_nodes])
        if len(rows) and (rows.min() < 0 or (rows.max(axis=0) >= sizes).any()):
            row = int(np.flatnonzero(((rows < 0) | (rows >= sizes)).any(1))[0])
            place = "" if first is None else f"triple {first + row} (from 0) "
            raise DataError(
                f"a triple refers to a node or relation that has no name: {place}is {tuple(rows[row].tolist())}, "
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

    # -- making one ------------------------------------------------------------------------------------

    @classmethod
    def from_triples(
        cls,
        triples: Iterable[tuple[str, str, str]],
        *,
        labels: Mapping[str, str] | None = None,
        test_labels: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> KnowledgeGraph:
        """A graph from triples of names, numbered by first appearance; `labels` are training labels."""
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
        """The same graph with labels {split: {node name: class name}}; one class numbering for all splits."""
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

    # -- size and looks --------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def num_triples(self) -> int:
        return len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        parts = [count(self.num_nodes, "node"), count(self.num_relations, "relation"), count(len(self), "triple")]
        if self.labels is not None:
            parts.append(f"{len(self.labels):,} labels in {self.labels.num_classes} classes")
        if self.features is not None:
            parts.append(f"{self.features.shape[1]} features")
        if self.edge_weights is not None:
            parts.append("weighted")
        prefix = f"{self.name!r}, " if self.name else ""
        return f"KnowledgeGraph({prefix}{', '.join(parts)})"

    def _repr_html_(self) -> str:
        found = {"triples": len(self), "nodes": self.num_nodes, "relations": self.num_relations}
        if self.labels is not None:
            found |= {"labels": len(self.labels), "classes": self.labels.num_classes}
        if self.features is not None:
            found["features"] = self.features.shape[1]
        return html_table([{"": name, self.name or "graph": f"{number:,}"} for name, number in found.items()])

    def statistics(self) -> GraphStatistics:
        """Counts, degrees and relation frequencies."""
        from rgcn.graph.statistics import GraphStatistics

        return GraphStatistics.of(self)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over names, triples, labels, splits, features and weights: equal graphs, equal fingerprints."""
        digest = hashlib.sha256()
        for names in (self.nodes, self.relations):
            _digest_names(digest, names)
        # Times came later: a graph without them is what it was.
        there = [name for name in ARRAYS if name != "triple_times" or self.triple_times is not None]
        arrays: list[tuple[Any, Any]]
        arrays = [(self._rows if name == "triples" else getattr(self, name), ARRAYS[name]) for name in there]
        if self.labels is not None:
            _digest_names(digest, self.labels.names)
            arrays += [(getattr(self.labels, name), None) for name in ("nodes", "classes", "splits")]
        for array, dtype in arrays:
            _digest_array(digest, array, dtype)
        return digest.hexdigest()

    # -- asking ----------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> NameLookup:
        """Nodes, relations and classes by what people call them."""
        from rgcn.graph.titles import NameLookup, Titles

        return NameLookup(Titles(self))

    def kind(self, node: str | int) -> NodeKind:
        """Whether a node is an IRI, a literal or a blank node."""
        index = self.nodes.id(node)
        return NodeKind.IRI if self.node_kinds is None else NodeKind(int(self.node_kinds[index]))

    @property
    def is_literal(self) -> NDArray[np.bool_]:
        """bool [N]: which nodes are literals."""
        if self.node_kinds is None:
            return np.zeros(self.num_nodes, dtype=bool)
        return np.asarray(self.node_kinds == NodeKind.LITERAL)

    def split_triples(self, split: str) -> NDArray[np.int64]:
        """Triples of one split, int64 [t, 3]; "all" gives every one, and so does "train" where there is no split."""
        chosen = self.in_split(split)
        return self.triples if chosen is None else self.triples_at(np.flatnonzero(chosen))

    def num_of(self, split: str) -> int:
        """How many triples `split_triples` gives."""
        chosen = self.in_split(split)
        return len(self) if chosen is None else int(np.count_nonzero(chosen))

    def in_split(self, split: str) -> NDArray[np.bool_] | None:
        """Which triples are of a split; None: all. DataError where none can be."""
        if split == "all" or (split == "train" and self.triple_splits is None):
            return None
        if split not in SPLITS:
            raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)} and all")
        if self.triple_splits is None:
            raise DataError(
                f"the graph has no {split} triples: it was read without splits, which a folder of files called train, "
                "valid and test has"
            )
        return np.asarray(self.triple_splits == SPLITS.index(split))

    @cached_property
    def search_folder(self) -> Path | None:
        """Of a stored graph: its folder, if that has an index of its names."""
        return None

    def degrees(self, split: str = "all") -> NDArray[np.int64]:
        """int64 [N]: how many ends of a split's triples each node is."""
        rows = self.split_triples(split)
        found, size = np.zeros(self.num_nodes, dtype=np.int64), max(ROWS_COUNTED, self.num_nodes)
        for begin in range(0, len(rows), size):  # in parts: numpy widens what it counts
            for end in (0, 2):
                found += np.bincount(rows[begin : begin + size, end], minlength=self.num_nodes)
        return found

    def named(self, triples: NDArray[np.int64] | None = None) -> list[tuple[str, str, str]]:
        rows = self.triples if triples is None else triples
        return [(self.nodes[s], self.relations[r], self.nodes[o]) for s, r, o in rows.tolist()]

    @cached_property
    def relation_counts(self) -> NDArray[np.int64]:
        """int64 [R]: how many triples each relation has."""
        found = np.zeros(self.num_relations, dtype=np.int64)
        for first in range(0, len(self), DIGESTED_AT_ONCE):
            rows = self.triples_at(slice(first, first + DIGESTED_AT_ONCE))
            found += np.bincount(rows[:, 1], minlength=self.num_relations)
        let_go(self._rows)
        return found

    def touching(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(place in nodes [f], number [f], columns [3, f]) of triples that touch one of them; of a loop, twice."""
        begin, count = self._incidence[0][nodes], self.num_touching(nodes)
        which = np.repeat(np.arange(len(nodes)), count)
        place = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + begin[which]
        number = self._indexed(place)
        return which, number, self.triples_at(number).T

    def num_touching(self, nodes: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """int64 [n]: how many triples touch each of some nodes; a loop counts twice."""
        pointer, triple_ids = self._incidence
        begin, end = pointer[:-1][nodes], pointer[1:][nodes]
        if len(begin) and (begin.min() < 0 or end.max() > len(triple_ids) or (begin > end).any()):
            raise DataError(DAMAGED_INDEX)
        return np.asarray(end - begin)

    def touching_one(self, node: int, limit: int | None = None) -> NDArray[np.int64]:
        """int64: the numbers of the triples that touch a node, at most `limit`; of a loop, twice."""
        count = int(self.num_touching(np.array([node]))[0])
        begin = int(self._incidence[0][node])
        return self._indexed(slice(begin, begin + (count if limit is None else min(count, limit))))

    def _indexed(self, places: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Numbers of triples at some places of the index, which may lie in a file and is read here first."""
        numbers = self._incidence[1][places].astype(np.int64, copy=False)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise DataError(DAMAGED_INDEX)
        return numbers

    @cached_property
    def _incidence(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Triples touching each node, as (pointer [N+1], triple ids): CSR over both ends."""
        ends = np.concatenate([self.triples[:, 0], self.triples[:, 2]])
        order = np.argsort(ends, kind="stable")
        pointer = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=self.num_nodes))])
        return pointer.astype(np.int64), order % max(len(self), 1)

    def neighbors(self, node: str | int, limit: int | None = None) -> list[Neighbor]:
        """Every triple the node takes part in, seen from the node: those it is the subject of first."""
        index = self.nodes.id(node)
        touching = self.touching_one(index, limit)
        rows, first = self.triples_at(touching), np.zeros(len(touching), dtype=bool)
        first[np.unique(touching, return_index=True)[1]] = True
        outgoing = first & (rows[:, 0] == index)  # a loop is met again from its other end
        ends = np.where(outgoing, rows[:, 2], rows[:, 0])
        relations, nodes = self.relations.many(rows[:, 1]), self.nodes.many(ends)
        return [Neighbor(*found) for found in zip(relations, nodes, outgoing.tolist(), strict=True)]

    # -- smaller graphs --------------------------------------------------------------------------------

    def subgraph(self, nodes: Iterable[str | int]) -> KnowledgeGraph:
        """The graph on the given nodes: triples with both ends among them, and the relations these still use."""
        keep = np.zeros(self.num_nodes, dtype=bool)
        keep[self.nodes.ids(nodes)] = True
        return self._restricted(keep, keep[self.triples[:, 0]] & keep[self.triples[:, 2]])

    def without_relations(self, relations: Iterable[str | int]) -> KnowledgeGraph:
        """The graph without the given relations; all nodes stay, with their ids."""
        gone = self.relations.ids(relations)
        return self._restricted(np.ones(self.num_nodes, dtype=bool), ~np.isin(self.triples[:, 1], gone))

    def within_hops(self, nodes: Iterable[str | int], hops: int) -> NDArray[np.bool_]:
        """bool [N]: nodes reachable from the given ones over at most `hops` triples, in either direction."""
        if hops < 0:
            raise DataError("hops must not be negative")
        reached = np.zeros(self.num_nodes, dtype=bool)
        reached[self.nodes.ids(nodes)] = True
        subject, object_ = self.triples[:, 0], self.triples[:, 2]
        for _ in range(hops):
            touched = reached[subject] | reached[object_]
            reached[subject[touched]] = True
            reached[object_[touched]] = True
        return reached

    def prune(self, hops: int) -> KnowledgeGraph:
        """The part within `hops` of the labelled nodes.

        A model of L layers reads nothing further away than L hops, so pruning to L or more changes none of its
        predictions for labelled nodes. A triple stays if a message over it can be read: if one of its ends lies
        within `hops - 1`.
        """
        if self.labels is None:
            raise DataError("pruning needs labelled nodes; this graph has none")
        if hops < 1:
            raise DataError("pruning needs at least one hop")
        inner = self.within_hops(self.labels.nodes.tolist(), hops - 1)
        keep_triple = inner[self.triples[:, 0]] | inner[self.triples[:, 2]]
        keep = inner.copy()
        keep[self.triples[keep_triple][:, [0, 2]].ravel()] = True
        return self._restricted(keep, keep_triple)

    def with_triples(self, keep: NDArray[np.bool_]) -> KnowledgeGraph:
        """The graph with the marked triples only, bool [T]; all nodes and relations stay."""
        return replace(self, triples=self.triples[keep], **self._cut(ARRAYS_OF_TRIPLES, keep))

    def without_test_labels(self) -> KnowledgeGraph:
        """The graph that trials see: without its test labels, and without classes that only those have.

        Classes are numbered anew by name, so that not even their order tells of test labels.

        >>> kg = KnowledgeGraph.from_triples([("a", "knows", "b")], labels={"a": "x"}, test_labels={"b": "y"})
        >>> kg.without_test_labels().labels
        NodeLabels(1 nodes, 1 classes; train 1)
        """
        labels = self.labels
        if labels is None:
            return self
        kept = np.flatnonzero(labels.splits != SPLITS.index("test"))
        kept = kept[np.argsort(labels.nodes[kept], kind="stable")]
        classes = [labels.names[c] for c in labels.classes[kept].tolist()]
        names = Vocabulary(sorted(set(classes)), kind="class")
        return replace(self, labels=NodeLabels(labels.nodes[kept], names.ids(classes), names, labels.splits[kept]))

    def without_test_triples(self) -> KnowledgeGraph:
        """The graph that trials see: without its test triples, and without nodes that only those mention.

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
        """Keep the marked nodes and triples; relations no triple uses any more go too; order is kept."""
        triples = self.triples[keep_triple]
        node_ids = np.flatnonzero(keep_node)
        relation_ids = np.flatnonzero(np.bincount(triples[:, 1], minlength=self.num_relations))
        new_node = np.full(self.num_nodes, -1, dtype=np.int64)
        new_node[node_ids] = np.arange(len(node_ids))
        new_relation = np.zeros(self.num_relations, dtype=np.int64)
        new_relation[relation_ids] = np.arange(len(relation_ids))
        return replace(
            self,
            triples=np.stack([new_node[triples[:, 0]], new_relation[triples[:, 1]], new_node[triples[:, 2]]], axis=1),
            nodes=self.nodes.take(node_ids.tolist()),
            relations=self.relations.take(relation_ids.tolist()),
            labels=None if self.labels is None else self.labels.remapped(new_node),
            **self._cut(ARRAYS_OF_NODES, keep_node),
            **self._cut(ARRAYS_OF_TRIPLES, keep_triple),
        )

    def _cut(self, attributes: Iterable[str], keep: NDArray[np.bool_]) -> dict[str, Any]:
        """The marked rows of those arrays that there are."""
        return {name: value[keep] for name in attributes if (value := getattr(self, name)) is not None}

    # -- other libraries (docs/interop.md) ---------------------------------------------------------------

    to_networkx = libraries.to_networkx
    to_pandas = libraries.to_pandas
    to_polars = libraries.to_polars
    to_pykeen = libraries.to_pykeen
    to_pyg = libraries.to_pyg
    from_pyg = staticmethod(libraries.from_pyg)

    def to_rdf(
        self, path: str | os.PathLike[str], *, format: str | None = None, base: str = "urn:rgcn:", split: str = "all"
    ) -> int:
        """Write the triples of a split to an RDF file, and say how many; names that are no IRIs go under `base`."""
        from rgcn.graph.rdf_terms import to_rdf

        return to_rdf(self, path, format=format, base=base, split=split)


def _own(given: Any, dtype: Any) -> NDArray[Any]:
    """A copy, so that the caller's array stays the caller's; an array that can no longer be written to needs none."""
    frozen = type(given) is np.ndarray and given.dtype == dtype and given.base is None and not given.flags.writeable
    return given if frozen else np.array(given, dtype=dtype)


def _digest_names(digest: Any, names: Vocabulary) -> None:
    for number, block in enumerate(names.encoded_blocks()):
        digest.update(b"\x1e" * bool(number) + b"\x1e".join(block))
    digest.update(b"\x1d")


def _digest_array(digest: Any, array: NDArray[Any] | None, dtype: Any) -> None:
    """The array as if it were of this type, a piece at a time."""
    if array is None:
        digest.update(b"-")
        return
    digest.update(f"{np.dtype(dtype or array.dtype).str}{array.shape}".encode())
    for first in range(0, len(array), DIGESTED_AT_ONCE):
        digest.update(np.ascontiguousarray(array[first : first + DIGESTED_AT_ONCE], dtype=dtype))


# -- a graph whose triples stay in the file that they lie in ----------------------------------------------------


class StoredGraph(KnowledgeGraph):
    """A graph opened from a folder, as `data/graph_store` writes it.

    `triples` reads all triples, once somebody asks; `triples_at` reads some. Numbers in them are checked when they are
    read. A changed copy (`dataclasses.replace`), or one sent to another process, is a plain graph in memory, because
    the folder does not hold the copy.
    """

    _rows: NDArray[Any]  # int32 or int64 [T, 3]: the triples in their file, mapped where they are many
    _incidence: tuple[NDArray[np.int64], NDArray[np.int64]]
    search_folder: Path | None

    def __new__(cls, *given: Any, **named: Any) -> KnowledgeGraph:  # type: ignore[misc]
        return KnowledgeGraph(*given, **named)  # so that `dataclasses.replace` gives a plain graph

    def __reduce__(self) -> tuple[Any, ...]:
        return KnowledgeGraph, tuple(getattr(self, each.name) for each in fields(self))

    @classmethod
    def opened(
        cls,
        rows: NDArray[Any],
        incidence: tuple[NDArray[Any], NDArray[Any]],
        *,
        fingerprint: str | None = None,
        search_folder: Path | None = None,
        **others: Any,
    ) -> StoredGraph:
        """The graph of triples in a file and the index of them; others: the other fields of a `KnowledgeGraph`.

        fingerprint    None: computed when somebody asks
        search_folder  the folder, if it has an index of the names
        """
        graph: StoredGraph = object.__new__(cls)
        given = {"_rows": rows, "_incidence": incidence, "search_folder": search_folder, "metadata": {}, **others}
        if fingerprint is not None:
            given["fingerprint"] = fingerprint
        for name, value in given.items():
            object.__setattr__(graph, name, value)
        graph._own_arrays(*ARRAYS_OF_NODES, *ARRAYS_OF_TRIPLES)
        graph._check()
        if not isinstance(rows, np.memmap):
            _ = graph.triples  # so few that they are in memory: checked at once
        return graph

    @cached_property
    def triples(self) -> NDArray[np.int64]:
        """int64 [T, 3]: read and checked when somebody asks for them, then kept."""
        wide = self._named_rows(self._rows, 0)
        wide.setflags(write=False)
        return wide

    @property
    def stored(self) -> bool:
        return "triples" not in vars(self)

    def triples_at(self, places: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        if not self.stored:
            return super().triples_at(places)
        try:
            return self._named_rows(self._rows[places], None)
        except IndexError as error:
            raise DataError(f"the stored graph is damaged: it has no such triple ({error})") from None

    def degrees(self, split: str = "all") -> NDArray[np.int64]:
        return self.num_touching(slice(None)) if split == "all" else super().degrees(split)
