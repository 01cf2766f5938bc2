"""The operator of a graph that stays where it lies: rows of it are made when somebody asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency.operator import EdgeOptions, RelationalAdjacency, sorted_edges
from rgcn.graph import KnowledgeGraph


class StoredEdges:
    """Rows of the A_r of a graph, from its index of the triples that touch each node; on the CPU.

    An edge is normalized among the edges of its own target, and all of these are read: the rows are those of
    `RelationalAdjacency.from_graph`, whose sorted edges of the whole graph are never made.
    """

    def __init__(self, graph: KnowledgeGraph, **edges: Any) -> None:
        """edges: fields of `EdgeOptions`."""
        self.graph, self.options = graph, EdgeOptions(**edges)

    @property
    def num_targets(self) -> int:
        return self.graph.num_nodes

    def edges_into(self, nodes: Tensor) -> Tensor:
        """[n]: a loop counts twice."""
        return torch.from_numpy(self.graph.num_touching(nodes.numpy()) + int(self.options.self_loops))

    def restricted(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """The operator of the edges into these nodes int64 [t], distinct, and the nodes they read, ascending."""
        graph, options = self.graph, self.options
        _, number, (subject, relation, object_) = graph.touching(targets.numpy())
        number, first = np.unique(number, return_index=True)  # a triple between two of the nodes stands there twice
        triples = np.stack([subject[first], relation[first], object_[first]], axis=1).astype(np.int64, copy=False)
        part, sizes = torch.from_numpy(triples), options.sizes(len(graph), graph.num_nodes, graph.num_relations)
        structure = sorted_edges([(torch.from_numpy(number), part)], sizes, _Chosen(targets))
        sources, source = torch.unique(structure.source, return_inverse=True)
        structure = replace(structure, source=source, num_sources=len(sources))
        raw, weights = torch.ones(structure.num_edges), graph.edge_weights
        if weights is not None:
            said = structure.origin < len(graph)
            raw[said] = torch.from_numpy(weights[structure.origin[said].numpy()])
        rule = options.normalization, options.aggregation
        return RelationalAdjacency.normalized(structure, raw, *rule, unweighted=weights is None), sources.long()


class _Chosen:
    """Some nodes int64 [n], distinct; their rows are in the order given."""

    def __init__(self, nodes: Tensor) -> None:
        self.nodes = nodes
        self._ascending, self._row = torch.sort(nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def is_local(self, nodes: Tensor) -> Tensor:
        return torch.isin(nodes, self.nodes)

    def row(self, nodes: Tensor) -> Tensor:
        return self._row[torch.searchsorted(self._ascending, nodes)]
