"""A model as the server holds it: loaded once, everything looked up that can be looked up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.predict import OpenModel
from rgcn.serve.endpoints import Endpoints, Handler, OnStep, groups_of
from rgcn.serve.refusals import Refusal
from rgcn.serve.shapes import Class, Node, Relation

# Of larger graphs the nodes are described when they are needed: all of them would take more memory than the model.
MOST_PREPARED = 300_000


class Served:
    """One model, what all its endpoints share, and the groups of them that it has.

    names     what people type → numbers
    node      a node as answers have it, by its number; likewise relations, classes
    facts     every node's triples
    handlers  what answers, by `Endpoint.key`
    """

    def __init__(self, opened: OpenModel, name: str | None = None, on_step: OnStep = lambda what: None) -> None:
        graph = opened.graph
        self.opened, self.name, self.graph = opened, name or opened.name, graph
        on_step("calibrating")
        self.calibration = opened.calibration
        on_step("indexing names")
        self.names = opened.names
        self.names.prepare()
        self.node: Callable[[int], Node] = lambda number: Node(**opened.describe(number))
        if graph.num_nodes <= MOST_PREPARED:
            self.node = [self.node(number) for number in range(graph.num_nodes)].__getitem__
        self.relations = [Relation(**opened.describe_relation(number)) for number in range(graph.num_relations)]
        classes = 0 if graph.labels is None else graph.labels.num_classes
        self.classes = [Class(**opened.describe_class(number)) for number in range(classes)]
        self.facts = Facts(graph)
        self.groups: list[Endpoints] = [group(self, on_step) for group in groups_of(opened.task)]
        self.handlers: dict[str, Handler] = {}
        for group in self.groups:
            self.handlers |= group.handlers()

    def cannot(self, what: str) -> Refusal:
        """The answer to a question that this model's task does not answer."""
        places = dict.fromkeys(key.partition(" ")[2] for key in self.handlers)
        paths = ", ".join(f"/{place}" for place in places if place)
        words = f"the model {self.name!r} is for {self.opened.task.name} and does not answer {what}: ask it {paths}"
        return Refusal("wrong_task", f"{words}, or ask another model")


class Facts:
    """Every node's triples, outgoing ones first, then by relation: a page is a slice.

    pointer  int64 [N + 1]
    triple   int64 [F]      row in the graph's triples
    outgoing bool [F]
    degree   int64 [N]      triples a node takes part in; one with itself counts once
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        subject, relation, object_ = graph.triples.T
        number, node = np.tile(np.arange(len(graph)), 2), np.concatenate([subject, object_])
        inward = np.repeat([False, True], len(graph))
        order = np.lexsort((number, np.tile(relation, 2), inward, node))
        counts = np.bincount(node, minlength=graph.num_nodes)
        self.graph, self.triple, self.outgoing = graph, number[order], ~inward[order]
        self.pointer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.degree = counts - np.bincount(subject[subject == object_], minlength=graph.num_nodes)

    def total(self, node: int) -> int:
        return int(self.pointer[node + 1] - self.pointer[node])

    def page(self, node: int, limit: int, offset: int) -> list[tuple[int, int, bool, str | None]]:
        """Some of a node's facts: (relation, the other end, outgoing, split) each."""
        begin, end = self.pointer[node : node + 2].tolist()
        asked = slice(min(begin + offset, end), min(begin + offset + limit, end))
        rows, splits = self.triple[asked], self.graph.triple_splits
        used = [None] * len(rows) if splits is None else [SPLITS[split] for split in splits[rows].tolist()]
        triples, outgoing = self.graph.triples[rows].tolist(), self.outgoing[asked].tolist()
        return [(r, o if out else s, out, split) for (s, r, o), out, split in zip(triples, outgoing, used, strict=True)]
