"""/explain: slow to make, so made in a thread of its own and remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rgcn.errors import ConfigError, DataError
from rgcn.explain import (
    ExplainedEdge,
    ExplainedNeighbor,
    ExplainedPath,
    Fidelity,
    explain_class,
    explain_link,
    methods_of,
)
from rgcn.explain.explaining import Method
from rgcn.serve.batching import Batcher, Lane
from rgcn.serve.endpoints import Endpoints, Example, OnStep, endpoint
from rgcn.serve.refusals import Refusal
from rgcn.serve.route import Answer
from rgcn.serve.shapes import NODE_WORDS, RELATION_WORDS, Asked, Class, Name, Node, Number, Relation, Scored
from rgcn.serve.writing import as_json

if TYPE_CHECKING:
    from rgcn.serve.about import Shown
    from rgcn.serve.desk import Desk
    from rgcn.serve.served import Served

REMEMBERED = 256
CLASS_WORDS = "A class: its name or its title. Without it, the predicted one."


class ExplainQuery(Asked):
    node: Name | None = Field(None, description="Explain this node's class. " + NODE_WORDS)
    class_: Name | None = Field(None, alias="class", description=CLASS_WORDS)
    subject: Name | None = Field(None, description="With relation and object: explain this triple. " + NODE_WORDS)
    relation: Name | None = Field(None, description=RELATION_WORDS)
    object: Name | None = Field(None, description=NODE_WORDS)
    method: Method = Field("integrated-gradients", description="How importance is found.")
    edges: Annotated[int, Field(ge=1, le=100), Number] = Field(10, description="How many triples to name.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        of_triple = (self.subject, self.relation, self.object)
        about_node = self.node is not None and of_triple == (None, None, None)
        about_triple = self.node is None and self.class_ is None and None not in of_triple
        if not (about_node or about_triple):
            raise PydanticCustomError(
                "one_question", "ask about a node (node, and class if you like) or a triple (subject, relation, object)"
            )
        return self


class ExplainedQuestion(BaseModel):
    """About a node's class, or about a triple."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    kind: Literal["class", "link"]
    node: Node | None = None
    class_: Class | None = Field(None, alias="class")
    subject: Node | None = None
    relation: Relation | None = None
    object: Node | None = None


class Explained(Scored):
    """Why the model answered so: the triples that mattered, and how far that can be believed."""

    model_config = ConfigDict(extra="allow")

    question: ExplainedQuestion
    method: str
    own_share: float | None = Field(description="How much comes from the node itself rather than from triples.")
    edges: list[ExplainedEdge] = Field(description="Triples that speak for the answer, most important first.")
    against: list[ExplainedEdge] = Field(description="Triples that speak against it, likewise.")
    neighbors: list[ExplainedNeighbor]
    paths: list[ExplainedPath]
    fidelity: Fidelity
    considered: int = Field(description="Triples within reach of the answer.")
    svg: str = Field(description="The explanation drawn, as an <svg> element.")


class WhyAsked(NamedTuple):
    """Why a node has a class (None: the predicted one), or why a triple is likely."""

    model: str
    about: tuple[int, int | None] | tuple[int, int, int]
    method: Method
    edges: int


class WhyEndpoints(Endpoints):
    """Which triples decided: for a node of a model that answers for classes, a triple of one that does for links."""

    tag = "why"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        self._methods = methods_of(served.opened)

    @endpoint("GET", "explain", ExplainQuery, Explained)
    async def explain(self, desk: Desk, query: ExplainQuery) -> Answer:
        """The triples that decided a node's class or a triple's score, and how far that can be believed."""
        about = self._about(query)
        if query.method not in self._methods:
            name = self.served.name
            words = f"the model {name!r} looks at no neighbors: there are no triples that decided its answers"
            raise Refusal("cannot_explain", words)
        return Answer(await desk.why.ask(WhyAsked(self.served.name, about, query.method, query.edges)))

    def examples(self, shown: Shown) -> dict[str, Example]:
        asked = ("node",) if self.served.opened.answers("classes") else ("subject", "relation", "object")
        return {"GET explain": ({key: shown.words[key] for key in asked}, None)}

    def _about(self, query: ExplainQuery) -> tuple[int, int | None] | tuple[int, int, int]:
        names, opened = self.served.names, self.served.opened
        if query.node is not None:
            if not opened.answers("classes"):
                raise self.served.cannot("why a node has a class")
            return names.node(query.node), None if query.class_ is None else names.class_(query.class_)
        if not opened.answers("links"):
            raise self.served.cannot("why a triple is likely")
        assert query.subject is not None
        assert query.relation is not None
        assert query.object is not None
        return names.node(query.subject), names.relation(query.relation), names.node(query.object)


class Explanations:
    """Makes and remembers explanations; the least lately asked one is forgotten first.

    `made` is asked on the event loop, `answer` in the thread. The answer looks again at what is remembered: the same
    question may have waited behind itself.
    """

    def __init__(self, models: dict[str, Served], slow: Batcher, most: int = REMEMBERED) -> None:
        self._models, self._slow, self._most = models, slow, most
        self._remembered: OrderedDict[WhyAsked, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._lane = Lane(("any", "explain"), self.answer, most=1)

    def __len__(self) -> int:
        return len(self._remembered)

    async def ask(self, question: WhyAsked) -> bytes:
        found: bytes = self.made(question) or (await self._slow.ask(self._lane, [question]))[0]
        return found

    def made(self, question: WhyAsked) -> bytes | None:
        with self._lock:
            found = self._remembered.get(question)
            if found is not None:
                self._remembered.move_to_end(question)
            return found

    def answer(self, questions: list[WhyAsked]) -> list[bytes]:
        return [self.made(question) or self._make(question) for question in questions]

    def _make(self, question: WhyAsked) -> bytes:
        model, about, method, edges = question
        explain = explain_class if len(about) == 2 else explain_link
        try:
            explanation = explain(self._models[model].opened, *about, method=method, edges=edges)
        except (DataError, ConfigError) as error:
            raise Refusal("cannot_explain", str(error)) from None
        answer = as_json({**explanation.as_dict(), "svg": str(explanation.as_svg())})
        with self._lock:
            self._remembered[question] = answer
            while len(self._remembered) > self._most:
                self._remembered.popitem(last=False)
        return answer
