"""What may be asked, how much of it, what is answered, and what is said where a request cannot be answered.

Each shape is stated once: reading, bytes and OpenAPI follow from it. Questions are pydantic's, which says every problem
in words; answers are msgspec's, which writes them in microseconds. These shapes all groups of endpoints share; each has
its own beside its handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import methodcaller
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Raw, Struct
from msgspec.json import Encoder
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from starlette.responses import Response

from rgcn.errors import MOST_MEANT, AmbiguousNameError, DataError, RgcnError, UnknownNameError
from rgcn.serve.address import Limits

WRITER = Encoder(enc_hook=methodcaller("item"))  # of figures that numpy has computed
# The codes a client may rely on, by the status they come with, and what that says in the OpenAPI document.
STATUSES = {
    400: ("bad_request", "The request is malformed."),
    401: ("unauthorized", "A token is needed, or this is not the one."),
    403: ("wrong_host cross_site", "The server does not answer to this host, or to another web site."),
    404: ("not_found unknown_model unknown_node unknown_relation unknown_class", "Nothing of this name is there."),
    405: ("wrong_method", "The path takes other methods."),
    408: ("too_slow", "The body took too long to arrive."),
    409: ("wrong_task", "The model does not answer this kind of question."),
    413: ("too_large", "The body is too large."),
    415: ("wrong_content_type", "The body is not sent as JSON."),
    422: ("invalid ambiguous cannot_explain", "Something is missing, unknown, out of bounds, or names several things."),
    431: ("header_too_large", "The first line and the headers are too long."),
    500: ("failed", "The server failed."),
    503: ("too_busy took_too_long", "Too many wait, or it took too long: try again after the seconds of Retry-After."),
}
CODES = {code: status for status, (codes, _) in STATUSES.items() for code in codes.split()}
SHOWN = 5
EXAMPLE = "unknown node 'Swizerland'. Did you mean 'Switzerland'?"


class QuestionShape(BaseModel):
    """Base of all parameters and bodies: what is not known is refused, so that no misspelt name goes unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AnswerShape(Struct, forbid_unknown_fields=True, gc=False):
    """Base of all answers; a handler gives one back, and `WRITER` writes it."""


def six_digits(numbers: Iterable[float]) -> list[Any]:
    """Numbers as they are written: more digits are not what scores of float32 are good for.

    >>> WRITER.encode(six_digits([0.123456789, 1e-12]))
    b'[0.123457,1e-12]'
    """
    return [Raw(b"%.6g" % number) if number == number else None for number in numbers]  # NaN: there is none


Split = Literal["train", "valid", "test"]
Score = Annotated[float, Meta(description="What the model computes: higher is likelier.")]
Probability = Annotated[
    Annotated[float, Meta(ge=0, le=1)] | None,
    Meta(description="Calibrated on held-out data; null for what is known, or where nothing was there to do it on."),
]


NAME = (
    "What tells it apart: ask with this. A name that takes more than 9,000 bytes in an address is given as its "
    "beginning and a checksum, which a question may have in its place."
)


class Node(AnswerShape):
    """A node of the graph."""

    name: Annotated[str, Meta(description=NAME)]
    title: Annotated[str, Meta(description="What people call it: cut where it is long, percent-encoding decoded.")]
    description: Annotated[str | None, Meta(description="What it is, where the data set says so.")]
    kind: Annotated[
        Literal["iri", "literal", "blank", "name"],
        Meta(description="An RDF term's; `name` for a plain name, as tables have them, which is no IRI."),
    ]


class Relation(AnswerShape):
    name: Annotated[str, Meta(description=NAME)]
    title: str


class Class(AnswerShape):
    name: Annotated[str, Meta(description=NAME)]
    title: str


class ErrorDetails(AnswerShape):
    code: Annotated[str, Meta(description="For programs.", examples=["unknown_node"])]
    message: Annotated[str, Meta(description="For people: what is wrong, and what would do.", examples=[EXAMPLE])]
    suggestions: Annotated[list[str], Meta(description="Names that may have been meant.", examples=[["Switzerland"]])]


class Error(AnswerShape):
    """Every request that is not answered gets this."""

    error: ErrorDetails


class Refusal(Exception):  # noqa: N818 - not an error of ours: an answer
    """A request that is answered with an error: `ErrorDetails`, a code of `CODES`, and the headers its status needs."""

    def __init__(
        self, code: str, message: str, suggestions: Iterable[str] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.suggestions = code, message, list(suggestions)
        self.status, self.headers = CODES[code], dict(headers or {})

    def response(self) -> Response:
        body = WRITER.encode(Error(ErrorDetails(self.code, self.message, self.suggestions)))
        return Response(body, self.status, self.headers, "application/json")

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """What the rest of the package says, as an answer; of what nobody expected, nothing is told."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, UnknownNameError):
            words = f"unknown {error.kind} {shortened(error.name)}.{error.hint}"
            return cls(f"unknown_{error.kind}", words, error.suggestions)
        if isinstance(error, AmbiguousNameError):
            return cls("ambiguous", str(error), error.names[:MOST_MEANT])
        if isinstance(error, RgcnError):
            return cls("invalid" if isinstance(error, DataError) else "bad_request", str(error))
        return cls("failed", "the server failed on this request; its log says why")


def come_later(code: str, message: str) -> Refusal:
    """too_busy, took_too_long: what may be answered in a moment."""
    return Refusal(code, f"{message}: try again in a moment", headers={"Retry-After": "1"})


def invalid(error: ValidationError, where: str) -> Refusal:
    """From pydantic's problems with a "parameter" or "field": which one, and what would do."""
    problems = error.errors(include_url=False)
    said = [_said(problem, where) for problem in problems[:SHOWN]]
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    return Refusal("invalid", "; ".join([*said, *more]))


def _said(problem: Mapping[str, Any], where: str) -> str:
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', problem['msg'])}"
    place = ".".join(str(part)[:60] for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{place} is missing: this {where} is needed"
    words: str = problem["msg"].removeprefix("Value error, ")
    given = problem.get("input")
    seen = f" (got {shortened(given)})" if isinstance(given, (str, int, float)) else ""
    return f"{place}: {words}{seen}" if place else words


def shortened(value: object, most: int = 60) -> str:
    """A value for a message, never longer than a line.

    >>> shortened("x" * 100, 8)
    "'xxxx…"
    """
    words = repr(value[: most * 2] if isinstance(value, str) else value)
    return words if len(words) <= most else words[: most - 3] + "…"


T = TypeVar("T")
# How bounds of questions are called in JSON Schema, and how they are said.
BOUNDS = {
    "k": ("maximum", "at most {:,} here"),
    "name": ("maxLength", "at most {:,} characters here"),
    "items": ("maxItems", "at most {:,} entries here"),
}


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
