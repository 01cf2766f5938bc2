"""/explain: slow to make, so made in a thread of its own and remembered."""

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rgcn.errors import ConfigError, DataError
from rgcn.explain import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Fidelity
from rgcn.explain import methods as explaining
from rgcn.explain.question import Question
from rgcn.plugins import EXPLAINERS
from rgcn.serve import schemas
from rgcn.serve.batching import Desk
from rgcn.serve.schemas import AnswerShape, Class, Node, NodeName, Probability, QuestionShape, Relation, RelationName
from rgcn.serve.served_model import Endpoints, Example, Shown, endpoint


class ExplainQuery(QuestionShape):
    node: NodeName | None = Field(None, description="Explain this node's class.")
    class_: schemas.Name | None = Field(None, alias="class", description="By name or title; else the predicted one.")
    subject: NodeName | None = Field(None, description="With relation and object: explain this triple.")
    relation: RelationName | None = None
    object: NodeName | None = None
    method: Literal[EXPLAINERS.names()] | None = Field(  # type: ignore[valid-type]
        None, description="How importance is found: the model's first one if not said."
    )
    edges: Annotated[int, Field(ge=1, le=100), schemas.Number] = Field(10, description="How many triples to name.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        of_triple = (self.subject, self.relation, self.object)
        about_node = self.node is not None and of_triple == (None, None, None)
        about_triple = self.node is None and self.class_ is None and None not in of_triple
        if not (about_node or about_triple):
            words = "ask about a node (node, and class if you like) or a triple (subject, relation, object)"
            raise PydanticCustomError("one_question", words)
        return self


class ExplainedQuestion(Struct):
    """About a node, its class say, or about a triple."""

    kind: str
    node: Node | None = None
    class_: Class | None = field(name="class", default=None)
    predicted: Class | None = None
    subject: Node | None = None
    relation: Relation | None = None
    object: Node | None = None


class Explained(AnswerShape):
    """Why the model answered so: the triples that mattered, and how far that can be believed."""

    question: ExplainedQuestion
    method: str
    score: schemas.Score
    calibration: Annotated[str, Meta(description="What probabilities are calibrated on, or why there are none.")]
    probability: Probability
    own_share: Annotated[float | None, Meta(description="How much comes from the node itself, not from triples.")]
    ruled_out: Annotated[bool, Meta(description="Whether the triple is not in the graph, and examples rule it out.")]
    hidden: Annotated[bool, Meta(description="Whether the triple is in the graph, and was hidden while asking.")]
    walked: Annotated[bool, Meta(description="Whether paths are the model's own ways to the answer, best first.")]
    added: Annotated[list[Node], Meta(description="Asked nodes that were added after training.")]
    edges: Annotated[list[ExplainedEdge], Meta(description="Triples that speak for the answer, most important first.")]
    against: Annotated[list[ExplainedEdge], Meta(description="Triples that speak against it, likewise.")]
    neighbors: list[ExplainedNeighbor]
    paths: list[ExplainedPath]
    fidelity: Fidelity
    considered: Annotated[int, Meta(description="Triples within reach of the answer.")]
    left_out: Annotated[list[str], Meta(description="What there was not time for, in sentences.")]
    svg: Annotated[str, Meta(description="The explanation drawn, as an <svg> element.")]


class WhyEndpoints(Endpoints):
    """Which triples decided: for a node of a model that answers for classes, a triple of one that does for links."""

    tag = "why"

    @endpoint("GET", "explain")
    async def explain(self, desk: Desk, query: ExplainQuery) -> Explained:
        """The triples that decided a node's class or a triple's score, and how far that can be believed."""
        opened = self.served.opened
        try:
            kind = opened.kind_about("triples" if query.node is None else "nodes")
        except DataError:
            raise self.served.cannot(
                "why a triple is likely" if query.node is None else "why a node has a class"
            ) from None
        question = kind.part(Question)  # type: ignore[type-abstract]
        names = (query.node, query.class_) if query.node is not None else (query.subject, query.relation, query.object)
        about = question.numbers(opened, *names)
        methods = explaining.methods_of(opened)
        if not methods:
            words = f"the model {self.served.name!r} looks at no neighbors: no triples decided its answers"
            raise schemas.Refusal("cannot_explain", words)
        asked = (question, about, query.method or methods[0], query.edges)
        answer = desk.remembered((self.served.name, *asked), partial(self._make, *asked))
        return await answer  # type: ignore[no-any-return]

    def examples(self, shown: Shown) -> dict[str, Example]:
        about_node = any(kind.about == "nodes" for kind in self.served.opened.task.kinds)
        asked = ("node",) if about_node else ("subject", "relation", "object")
        method = (*explaining.methods_of(self.served.opened), "integrated-gradients")[0]
        return {"GET explain": ({**{key: shown.words[key] for key in asked}, "method": method}, None)}

    def _make(self, question: type[Question], about: tuple[int | None, ...], method: str, edges: int) -> Explained:
        """In the thread for what is slow."""
        try:
            found = explaining.explain(self.served.opened, question, about, explaining.How(method, edges))
        except (DataError, ConfigError) as error:
            raise schemas.Refusal("cannot_explain", str(error)) from None
        # Plain values where shapes are declared: written, they are the same.
        return Explained(**found.as_dict(), svg=str(found.as_svg()))
