"""The operator of a graph that stays where it lies: rows of it are made when somebody asks for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency.operator import Aggregation, Normalization, RelationalAdjacency
from rgcn.adjacency.structure import EdgeStructure
from rgcn.graph import KnowledgeGraph


@dataclass(frozen=True, eq=False)
class StoredEdges:
    """Rows of the A_r of a graph, from its index of the triples that touch each node; on the CPU.

    An edge is normalized among the edges of its own target, and all of these are read: the rows are those of
    `RelationalAdjacency.from_graph`, whose sorted edges of the whole graph are never made.
    """

    graph: KnowledgeGraph
    inverse: bool = True
    self_loops: bool = True
    normalization: Normalization = "relation"
    aggregation: Aggregation = "sum"

    @property
    def num_targets(self) -> int:
        return self.graph.num_nodes

    def edges_into(self, nodes: Tensor) -> Tensor:
        """[n]: a loop counts twice."""
        return torch.from_numpy(self.graph.num_touching(nodes.numpy()) + int(self.self_loops))

    def restricted(self, targets: Tensor) -> tuple[RelationalAdjacency, Tensor]:
        """The operator of the edges into these nodes int64 [t], distinct, and the nodes they read, ascending."""
        graph, nodes = self.graph, targets.numpy()
        which, number, (subject, relation, object_) = graph.touching(nodes)
        # A loop touches its node twice, and is one edge and one inverse all the same.
        loop = np.flatnonzero(subject == object_)
        twice = loop[np.unique(which[loop] * np.int64(len(graph)) + number[loop], return_index=True)[1]]
        once = np.ones(len(which), dtype=bool)
        once[loop] = False
        once[twice] = True
        forward = np.flatnonzero(once & (object_ == nodes[which]))
        parts = [(which[forward], relation[forward], subject[forward], number[forward])]
        if self.inverse:
            back = np.flatnonzero(once & (subject == nodes[which]))
            parts.append((which[back], relation[back] + graph.num_relations, object_[back], number[back]))
        loop_relation = graph.num_relations * (1 + self.inverse)
        if self.self_loops:
            parts.append((np.arange(len(nodes)), np.full(len(nodes), loop_relation), nodes, nodes + len(graph)))
        target, kind, read, origin = (torch.from_numpy(np.concatenate(ends)) for ends in zip(*parts, strict=True))
        sources, source = torch.unique(read, return_inverse=True)
        relations = loop_relation + int(self.self_loops)
        structure = EdgeStructure.sorted(
            target,
            kind,
            source,
            origin,
            num_targets=len(nodes),
            num_sources=len(sources),
            num_relations=relations,
            num_data_relations=graph.num_relations,
            has_inverse=self.inverse,
            has_self_loops=self.self_loops,
            num_triples=len(graph),
            num_nodes=graph.num_nodes,
        )
        raw, weights = torch.ones(structure.num_edges), graph.edge_weights
        if weights is not None:
            said = structure.origin < len(graph)
            raw[said] = torch.from_numpy(weights[structure.origin[said].numpy()])
        rule = self.normalization, self.aggregation
        return RelationalAdjacency.normalized(structure, raw, *rule, unweighted=weights is None), sources
