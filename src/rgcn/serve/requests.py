"""From a request to its handler and back: who may ask, what is asked, and what is counted.

It keeps off other web sites that a browser is talked into asking for (a Host of their own, cross-site requests), and
strangers without the token. Reading is strict: unknown and repeated parameters are refused, and a body is counted,
whatever its header says.
"""

from __future__ import annotations

import asyncio
import difflib
import hmac
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rgcn.errors import ConfigError, close_matches
from rgcn.serve.address import Limits
from rgcn.serve.batching import Desk, Lane
from rgcn.serve.schemas import WRITER, QuestionShape, Refusal, invalid, shortened
from rgcn.serve.served_model import Endpoint, Endpoints, Handler, Served, groups_of

logger = logging.getLogger("rgcn.serve")

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
CLIENT_GONE = 499  # as nginx has it; nobody is sent this, it is only counted
_PROTECTED = ("/api", "/metrics", "/openapi.json")

_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
API_HEADERS = [
    *_ALWAYS,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
# Nothing on the page may come from anywhere but here, and nothing that is written into it can run.
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = [*_ALWAYS, (b"cache-control", b"no-cache"), (b"content-security-policy", PAGE_POLICY)]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)
TIME_WORDS = "Time from a request's headers to the end of its answer."
BATCH_WORDS = "Questions answered together."


class Gate:
    """The outermost ASGI application: `app` answers requests, `life` is told when the server starts and stops."""

    def __init__(
        self, app: ASGIApp, life: ASGIApp, metrics: ServerMetrics, token: str | None, hosts: Iterable[str] | None
    ) -> None:
        self.app, self.life, self.metrics = app, life, metrics
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.life(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, method, status = time.perf_counter(), scope["method"], 0  # until an answer has begun
        protected = scope["path"].startswith(_PROTECTED)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *(API_HEADERS if protected else PAGE_HEADERS)]
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        self.metrics.in_flight += 1
        try:
            self._check(scope, protected)
            if method == "HEAD":
                scope = {**scope, "method": "GET"}
            await self.app(scope, receive, sending)
        except asyncio.CancelledError:
            status = CLIENT_GONE
            raise
        except Exception as error:
            refusal = Refusal.of(error)
            if refusal.code == "failed":
                logger.exception("a request failed: %s %s", method, scope.get("rgcn.path", "other"))
            if not status:
                await refusal.response()(scope, receive, sending)
        finally:
            self.metrics.in_flight -= 1
            self.metrics.request(scope.get("rgcn.path", "other"), method, status or 500, time.perf_counter() - began)

    def _check(self, scope: Scope, protected: bool) -> None:
        """Refuse those who may not ask."""
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]) and [name for name, _ in scope["headers"]].count(b"host") > 1:
            raise Refusal("bad_request", "the Host header is given twice")
        host = _HOST.fullmatch(headers.get(b"host", b""))
        if host is None:
            raise Refusal("bad_request", "the Host header is missing or is no host name")
        if self._hosts is not None and host[1].lower() not in self._hosts:
            name = host[1].decode()[:100]
            words = f"this server does not answer to {name!r}: use localhost, or start it with --allow-host {name}"
            raise Refusal("wrong_host", words)
        if protected and self._token is not None:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                what = "this is not the token" if b"authorization" in headers else "a token is needed"
                words = f"{what}: send the header Authorization: Bearer TOKEN"
                raise Refusal("unauthorized", words, headers={"WWW-Authenticate": "Bearer"})
        cross_site = headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-dest") != b"document"
        if protected and cross_site:
            raise Refusal("cross_site", "another web site may not ask here: open the server's own page")
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") not in (b"", b"0")
        if has_body and scope["method"] in ("GET", "HEAD"):
            words = f"{scope['method']} takes no body here: put the question into the address, or POST it"
            raise Refusal("bad_request", words, headers={"Connection": "close"})


class ServerMetrics:
    """Figures for Prometheus: who asks what, how long it takes, how much waits. No label takes what a client sends."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()  # two servers in one process do not count each other's requests
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        labels = ("endpoint", "method", "status")
        # Looking a child up by its labels takes a lock and builds a tuple of strings: remembered instead.
        self._requests = cache(Counter("rgcn_requests", "Requests answered.", labels, registry=own).labels)
        times = Histogram("rgcn_request_seconds", TIME_WORDS, labels[:1], buckets=SECONDS, registry=own)
        self._seconds, lane = cache(times.labels), ("model", "kind")
        self._batches = Histogram("rgcn_batch_questions", BATCH_WORDS, lane, buckets=SIZES, registry=own)
        self.in_flight = 0
        self.watch("rgcn_in_flight", "Requests being answered.", lambda: self.in_flight)

    def watch(self, name: str, words: str, value: Callable[[], int]) -> None:
        """A gauge that is read when somebody asks."""
        Gauge(name, words, registry=self.registry).set_function(value)

    def served(self, models: Iterable[Served]) -> None:
        info = Gauge("rgcn_model_info", "A served model.", ("model", "task", "dataset"), registry=self.registry)
        for model in models:
            info.labels(model.name, model.opened.task.name, model.opened.dataset).set(1)

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        """One answered request; `endpoint` is a route's pattern, never the path that was asked for."""
        self._requests(endpoint, method if method in METHODS else "other", status).inc()
        self._seconds(endpoint).observe(seconds)

    def batch(self, lane: Lane, size: int) -> None:
        self._batches.labels(*lane.key).observe(size)


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
