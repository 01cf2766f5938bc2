"""What every model can be asked: who it is, nodes by a part of their name, and their facts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace
from pydantic import Field
from starlette.responses import Response

from rgcn.serve.about import FEW, ModelDetails, Shown, card, details
from rgcn.serve.batching import Lane
from rgcn.serve.desk import Desk
from rgcn.serve.endpoints import Endpoints, Example, OnStep, endpoint
from rgcn.serve.served import Served
from rgcn.serve.shapes import (
    NODE_WORDS,
    AnswerShape,
    AtMost,
    Count,
    Name,
    Node,
    Number,
    QuestionShape,
    Relation,
    Split,
)


class SearchQuery(QuestionShape):
    q: Annotated[str, AtMost("name")] = Field(description="A part of a name or title. An empty one finds nothing.")
    limit: Count = Field(10, description="How many nodes at most.")


class NeighborsQuery(QuestionShape):
    node: Name = Field(description=NODE_WORDS)
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


class GraphEndpoints(Endpoints):
    """/search, /neighbors, /card and the model itself. Details and card are made once, when the model is loaded."""

    tag = "graph"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        self.searches = Lane((served.name, "search"), self._find, 8)
        self._details = details(served)
        self._card = Response(card(served), media_type="text/markdown")

    @endpoint("GET ", (404,))
    async def model_details(self, desk: Desk) -> ModelDetails:
        """A model's figures, its relations and classes, and something to begin with."""
        return self._details

    @endpoint("GET card", (404,))
    async def model_card(self, desk: Desk) -> Response:
        """What the model is, what it is good for and how it was made, in Markdown."""
        return self._card

    @endpoint("GET search", (404, 503))
    async def search(self, desk: Desk, query: SearchQuery) -> Found:
        """Nodes by a part of their name or title, best first."""
        if self.served.names.finds_quickly:
            return self._found(query.q, self.served.names.find(query.q, query.limit))
        return self._found(query.q, (await desk.ask(self.searches, [(query.q, query.limit)]))[0])

    @endpoint("GET neighbors", (404,))
    async def neighbors(self, desk: Desk, query: NeighborsQuery) -> Neighbors:
        """The facts the graph has about a node: what it is the subject of first."""
        return self._facts(self.served.names.node(query.node), query.limit, query.offset)

    def examples(self, shown: Shown) -> dict[str, Example]:
        about, query, node = self._details, shown.words["q"], shown.words["node"]
        few = replace(about, relations=about.relations[:FEW], classes=about.classes[:FEW])
        return {
            "GET ": ({}, few),
            "GET card": ({}, f"# {self.served.name}\n"),
            "GET search": ({"q": query}, self._found(query, self.served.names.find(query, FEW))),
            "GET neighbors": ({"node": node}, self._facts(shown.nodes[0], FEW, 0)),
        }

    def _find(self, questions: list[tuple[str, int]]) -> list[list[int]]:
        return [self.served.names.find(query, limit) for query, limit in questions]

    def _found(self, query: str, numbers: list[int]) -> Found:
        degrees = self.served.facts.degree[numbers].tolist()
        nodes = map(self.served.node, numbers)
        return Found(
            query,
            [
                NodeWithDegree(node.name, node.title, node.description, node.kind, degree)
                for node, degree in zip(nodes, degrees, strict=True)
            ],
        )

    def _facts(self, number: int, limit: int, offset: int) -> Neighbors:
        served, known = self.served, self.served.facts
        facts = [
            Fact(served.relations[relation], served.node(other), outgoing, split)
            for relation, other, outgoing, split in known.page(number, limit, offset)
        ]
        return Neighbors(served.node(number), int(known.degree[number]), known.total(number), facts)
