"""How much one request, one client and all of them together may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True)
class Limits:
    """Every bound of the server, with its default.

    body         bytes of a request's body
    items        questions in one request: nodes, queries or triples
    k            links in the answer to one question, and rows of a page of facts or of search results
    links        links in one answer, over all its questions
    name         characters of a name or of a search
    seconds      until a request that is not answered gets 503
    waiting      requests that may wait for the model before others get 503
    questions    of those requests together that may wait before further requests with many get 503
    explaining   requests that may wait for an explanation before others get 503
    connections  open at once; further ones get 503
    head         bytes of a request's first line and headers
    slow         seconds a client may take to send a request, or to read its answer
    idle         seconds a connection may stay open with nothing asked
    stopping     seconds that requests under way have to finish once the server is asked to stop
    """

    body: int = 1 << 20
    items: int = 1000
    k: int = 1000
    links: int = 20_000
    name: int = 2000
    seconds: float = 30.0
    waiting: int = 512
    questions: int = 20_000
    explaining: int = 16
    connections: int = 1000
    head: int = 32 << 10
    slow: float = 10.0
    idle: float = 30.0
    stopping: float = 10.0


# How a bound of a kind of value is called in JSON Schema, and how it is said.
_KEYWORDS = {
    "integer": ("maximum", "at most {}"),
    "string": ("maxLength", "at most {} characters"),
    "array": ("maxItems", "at most {} entries"),
}


class AtMost:
    """Marks a field whose upper bound is one of `Limits`, known only once the server starts.

    Validation takes the limits from its context; the OpenAPI document gets the number through `filled`.
    """

    def __init__(self, limit: str) -> None:
        self.limit = limit

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "x-limit": self.limit}

    def _check(self, value: Any, info: core_schema.ValidationInfo) -> Any:
        limits = info.context if isinstance(info.context, Limits) else Limits()
        most = getattr(limits, self.limit)
        size = value if isinstance(value, int) else len(value)
        if size > most:
            kind = "integer" if isinstance(value, int) else "string" if isinstance(value, str) else "array"
            words = _KEYWORDS[kind][1].format(f"{most:,}")
            raise PydanticCustomError("too_much", "{words} here", {"words": words})
        return value


def filled(schema: Any, limits: Limits) -> Any:
    """A JSON schema with the numbers of its limits.

    >>> filled({"type": "integer", "x-limit": "k"}, Limits(k=50))
    {'type': 'integer', 'maximum': 50}
    """
    if isinstance(schema, list):
        return [filled(part, limits) for part in schema]
    if not isinstance(schema, dict):
        return schema
    done = {key: filled(part, limits) for key, part in schema.items() if key != "x-limit"}
    if "x-limit" in schema:
        done[_KEYWORDS[schema["type"]][0]] = getattr(limits, schema["x-limit"])
    return done
