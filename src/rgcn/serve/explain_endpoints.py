"""/explain: explanations are slow to compute, so they have their own thread and are cached."""

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rgcn.errors import ConfigError, DataError
from rgcn.explain import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Fidelity, methods
from rgcn.explain.question import Question
from rgcn.plugins import EXPLAINERS
from rgcn.serve import schemas
from rgcn.serve.batching import Dispatcher
from rgcn.serve.schemas import Class, Node, NodeName, Probability, Relation, RelationName, RequestSchema, ResponseSchema
from rgcn.serve.served_model import Endpoints, Example, ExampleEntities, endpoint


class ExplainQuery(RequestSchema):
    """A node whose class, or a triple whose score, is to be explained."""

    node: NodeName | None = Field(None, description="Explain this node's class.")
    class_: schemas.Name | None = Field(
        None, alias="class", description="Explain this class, by name or title. Default: the predicted one."
    )
    subject: NodeName | None = Field(None, description="With relation and object: explain this triple.")
    relation: RelationName | None = Field(None, description="The relation of the triple to explain.")
    object: NodeName | None = Field(None, description="The object of the triple to explain.")
    method: Literal[EXPLAINERS.names()] | None = Field(  # type: ignore[valid-type]
        None, description="How importance is computed. Default: the model's first method."
    )
    edges: Annotated[int, Field(ge=1, le=100), schemas.Number] = Field(10, description="How many triples to return.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        triple = (self.subject, self.relation, self.object)
        is_about_node = self.node is not None and triple == (None, None, None)
        is_about_triple = self.node is None and self.class_ is None and None not in triple
        if not (is_about_node or is_about_triple):
            message = "ask about a node (node, and optionally class) or a triple (subject, relation, object)"
            raise PydanticCustomError("one_question", message)
        return self


class ExplainedQuestion(Struct):
    """The node, and its class, or the triple that is explained."""

    kind: str
    node: Node | None = None
    class_: Class | None = field(name="class", default=None)
    predicted: Class | None = None
    subject: Node | None = None
    relation: Relation | None = None
    object: Node | None = None


class ExplainAnswer(ResponseSchema):
    """The triples that decided an answer, and a measure of how reliable the explanation is."""

    question: ExplainedQuestion
    method: str
    score: schemas.Score
    calibration: Annotated[str, Meta(description="What probabilities are calibrated on, or why there are none.")]
    probability: Probability
    own_share: Annotated[float | None, Meta(description="Share of the score due to the node itself, not to triples.")]
    ruled_out: Annotated[bool, Meta(description="True if the triple is not in the graph and the data rule it out.")]
    hidden: Annotated[bool, Meta(description="True if the triple is in the graph and was hidden from the model.")]
    walked: Annotated[bool, Meta(description="True if the paths are those the model itself followed, best first.")]
    added: Annotated[list[Node], Meta(description="Nodes of the question that were added after training.")]
    edges: Annotated[list[ExplainedEdge], Meta(description="Triples that support the answer, most important first.")]
    against: Annotated[list[ExplainedEdge], Meta(description="Triples that oppose it, most important first.")]
    neighbors: list[ExplainedNeighbor]
    paths: list[ExplainedPath]
    fidelity: Fidelity
    considered: Annotated[int, Meta(description="Triples within reach of the answer.")]
    left_out: Annotated[list[str], Meta(description="What was left out for lack of time, as sentences.")]
    svg: Annotated[str, Meta(description="A drawing of the explanation, as an <svg> element.")]


class ExplainEndpoints(Endpoints):
    """Which triples decided: about a node if the model predicts classes, about a triple if it predicts links."""

    tag = "explain"

    @endpoint("GET", "explain")
    async def explain(self, dispatcher: Dispatcher, query: ExplainQuery) -> ExplainAnswer:
        """The triples that decided a node's class or a triple's score, and how reliable the explanation is."""
        opened, is_about_node = self.served.opened, query.node is not None
        try:
            kind = opened.require_kind_for("nodes" if is_about_node else "triples")
        except DataError:
            what = "why a node has a class" if is_about_node else "why a triple is likely"
            raise self.served.wrong_task(what) from None
        question = kind.part_class(Question)  # type: ignore[type-abstract]
        names = (query.node, query.class_) if is_about_node else (query.subject, query.relation, query.object)
        ids = question.find_ids(opened, *names)
        available = methods.available_methods(opened)
        if not available:
            message = f"the model {self.served.name!r} does not use neighbors, so no triples decided its answers"
            raise schemas.RequestError("cannot_explain", message)
        arguments = (question, ids, query.method or available[0], query.edges)
        answer = dispatcher.cached_answer((self.served.name, *arguments), partial(self._explain, *arguments))
        return await answer  # type: ignore[no-any-return]

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return a request with its response for each endpoint."""
        is_about_node = any(kind.topic == "nodes" for kind in self.served.opened.task.kinds)
        names = ("node",) if is_about_node else ("subject", "relation", "object")
        method = (*methods.available_methods(self.served.opened), "integrated-gradients")[0]
        return {"GET explain": ({**{name: entities.parameters[name] for name in names}, "method": method}, None)}

    def _explain(
        self, question: type[Question], ids: tuple[int | None, ...], method: str, num_edges: int
    ) -> ExplainAnswer:
        """Compute an explanation, in the explanations' thread."""
        try:
            explanation = methods.explain(self.served.opened, question, ids, methods.ExplainOptions(method, num_edges))
        except (DataError, ConfigError) as error:
            raise schemas.RequestError("cannot_explain", str(error)) from None
        # Plain dictionaries in place of the declared structs: as JSON they are the same.
        return ExplainAnswer(**explanation.as_dict(), svg=str(explanation.as_svg()))
