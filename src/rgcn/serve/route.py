"""A FastAPI route that reads its request itself: strictly, and in a tenth of the time.

FastAPI makes the OpenAPI document from a handler's signature; reading the request by the same signature costs it three
hundred microseconds, which is most of what an answer may take. It also lets unknown and repeated parameters pass.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast, get_args
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from rgcn.errors import MOST_MEANT, AmbiguousNameError, DataError, RgcnError, UnknownNameError
from rgcn.serve.limits import Limits
from rgcn.serve.refusals import Refusal, invalid, shortened

logger = logging.getLogger("rgcn.serve")

JSON = b"application/json"
OF_A_MODEL = "/api/models/{model}/"
# Bytes; reading a longer body as JSON takes a millisecond or more.
LONG_BODY = 16 << 10


class Answer(NamedTuple):
    """What a handler gives back: bytes ready to be sent."""

    body: bytes
    media_type: bytes = JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class LeanRoute(APIRoute):
    """A route whose handler takes what it names: `model` or `file` (of the path), `query` and `body` (pydantic models).

    limits  of the application; set by `create_app` on a subclass
    turns   which long bodies take, one in each turn of the event loop; set likewise
    """

    limits = Limits()
    turns = asyncio.Lock()

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        super().__init__(path, endpoint, **settings)
        signature = inspect.signature(endpoint, eval_str=True)
        hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        self._takes_path = [name for name in ("model", "file") if name in hints]
        self._takes_etag = "if_none_match" in hints
        self._query = _model_in(hints.get("query"))
        self._body = _model_in(hints.get("body"))
        self._handler = cast(Callable[..., Awaitable[Answer]], endpoint)
        self._names = {} if self._query is None else _parameter_names(self._query)
        self.app = self._run

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["rgcn.endpoint"] = self.path
        try:
            answer = await self._answer(scope, receive)
        except Refusal as refusal:
            await send_refusal(refusal, send)
        except RgcnError as error:
            await send_refusal(refusal_of(error), send)
        except Exception:
            logger.exception("a request to %s failed", self.path)
            await send_refusal(Refusal("failed", "the server failed on this request; its log says why"), send)
        else:
            await send_answer(answer, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        given: dict[str, Any] = {name: scope["path_params"][name] for name in self._takes_path}
        query = read_query(scope["query_string"], self._names)
        if self._query is not None:
            try:
                given["query"] = self._query.model_validate(query, context=self.limits)
            except ValidationError as error:
                raise invalid(error.errors(include_url=False), "query") from None
        if self._takes_etag:
            seen = next((value for name, value in scope["headers"] if name == b"if-none-match"), None)
            given["if_none_match"] = None if seen is None else seen.decode("latin-1")
        if self._body is not None:
            raw = await read_body(scope, receive, self.limits)
            if len(raw) <= LONG_BODY:
                given["body"] = self._validated(self._body, raw)
            else:
                async with self.turns:
                    given["body"] = self._validated(self._body, raw)
                    await asyncio.sleep(0)
        return await self._handler(**given)

    def _validated(self, shape: type[BaseModel], raw: bytes) -> BaseModel:
        try:
            return shape.model_validate_json(raw, strict=True, context=self.limits)
        except ValidationError as error:
            raise invalid(error.errors(include_url=False), "body") from None


class Shortcut:
    """Takes a request about a model straight to its route; everything else, also what is wrong, goes through FastAPI.

    The way through FastAPI's layers and its list of patterns costs as much as reading the question and answering it.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes = {
            (method, route.path.removeprefix(OF_A_MODEL)): route
            for route in app.routes
            if isinstance(route, LeanRoute) and route.path.startswith(OF_A_MODEL)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            parts = scope["path"].split("/")  # "", "api", "models", the model, what is asked
            if len(parts) == 5 and parts[1] == "api" and parts[2] == "models" and parts[3]:
                route = self._routes.get((scope["method"], parts[4]))
                if route is not None:
                    scope["path_params"] = {"model": parts[3]}
                    await route.app(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _model_in(hint: Any) -> type[BaseModel] | None:
    """The pydantic model of a parameter, also of Annotated[Model, Query()]."""
    kinds = (hint, *get_args(hint))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _parameter_names(model: type[BaseModel]) -> dict[str, None]:
    return {field.alias or name: None for name, field in model.model_fields.items()}


def read_query(raw: bytes, names: dict[str, None]) -> dict[str, str]:
    """Parameters of a query string, each at most once and each one of `names`.

    >>> read_query(b"q=New+York&limit=3", {"q": None, "limit": None})
    {'q': 'New York', 'limit': '3'}
    """
    found: dict[str, str] = {}
    if not raw:
        return found
    for part in raw.split(b"&"):
        if not part:
            continue
        key, _, value = part.partition(b"=")
        name = _decoded(key)
        if name not in names:
            raise _unknown_parameter(name, names)
        if name in found:
            raise Refusal("invalid", f"{name} is given more than once: give it once")
        found[name] = _decoded(value)
    return found


def _decoded(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal("bad_request", "the query is not UTF-8: encode names as UTF-8 before percent-encoding") from None


def _unknown_parameter(name: str, names: dict[str, None]) -> Refusal:
    near = difflib.get_close_matches(name[:40], list(names), n=1)
    there = f"there are {', '.join(names)}" if names else "there are none here"
    hint = f"Did you mean {near[0]!r}?" if near else f"{there[0].upper()}{there[1:]}."
    return Refusal("invalid", f"unknown parameter {shortened(name)}. {hint}", near)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The body, where it is JSON, not too large and not too slow; its length is not believed but counted."""
    content_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if content_type.partition(b";")[0].strip().lower() != JSON:
        told = shortened(content_type.decode("latin-1")) if content_type else "none"
        raise Refusal("wrong_content_type", f"send the body as Content-Type: application/json; it was {told}")
    told_length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if told_length.isdigit() and (len(told_length) > 15 or int(told_length) > limits.body):
        raise _too_large(limits)
    try:
        return await asyncio.wait_for(_received(receive, limits), limits.slow)
    except asyncio.TimeoutError:
        words = f"the body did not arrive within {limits.slow:g} seconds: send it faster, or less of it"
        raise Refusal("too_slow", words, headers={"Connection": "close"}) from None


async def _received(receive: Receive, limits: Limits) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal("bad_request", "the client went away before its request was complete")
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body:
            raise _too_large(limits)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limits: Limits) -> Refusal:
    words = f"the body is larger than {limits.body:,} bytes: ask in several requests"
    # What is still on its way would be read to its end otherwise.
    return Refusal("too_large", words, headers={"Connection": "close"})


def refusal_of(error: RgcnError) -> Refusal:
    """What the rest of the package says, as an answer."""
    if isinstance(error, UnknownNameError):
        words = f"unknown {error.kind} {shortened(error.name)}.{error.hint}"
        return Refusal(f"unknown_{error.kind}", words, error.suggestions)
    if isinstance(error, AmbiguousNameError):
        return Refusal("ambiguous", str(error), error.names[:MOST_MEANT])
    return Refusal("invalid" if isinstance(error, DataError) else "bad_request", str(error))


async def send_refusal(refusal: Refusal, send: Send) -> None:
    headers = tuple((name.lower().encode(), value.encode()) for name, value in refusal.headers.items())
    await send_answer(Answer(refusal.body(), JSON, refusal.status, headers), send)


async def send_answer(answer: Answer, send: Send) -> None:
    headers = [(b"content-type", answer.media_type), *answer.headers]
    if answer.status != 304:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
