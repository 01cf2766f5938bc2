"""From a request to its handler and back; the shapes that endpoints declare read the request.

Reading is strict: unknown and repeated parameters are refused, and a body is counted, whatever its header says.
"""

import asyncio
import difflib
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rgcn.errors import ConfigError, close_matches
from rgcn.serve.batching import Desk
from rgcn.serve.limits import Limits
from rgcn.serve.schemas import WRITER, QuestionShape, Refusal, invalid, shortened
from rgcn.serve.served_model import Endpoint, Endpoints, Handler, groups_of

JSON, JSON_HEADER = "application/json", (b"content-type", b"application/json")
NAMED = {"/api/models/": "{model}", "/assets/": "{file}"}  # what stands behind these is a name
LONG_BODY = 16 << 10  # bytes; reading a longer one as JSON takes a millisecond or more


def all_endpoints(desk: Desk, own: Endpoints) -> list[Endpoint]:
    """Of the built-in groups, of those that tasks bring, of the server itself."""
    brought = [type(group) for served in desk.models.values() for group in served.groups]
    found: dict[str, Endpoint] = {}
    for group in dict.fromkeys([*groups_of(None), *brought, type(own)]):
        for endpoint in group.declared():
            if found.setdefault(endpoint.key, endpoint) != endpoint:
                raise ConfigError(f"{group.__name__} has an endpoint {endpoint.key!r}, which another group has already")
    return list(found.values())


class Asking:
    """What is done with a request: find what answers, read what is asked, write the answer; the gate sends refusals."""

    def __init__(self, endpoints: Iterable[Endpoint], desk: Desk, own: Endpoints) -> None:
        self._endpoints = {(endpoint.path, endpoint.method): endpoint for endpoint in endpoints}
        self._desk, self._own, self._turns = desk, own.handlers(), asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pattern, *named = pattern_of(scope["path"])
        endpoint = self._endpoints.get((pattern, scope["method"]))
        if endpoint is None:
            raise self._not_there(pattern, scope["method"])
        scope["rgcn.path"] = endpoint.path
        asked = await self._read(endpoint, scope, receive)
        handler = self._own.get(endpoint.key) or self._of_model(named.pop(), endpoint.key)
        answer = await handler(self._desk, *named, *asked)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        body = WRITER.encode(answer)  # sent as it is: to make a Response of it takes longer than to write it
        headers = [(b"content-length", b"%d" % len(body)), JSON_HEADER]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _not_there(self, pattern: str, method: str) -> Refusal:
        allowed = {method for path, method in self._endpoints if path == pattern}
        if not allowed:
            words = "there is nothing at this path: the page is at /, the API under /api (/openapi.json)"
            return Refusal("not_found", words)
        use = ", ".join(sorted({*allowed, "HEAD"} if "GET" in allowed else allowed))
        return Refusal("wrong_method", f"{method[:20]} is not possible here: use {use}", headers={"Allow": use})

    async def _read(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> list[QuestionShape]:
        """What is asked: nothing or one thing."""
        shape, limits = endpoint.asked, self._desk.limits
        query = read_query(scope["query_string"], endpoint.parameters)
        if shape is None:
            return []
        try:
            if endpoint.method == "GET":
                return [shape.model_validate(query, context=limits)]
            body = await read_body(Request(scope, receive), limits)
            if len(body) > LONG_BODY:  # one of them in each turn of the event loop
                async with self._turns:
                    await asyncio.sleep(0)
            return [shape.model_validate_json(body, strict=True, context=limits)]
        except ValidationError as error:
            raise invalid(error, "parameter" if endpoint.method == "GET" else "field") from None

    def _of_model(self, name: str, key: str) -> Handler:
        models = self._desk.models
        if name not in models:
            words = f"unknown model {shortened(name)}: this server has {', '.join(map(repr, models))}"
            raise Refusal("unknown_model", words, close_matches(name[:100], models))
        if key not in models[name].handlers:
            raise models[name].cannot(f"/{key.partition(' ')[2]}")
        return models[name].handlers[key]


def pattern_of(path: str) -> tuple[str, ...]:
    """The path as endpoints declare it, and the name that it has in place of a parameter, if any.

    >>> pattern_of("/api/models/world/links"), pattern_of("/api/health")
    (('/api/models/{model}/links', 'world'), ('/api/health',))
    """
    for beginning, parameter in NAMED.items():
        if path.startswith(beginning):
            name, slash, rest = path[len(beginning) :].partition("/")
            return (f"{beginning}{parameter}{slash}{rest}", name) if name else (path,)
    return (path,)


def read_query(raw: bytes, names: Sequence[str]) -> dict[str, str]:
    """Parameters of a query string, each at most once and each one of `names`.

    >>> read_query(b"q=New+York&limit=3", ["q", "limit"])
    {'q': 'New York', 'limit': '3'}
    """
    found: dict[str, str] = {}
    try:
        for name, value in parse_qsl(raw.decode(), keep_blank_values=True, errors="strict"):
            if name not in names:
                near = difflib.get_close_matches(name[:40], names, n=1)
                there = f"There are {', '.join(names)}." if names else "There are none here."
                hint = f"Did you mean {near[0]!r}?" if near else there
                raise Refusal("invalid", f"unknown parameter {shortened(name)}. {hint}", near)
            if name in found:
                raise Refusal("invalid", f"{name} is given more than once: give it once")
            found[name] = value
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
