"""The server: models, threads, endpoints and page put together, and a process that listens.

Its HTTP is uvicorn's with patience that ends, against clients that are slow, send without end, or have gone.
"""

import asyncio
import gc
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from importlib.abc import Traversable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
import uvicorn
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rgcn.data.registry import DATASET
from rgcn.predict import open_model
from rgcn.predict.opened_model import with_new_triples
from rgcn.serve.address import Address, Limits, bound_socket, url_of
from rgcn.serve.batching import Batcher, Desk
from rgcn.serve.graph_endpoints import ModelLine, line
from rgcn.serve.openapi import openapi
from rgcn.serve.requests import API_HEADERS, JSON, Asking, Gate, ServerMetrics, all_endpoints
from rgcn.serve.schemas import AnswerShape, Refusal, come_later
from rgcn.serve.served_model import Endpoints, Example, Served, Shown, endpoint
from rgcn.version import __version__

# A read may bring a quarter of a megabyte; the parser gets it in parts, and what is too long is seen between them.
PART = 4096


class PatientProtocol(HttpToolsProtocol):
    """uvicorn, which waits for ever, takes headers without end and works for clients who have gone. This one gives up
    after `limits.slow` seconds and `limits.head` bytes, counts connections, and stops the work of a lost one."""

    limits = Limits()

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._timers: dict[str, asyncio.TimerHandle] = {}  # for a request to arrive, for a reader to go on
        self._beside_body = 0  # bytes since the last one of a body: of a head, of trailers, of what is neither
        self._app, self.app = self.app, self._abandonable
        self._task: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(come_later("too_busy", f"{self.limits.connections:,} connections are open already"))
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PART):
            if self.transport.is_closing():
                return
            part = data[at : at + PART]
            # Bytes and not headers are counted: the parser keeps a header that has no end to itself.
            self._beside_body += len(part)
            super().data_received(part)
            if self._beside_body > self.limits.head:
                words = f"the request's first line and headers, or its trailers, exceed {self.limits.head:,} bytes"
                self._refuse(Refusal("header_too_large", words))
        if "request" not in self._timers and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_request()  # something came that is no request yet

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._beside_body = 0
        self._wait_for_request()

    def on_headers_complete(self) -> None:
        self._disarm("request")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside_body = 0
        super().on_body(body)

    def _arm(self, timer: str, then: Callable[[], None]) -> None:
        self._disarm(timer)
        self._timers[timer] = self.loop.call_later(self.limits.slow, then)

    def _disarm(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()

    def _wait_for_request(self) -> None:
        self._arm("request", self._give_up)

    def _give_up(self) -> None:
        self._disarm("request")
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(Refusal("too_slow", f"the request did not arrive within {self.limits.slow:g} seconds"))
        else:
            self._wait_for_request()  # half a request behind one that is being answered: it has its time after that

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm("reader", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._disarm("reader")

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm("request")
        self._disarm("reader")
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._task is not None:
            self._task.cancel()

    async def _abandonable(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, stopped when its client goes: uvicorn would let it work on for nobody."""
        task = self._task = asyncio.current_task()
        try:
            if self in self.connections:
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if self in self.connections:
                raise
        finally:
            if self not in self.connections:
                # Of several requests sent at once uvicorn marks only the last, and would report the others as failed.
                receive.__self__.disconnected = True
            if self._task is task:
                self._task = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("bad_request", "this is no valid HTTP request"))

    def _refuse(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # an answer is half written: there is no place for another
            return
        response = refusal.response()
        headers = [*response.raw_headers, (b"connection", b"close"), *API_HEADERS]
        lines = [STATUS_LINE[refusal.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n"]
        self.transport.write(b"".join([*lines, bytes(response.body)]))
        self.transport.close()


def protocol_for(limits: Limits) -> type[PatientProtocol]:
    """The protocol with these limits; uvicorn makes one for each connection and gives it nothing of ours."""
    return type("Protocol", (PatientProtocol,), {"limits": limits})


PAGE_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def create_app(
    models: Iterable[Served],
    limits: Limits | None = None,
    *,
    token: str | None = None,
    hosts: Iterable[str] | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> Gate:
    """An ASGI application over loaded models.

    token     that /api and /metrics ask for
    hosts     names that may stand in the Host header; None for any
    on_ready  called when it begins to answer
    """
    models, limits, metrics = list(models), limits or Limits(), ServerMetrics()
    limits = replace(limits, name=max([limits.name, *(served.longest_name for served in models)]))
    quick = Batcher("rgcn-model", limits.waiting, limits.seconds, metrics.batch, questions=limits.questions)
    slow = Batcher("rgcn-explain", limits.explaining, limits.seconds, metrics.batch, "explanations are being made")
    desk = Desk(models, quick, slow, limits)
    metrics.served(desk.models.values())
    metrics.watch("rgcn_waiting", "Requests that wait for the model.", lambda: len(quick))
    metrics.watch("rgcn_waiting_questions", "Questions of those requests.", lambda: quick.questions_waiting)
    metrics.watch("rgcn_explaining", "Requests that wait for an explanation.", lambda: len(slow))
    metrics.watch("rgcn_explanations_kept", "Explanations remembered.", lambda: len(desk.kept))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        on_ready()
        yield
        quick.stop()
        slow.stop()

    own = ServerEndpoints(desk, metrics)
    endpoints = all_endpoints(desk, own)
    own.document = Response(openapi(endpoints, desk, own), media_type=JSON)
    return Gate(Asking(endpoints, desk, own), Router(lifespan=lifespan), metrics, token, hosts)


class Health(AnswerShape):
    status: Literal["ok"]
    version: str
    uptime_s: float
    models: list[str]


class Models(AnswerShape):
    models: list[ModelLine]


class PageFile(Response):
    """A file of the explorer page, held in memory; where the browser has it already, only that it is the same."""

    def __init__(self, file: Traversable) -> None:
        body = file.read_bytes()
        etag = f'"{sha256(body).hexdigest()[:20]}"'
        super().__init__(body, headers={"etag": etag}, media_type=PAGE_TYPES[file.name.rpartition(".")[2]])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        etag = self.headers["etag"]
        if etag in Headers(scope=scope).get("if-none-match", ""):
            await Response(None, 304, {"etag": etag}, self.media_type)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class ServerEndpoints(Endpoints):
    """Health and the list of models; the page with its files, the figures and the document."""

    tag = "server"
    document: Response

    def __init__(self, desk: Desk, metrics: ServerMetrics) -> None:
        self._began, self._metrics, self._names = time.monotonic(), metrics, list(desk.models)
        self._models = Models([line(served) for served in desk.models.values()])
        # Read now, so that no request reaches the file system.
        self._files = {file.name: PageFile(file) for file in (resources.files("rgcn.serve") / "explorer").iterdir()}
        self._page = self._files.pop("index.html")

    @endpoint("GET", "/api/health")
    async def health(self, desk: Desk) -> Health:
        """Whether the server is up, since when, and with which models."""
        return Health("ok", __version__, round(time.monotonic() - self._began, 1), self._names)

    @endpoint("GET", "/api/models")
    async def list_models(self, desk: Desk) -> Models:
        """The served models, a line each."""
        return self._models

    def examples(self, shown: Shown) -> dict[str, Example]:
        health = Health("ok", __version__, 12.5, self._names)
        return {"GET /api/health": ({}, health), "GET /api/models": ({}, Models(self._models.models[:1]))}

    @endpoint("GET", "/")
    async def page(self, desk: Desk) -> Response:
        return self._page

    @endpoint("GET", "/assets/{file}")
    async def asset(self, desk: Desk, file: str) -> Response:
        if file in self._files:
            return self._files[file]
        raise Refusal("not_found", "there is no such file: the page is at /, the API under /api")

    @endpoint("GET", "/metrics")
    async def figures(self, desk: Desk) -> Response:
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @endpoint("GET", "/openapi.json")
    async def described(self, desk: Desk) -> Response:
        return self.document


def load_models(
    runs: Iterable[str | Path],
    *,
    new_nodes: Mapping[str, Any] | None = None,
    on_step: Callable[[str], None] = lambda what: None,
    **opening: Any,
) -> list[Served]:
    """Every run or graph opened and made ready, each under the name of its folder or file (`distinct_names`).

    new_nodes  nodes that training never saw, as arguments of `rgcn.predict.opened_model.with_new_triples`
    opening    arguments of `rgcn.open_model`
    """
    models, folders = list[Served](), list(runs)
    own = [Path(str(run).removeprefix(DATASET)).resolve().name for run in folders]
    for run, name in zip(folders, distinct_names(own), strict=True):
        on_step(f"{name}: loading from {run}")
        opened = open_model(run, **opening)
        if new_nodes:
            opened = with_new_triples(opened, **new_nodes)
        models.append(Served(opened, name, lambda what, name=name: on_step(f"{name}: {what}")))  # type: ignore[misc]
    return models


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, repeated ones with the first number that is nobody's: no run gets the name of another's folder.

    >>> distinct_names(["world", "world", "world-2"])
    ['world', 'world-3', 'world-2']
    """
    given: list[str] = []
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        free = (own for own in numbered if own not in given and own not in names)
        given.append(next(free) if name in given else name)
    return given


class Server(uvicorn.Server):
    """uvicorn, which ends without raising the signal again: a server that was asked to stop and did has not failed."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # Threads may be in the middle of a long computation: nothing they hold needs to be saved.
            os._exit(128 + sig)
        self.should_exit = True


def serve(
    models: Sequence[Served],
    address: Address,
    limits: Limits | None = None,
    *,
    threads: int | None = None,
    listening: socket.socket | None = None,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer until a signal asks to stop; then finish what is under way and return."""
    limits = limits or Limits()
    address.check()
    listening = listening or bound_socket(address)
    if threads is not None:
        torch.set_num_threads(threads)
    url = url_of(address, listening)
    app = create_app(models, limits, token=address.token, hosts=address.hosts, on_ready=lambda: on_ready(url))
    config = uvicorn.Config(
        app,
        http=protocol_for(limits),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.idle),
        timeout_graceful_shutdown=int(limits.stopping),
    )
    # The models' millions of names live as long as the process: looking through them for garbage stops the world for
    # a quarter of a second each time.
    gc.collect()
    gc.freeze()
    try:
        Server(config).run(sockets=[listening])
    finally:
        gc.unfreeze()
        listening.close()
