"""A group of endpoints: questions of one kind with everything that belongs to them, in one file.

Which groups a served model has, its task decides: one for each kind of question that it answers, and one of its own
where it brings one (`brings = {"Endpoints": "package.module:Class"}`). Nothing here knows which tasks there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from starlette.responses import Response

from rgcn.axes import imported
from rgcn.serve.shapes import AnswerShape, QuestionShape

if TYPE_CHECKING:
    from rgcn.serve.about import Shown
    from rgcn.serve.served import Served
    from rgcn.tasks.task import Task

# What every model is asked, and what one is asked whose task answers a kind of question.
OF_ALL = ("rgcn.serve.graph_endpoints:GraphEndpoints", "rgcn.serve.why_endpoints:WhyEndpoints")
OF_KIND = {
    "classes": "rgcn.serve.class_endpoints:ClassEndpoints",
    "links": "rgcn.serve.link_endpoints:LinkEndpoints",
}
OF_A_MODEL = "/api/models/{model}"
OnStep = Callable[[str], None]
Example = tuple[dict[str, Any], Any]  # what is asked, parameters or body; the answer, None where it is not shown
Handler = Callable[..., Awaitable[AnswerShape | Response]]
H = TypeVar("H", bound=Handler)


class Endpoint(NamedTuple):
    """What can be asked at a path.

    key      "GET links": the method, and the path under /api/models/{model}/, or "GET /api/health": from the root
    asked    the parameters of a GET, the body of a POST; None where there are none
    answer   the shape of the answer; None where it is no JSON
    refuses  statuses of refusals, besides those of every endpoint and of every body
    name     of the method that answers; its docstring stands in the OpenAPI document
    tag      of its group
    """

    key: str
    asked: type[QuestionShape] | None
    answer: type[AnswerShape] | None
    refuses: tuple[int, ...]
    name: str
    words: str
    tag: str

    @property
    def method(self) -> str:
        return self.key.partition(" ")[0]

    @property
    def path(self) -> str:
        place = self.key.partition(" ")[2]
        return place if place.startswith("/") else f"{OF_A_MODEL}/{place}".removesuffix("/")


def endpoint(key: str, refuses: tuple[int, ...] = (404, 409, 503)) -> Callable[[H], H]:
    """Marks a method of a group that answers: `async def links(self, desk: Desk, query: LinksQuery) -> LinkAnswer`.

    What it takes and gives back is what the endpoint declares.
    """

    def marked(handler: H) -> H:
        handler.declares = key, refuses  # type: ignore[attr-defined]
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
        found = [_declared(function, cls.tag) for function in functions if hasattr(function, "declares")]
        return list({endpoint.key: endpoint for endpoint in found}.values())

    def handlers(self) -> dict[str, Handler]:
        """What answers, by `Endpoint.key`."""
        return {endpoint.key: getattr(self, endpoint.name) for endpoint in self.declared()}

    def examples(self, shown: Shown) -> dict[str, Example]:
        """Examples by `Endpoint.key`, about the things that are shown: they must work when they are tried."""
        return {}


def _declared(handler: Any, tag: str) -> Endpoint:
    hints = get_type_hints(handler)
    answer = hints.pop("return", None)
    shapes = [kind for kind in hints.values() if isinstance(kind, type) and issubclass(kind, QuestionShape)]
    return Endpoint(
        handler.declares[0],
        shapes[0] if shapes else None,
        answer if isinstance(answer, type) and issubclass(answer, AnswerShape) else None,
        handler.declares[1],
        handler.__name__,
        handler.__doc__ or "",
        tag,
    )


def groups_of(task: Task) -> list[type[Endpoints]]:
    """The groups that a model of this task has."""
    places = [*OF_ALL, *(OF_KIND[kind] for kind in task.answers if kind in OF_KIND)]
    own = task.brings.get("Endpoints")
    return [imported(place) for place in (places if own is None else [*places, own])]


def built_in_groups() -> list[type[Endpoints]]:
    """Those that are there whatever is served: where no model has one, its refusals say what can be asked."""
    return [imported(place) for place in (*OF_ALL, *OF_KIND.values())]
