"""What a graph looks like in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rgcn.graph.vocabulary import SPLITS

if TYPE_CHECKING:
    from rgcn.graph.knowledge_graph import KnowledgeGraph

# Bins that double: "0", "1", "2-3", "4-7", ..., "1024+".
DEGREE_BINS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class GraphStatistics:
    """Counts as in the paper's tables, a degree histogram and relation frequencies."""

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
        degree = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=graph.num_nodes)
        relation = np.bincount(graph.triples[:, 1], minlength=graph.num_relations)
        by_count = np.argsort(-relation, kind="stable")
        bins = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(DEGREE_BINS)]
        in_bins, _ = np.histogram(degree, [*DEGREE_BINS, np.inf])
        histogram = dict(zip([*bins, f"{DEGREE_BINS[-1]}+"], in_bins.tolist(), strict=True))
        splits = {}
        if graph.triple_splits is not None:
            splits = {s: int((graph.triple_splits == i).sum()) for i, s in enumerate(SPLITS)}
        labels = graph.labels
        class_counts = {}
        if labels is not None:
            counts = np.bincount(labels.classes, minlength=labels.num_classes)
            class_counts = {labels.names[c]: int(counts[c]) for c in np.argsort(-counts, kind="stable")}
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
            max_degree=int(degree.max()) if len(degree) else 0,
            isolated=int((degree == 0).sum()),
            degree_histogram={name: count for name, count in histogram.items() if count},
            relation_counts={graph.relations[r]: int(relation[r]) for r in by_count},
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dict(self.__dict__)
