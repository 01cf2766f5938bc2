"""From a request to its handler and back: access control, reading, dispatch and metrics.

Requests that other web sites trick a browser into sending (with a foreign Host, or cross-site) are refused, and so are
clients without the token. Reading is strict: unknown and repeated parameters are errors, and the size of a body is
counted, whatever its header says.
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
from rgcn.serve.batching import Dispatcher, RequestQueue
from rgcn.serve.schemas import ENCODER, RequestError, RequestSchema, shortened, validation_error
from rgcn.serve.served_model import Endpoint, Endpoints, Handler, ServedModel, groups_of

logger = logging.getLogger("rgcn.serve")

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
CLIENT_DISCONNECTED = 499  # nginx's code; it is only counted, never sent
_PROTECTED = ("/api", "/metrics", "/openapi.json")

_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
API_HEADERS = [
    *_SECURITY_HEADERS,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
# The page loads nothing from other servers, and nothing that is written into it can run.
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = [*_SECURITY_HEADERS, (b"cache-control", b"no-cache"), (b"content-security-policy", PAGE_POLICY)]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)
JSON, JSON_HEADER = "application/json", (b"content-type", b"application/json")
NAME_PREFIXES = {"/api/models/": "{model}", "/assets/": "{file}"}  # the parameter that follows each prefix
LONG_BODY_BYTES = 16 << 10  # parsing a longer one takes a millisecond or more


class SecurityMiddleware:
    """The outermost ASGI application: refuses clients without access, and turns exceptions into responses.

    Args:
        app: Answers requests.
        lifespan: Called with the start and stop events of the server.
        metrics: Counts requests.
        token: Token that protected paths require; None for none.
        hosts: Names accepted in the Host header; None for any.
    """

    def __init__(
        self, app: ASGIApp, lifespan: ASGIApp, metrics: ServerMetrics, token: str | None, hosts: Iterable[str] | None
    ) -> None:
        self.app, self.lifespan, self.metrics = app, lifespan, metrics
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "lifespan":
            await self.lifespan(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, method, status = time.perf_counter(), scope["method"], 0  # the status of the response once it has begun
        is_protected = scope["path"].startswith(_PROTECTED)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *(API_HEADERS if is_protected else PAGE_HEADERS)]
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        self.metrics.num_in_flight += 1
        try:
            self._check_access(scope, is_protected)
            if method == "HEAD":
                scope = {**scope, "method": "GET"}
            await self.app(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            status = CLIENT_DISCONNECTED
            raise
        except Exception as error:
            refusal = RequestError.from_exception(error)
            if refusal.code == "failed":
                logger.exception("a request failed: %s %s", method, scope.get("rgcn.path", "other"))
            if not status:
                await refusal.response()(scope, receive, send_with_headers)
        finally:
            self.metrics.num_in_flight -= 1
            self.metrics.request(scope.get("rgcn.path", "other"), method, status or 500, time.perf_counter() - start)

    def _check_access(self, scope: Scope, is_protected: bool) -> None:
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]) and [name for name, _ in scope["headers"]].count(b"host") > 1:
            raise RequestError("bad_request", "the Host header is given twice: send it once")
        host = _HOST.fullmatch(headers.get(b"host", b""))
        if host is None:
            raise RequestError("bad_request", "the Host header is missing or is not a host name")
        if self._hosts is not None and host[1].lower() not in self._hosts:
            name = host[1].decode()[:100]
            message = f"this server does not answer to {name!r}: use localhost, or start it with --allow-host {name}"
            raise RequestError("wrong_host", message)
        if is_protected and self._token is not None:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
                problem = "the token is wrong" if b"authorization" in headers else "a token is needed"
                message = f"{problem}: send the header Authorization: Bearer TOKEN"
                raise RequestError("unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
        is_cross_site = headers.get(b"sec-fetch-site") == b"cross-site"
        if is_protected and is_cross_site and headers.get(b"sec-fetch-dest") != b"document":
            raise RequestError("cross_site", "other web sites may not use this API: open the server's own page")
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") not in (b"", b"0")
        if has_body and scope["method"] in ("GET", "HEAD"):
            message = f"{scope['method']} takes no body: put the question into the URL, or use POST"
            raise RequestError("bad_request", message, headers={"Connection": "close"})


class ServerMetrics:
    """Metrics for Prometheus: requests, times and queues. No label has a value that a client chooses."""

    def __init__(self) -> None:
        # Not the global registry: tests run several servers in one process.
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        labels: tuple[str, ...] = ("endpoint", "method", "status")
        # `labels` takes a lock and builds a tuple of strings, so its results are cached.
        self._requests = cache(Counter("rgcn_requests", "Requests answered.", labels, registry=registry).labels)
        description = "Time from a request's headers to the end of its answer."
        times = Histogram("rgcn_request_seconds", description, labels[:1], buckets=SECONDS, registry=registry)
        self._seconds, labels = cache(times.labels), ("model", "kind")
        description = "Questions answered together."
        self._batches = Histogram("rgcn_batch_questions", description, labels, buckets=SIZES, registry=registry)
        self.num_in_flight = 0
        self.watch("rgcn_in_flight", "Requests being answered.", lambda: self.num_in_flight)

    def watch(self, name: str, description: str, value: Callable[[], int]) -> None:
        """Add a gauge whose value is computed when the metrics are read."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def add_models(self, models: Iterable[ServedModel]) -> None:
        """Add a line of information about each model."""
        info = Gauge("rgcn_model_info", "A served model.", ("model", "task", "dataset"), registry=self.registry)
        for model in models:
            info.labels(model.name, model.opened.task.name, model.opened.dataset).set(1)

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request.

        Args:
            endpoint: Path with "{model}" in place of a name, never the path of the request.
            method: Method of the request.
            status: Status of the response.
            seconds: Time it took.
        """
        self._requests(endpoint, method if method in METHODS else "other", status).inc()
        self._seconds(endpoint).observe(seconds)

    def batch(self, queue: RequestQueue, size: int) -> None:
        """Count a batch of questions."""
        self._batches.labels(*queue.key).observe(size)


def all_endpoints(dispatcher: Dispatcher, server_group: Endpoints) -> list[Endpoint]:
    """Return the endpoints of the built-in groups, of groups that tasks declare, and of the server itself."""
    model_groups = [type(group) for served in dispatcher.models.values() for group in served.groups]
    endpoints: dict[str, Endpoint] = {}
    for group in dict.fromkeys([*groups_of(None), *model_groups, type(server_group)]):
        for endpoint in group.declared():
            if endpoints.setdefault(endpoint.key, endpoint) != endpoint:
                raise ConfigError(
                    f"{group.__name__} has an endpoint {endpoint.key!r}, which another group has already: rename it"
                )
    return list(endpoints.values())


class RequestHandler:
    """The ASGI application: finds the handler of a request, reads the request and writes the response."""

    def __init__(self, endpoints: Iterable[Endpoint], dispatcher: Dispatcher, server_group: Endpoints) -> None:
        self._endpoints = {(endpoint.path, endpoint.method): endpoint for endpoint in endpoints}
        self._dispatcher, self._server_handlers = dispatcher, server_group.handlers()
        self._long_body_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; RequestError if that is not possible."""
        pattern, *names = pattern_of(scope["path"])
        endpoint = self._endpoints.get((pattern, scope["method"]))
        if endpoint is None:
            raise self._unknown_path(pattern, scope["method"])
        scope["rgcn.path"] = endpoint.path
        request = await self._read(endpoint, scope, receive)
        handler = self._server_handlers.get(endpoint.key) or self._model_handler(names.pop(), endpoint.key)
        answer = await handler(self._dispatcher, *names, *request)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        body = ENCODER.encode(answer)  # sent directly: creating a Response object takes longer than encoding the bytes
        headers = [(b"content-length", b"%d" % len(body)), JSON_HEADER]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _unknown_path(self, pattern: str, method: str) -> RequestError:
        allowed = {method for path, method in self._endpoints if path == pattern}
        if not allowed:
            message = "there is nothing at this path: the page is at /, the API under /api (/openapi.json)"
            return RequestError("not_found", message)
        methods = ", ".join(sorted({*allowed, "HEAD"} if "GET" in allowed else allowed))
        message = f"{method[:20]} is not possible here: use {methods}"
        return RequestError("wrong_method", message, headers={"Allow": methods})

    async def _read(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> list[RequestSchema]:
        """Return the parameters or the body, as a list of one; an empty list if the endpoint takes none."""
        schema, limits = endpoint.request, self._dispatcher.limits
        query = read_query(scope["query_string"], endpoint.parameters)
        if schema is None:
            return []
        try:
            if endpoint.method == "GET":
                return [schema.model_validate(query, context=limits)]
            body = await read_body(Request(scope, receive), limits)
            if len(body) > LONG_BODY_BYTES:  # one per turn of the event loop
                async with self._long_body_lock:
                    await asyncio.sleep(0)
            return [schema.model_validate_json(body, strict=True, context=limits)]
        except ValidationError as error:
            raise validation_error(error, "parameter" if endpoint.method == "GET" else "field") from None

    def _model_handler(self, name: str, key: str) -> Handler:
        models = self._dispatcher.models
        if name not in models:
            message = f"unknown model {shortened(name)}: this server has {', '.join(map(repr, models))}"
            raise RequestError("unknown_model", message, close_matches(name[:100], models))
        if key not in models[name].handlers:
            raise models[name].wrong_task(f"/{key.partition(' ')[2]}")
        return models[name].handlers[key]


def pattern_of(path: str) -> tuple[str, ...]:
    """Split a path into the form in which endpoints declare it, and the name in place of its parameter, if any.

    >>> pattern_of("/api/models/world/links"), pattern_of("/api/health")
    (('/api/models/{model}/links', 'world'), ('/api/health',))
    """
    for prefix, parameter in NAME_PREFIXES.items():
        if path.startswith(prefix):
            name, slash, rest = path[len(prefix) :].partition("/")
            return (f"{prefix}{parameter}{slash}{rest}", name) if name else (path,)
    return (path,)


def read_query(raw: bytes, names: Sequence[str]) -> dict[str, str]:
    """Parse a query string, in which each of these parameters may occur once.

    >>> read_query(b"q=New+York&limit=3", ["q", "limit"])
    {'q': 'New York', 'limit': '3'}
    """
    values: dict[str, str] = {}
    try:
        for name, value in parse_qsl(raw.decode(), keep_blank_values=True, errors="strict"):
            if name not in names:
                near = difflib.get_close_matches(name[:40], names, n=1)
                existing = f"There are {', '.join(names)}." if names else "There are none here."
                hint = f"Did you mean {near[0]!r}?" if near else existing
                raise RequestError("invalid", f"unknown parameter {shortened(name)}. {hint}", near)
            if name in values:
                raise RequestError("invalid", f"{name} is given more than once: give it once")
            values[name] = value
    except UnicodeDecodeError:
        message = "the query is not UTF-8: encode names as UTF-8 before percent-encoding"
        raise RequestError("bad_request", message) from None
    return values


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read the body; RequestError if it is not JSON, too large or too slow."""
    kind, length = request.headers.get("content-type", ""), request.headers.get("content-length", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        found = shortened(kind) if kind else "none"
        raise RequestError("wrong_content_type", f"send the body as Content-Type: {JSON}; it was {found}")
    # Without closing the connection, the server would read the rest of the body.
    close = {"Connection": "close"}
    message = f"the body is larger than {limits.max_body_bytes:,} bytes: split the request"
    too_large = RequestError("too_large", message, headers=close)

    async def received() -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limits.max_body_bytes:
                raise too_large
        return bytes(body)

    if length.isdigit() and int(length[:16]) > limits.max_body_bytes:
        raise too_large
    try:
        return await asyncio.wait_for(received(), limits.client_timeout_s)
    except asyncio.TimeoutError:
        message = f"the body did not arrive within {limits.client_timeout_s:g} seconds: send it faster, or less of it"
        raise RequestError("too_slow", message, headers=close) from None
    except ClientDisconnect:
        raise RequestError("bad_request", "the client disconnected before its request was complete") from None
