"""Something to begin with: nodes and a relation worth looking at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rgcn.graph import NodeKind

if TYPE_CHECKING:
    from rgcn.serve.served import Served

FEW, NODES = 2, 5


def example_nodes(served: Served) -> list[int]:
    """A few well-connected nodes; of a graph with labels, those that have one."""
    graph, degree = served.graph, served.facts.degree.astype(np.float64)
    worth = degree.copy()
    if graph.node_kinds is not None:
        worth[graph.node_kinds != NodeKind.IRI] = -1.0
    if graph.labels is not None:
        worth[graph.labels.nodes] += degree.max() + 1  # labelled ones first: their answers can be checked
    return [int(node) for node in np.argsort(-worth, kind="stable")[:NODES]]


def example_relation(served: Served, node: int) -> int | None:
    """The relation of which a node is most often the subject, else the commonest one; None without triples."""
    triples = served.graph.triples
    if not len(triples):
        return None
    own = triples[triples[:, 0] == node, 1]
    return int(np.bincount(own if len(own) else triples[:, 1]).argmax())


class Shown:
    """The things that the examples of a model's endpoints are about.

    words  what stands for a parameter of some name, where an example does not say
    """

    def __init__(self, served: Served) -> None:
        graph, labels = served.graph, served.graph.labels
        self.node, *others = example_nodes(served)
        self.relation = example_relation(served, self.node) or 0
        linked = graph.triples[(graph.triples[:, 0] == self.node) & (graph.triples[:, 1] == self.relation), 2]
        self.object = int(linked[0]) if len(linked) else others[0] if others else self.node
        self.words = {
            "model": served.name,
            "q": served.opened.titles.of(self.node)[:4],
            "node": graph.nodes[self.node],
            "class": labels.names[0] if labels is not None and len(labels.names) else "a class",
            "subject": graph.nodes[self.node],
            "relation": graph.relations[self.relation] if graph.num_relations else "a relation",
            "object": graph.nodes[self.object],
        }
