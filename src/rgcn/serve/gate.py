"""What every request passes first and every answer last: who may ask, headers that protect, counting."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rgcn.serve.metrics import Metrics
from rgcn.serve.refusals import Refusal
from rgcn.serve.route import send_refusal

logger = logging.getLogger("rgcn.serve")

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
# What nginx calls it; nobody is sent this, it is only counted.
CLIENT_GONE = 499
_PROTECTED = ("/api", "/metrics", "/openapi.json")

_NOSNIFF = (b"x-content-type-options", b"nosniff")
_ALWAYS = [
    _NOSNIFF,
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


class Gate:
    """The outermost ASGI application, in plain ASGI: a layer costs microseconds here, not a task of its own.

    token  that /api and /metrics ask for, or None
    hosts  names that may stand in the Host header; None for any
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, token: str | None = None, hosts: Iterable[str] | None = None
    ) -> None:
        self.app, self.metrics = app, metrics
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:  # no WebSockets here
            await send({"type": "websocket.close", "code": 1003})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, method, path = time.perf_counter(), scope["method"], scope["path"]
        protected = path.startswith(_PROTECTED)
        extra = API_HEADERS if protected else PAGE_HEADERS
        is_head = method == "HEAD"
        status = 500
        started = False

        async def sending(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] += extra
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        self.metrics.in_flight += 1
        try:
            refusal = self._refusal(scope, protected)
            if refusal is not None:
                await send_refusal(refusal, sending)
                return
            if is_head:
                scope = {**scope, "method": "GET"}
            await self.app(scope, receive, sending)
        except asyncio.CancelledError:
            status = CLIENT_GONE
            raise
        except Exception:
            logger.exception("a request failed: %s %s", method, scope.get("rgcn.endpoint", "unknown path"))
            if not started:
                await send_refusal(Refusal("failed", "the server failed on this request; its log says why"), sending)
        finally:
            self.metrics.in_flight -= 1
            endpoint = scope.get("rgcn.endpoint", "other")
            self.metrics.request(endpoint, method, status, time.perf_counter() - began)

    # -- who may ask -------------------------------------------------------------------------------------

    def _refusal(self, scope: Scope, protected: bool) -> Refusal | None:
        host: bytes | None = None
        authorization: bytes | None = None
        site = destination = length = b""
        chunked = False
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    return Refusal("bad_request", "the Host header is given twice")
                host = value
            elif name == b"authorization":
                authorization = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-dest":
                destination = value
            elif name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                chunked = True
        refusal = self._wrong_host(host)
        if refusal is None and protected:
            refusal = self._wrong_token(authorization)
            if refusal is None and site == b"cross-site" and destination != b"document":
                refusal = Refusal("cross_site", "another web site may not ask here: open the server's own page")
        if refusal is None and scope["method"] in ("GET", "HEAD") and (chunked or length not in (b"", b"0")):
            words = f"{scope['method']} takes no body here: put the question into the address, or POST it"
            refusal = Refusal("bad_request", words, headers={"Connection": "close"})
        return refusal

    def _wrong_host(self, host: bytes | None) -> Refusal | None:
        match = None if host is None else _HOST.fullmatch(host)
        if match is None:
            return Refusal("bad_request", "the Host header is missing or is no host name")
        if self._hosts is not None and match[1].lower() not in self._hosts:
            name = match[1].decode()[:100]
            words = f"this server does not answer to {name!r}: use localhost, or start it with --allow-host {name}"
            return Refusal("wrong_host", words)
        return None

    def _wrong_token(self, authorization: bytes | None) -> Refusal | None:
        if self._token is None:
            return None
        scheme, _, given = (authorization or b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        what = "a token is needed" if authorization is None else "this is not the token"
        words = f"{what}: send the header Authorization: Bearer TOKEN"
        return Refusal("unauthorized", words, headers={"WWW-Authenticate": "Bearer"})
