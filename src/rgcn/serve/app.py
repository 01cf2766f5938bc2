"""The application: models, their threads, endpoints, page and gate put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import rgcn
from rgcn.serve.api import add_routes
from rgcn.serve.assets import PAGE, Asset, explorer_assets
from rgcn.serve.batching import Batcher
from rgcn.serve.desk import Desk
from rgcn.serve.document import openapi
from rgcn.serve.gate import Gate
from rgcn.serve.limits import Limits
from rgcn.serve.metrics import CONTENT_TYPE, Metrics
from rgcn.serve.refusals import Refusal
from rgcn.serve.route import Answer, LeanRoute, Shortcut
from rgcn.serve.served import Served

IfNoneMatch = Annotated[str | None, Header()]
DESCRIPTION = """Ask trained models by name: search nodes, see their facts, predict classes and missing links, score
triples, and see why. Names are whole names, titles, or the last parts of IRIs, in any case. Every error is
`{"error": {"code", "message", "suggestions"}}`."""


def create_app(
    models: Iterable[Served],
    limits: Limits | None = None,
    *,
    token: str | None = None,
    hosts: Iterable[str] | None = None,
) -> Gate:
    """An ASGI application over loaded models.

    token  that /api and /metrics ask for
    hosts  names that may stand in the Host header; None for any
    """
    limits, metrics = limits or Limits(), Metrics()
    quick = Batcher("rgcn-model", limits.waiting, limits.seconds, metrics.batch, questions=limits.questions)
    slow_words = "explanations are being made"
    slow = Batcher("rgcn-explain", limits.explaining, limits.seconds, metrics.batch, slow_words)
    desk = Desk(models, quick, slow, limits)
    metrics.served(desk.models.values())
    metrics.watch("rgcn_waiting", "Requests that wait for the model.", lambda: float(len(quick)))
    words = "Questions of those requests."
    metrics.watch("rgcn_waiting_questions", words, lambda: float(quick.questions_waiting))
    metrics.watch("rgcn_explaining", "Requests that wait for an explanation.", lambda: float(len(slow)))
    metrics.watch("rgcn_explanations_kept", "Explanations remembered.", lambda: float(len(desk.why)))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        quick.stop()
        slow.stop()

    app = FastAPI(
        title="rgcn",
        version=rgcn.__version__,
        description=DESCRIPTION,
        docs_url=None,  # these two load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.router.route_class = type("Route", (LeanRoute,), {"limits": limits, "turns": asyncio.Lock()})
    app.add_exception_handler(HTTPException, _not_routed)
    add_routes(app, desk)
    document = openapi(app, desk)
    _add_hidden(app, document, metrics)
    return Gate(Shortcut(app), metrics, token, hosts)


def _add_hidden(app: FastAPI, document: bytes, metrics: Metrics) -> None:
    """The page, its files, the document and the figures."""
    assets = explorer_assets()

    async def page(if_none_match: IfNoneMatch = None) -> Answer:
        return _sent(assets.get(PAGE), if_none_match)

    async def asset(file: Annotated[str, Path()], if_none_match: IfNoneMatch = None) -> Answer:
        return _sent(None if file == PAGE else assets.get(file), if_none_match)

    async def figures() -> Answer:
        return Answer(metrics.text(), CONTENT_TYPE.encode())

    async def described() -> Answer:
        return Answer(document)

    handlers: dict[str, Callable[..., Any]] = {
        "/": page,
        "/assets/{file}": asset,
        "/metrics": figures,
        "/openapi.json": described,
    }
    for path, handler in handlers.items():
        app.add_api_route(path, handler, methods=["GET"], include_in_schema=False, response_model=None)


def _sent(asset: Asset | None, seen: str | None) -> Answer:
    """A file, or only that it is still the one the browser has."""
    if asset is None:
        raise Refusal("not_found", "there is no such file: the page is at /, the API under /api")
    headers = ((b"etag", asset.etag.encode()),)
    if seen is not None and asset.etag in seen:
        return Answer(b"", asset.media_type.encode(), 304, headers)
    return Answer(asset.body, asset.media_type.encode(), headers=headers)


async def _not_routed(request: Request, error: Exception) -> Response:
    """A path or a method that no route takes."""
    assert isinstance(error, HTTPException)
    allowed = ""
    if error.status_code == 405:
        routes = [route for route in request.app.routes if route.path_regex.match(request.url.path)]
        methods = {method for route in routes for method in route.methods or ()}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        refusal = Refusal("wrong_method", f"{request.method[:20]} is not possible here: use {allowed}")
    else:
        refusal = Refusal(
            "not_found", "there is nothing at this path: the page is at /, the API under /api (/openapi.json)"
        )
    headers = {"Allow": allowed} if allowed else {}
    return Response(refusal.body(), refusal.status, headers, "application/json")
