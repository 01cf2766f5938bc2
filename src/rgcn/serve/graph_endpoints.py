"""What every model can be asked: who it is, nodes by a part of their name, and their facts."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from rgcn.serve.about import FEW, ModelDetails, Shown, card, details
from rgcn.serve.batching import Lane
from rgcn.serve.desk import Desk
from rgcn.serve.endpoints import Endpoints, Example, OnStep, endpoint
from rgcn.serve.limits import AtMost
from rgcn.serve.route import Answer
from rgcn.serve.served import Served
from rgcn.serve.shapes import NODE_WORDS, Answered, Asked, Count, Name, Node, Number, Relation, Split
from rgcn.serve.writing import BOOL, SPLIT, as_json, listed

MARKDOWN = b"text/markdown; charset=utf-8"


class SearchQuery(Asked):
    q: Annotated[str, AtMost("name")] = Field(description="A part of a name or title. An empty one finds nothing.")
    limit: Count = Field(10, description="How many nodes at most.")


class NeighborsQuery(Asked):
    node: Name = Field(description=NODE_WORDS)
    limit: Count = Field(50, description="How many facts at most.")
    offset: Annotated[int, Field(ge=0, le=10**9), Number] = Field(0, description="How many facts to leave out first.")


class NodeWithDegree(Node):
    """A node, and the number of triples it takes part in."""

    degree: int


class Found(Answered):
    query: str
    nodes: list[NodeWithDegree]


class Fact(Answered):
    """A triple seen from a node."""

    relation: Relation
    node: Node = Field(description="The other end.")
    outgoing: bool = Field(description="Whether the node asked about is the subject.")
    split: Split | None = Field(description="What the triple was used for, where the graph has splits.")


class Neighbors(Answered):
    node: Node
    degree: int = Field(description="Triples the node takes part in.")
    total: int = Field(description="Facts there are to page through.")
    facts: list[Fact]


class GraphEndpoints(Endpoints):
    """/search, /neighbors, /card and the model itself. Details and card are written once, when the model is loaded."""

    tag = "graph"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        self.searches = Lane((served.name, "search"), self._find, 8)
        self._details, self._card = as_json(details(served)), card(served).encode()

    @endpoint("GET", "", None, ModelDetails, (404,))
    async def model_details(self, desk: Desk) -> Answer:
        """A model's figures, its relations and classes, and something to begin with."""
        return Answer(self._details)

    @endpoint("GET", "card", None, None, (404,))
    async def model_card(self, desk: Desk) -> Answer:
        """What the model is, what it is good for and how it was made, in Markdown."""
        return Answer(self._card, MARKDOWN)

    @endpoint("GET", "search", SearchQuery, Found, (404, 503))
    async def search(self, desk: Desk, query: SearchQuery) -> Answer:
        """Nodes by a part of their name or title, best first."""
        if self.served.names.finds_quickly:
            nodes = self.served.names.find(query.q, query.limit)
        else:
            nodes = (await desk.ask(self.searches, [(query.q, query.limit)]))[0]
        return Answer(self._found(query.q, nodes))

    @endpoint("GET", "neighbors", NeighborsQuery, Neighbors, (404,))
    async def neighbors(self, desk: Desk, query: NeighborsQuery) -> Answer:
        """The facts the graph has about a node: what it is the subject of first."""
        return Answer(self._facts(self.served.names.node(query.node), query.limit, query.offset))

    def examples(self, shown: Shown) -> dict[str, Example]:
        whole, query, node = json.loads(self._details), shown.words["q"], shown.words["node"]
        found = self._found(query, self.served.names.find(query, FEW))
        few = {key: whole[key][:FEW] for key in ("relations", "classes")}
        return {
            "GET ": ({}, {**whole, **few}),
            "GET card": ({}, f"# {self.served.name}\n"),
            "GET search": ({"q": query}, json.loads(found)),
            "GET neighbors": ({"node": node}, json.loads(self._facts(shown.node, FEW, 0))),
        }

    def _find(self, questions: list[tuple[str, int]]) -> list[list[int]]:
        return [self.served.names.find(query, limit) for query, limit in questions]

    def _found(self, query: str, nodes: list[int]) -> bytes:
        piece, degree = self.served.pieces.node, self.served.facts.degree
        found = (piece(node)[:-1] + b',"degree":%d}' % degree[node] for node in nodes)
        return b'{"query":' + as_json(query) + b',"nodes":' + listed(found) + b"}"

    def _facts(self, node: int, limit: int, offset: int) -> bytes:
        pieces, known = self.served.pieces, self.served.facts
        facts = (
            b'{"relation":%b,"node":%b,"outgoing":%b,"split":%b}'
            % (pieces.relations[relation], pieces.node(other), BOOL[outgoing], SPLIT[split])
            for relation, other, outgoing, split in known.page(node, limit, offset)
        )
        return b'{"node":%b,"degree":%d,"total":%d,"facts":%b}' % (
            pieces.node(node),
            known.degree[node],
            known.total(node),
            listed(facts),
        )
