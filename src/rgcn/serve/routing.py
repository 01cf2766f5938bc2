"""From a request to its handler and back: Starlette finds the path, the shapes that endpoints declare read the request.

Reading is strict: unknown and repeated parameters are refused, and a body is counted, whatever its header says.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_plus

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Lifespan, Receive, Scope, Send

from rgcn.errors import ConfigError, close_matches
from rgcn.serve.batching import Desk
from rgcn.serve.limits import Limits
from rgcn.serve.refusals import Refusal, invalid, shortened
from rgcn.serve.served import Endpoint, Endpoints, Handler, groups_of
from rgcn.serve.shapes import WRITER, QuestionShape

JSON = "application/json"
LONG_BODY = 16 << 10  # bytes; reading a longer one as JSON takes a millisecond or more


def all_endpoints(desk: Desk, own: Endpoints) -> list[Endpoint]:
    """What can be asked: of the built-in groups, of those that tasks bring, of the server itself."""
    brought = [type(group) for served in desk.models.values() for group in served.groups]
    found: dict[str, Endpoint] = {}
    for group in dict.fromkeys([*groups_of(None), *brought, type(own)]):
        for endpoint in group.declared():
            if found.setdefault(endpoint.key, endpoint) != endpoint:
                raise ConfigError(f"{group.__name__} has an endpoint {endpoint.key!r}, which another group has already")
    return list(found.values())


def router(endpoints: Iterable[Endpoint], desk: Desk, own: Endpoints, lifespan: Lifespan[Any]) -> Router:
    """Every path with what can be asked there."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    turns, handlers = asyncio.Lock(), own.handlers()
    routes = [Route(path, Resource(path, methods, desk, handlers, turns)) for path, methods in by_path.items()]
    return Router(routes, redirect_slashes=False, default=_nothing_here, lifespan=lifespan)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refusal("not_found", "there is nothing at this path: the page is at /, the API under /api (/openapi.json)")


class Resource:
    """What can be asked at one path: an ASGI application, whose refusals the gate answers.

    methods  its endpoints, by method
    own      handlers of what is asked of the server itself, by `Endpoint.key`; others are the model's
    turns    which long bodies take, one in each turn of the event loop
    """

    def __init__(
        self, path: str, methods: dict[str, Endpoint], desk: Desk, own: dict[str, Handler], turns: asyncio.Lock
    ) -> None:
        self.path, self._methods, self._desk, self._own, self._turns = path, methods, desk, own, turns
        fields = methods["GET"].asked.model_fields if "GET" in methods and methods["GET"].asked else {}
        self._parameters = {"GET": [field.alias or name for name, field in fields.items()], "POST": []}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted({*self._methods, *(["HEAD"] if "GET" in self._methods else [])}))
            words = f"{scope['method'][:20]} is not possible here: use {allowed}"
            raise Refusal("wrong_method", words, headers={"Allow": allowed})
        asked, named = await self._read(endpoint, scope, receive), scope["path_params"]
        handler = self._own.get(endpoint.key) or self._of_model(named.pop("model"), endpoint.key)
        answer = await handler(self._desk, *named.values(), *asked)
        if not isinstance(answer, Response):
            answer = Response(WRITER.encode(answer), media_type=JSON)
        await answer(scope, receive, send)

    async def _read(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> list[QuestionShape]:
        """What is asked: nothing or one thing."""
        method, shape, limits = scope["method"], endpoint.asked, self._desk.limits
        query = read_query(scope["query_string"], self._parameters[method])
        if shape is None:
            return []
        try:
            if method == "GET":
                return [shape.model_validate(query, context=limits)]
            body = await read_body(Request(scope, receive), limits)
            if len(body) > LONG_BODY:
                async with self._turns:
                    await asyncio.sleep(0)
            return [shape.model_validate_json(body, strict=True, context=limits)]
        except ValidationError as error:
            where = "parameter" if method == "GET" else "field"
            raise invalid(error.errors(include_url=False), where) from None

    def _of_model(self, name: str, key: str) -> Handler:
        models = self._desk.models
        if name not in models:
            words = f"unknown model {shortened(name)}: this server has {', '.join(map(repr, models))}"
            raise Refusal("unknown_model", words, close_matches(name[:100], models))
        handler = models[name].handlers.get(key)
        if handler is None:
            raise models[name].cannot(f"/{key.partition(' ')[2]}")
        return handler


def read_query(raw: bytes, names: Sequence[str]) -> dict[str, str]:
    """Parameters of a query string, each at most once and each one of `names`.

    >>> read_query(b"q=New+York&limit=3", ["q", "limit"])
    {'q': 'New York', 'limit': '3'}
    """
    found: dict[str, str] = {}
    try:
        for part in filter(None, raw.decode().split("&")):
            key, _, value = part.partition("=")
            name = unquote_plus(key, errors="strict")
            if name not in names:
                near = difflib.get_close_matches(name[:40], names, n=1)
                there = f"There are {', '.join(names)}." if names else "There are none here."
                hint = f"Did you mean {near[0]!r}?" if near else there
                raise Refusal("invalid", f"unknown parameter {shortened(name)}. {hint}", near)
            if name in found:
                raise Refusal("invalid", f"{name} is given more than once: give it once")
            found[name] = unquote_plus(value, errors="strict")
    except UnicodeDecodeError:
        raise Refusal("bad_request", "the query is not UTF-8: encode names as UTF-8 before percent-encoding") from None
    return found


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, where it is JSON, not too large and not too slow."""
    kind, length = request.headers.get("content-type", ""), request.headers.get("content-length", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        was = shortened(kind) if kind else "none"
        raise Refusal("wrong_content_type", f"send the body as Content-Type: {JSON}; it was {was}")

    async def received() -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limits.body:
                raise too_large
        return bytes(body)

    # Closed, since what is still on its way would be read to its end otherwise.
    close, words = {"Connection": "close"}, f"the body is larger than {limits.body:,} bytes: ask in several requests"
    too_large = Refusal("too_large", words, headers=close)
    if length.isdigit() and int(length[:16]) > limits.body:
        raise too_large
    try:
        return await asyncio.wait_for(received(), limits.slow)
    except asyncio.TimeoutError:
        words = f"the body did not arrive within {limits.slow:g} seconds: send it faster, or less of it"
        raise Refusal("too_slow", words, headers=close) from None
    except ClientDisconnect:
        raise Refusal("bad_request", "the client went away before its request was complete") from None
