"""The knowledge graph: names and integers, labels and splits; no tensors, no devices, no training."""

from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.statistics import GraphStatistics
from rgcn.graph.stored_graph import StoredGraph
from rgcn.graph.vocabulary import SPLITS, NodeKind, NodeLabels, Vocabulary

__all__ = ["SPLITS", "GraphStatistics", "KnowledgeGraph", "NodeKind", "NodeLabels", "StoredGraph", "Vocabulary"]
