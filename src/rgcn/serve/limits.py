"""How much one request, one client and all of them together may take, and the fields of questions that keep to it:
against those who ask for too much."""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

T = TypeVar("T")
# How bounds of questions are called in JSON Schema, and how they are said.
BOUNDS = {
    "k": ("maximum", "at most {:,} here"),
    "name": ("maxLength", "at most {:,} characters here"),
    "items": ("maxItems", "at most {:,} entries here"),
}


@dataclass(frozen=True)
class Limits:
    """Every bound of the server, with its default."""

    body: int = 1 << 20  # bytes of a request's body
    items: int = 1000  # questions in one request: nodes, queries or triples
    k: int = 1000  # links in the answer to one question, and rows of a page of facts or of search results
    links: int = 20_000  # links in one answer, over all its questions
    name: int = 2000  # characters of a name or of a search; where a name that is served is longer, so many
    seconds: float = 30.0  # until a request that is not answered gets 503
    waiting: int = 512  # requests that may wait for the model before others get 503
    questions: int = 20_000  # of those requests together that may wait before further requests with many get 503
    explaining: int = 16  # requests that may wait for an explanation before others get 503
    connections: int = 1000  # open at once; further ones get 503
    head: int = 32 << 10  # bytes of a request's first line and headers
    slow: float = 10.0  # seconds a client may take to send a request, or to read its answer
    idle: float = 30.0  # seconds a connection may stay open with nothing asked
    stopping: float = 10.0  # seconds that requests under way have to finish once the server is asked to stop


class AtMost:
    """Marks a field whose upper bound is one of `Limits`: validation finds it in its context, OpenAPI at `x-limit`."""

    def __init__(self, limit: str) -> None:
        self.limit = limit

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "x-limit": self.limit}

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        most = getattr(info.context or Limits(), self.limit)
        if (value if isinstance(value, int) else len(value)) > most:
            raise PydanticCustomError("too_much", "{words}", {"words": BOUNDS[self.limit][1].format(most)})
        return value


def _plain_number(value: Any, info: ValidationInfo) -> Any:
    """A number in a query, digits only: pydantic would also take "10.0", " 10" and "1_0" for ten."""
    if info.mode == "json" or not isinstance(value, str):
        return value
    if not (value.isascii() and value.removeprefix("-").isdigit()) or len(value) > 18:
        raise PydanticCustomError("whole_number", "a whole number is needed")
    return int(value)


Number = BeforeValidator(_plain_number)
# Bounds stand before what reads the text: after it they would not be in the JSON schema.
Count = Annotated[int, Field(ge=1), AtMost("k"), Number]
Name = Annotated[str, Field(min_length=1), AtMost("name")]
NodeName = Annotated[Name, Field(description="A node: its name, title, or the last part of its IRI, in any case.")]
RelationName = Annotated[Name, Field(description="A relation: its name or its title.")]
Many = Annotated[list[T], Field(min_length=1), AtMost("items")]
