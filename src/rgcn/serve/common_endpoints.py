"""Endpoints of every model: its description, search, the neighbors of a node, the model card, and explanations."""

from functools import lru_cache, partial
from itertools import starmap
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import asdict, replace
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response
from typing_extensions import Self

from rgcn.errors import ConfigError, DataError, RgcnError
from rgcn.explain import ExplainedEdge, ExplainedNeighbor, ExplainedPath, Fidelity, methods
from rgcn.explain.question import Question
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.nn.universal_network import pretrained_card
from rgcn.pages.run_report import model_card
from rgcn.plugins import EXPLAINERS
from rgcn.runs.folder import RunFolder
from rgcn.sampling.known_triples import BLOCK_TRIPLES
from rgcn.serve import schemas
from rgcn.serve.batching import Dispatcher, RequestQueue
from rgcn.serve.schemas import AtMost, Class, Count, Node, NodeName, Probability, Relation, RelationName
from rgcn.serve.served_model import Endpoints, Example, ExampleEntities, OnStage, ServedModel, endpoint

EXAMPLE_ROWS, CACHED_NODES = 2, 64


class SearchQuery(schemas.RequestSchema):
    """A text to look for in names and titles."""

    q: Annotated[str, AtMost("max_name_length")] = Field(description="Part of a name or title. Empty finds nothing.")
    limit: Count = Field(10, description="How many nodes at most.")


class NeighborsQuery(schemas.RequestSchema):
    """A page of a node's triples."""

    node: NodeName
    limit: Count = Field(50, description="How many triples at most.")
    offset: Annotated[int, Field(ge=0, le=10**9), schemas.Number] = Field(0, description="How many triples to skip.")


class RelationWithCount(Relation):
    """A relation with its number of triples."""

    count: Annotated[int, Meta(description="Triples of this relation in the graph.")]


class ClassWithCount(Class):
    """A class with its number of nodes."""

    count: Annotated[int, Meta(description="Nodes labeled with this class.")]


class GraphCounts(schemas.ResponseSchema):
    """The size of a graph."""

    nodes: int
    relations: int
    triples: int
    classes: int


class ModelSummary(schemas.ResponseSchema):
    """A served model, as the list of models has it."""

    name: str
    task: str
    answers: Annotated[list[str], Meta(description="Kinds of questions it answers: `classes`, `links`.")]
    model: str
    dataset: str
    counts: GraphCounts
    headline: Annotated[str, Meta(description="Its main metric, as text.")]


class ModelExamples(schemas.ResponseSchema):
    """Nodes and a relation to begin with."""

    nodes: list[Node]
    relation: str | None


class ModelDetails(ModelSummary):
    """Everything a page or a program needs to know about a model."""

    seed: int | None
    created: str | None
    metrics: dict[str, dict[str, Any]]
    relations: list[RelationWithCount]
    classes: list[ClassWithCount]
    calibration: Annotated[dict[str, Any], Meta(description="How scores become probabilities, and how reliable.")]
    explain_methods: Annotated[list[str], Meta(description="Empty if the model does not use neighbors.")]
    examples: ModelExamples


class NodeWithDegree(Node):
    """A node and its number of triples."""

    degree: int


class SearchResults(schemas.ResponseSchema):
    """Nodes whose name or title contains the text, best first."""

    query: str
    nodes: list[NodeWithDegree]


class Fact(schemas.ResponseSchema):
    """A triple, from the point of view of one of its nodes."""

    relation: Relation
    node: Annotated[Node, Meta(description="The other node.")]
    outgoing: Annotated[bool, Meta(description="True if the requested node is the subject.")]
    split: Annotated[schemas.Split | None, Meta(description="The triple's split, if the graph has splits.")]


class Neighbors(schemas.ResponseSchema):
    """A page of a node's triples."""

    node: Node
    degree: Annotated[int, Meta(description="Triples of the node.")]
    total: Annotated[int, Meta(description="Facts on all pages.")]
    facts: list[Fact]


class GraphEndpoints(Endpoints):
    """The model itself, /search, /neighbors and /card. Details and card are made once, when the model is loaded."""

    tag = "graph"

    def __init__(self, served: ServedModel, on_stage: OnStage) -> None:
        super().__init__(served, on_stage)
        self.searches = RequestQueue((served.name, "search"), partial(starmap, served.names.find), 8)
        self._facts, self._details = NodeFacts(served.graph), _details(served)
        self._card = Response(_card(served), media_type="text/markdown")

    @endpoint("GET", "")
    async def model_details(self, dispatcher: Dispatcher) -> ModelDetails:
        """A model's metrics, relations and classes, and examples to begin with."""
        return replace(self._details, calibration=self.served.calibration.as_dict())

    @endpoint("GET", "card")
    async def model_card(self, dispatcher: Dispatcher) -> Response:
        """What the model is, what it is good for and how it was made, in Markdown."""
        return self._card

    @endpoint("GET", "search")
    async def search(self, dispatcher: Dispatcher, query: SearchQuery) -> SearchResults:
        """Nodes by part of their name or title, best first."""
        if self.served.names.is_search_fast:
            return self._results(query.q, self.served.names.find(query.q, query.limit))
        return self._results(query.q, (await dispatcher.ask(self.searches, [(query.q, query.limit)]))[0])

    @endpoint("GET", "neighbors")
    async def neighbors(self, dispatcher: Dispatcher, query: NeighborsQuery) -> Neighbors:
        """The triples of a node: first those in which it is the subject."""
        return self._neighbors(self.served.names.node(query.node), query.limit, query.offset)

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return a request with its response for each endpoint."""
        details, text, node = self._details, entities.parameters["q"], entities.parameters["node"]
        relations, classes = details.relations[:EXAMPLE_ROWS], details.classes[:EXAMPLE_ROWS]
        results = self._results(text, self.served.names.find(text, EXAMPLE_ROWS))
        return {
            "GET ": ({}, replace(details, relations=relations, classes=classes)),
            "GET card": ({}, f"# {self.served.name}\n"),
            "GET search": ({"q": text}, results),
            "GET neighbors": ({"node": node}, self._neighbors(entities.nodes[0], EXAMPLE_ROWS, 0)),
        }

    def _results(self, text: str, nodes: list[int]) -> SearchResults:
        rows = zip(map(self.served.node, nodes), self._facts.degree(nodes), strict=True)
        return SearchResults(text, [NodeWithDegree(**asdict(node), degree=degree) for node, degree in rows])

    def _neighbors(self, node_id: int, limit: int, offset: int) -> Neighbors:
        node, relations = self.served.node, self.served.relations
        page, total = self._facts.page(node_id, limit, offset)
        facts = [Fact(relations[relation], node(other), outgoing, split) for relation, other, outgoing, split in page]
        return Neighbors(node(node_id), self._facts.degree([node_id])[0], total, facts)


class NodeFacts:
    """The triples of each node, sorted: outgoing ones first, then by relation, so that a page is a slice."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        _ = graph._incidence  # built now if it is not stored, so that no request waits for it
        self._rows_of = lru_cache(CACHED_NODES)(self._sorted_rows)
        parts = (graph.triples_at(slice(first, first + BLOCK_TRIPLES)) for first in range(0, len(graph), BLOCK_TRIPLES))
        loops = [np.empty(0, np.int64), *(part[part[:, 0] == part[:, 2], 0] for part in parts)]
        nodes, counts = np.unique(np.concatenate(loops), return_counts=True)
        self._loops = dict(zip(nodes.tolist(), counts.tolist(), strict=True))

    def degree(self, nodes: list[int]) -> list[int]:
        """Return the number of triples of each node; a self-loop counts once."""
        touching = self.graph.num_incident_triples(np.array(nodes, dtype=np.int64)).tolist()
        return [count - self._loops.get(node, 0) for node, count in zip(nodes, touching, strict=True)]

    def _sorted_rows(self, node: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the rows of the node's triples in the graph, and which of them are outgoing."""
        touching = np.unique(self.graph.triples_of_node(node))
        subject, relation, object_ = self.graph.triples_at(touching).T
        outgoing, incoming = np.flatnonzero(subject == node), np.flatnonzero(object_ == node)
        order = [rows[np.argsort(relation[rows], kind="stable")] for rows in (outgoing, incoming)]
        return touching[np.concatenate(order)], np.repeat([True, False], [len(outgoing), len(incoming)])

    def page(self, node: int, limit: int, offset: int) -> tuple[list[tuple[int, int, bool, Any]], int]:
        """Return some of a node's facts as (relation, other node, outgoing, split), and the number of all."""
        (rows, outgoing), page, splits = self._rows_of(node), slice(offset, offset + limit), self.graph.triple_splits
        shown = rows[page]
        split_names = [None] * len(shown) if splits is None else [SPLITS[split] for split in splits[shown].tolist()]
        triples = zip(self.graph.triples_at(shown).tolist(), outgoing[page].tolist(), split_names, strict=True)
        return [(r, o if out else s, out, split) for (s, r, o), out, split in triples], len(rows)


def model_summary(served: ServedModel) -> ModelSummary:
    """Return the model's entry in the list of models."""
    graph, opened = served.graph, served.opened
    counts = GraphCounts(graph.num_nodes, graph.num_relations, graph.num_triples, len(opened.classes))
    metric, metrics = opened.task.headline, (opened.result or {}).get("metrics") or {}
    values = ((split, (metrics.get(split) or {}).get(metric.name)) for split in ("test", "valid"))
    texts = (f"{split} {metric.title} {metric.format(value)}" for split, value in values if value is not None)
    kinds = [kind.name for kind in opened.task.kinds]
    headline = next(texts, "not measured" if opened.zero_shot_graph is None else "pretrained, not trained here")
    return ModelSummary(served.name, opened.task.name, kinds, opened.title, opened.dataset, counts, headline)


def _details(served: ServedModel) -> ModelDetails:
    graph, opened, entities = served.graph, served.opened, served.entities
    labels = graph.labels if opened.classes else None
    triples_each = zip(served.relations, graph.relation_counts.tolist(), strict=True)
    nodes_each = [] if labels is None else np.bincount(labels.classes, minlength=labels.num_classes).tolist()
    return ModelDetails(
        **asdict(model_summary(served)),
        seed=opened.about.get("seed", opened.model.seed),
        created=opened.about.get("created"),
        metrics=(opened.result or {}).get("metrics") or {},
        relations=[RelationWithCount(relation.name, relation.title, count) for relation, count in triples_each],
        classes=[ClassWithCount(c.name, c.title, n) for c, n in zip(served.classes, nodes_each, strict=False)],
        calibration=served.calibration.as_dict(),
        explain_methods=list(methods.available_methods(opened)),
        examples=ModelExamples(list(map(served.node, entities.nodes)), entities.parameters.get("relation")),
    )


def _card(served: ServedModel) -> str:
    """Return the model card in Markdown, or a short description of a model that was not trained in a run."""
    summary, graph = model_summary(served), served.graph
    counts = f"{graph.num_nodes:,} nodes, {graph.num_relations:,} relations, {graph.num_triples:,} triples"
    text = f"A {summary.model} model for {summary.task}, saved outside a run, over {summary.dataset} ({counts})."
    if served.opened.zero_shot_graph is not None:
        card = pretrained_card()
        limits = "".join(f"\n- {limit}" for limit in card.get("limits", ()))
        text = (
            f"For {summary.task}: {summary.model}, over {summary.dataset}, which it was not trained on. The graph has "
            f"{counts}. The model was trained on other graphs: {', '.join(card.get('learned_from', ()))}.\n{limits}"
        )
    try:
        if served.opened.about:
            return model_card(RunFolder(served.opened.path), served.opened.model)
    except RgcnError:  # its message would reveal a path of this machine
        text = "The model card cannot be made: the run's folder is damaged or missing."
    return f"# {served.name}\n\n{text}\n"


class ExplainQuery(schemas.RequestSchema):
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


class ExplainedQuestion(msgspec.Struct):
    """The node, and its class, or the triple that is explained."""

    kind: str
    node: Node | None = None
    class_: Class | None = msgspec.field(name="class", default=None)
    predicted: Class | None = None
    subject: Node | None = None
    relation: Relation | None = None
    object: Node | None = None


class ExplainAnswer(schemas.ResponseSchema):
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
