"""A model as the server holds it, and its groups of endpoints: questions of one kind with all that belongs to them.

Which groups a model has, its task decides: one for each kind of question that it answers, and one of its own where it
brings one (`brings = {"Endpoints": "package.module:Class"}`). Nothing here knows which tasks there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from starlette.responses import Response

from rgcn.axes import imported
from rgcn.predict import OpenModel
from rgcn.serve.refusals import Refusal
from rgcn.serve.shapes import AnswerShape, Class, Node, QuestionShape, Relation
from rgcn.tasks.task import Task

if TYPE_CHECKING:
    from rgcn.serve.graph_endpoints import Shown

# What every model is asked, and what one is asked whose task answers a kind of question.
OF_ALL = ("rgcn.serve.graph_endpoints:GraphEndpoints", "rgcn.serve.why_endpoints:WhyEndpoints")
OF_KIND = {
    "classes": "rgcn.serve.class_endpoints:ClassEndpoints",
    "links": "rgcn.serve.link_endpoints:LinkEndpoints",
}
OF_A_MODEL = "/api/models/{model}/"
# Of larger graphs the nodes are described when they are needed: all of them would take more memory than the model.
MOST_PREPARED = 300_000
OnStep = Callable[[str], None]
Example = tuple[dict[str, Any], Any]  # what is asked, parameters or body; the answer, None where it is not shown
Handler = Callable[..., Awaitable[AnswerShape | Response]]
H = TypeVar("H", bound=Handler)


class Endpoint(NamedTuple):
    """What can be asked at a path.

    key      "GET links", where the path is below that of a model, "GET /api/health" where it is not
    asked    the parameters of a GET, the body of a POST; None where there are none
    answer   the shape of the answer; None where it is no JSON
    handler  name of the method that answers; its docstring stands in the OpenAPI document
    """

    key: str
    method: str
    path: str
    asked: type[QuestionShape] | None
    answer: type[AnswerShape] | None
    handler: str
    words: str
    parameters: tuple[str, ...]
    tag: str = ""


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

    tag  under which the OpenAPI document lists them
    """

    tag: ClassVar[str]

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


def groups_of(task: Task | None) -> list[type[Endpoints]]:
    """The groups that a model of this task has; without a task the built-in ones, whatever is served."""
    kinds = OF_KIND if task is None else [kind for kind in task.answers if kind in OF_KIND]
    own = [task.brings["Endpoints"]] if task is not None and "Endpoints" in task.brings else []
    return [imported(place) for place in (*OF_ALL, *(OF_KIND[kind] for kind in kinds), *own)]
