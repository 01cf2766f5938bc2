"""Routes: the server's own, and those of every group of endpoints, each taken to the model that is asked."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Path, Query
from fastapi.responses import JSONResponse, PlainTextResponse

import rgcn
from rgcn.errors import ConfigError
from rgcn.serve.about import ModelLine, line
from rgcn.serve.desk import Desk
from rgcn.serve.endpoints import Endpoint, Example, built_in_groups
from rgcn.serve.route import OF_A_MODEL, Answer
from rgcn.serve.shapes import Answered, Error
from rgcn.serve.writing import as_json

Model = Annotated[str, Path(description="A served model; `/api/models` lists them.")]
REFUSED = {
    400: "The request is malformed.",
    401: "A token is needed, or this is not the one.",
    403: "The server does not answer to this host, or to another web site.",
    404: "A model, node, relation or class of this name is not there.",
    408: "The body took too long to arrive.",
    409: "The model does not answer this kind of question.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A parameter is missing, unknown or out of bounds, or names several things.",
    503: "Too many requests wait, or the answer took too long; try again after the seconds of Retry-After.",
}
EVERYWHERE, OF_BODIES = (400, 401, 403, 422), (408, 413, 415)
MARKDOWN = {"content": {"text/markdown": {"schema": {"type": "string"}}}, "description": "Markdown."}


class Health(Answered):
    status: Literal["ok"]
    version: str
    uptime_s: float
    models: list[str]


class Models(Answered):
    models: list[ModelLine]


def add_routes(app: FastAPI, desk: Desk) -> None:
    """Every endpoint with the shape of its answer."""
    began, models = time.monotonic(), as_json({"models": [line(served) for served in desk.models.values()]})

    async def health() -> Answer:
        """Whether the server is up, since when, and with which models."""
        return Answer(as_json(_health(desk, time.monotonic() - began)))

    async def list_models() -> Answer:
        """The served models, a line each."""
        return Answer(models)

    for path, handler, answer in (("/api/health", health, Health), ("/api/models", list_models, Models)):
        app.add_api_route(path, handler, response_model=answer, responses=_refusals(()), tags=["server"])
    for endpoint, tag in _of_models(desk):
        markdown = endpoint.answer is None
        refused = _refusals((*endpoint.refuses, *(OF_BODIES if endpoint.method == "POST" else ())))
        app.add_api_route(
            (OF_A_MODEL + endpoint.path).removesuffix("/"),
            _handler(desk, endpoint),
            methods=[endpoint.method],
            response_model=endpoint.answer,
            response_class=PlainTextResponse if markdown else JSONResponse,
            responses={**refused, 200: MARKDOWN} if markdown else refused,
            tags=[tag],
        )


def _of_models(desk: Desk) -> list[tuple[Endpoint, str]]:
    """What models are asked, with its tag: the built-in groups, then those that tasks bring."""
    brought = [type(group) for served in desk.models.values() for group in served.groups]
    found: dict[str, tuple[Endpoint, str]] = {}
    for group in dict.fromkeys([*built_in_groups(), *brought]):
        for endpoint in group.declared():
            if found.setdefault(endpoint.key, (endpoint, group.tag))[0] != endpoint:
                raise ConfigError(f"{group.__name__} has an endpoint {endpoint.key!r}, which another group has already")
    return list(found.values())


def _handler(desk: Desk, endpoint: Endpoint) -> Callable[..., Any]:
    """Asks the model that the path names. FastAPI and `LeanRoute` read its signature."""
    key = endpoint.key

    async def handler(model: str, **asked: Any) -> Answer:
        return await desk.model(model).handler(key)(desk, *asked.values())

    takes = {"model": Model}
    if endpoint.asked is not None:
        name, place = ("body", Body()) if endpoint.method == "POST" else ("query", Query())
        takes[name] = Annotated[endpoint.asked, place]  # type: ignore[assignment]
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, annotation=annotation) for name, annotation in takes.items()]
    handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    handler.__name__, handler.__doc__ = endpoint.name, endpoint.words
    return handler


def _refusals(further: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    """The error answers of an endpoint, for OpenAPI."""
    return {status: {"model": Error, "description": REFUSED[status]} for status in sorted({*EVERYWHERE, *further})}


def _health(desk: Desk, seconds: float) -> dict[str, Any]:
    return {"status": "ok", "version": rgcn.__version__, "uptime_s": round(seconds, 1), "models": list(desk.models)}


def server_examples(desk: Desk) -> dict[str, Example]:
    """Examples of the server's own endpoints, by path."""
    first = next(iter(desk.models.values()))
    return {"/api/health": ({}, _health(desk, 12.5)), "/api/models": ({}, {"models": [line(first)]})}
