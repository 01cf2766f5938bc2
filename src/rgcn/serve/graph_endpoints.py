"""What every model can be asked: who it is, nodes by a part of their name, and their facts."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import astuple, replace
from pydantic import Field
from starlette.responses import Response

from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.serve.about import FEW, ModelDetails, Shown, card, details
from rgcn.serve.batching import Desk, Lane
from rgcn.serve.limits import AtMost, Count, NodeName, Number
from rgcn.serve.served import Endpoints, Example, OnStep, Served, endpoint
from rgcn.serve.shapes import AnswerShape, Node, QuestionShape, Relation, Split


class SearchQuery(QuestionShape):
    q: Annotated[str, AtMost("name")] = Field(description="A part of a name or title. An empty one finds nothing.")
    limit: Count = Field(10, description="How many nodes at most.")


class NeighborsQuery(QuestionShape):
    node: NodeName
    limit: Count = Field(50, description="How many facts at most.")
    offset: Annotated[int, Field(ge=0, le=10**9), Number] = Field(0, description="How many facts to leave out first.")


class NodeWithDegree(Node, frozen=True):
    """A node, and the number of triples it takes part in."""

    degree: int


class Found(AnswerShape):
    query: str
    nodes: list[NodeWithDegree]


class Fact(AnswerShape):
    """A triple seen from a node."""

    relation: Relation
    node: Annotated[Node, Meta(description="The other end.")]
    outgoing: Annotated[bool, Meta(description="Whether the node asked about is the subject.")]
    split: Annotated[Split | None, Meta(description="What the triple was used for, where the graph has splits.")]


class Neighbors(AnswerShape):
    node: Node
    degree: Annotated[int, Meta(description="Triples the node takes part in.")]
    total: Annotated[int, Meta(description="Facts there are to page through.")]
    facts: list[Fact]


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
        triples = zip(self.graph.triples[rows].tolist(), self.outgoing[asked].tolist(), used, strict=True)
        return [(r, o if out else s, out, split) for (s, r, o), out, split in triples]


class GraphEndpoints(Endpoints):
    """/search, /neighbors, /card and the model itself. Details and card are made once, when the model is loaded."""

    tag = "graph"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        self.searches = Lane((served.name, "search"), self._find, 8)
        self._facts, self._details = Facts(served.graph), details(served)
        self._card = Response(card(served), media_type="text/markdown")

    @endpoint("GET", "")
    async def model_details(self, desk: Desk) -> ModelDetails:
        """A model's figures, its relations and classes, and something to begin with."""
        return self._details

    @endpoint("GET", "card")
    async def model_card(self, desk: Desk) -> Response:
        """What the model is, what it is good for and how it was made, in Markdown."""
        return self._card

    @endpoint("GET", "search")
    async def search(self, desk: Desk, query: SearchQuery) -> Found:
        """Nodes by a part of their name or title, best first."""
        if self.served.names.finds_quickly:
            return self._found(query.q, self.served.names.find(query.q, query.limit))
        return self._found(query.q, (await desk.ask(self.searches, [(query.q, query.limit)]))[0])

    @endpoint("GET", "neighbors")
    async def neighbors(self, desk: Desk, query: NeighborsQuery) -> Neighbors:
        """The facts the graph has about a node: what it is the subject of first."""
        return self._around(self.served.names.node(query.node), query.limit, query.offset)

    def examples(self, shown: Shown) -> dict[str, Example]:
        about, query, node = self._details, shown.words["q"], shown.words["node"]
        few = replace(about, relations=about.relations[:FEW], classes=about.classes[:FEW])
        return {
            "GET ": ({}, few),
            "GET card": ({}, f"# {self.served.name}\n"),
            "GET search": ({"q": query}, self._found(query, self.served.names.find(query, FEW))),
            "GET neighbors": ({"node": node}, self._around(shown.nodes[0], FEW, 0)),
        }

    def _find(self, questions: list[tuple[str, int]]) -> list[list[int]]:
        return [self.served.names.find(query, limit) for query, limit in questions]

    def _found(self, query: str, nodes: list[int]) -> Found:
        degrees = self._facts.degree[nodes].tolist()
        found = zip(map(self.served.node, nodes), degrees, strict=True)
        return Found(query, [NodeWithDegree(*astuple(node), degree) for node, degree in found])

    def _around(self, number: int, limit: int, offset: int) -> Neighbors:
        node, relations, known = self.served.node, self.served.relations, self._facts
        page = known.page(number, limit, offset)
        facts = [Fact(relations[relation], node(other), outgoing, split) for relation, other, outgoing, split in page]
        return Neighbors(node(number), int(known.degree[number]), known.total(number), facts)
