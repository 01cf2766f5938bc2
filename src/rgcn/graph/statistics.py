"""Statistics of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rgcn.graph.vocabulary import SPLITS, Vocabulary

if TYPE_CHECKING:
    from rgcn.graph.knowledge_graph import KnowledgeGraph

DEGREE_BINS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # "0", "1", "2-3", "4-7", ..., "1024+"


@dataclass(frozen=True)
class GraphStatistics:
    """Counts as in the paper's tables, a degree histogram and relation frequencies.

    The keys of the dictionaries are splits, classes, degree bins and relations.
    """

    entities: int
    literals: int
    relations: int
    triples: int
    triples_per_split: dict[str, int]
    labels: int
    labels_per_split: dict[str, int]
    classes: int
    class_counts: dict[str, int]
    mean_degree: float
    median_degree: float
    max_degree: int
    isolated: int
    degree_histogram: dict[str, int]
    relation_counts: dict[str, int]

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> GraphStatistics:
        """Compute the statistics of a graph."""
        degree, labels = graph.degrees(), graph.labels
        bins = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(DEGREE_BINS)]
        in_bins, _ = np.histogram(degree, [*DEGREE_BINS, np.inf])
        histogram = dict(zip([*bins, f"{DEGREE_BINS[-1]}+"], in_bins.tolist(), strict=True))
        splits = {} if graph.triple_splits is None else {s: len(graph.split_triples(s)) for s in SPLITS}
        class_counts = {} if labels is None else _most_frequent_first(labels.classes, labels.names)
        return cls(
            entities=graph.num_nodes,
            literals=int(graph.is_literal.sum()),
            relations=graph.num_relations,
            triples=len(graph),
            triples_per_split=splits,
            labels=0 if labels is None else len(labels),
            labels_per_split={} if labels is None else dict(labels.counts()),
            classes=0 if labels is None else labels.num_classes,
            class_counts=class_counts,
            mean_degree=float(degree.mean()) if len(degree) else 0.0,
            median_degree=float(np.median(degree)) if len(degree) else 0.0,
            max_degree=int(degree.max(initial=0)),
            isolated=int((degree == 0).sum()),
            degree_histogram={name: count for name, count in histogram.items() if count},
            relation_counts=_most_frequent_first(graph.triples[:, 1], graph.relations),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, for JSON."""
        return dict(self.__dict__)


def _most_frequent_first(ids: NDArray[np.int64], names: Vocabulary) -> dict[str, int]:
    counts = np.bincount(ids, minlength=len(names))
    return {names[number]: int(counts[number]) for number in np.argsort(-counts, kind="stable")}
