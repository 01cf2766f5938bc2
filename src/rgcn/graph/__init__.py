"""The knowledge graph: names and ids, triples, labels and splits. No tensors, devices or training."""

from typing import TYPE_CHECKING

from rgcn.graph.knowledge_graph import KnowledgeGraph, StoredGraph
from rgcn.graph.statistics import GraphStatistics
from rgcn.graph.vocabulary import SPLITS, NodeKind, NodeLabels, Vocabulary
from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)

__all__ = ["SPLITS", "GraphStatistics", "KnowledgeGraph", "NodeKind", "NodeLabels", "StoredGraph", "Vocabulary"]
