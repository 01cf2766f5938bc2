"""The server: load models, build the application, and listen until a signal stops the process.

uvicorn implements HTTP. `LimitedProtocol` adds limits for clients that are slow, send without end, or have
disconnected.
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

from rgcn.data.registry import DATASET_PREFIX
from rgcn.predict import open_model
from rgcn.predict.opened_model import with_new_triples
from rgcn.serve.address import Address, Limits, bound_socket, url_of
from rgcn.serve.batching import BatchingExecutor, Dispatcher
from rgcn.serve.common_endpoints import ModelSummary, model_summary
from rgcn.serve.openapi import openapi
from rgcn.serve.requests import API_HEADERS, JSON, RequestHandler, SecurityMiddleware, ServerMetrics, all_endpoints
from rgcn.serve.schemas import RequestError, ResponseSchema, retry_later
from rgcn.serve.served_model import Endpoints, Example, ExampleEntities, ServedModel, endpoint
from rgcn.version import __version__

# A read may return 256 kB. The parser gets it in parts of this size, and limits are checked after each.
PART_BYTES = 4096
PAGE_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with time limits, size limits and a limit on connections.

    uvicorn waits forever, accepts headers of any size, and works for clients that have disconnected. This protocol
    gives up after `limits.client_timeout_s` seconds and `limits.max_head_bytes` bytes, counts connections, and cancels
    the work for a lost one. Use `protocol_for` to set the limits.
    """

    limits = Limits()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        # "request": time until it has arrived; "reader": time until the client reads on
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._head_bytes = 0  # bytes since the last ones of a body: of a head, of trailers, of anything else
        self._app, self.app = self.app, self._run_cancelable
        self._task: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse the connection if there are too many, or wait for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(retry_later("too_busy", f"{self.limits.max_connections:,} connections are open already"))
        else:
            self._start_timer("request", self._request_timeout)

    def data_received(self, data: bytes) -> None:
        """Parse bytes as long as they keep to the limits."""
        for first in range(0, len(data), PART_BYTES):
            if self.transport.is_closing():
                return
            part = data[first : first + PART_BYTES]
            # Bytes are counted, not headers: the parser does not report a header that has no end.
            self._head_bytes += len(part)
            super().data_received(part)
            if self._head_bytes > self.limits.max_head_bytes:
                limit = f"{self.limits.max_head_bytes:,} bytes"
                message = f"the request's first line and headers, or its trailers, exceed {limit}"
                self._refuse(RequestError("header_too_large", message))
        if "request" not in self._timers and (self.cycle is None or self.cycle.response_complete):
            self._start_timer("request", self._request_timeout)  # for bytes that are no request yet

    def on_message_begin(self) -> None:
        """Start the time limit of a request."""
        super().on_message_begin()
        self._head_bytes = 0
        self._start_timer("request", self._request_timeout)

    def on_headers_complete(self) -> None:
        """Stop the time limit: the head of the request has arrived."""
        self._stop_timer("request")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Reset the count of bytes of the head: these bytes belong to a body."""
        self._head_bytes = 0
        super().on_body(body)

    def _start_timer(self, name: str, callback: Callable[[], None]) -> None:
        self._stop_timer(name)
        self._timers[name] = self.loop.call_later(self.limits.client_timeout_s, callback)

    def _stop_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _request_timeout(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._stop_timer("request")
            seconds = self.limits.client_timeout_s
            self._refuse(RequestError("too_slow", f"the request did not arrive within {seconds:g} seconds"))
        else:
            # A part of the next request arrived while this one is answered: its time limit starts after the answer.
            self._start_timer("request", self._request_timeout)

    def pause_writing(self) -> None:
        """Start the time limit of a client that does not read."""
        super().pause_writing()
        self._start_timer("reader", self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the time limit: the client reads again."""
        super().resume_writing()
        self._stop_timer("reader")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the work for the client."""
        self._stop_timer("request")
        self._stop_timer("reader")
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run_cancelable(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the application; it is canceled when its client disconnects, which uvicorn does not do."""
        task = self._task = asyncio.current_task()
        try:
            if self in self.connections:
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if self in self.connections:
                raise
        finally:
            if self not in self.connections:
                # uvicorn marks only the last of several pipelined requests, and would log errors for the others.
                receive.__self__.disconnected = True
            if self._task is task:
                self._task = None

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._refuse(RequestError("bad_request", "this is not a valid HTTP request"))

    def _refuse(self, error: RequestError) -> None:
        """Send an error and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # a response is half written, and another cannot follow it
            return
        response = error.response()
        headers = [*response.raw_headers, (b"connection", b"close"), *API_HEADERS]
        lines = [STATUS_LINE[error.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n"]
        self.transport.write(b"".join([*lines, bytes(response.body)]))
        self.transport.close()


def protocol_for(limits: Limits) -> type[LimitedProtocol]:
    """Return a protocol class with these limits; uvicorn creates the protocols and passes no arguments of ours."""
    return type("Protocol", (LimitedProtocol,), {"limits": limits})


def create_app(
    models: Iterable[ServedModel],
    limits: Limits | None = None,
    *,
    token: str | None = None,
    hosts: Iterable[str] | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> SecurityMiddleware:
    """Return an ASGI application that serves loaded models.

    Args:
        models: The models, from `load_models`.
        limits: Limits of requests and queues.
        token: Token that /api and /metrics require.
        hosts: Names accepted in the Host header; None for any.
        on_ready: Called when the application starts.

    Raises:
        ConfigError: If two groups of endpoints declare the same path.
    """
    models, limits, metrics = list(models), limits or Limits(), ServerMetrics()
    limits = replace(limits, max_name_length=max([limits.max_name_length, *(model.longest_name for model in models)]))
    waiting, timeout_s = limits.max_waiting, limits.timeout_s
    executor = BatchingExecutor("rgcn-model", waiting, timeout_s, metrics.batch, max_questions=limits.max_questions)
    explainer = BatchingExecutor(
        "rgcn-explain", limits.max_explaining, timeout_s, metrics.batch, "explanations are being computed"
    )
    dispatcher = Dispatcher(models, executor, explainer, limits)
    metrics.add_models(dispatcher.models.values())
    metrics.watch("rgcn_waiting", "Requests that wait for the model.", lambda: len(executor))
    metrics.watch("rgcn_waiting_questions", "Questions of those requests.", lambda: executor.num_questions)
    metrics.watch("rgcn_explaining", "Requests that wait for an explanation.", lambda: len(explainer))
    metrics.watch("rgcn_explanations_kept", "Explanations in the cache.", lambda: len(dispatcher.cache))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        on_ready()
        yield
        executor.stop()
        explainer.stop()

    server_group = ServerEndpoints(dispatcher, metrics)
    endpoints = all_endpoints(dispatcher, server_group)
    server_group.document = Response(openapi(endpoints, dispatcher, server_group), media_type=JSON)
    handler = RequestHandler(endpoints, dispatcher, server_group)
    return SecurityMiddleware(handler, Router(lifespan=lifespan), metrics, token, hosts)


class Health(ResponseSchema):
    """The state of the server."""

    status: Literal["ok"]
    version: str
    uptime_s: float
    models: list[str]


class Models(ResponseSchema):
    """The served models."""

    models: list[ModelSummary]


class PageFile(Response):
    """A file of the explorer page, held in memory; 304 if the browser has it already."""

    def __init__(self, file: Traversable) -> None:
        body = file.read_bytes()
        etag = f'"{sha256(body).hexdigest()[:20]}"'
        super().__init__(body, headers={"etag": etag}, media_type=PAGE_TYPES[file.name.rpartition(".")[2]])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or only its tag."""
        etag = self.headers["etag"]
        if etag in Headers(scope=scope).get("if-none-match", ""):
            await Response(None, 304, {"etag": etag}, self.media_type)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class ServerEndpoints(Endpoints):
    """Endpoints of the server: health, the list of models, the page, metrics and the OpenAPI document."""

    tag = "server"
    document: Response

    def __init__(self, dispatcher: Dispatcher, metrics: ServerMetrics) -> None:
        self._start, self._metrics, self._names = time.monotonic(), metrics, list(dispatcher.models)
        self._models = Models(list(map(model_summary, dispatcher.models.values())))
        # Read once, so that requests do not touch the file system.
        self._files = {file.name: PageFile(file) for file in (resources.files("rgcn.serve") / "explorer").iterdir()}
        self._page = self._files.pop("index.html")

    @endpoint("GET", "/api/health")
    async def health(self, dispatcher: Dispatcher) -> Health:
        """Whether the server is up, since when, and with which models."""
        return Health("ok", __version__, round(time.monotonic() - self._start, 1), self._names)

    @endpoint("GET", "/api/models")
    async def list_models(self, dispatcher: Dispatcher) -> Models:
        """The served models."""
        return self._models

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return a request with its response for each endpoint."""
        health = Health("ok", __version__, 12.5, self._names)
        return {"GET /api/health": ({}, health), "GET /api/models": ({}, Models(self._models.models[:1]))}

    @endpoint("GET", "/")
    async def page(self, dispatcher: Dispatcher) -> Response:
        """The explorer page."""
        return self._page

    @endpoint("GET", "/assets/{file}")
    async def asset(self, dispatcher: Dispatcher, file: str) -> Response:
        """A file of the explorer page."""
        if file in self._files:
            return self._files[file]
        raise RequestError("not_found", "there is no such file: the page is at /, the API under /api")

    @endpoint("GET", "/metrics")
    async def metrics(self, dispatcher: Dispatcher) -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @endpoint("GET", "/openapi.json")
    async def openapi_document(self, dispatcher: Dispatcher) -> Response:
        """The OpenAPI document."""
        return self.document


def load_models(
    runs: Iterable[str | Path],
    *,
    new_nodes: Mapping[str, Any] | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
    **opening: Any,
) -> list[ServedModel]:
    """Load runs or graphs for serving, each under the name of its folder or file (see `distinct_names`).

    Args:
        runs: Folders of runs or saved models; or graphs, for which the pretrained model answers.
        new_nodes: Nodes that training never saw: keyword arguments of `rgcn.predict.opened_model.with_new_triples`.
        on_stage: Called with a description of each stage.
        **opening: Keyword arguments of `rgcn.open_model`.
    """
    models, folders = list[ServedModel](), list(runs)
    names = distinct_names([Path(str(run).removeprefix(DATASET_PREFIX)).resolve().name for run in folders])
    for run, name in zip(folders, names, strict=True):
        on_stage(f"{name}: loading from {run}")
        opened = open_model(run, **opening)
        if new_nodes:
            opened = with_new_triples(opened, **new_nodes)
        models.append(ServedModel(opened, name, lambda stage, name=name: on_stage(f"{name}: {stage}")))  # type: ignore[misc]
    return models


def distinct_names(names: Sequence[str]) -> list[str]:
    """Number repeated names, with numbers that make no other name of the list.

    >>> distinct_names(["world", "world", "world-2"])
    ['world', 'world-3', 'world-2']
    """
    distinct: list[str] = []
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        free = (candidate for candidate in numbered if candidate not in (*distinct, *names))
        distinct.append(next(free) if name in distinct else name)
    return distinct


class Server(uvicorn.Server):
    """A uvicorn server that returns after a signal, where uvicorn's own raises the signal again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the first signal, and at once after the second."""
        if self.should_exit:
            # The second signal. Threads may be in the middle of a long computation, and hold nothing to save.
            os._exit(128 + sig)
        self.should_exit = True


def serve(
    models: Sequence[ServedModel],
    address: Address,
    limits: Limits | None = None,
    *,
    threads: int | None = None,
    listening: socket.socket | None = None,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve models until a signal stops the server; then finish running requests and return.

    Args:
        models: The models, from `load_models`.
        address: Where to listen.
        limits: Limits of requests, queues and connections.
        threads: Threads of PyTorch; by default as PyTorch chooses.
        listening: A socket that listens already.
        on_ready: Called with the server's URL when it accepts requests.
    """
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
        timeout_keep_alive=int(limits.idle_timeout_s),
        timeout_graceful_shutdown=int(limits.shutdown_timeout_s),
    )
    # The models' millions of names live as long as the process. Scanning them for garbage would stop the server for a
    # quarter of a second each time.
    gc.collect()
    gc.freeze()
    try:
        Server(config).run(sockets=[listening])
    finally:
        gc.unfreeze()
        listening.close()
