"""The knowledge graph: names and integers, labels and splits; no tensors, no devices, no training."""

from typing import TYPE_CHECKING

from rgcn.graph.knowledge_graph import KnowledgeGraph, StoredGraph
from rgcn.graph.statistics import GraphStatistics
from rgcn.graph.vocabulary import SPLITS, NodeKind, NodeLabels, Vocabulary
from rgcn.system.lazy import lazy_names

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__)

__all__ = ["SPLITS", "GraphStatistics", "KnowledgeGraph", "NodeKind", "NodeLabels", "StoredGraph", "Vocabulary"]
