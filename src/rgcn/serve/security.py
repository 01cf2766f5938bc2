"""What every request passes first and every answer last: against other web sites that a browser is talked into asking
for (a Host of their own, cross-site requests), strangers without the token, and what is written into the page."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Callable, Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rgcn.serve.batching import Lane
from rgcn.serve.schemas import Refusal
from rgcn.serve.served_model import Served

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
