"""A served model, and the groups of endpoints that answer for it.

A model's task decides which groups it has: one for each kind of question the task answers, and one of its own if it
declares one (`parts = {"Endpoints": "package.module:Class"}`). This module does not know which tasks exist.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from rgcn.graph import NodeKind
from rgcn.graph.titles import readable_name
from rgcn.links.calibration import Calibration
from rgcn.models.answer_kind import HasParts, kind_of
from rgcn.models.task import Task
from rgcn.plugins import ANSWER_KINDS
from rgcn.predict import OpenModel
from rgcn.predict.opened_model import load_calibration
from rgcn.serve.schemas import Class, Node, Relation, RequestError, RequestSchema, ResponseSchema

# Groups of every model; others belong to kinds of questions.
COMMON_GROUPS = ("rgcn.serve.common_endpoints:GraphEndpoints", "rgcn.serve.common_endpoints:ExplainEndpoints")
MODEL_PATH = "/api/models/{model}/"
# Nodes of larger graphs are described on demand: all descriptions would take more memory than the model.
LARGE_GRAPH_NODES = 300_000
BACKGROUND_DELAY_S = 20.0
MAX_CANDIDATES, MAX_TITLES_READ, NUM_EXAMPLES, VARIETY_QUANTILE = 2000, 200, 5, 0.9  # of example nodes
OnStage = Callable[[str], None]
Example = tuple[dict[str, Any], Any]  # parameters or body; the response, None if it is not shown
Handler = Callable[..., Awaitable[ResponseSchema | Response]]
H = TypeVar("H", bound=Handler)


class Endpoint(NamedTuple):
    """A path that requests can be sent to.

    Attributes:
        key: "GET links" for paths below that of a model, "GET /api/health" for others.
        method: HTTP method.
        path: The whole path, with "{model}" in place of the model's name.
        request: Schema of the parameters of a GET or the body of a POST; None if there are none.
        response: Schema of the response; None if it is not JSON.
        function: The method that answers; its name and docstring are in the OpenAPI document.
        parameters: Names of the query parameters.
        tag: Heading in the OpenAPI document.
    """

    key: str
    method: str
    path: str
    request: type[RequestSchema] | None
    response: type[ResponseSchema] | None
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    tag: str = ""


def run_later(name: str, work: Callable[[], None]) -> None:
    """Run work in a thread of this name, some seconds after the start, so that first requests are not delayed."""
    timer = threading.Timer(BACKGROUND_DELAY_S, work)
    timer.name, timer.daemon = name, True
    timer.start()


def endpoint(method: str, path: str) -> Callable[[H], H]:
    """Declare a method as the handler of an endpoint; its annotations are the schemas of request and response.

        @endpoint("GET", "links")
        async def links(self, dispatcher: Dispatcher, query: LinksQuery) -> LinkAnswer: ...

    Args:
        method: "GET" or "POST".
        path: Path below that of the model; with a leading slash, of the server.
    """

    def declare(handler: H) -> H:
        kinds = [kind for kind in get_type_hints(handler).values() if isinstance(kind, type)]
        request = next((kind for kind in kinds if issubclass(kind, RequestSchema)), None)
        response = next((kind for kind in kinds if issubclass(kind, ResponseSchema)), None)
        full_path = path if path.startswith("/") else (MODEL_PATH + path).removesuffix("/")
        fields = request.model_fields if method == "GET" and request is not None else {}
        parameters = tuple(field.alias or name for name, field in fields.items())
        declared = Endpoint(f"{method} {path}", method, full_path, request, response, handler, parameters)
        handler.endpoint = declared  # type: ignore[attr-defined]
        return handler

    return declare


class Endpoints:
    """A group of endpoints of one served model.

    It is created when the model is loaded. Do slow preparations in the constructor, so that the first request does not
    wait for them. Handlers run on the event loop. Work that takes more than a millisecond goes into a `RequestQueue`,
    and the handler waits for it: `await dispatcher.ask(queue, questions)`.

    Args:
        served: The model.
        on_stage: Called with a description of each stage of the preparation.

    Raises:
        DataError: If the model cannot answer.
    """

    tag: ClassVar[str] = ""  # heading in the OpenAPI document

    def __init__(self, served: ServedModel, on_stage: OnStage) -> None:
        self.served = served

    @classmethod
    def declared(cls) -> list[Endpoint]:
        """Return every endpoint of the group."""
        functions = [function for base in reversed(cls.__mro__) for function in vars(base).values()]
        found = [function.endpoint._replace(tag=cls.tag) for function in functions if hasattr(function, "endpoint")]
        return list({endpoint.key: endpoint for endpoint in found}.values())

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by `Endpoint.key`."""
        return {endpoint.key: endpoint.function.__get__(self) for endpoint in self.declared()}

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return requests with their responses by `Endpoint.key`; the requests must work when they are tried."""
        return {}


class ServedModel:
    """A loaded model, with what all its endpoints share.

    Args:
        opened: The model.
        name: Name in paths; by default that of the model.
        on_stage: Called with a description of each stage of the preparation.

    Attributes:
        names: Finds nodes, relations and classes by the names that people type.
        node: Describes a node, by its id, as responses have it.
        relations: Descriptions of all relations.
        classes: Descriptions of all classes.
        entities: What examples are about.
        groups: Groups of endpoints.
        handlers: Handlers of all groups, by `Endpoint.key`.
    """

    def __init__(self, opened: OpenModel, name: str | None = None, on_stage: OnStage = lambda stage: None) -> None:
        graph = opened.graph
        self.opened, self.name, self.graph = opened, name or opened.name, graph
        self.is_large = graph.num_nodes > LARGE_GRAPH_NODES
        on_stage("calibrating")
        self.calibration = self._stored_calibration() if self.is_large else opened.calibration
        on_stage("indexing names")
        self.names = opened.names
        self.names.prepare()
        self.node: Callable[[int], Node] = lambda number: Node(**opened.describe(number))
        if not self.is_large:
            self.node = [self.node(number) for number in range(graph.num_nodes)].__getitem__
        self.relations = [Relation(**opened.describe_relation(number)) for number in range(graph.num_relations)]
        class_names = [] if graph.labels is None else graph.labels.names
        self.classes = [Class(**opened.describe_class(number)) for number in range(len(class_names))]
        self.longest_name = max(graph.nodes.longest, graph.relations.longest, *map(len, class_names), 0)
        self.entities = ExampleEntities(self)
        self.groups: list[Endpoints] = [group(self, on_stage) for group in groups_of(opened.task)]
        self.handlers = {key: handler for group in self.groups for key, handler in group.handlers().items()}

    def _stored_calibration(self) -> Calibration:
        """Return the stored calibration; if there is none, fit it in the background, without probabilities so far."""
        stored, *_ = load_calibration(self.opened.model, self.opened.folder)
        if stored is not None:
            return stored

        def fit() -> None:
            self.calibration = self.opened.calibration

        run_later("rgcn-calibrate", fit)
        kind = self.opened.task.kind.name
        return Calibration(kind, False, "No probabilities yet: the calibration is running. Ask again in a minute.")

    def wrong_task(self, what: str) -> RequestError:
        """Return the error of a question that the model's task does not answer."""
        places = dict.fromkeys(key.partition(" ")[2] for key in self.handlers)
        paths = ", ".join(f"/{place}" for place in places if place)
        message = f"the model {self.name!r} is for {self.opened.task.name} and does not answer {what}: use {paths}"
        return RequestError("wrong_task", f"{message}, or another model")


class ExampleEntities:
    """What the explorer page begins with, and what the examples of a model's endpoints are about.

    Attributes:
        nodes: A few well-described nodes.
        triple: A triple of the first node, with its most frequent relation as a subject, if there is one.
        parameters: Values of parameters by name, for examples that do not give one.
    """

    def __init__(self, served: ServedModel) -> None:
        graph, self.nodes = served.graph, example_nodes(served)
        first = self.nodes[0]
        triples = graph.triples_at(np.unique(graph.triples_of_node(first)))
        triples = triples[triples[:, 0] == first]
        counts = np.bincount(triples[:, 1], minlength=graph.num_relations)
        counts = counts if counts.any() else graph.relation_counts
        relation = int(counts.argmax()) if len(counts) else 0
        objects = triples[triples[:, 1] == relation, 2].tolist()
        self.triple = first, relation, objects[0] if objects else self.nodes[-1]
        self.parameters = {"model": served.name, "q": served.opened.titles.of(first)[:4]}
        self.parameters["node"] = self.parameters["subject"] = served.node(first).name
        self.parameters["object"] = served.node(self.triple[2]).name
        if served.classes:
            self.parameters["class"] = served.classes[0].name
        if counts.any():
            self.parameters["relation"] = served.relations[relation].name


def example_nodes(served: ServedModel) -> list[int]:
    """Choose a few nodes that people may know.

    They have many different relations, but a usual degree: hubs are linked to everything. If the graph has labels, the
    nodes are labeled, so that predictions can be checked.
    """
    graph, labels, titles = served.graph, served.graph.labels, served.opened.titles
    candidates = _candidates(served)
    which, _, (subject, relation, _) = graph.incident_triples(candidates)
    kind = relation + graph.num_relations * (subject != candidates[which])
    num_kinds = 2 * max(1, graph.num_relations)
    variety = np.bincount(np.unique(which * num_kinds + kind) // num_kinds, minlength=len(candidates))
    is_suitable = np.ones(len(candidates), bool)
    if graph.node_kinds is not None:
        is_suitable = graph.node_kinds[candidates] == NodeKind.IRI
    if labels is not None:
        is_suitable &= np.isin(candidates, labels.nodes)
    varieties = variety[is_suitable] if is_suitable.any() else variety
    is_described = is_suitable & (variety >= max(np.quantile(varieties, VARIETY_QUANTILE), varieties.max() / 2))
    degree = np.log1p(np.bincount(which, minlength=len(candidates)))
    distance = np.abs(degree - np.median(degree[is_described])) if is_described.any() else -degree
    best: list[int] = candidates[np.lexsort((distance, ~is_described, ~is_suitable))[:MAX_TITLES_READ]].tolist()
    # Nodes with a title come before those that are shown by their id.
    best.sort(key=lambda node: titles.of(node) == readable_name(graph.nodes[node], graph.nodes))
    return best[:NUM_EXAMPLES]


def _candidates(served: ServedModel) -> NDArray[np.int64]:
    """Return the nodes to choose examples from: all, or some of a large graph, without its largest hubs."""
    graph, labels = served.graph, served.graph.labels
    if not served.is_large:
        return np.arange(graph.num_nodes)
    nodes = np.arange(graph.num_nodes) if labels is None or not len(labels) else labels.nodes
    some = nodes[np.linspace(0, len(nodes) - 1, min(len(nodes), MAX_CANDIDATES)).astype(np.int64)]
    return some[np.argsort(graph.degrees()[some], kind="stable")[: max(1, len(some) - len(some) // 20)]]


def groups_of(task: Task | None) -> list[type[Endpoints]]:
    """Return the groups of models of a task; without a task, all built-in groups."""
    owners: list[HasParts] = list(map(kind_of, ANSWER_KINDS.built_in)) if task is None else [*task.kinds, task]
    return [*map(resolve_name, COMMON_GROUPS), *(owner.part_class(Endpoints) for owner in owners)]
