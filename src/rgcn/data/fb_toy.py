"""FB-Toy, cut out of FB15k-237: the triples among its busiest entities."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rgcn.data.reading import read
from rgcn.graph import SPLITS, KnowledgeGraph

MIN_DEGREE = 161  # the degree that leaves exactly the 299 entities FB-Toy was drawn from


def cut(graph: KnowledgeGraph, min_degree: int = MIN_DEGREE) -> KnowledgeGraph:
    """The triples among the entities of at least `min_degree` training triples; all nodes and relations stay.

    Degree counts head and tail occurrences in training. Valid and test keep only triples whose entities and relation
    are still met in the small training set, so that every question in them can be answered from it.

    >>> triples = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "c"), ("a", "s", "b"), ("b", "r", "b")]
    >>> cut(KnowledgeGraph.from_triples(triples, triple_splits=np.array([0, 0, 0, 1, 2])), min_degree=2).named()
    [('a', 'r', 'b'), ('b', 'r', 'a'), ('b', 'r', 'b')]
    """
    ends, relations = graph.triples[:, [0, 2]], graph.triples[:, 1]
    in_train = np.asarray(graph.triple_splits == SPLITS.index("train"), dtype=bool)
    train = in_train & (graph.degrees("train")[ends] >= min_degree).all(axis=1)
    met = np.isin(ends, ends[train]).all(axis=1) & np.isin(relations, relations[train])
    return graph.with_triples(train | (met & ~in_train))


def cut_folder(splits: Mapping[str, Path], target: Path, min_degree: int = MIN_DEGREE) -> None:
    """Write {train,valid,test}.txt of the small graph into `target`, from the large one's file for each split."""
    small = cut(read(splits), min_degree)
    for split in splits:
        text = "".join("\t".join(triple) + "\n" for triple in small.named(small.split_triples(split)))
        (target / f"{split}.txt").write_bytes(text.encode())
