"""A model as the server holds it, and its groups of endpoints: questions of one kind with all that belongs to them.

Which groups a model has, its task decides: one for each kind of question that it answers, and one of its own where it
brings one (`brings = {"Endpoints": "package.module:Class"}`). Nothing here knows which tasks there are.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from rgcn.graph import NodeKind
from rgcn.graph.titles import readable
from rgcn.links.calibration import Calibration
from rgcn.models.answer_kind import HasParts, kind_of
from rgcn.models.task import Task
from rgcn.plugins import ANSWER_KINDS, imported
from rgcn.predict import OpenModel
from rgcn.predict.opened_model import kept_calibration
from rgcn.serve.schemas import AnswerShape, Class, Node, QuestionShape, Refusal, Relation

# What every model is asked, and what one is asked whose task answers a kind of question.
OF_ALL = ("rgcn.serve.graph_endpoints:GraphEndpoints", "rgcn.serve.why_endpoints:WhyEndpoints")
OF_A_MODEL = "/api/models/{model}/"
# Of larger graphs the nodes are described when they are needed: all of them would take more memory than the model.
POOL, FIRST_ANSWERS = 2000, 20.0  # nodes; seconds
MOST_PREPARED, MOST_SHOWN, MOST_LOOKED_AT, WELL_DESCRIBED = 300_000, 5, 200, 0.9
OnStep = Callable[[str], None]
Example = tuple[dict[str, Any], Any]  # what is asked, parameters or body; the answer, None where it is not shown
Handler = Callable[..., Awaitable[AnswerShape | Response]]
H = TypeVar("H", bound=Handler)


class Endpoint(NamedTuple):
    """What can be asked at a path."""

    key: str  # "GET links", where the path is below that of a model, "GET /api/health" where it is not
    method: str
    path: str
    asked: type[QuestionShape] | None  # the parameters of a GET, the body of a POST; None where there are none
    answer: type[AnswerShape] | None  # its shape; None where it is no JSON
    handler: str  # name of the method that answers
    words: str  # its docstring, for the OpenAPI document
    parameters: tuple[str, ...]
    tag: str = ""


def in_background(name: str, work: Callable[[], None]) -> None:
    """Do it beside everything else, when those who waited for the server have their first answers."""
    timer = threading.Timer(FIRST_ANSWERS, work)
    timer.name, timer.daemon = name, True
    timer.start()


def endpoint(method: str, path: str) -> Callable[[H], H]:
    """Marks a method of a group that answers: `async def links(self, desk: Desk, query: LinksQuery) -> LinkAnswer`.

    What it takes and gives back is what the endpoint declares.
    """

    def marked(handler: H) -> H:
        kinds = [kind for kind in get_type_hints(handler).values() if isinstance(kind, type)]
        asked = next((kind for kind in kinds if issubclass(kind, QuestionShape)), None)
        answer = next((kind for kind in kinds if issubclass(kind, AnswerShape)), None)
        whole = path if path.startswith("/") else (OF_A_MODEL + path).removesuffix("/")
        fields = asked.model_fields if method == "GET" and asked is not None else {}
        parameters = tuple(field.alias or name for name, field in fields.items())
        handler.endpoint = Endpoint(  # type: ignore[attr-defined]
            f"{method} {path}", method, whole, asked, answer, handler.__name__, handler.__doc__ or "", parameters
        )
        return handler

    return marked


class Endpoints:
    """The endpoints of one group, for one served model.

    Made when the model is loaded, which is the time to compute what the first question would otherwise wait for;
    DataError where the model cannot be asked. Methods marked as an `endpoint` answer on the event loop: what takes
    longer than a millisecond they put into a `Lane` and ask the desk for (`await desk.ask(lane, questions)`).
    """

    tag: ClassVar[str] = ""  # under which the OpenAPI document lists them

    def __init__(self, served: Served, on_step: OnStep) -> None:
        self.served = served

    @classmethod
    def declared(cls) -> list[Endpoint]:
        """Every endpoint of the group."""
        functions = [function for base in reversed(cls.__mro__) for function in vars(base).values()]
        found = [function.endpoint._replace(tag=cls.tag) for function in functions if hasattr(function, "endpoint")]
        return list({endpoint.key: endpoint for endpoint in found}.values())

    def handlers(self) -> dict[str, Handler]:
        """What answers, by `Endpoint.key`."""
        return {endpoint.key: getattr(self, endpoint.handler) for endpoint in self.declared()}

    def examples(self, shown: Shown) -> dict[str, Example]:
        """Examples by `Endpoint.key`, about the things that are shown: they must work when they are tried."""
        return {}


class Served:
    """One model, loaded once: what all its endpoints share, and the groups of them that it has.

    names     what people type → numbers
    node      a node as answers have it, by its number; likewise relations, classes
    shown     what examples are about
    handlers  what answers, by `Endpoint.key`
    """

    def __init__(self, opened: OpenModel, name: str | None = None, on_step: OnStep = lambda what: None) -> None:
        graph = opened.graph
        self.opened, self.name, self.graph = opened, name or opened.name, graph
        self.is_large = graph.num_nodes > MOST_PREPARED
        on_step("calibrating")
        self.calibration = self._calibrated() if self.is_large else opened.calibration
        on_step("indexing names")
        self.names = opened.names
        self.names.prepare()
        self.node: Callable[[int], Node] = lambda number: Node(**opened.describe(number))
        if not self.is_large:
            self.node = [self.node(number) for number in range(graph.num_nodes)].__getitem__
        self.relations = [Relation(**opened.describe_relation(number)) for number in range(graph.num_relations)]
        classes = 0 if graph.labels is None else graph.labels.num_classes
        self.classes = [Class(**opened.describe_class(number)) for number in range(classes)]
        classes_too = [] if graph.labels is None else [graph.labels.names]
        self.longest_name = max(names.longest for names in (graph.nodes, graph.relations, *classes_too))
        self.shown = Shown(self)
        self.groups: list[Endpoints] = [group(self, on_step) for group in groups_of(opened.task)]
        self.handlers = {key: handler for group in self.groups for key, handler in group.handlers().items()}

    def _calibrated(self) -> Calibration:
        """What is kept of it; else it is fitted beside the first questions, which get no probabilities."""
        found, *_ = kept_calibration(self.opened.model, self.opened.folder)
        if found is not None:
            return found

        def fit() -> None:
            self.calibration = self.opened.calibration

        in_background("rgcn-calibrate", fit)
        kind = self.opened.task.kind.name
        return Calibration(kind, False, "No probabilities yet: they are being calibrated. Ask again in a minute.")

    def cannot(self, what: str) -> Refusal:
        """The answer to a question that this model's task does not answer."""
        places = dict.fromkeys(key.partition(" ")[2] for key in self.handlers)
        paths = ", ".join(f"/{place}" for place in places if place)
        words = f"the model {self.name!r} is for {self.opened.task.name} and does not answer {what}: ask it {paths}"
        return Refusal("wrong_task", f"{words}, or ask another model")


class Shown:
    """Something to begin with, and what the examples of a model's endpoints are about.

    nodes   a few that people may know (`nodes_to_begin_with`)
    triple  one of the first node with the relation of which it is most often the subject, where there is one
    words   what stands for a parameter of some name, where an example does not say
    """

    def __init__(self, served: Served) -> None:
        graph, self.nodes = served.graph, nodes_to_begin_with(served)
        first = self.nodes[0]
        of_first = graph.triples_at(np.unique(graph.touching_one(first)))
        of_first = of_first[of_first[:, 0] == first]
        counts = np.bincount(of_first[:, 1], minlength=graph.num_relations)
        counts = counts if counts.any() else graph.relation_counts
        relation = int(counts.argmax()) if len(counts) else 0
        linked = of_first[of_first[:, 1] == relation, 2].tolist()
        self.triple = first, relation, linked[0] if linked else self.nodes[-1]
        self.words = {"model": served.name, "q": served.opened.titles.of(first)[:4]}
        self.words["node"] = self.words["subject"] = served.node(first).name
        self.words["object"] = served.node(self.triple[2]).name
        if served.classes:
            self.words["class"] = served.classes[0].name
        if counts.any():
            self.words["relation"] = served.relations[relation].name


def nodes_to_begin_with(served: Served) -> list[int]:
    """A few nodes that people may know: many kinds of facts are about them, but they are no hubs, which everything is
    linked to; of a graph with labels, those that have one, since their answers can be checked."""
    graph, labels, titles = served.graph, served.graph.labels, served.opened.titles
    pool = _pool(served)
    which, _, (subject, relation, _) = graph.touching(pool)
    kind = relation + graph.num_relations * (subject != pool[which])
    kinds = 2 * max(1, graph.num_relations)
    variety = np.bincount(np.unique(which * kinds + kind) // kinds, minlength=len(pool))
    wanted = np.ones(len(pool), bool) if graph.node_kinds is None else graph.node_kinds[pool] == NodeKind.IRI
    if labels is not None:
        wanted &= np.isin(pool, labels.nodes)
    of_wanted = variety[wanted] if wanted.any() else variety
    told_of = wanted & (variety >= max(np.quantile(of_wanted, WELL_DESCRIBED), of_wanted.max() / 2))
    degree = np.log1p(np.bincount(which, minlength=len(pool)))
    from_middle = np.abs(degree - np.median(degree[told_of])) if told_of.any() else -degree
    found: list[int] = pool[np.lexsort((from_middle, ~told_of, ~wanted))[:MOST_LOOKED_AT]].tolist()
    # A title says more than an id.
    return sorted(found, key=lambda node: titles.of(node) == readable(graph.nodes[node], graph.nodes))[:MOST_SHOWN]


def _pool(served: Served) -> NDArray[np.int64]:
    """The nodes among which they are looked for: all, or some of a large graph, without its largest hubs."""
    graph, labels = served.graph, served.graph.labels
    if not served.is_large:
        return np.arange(graph.num_nodes)
    from_all = np.arange(graph.num_nodes) if labels is None or not len(labels) else labels.nodes
    some = from_all[np.linspace(0, len(from_all) - 1, min(len(from_all), POOL)).astype(np.int64)]
    return some[np.argsort(graph.degrees()[some], kind="stable")[: max(1, len(some) - len(some) // 20)]]


def groups_of(task: Task | None) -> list[type[Endpoints]]:
    """The groups that a model of this task has; without a task the built-in ones, whatever is served."""
    owners: list[HasParts] = list(map(kind_of, ANSWER_KINDS.built_in)) if task is None else [*task.kinds, task]
    return [*map(imported, OF_ALL), *(owner.part(Endpoints) for owner in owners)]
