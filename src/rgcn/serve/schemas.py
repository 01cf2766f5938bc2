"""Requests, responses and errors of the API.

Each schema is declared once; reading, writing and the OpenAPI document follow from it. Requests are pydantic models,
which describe every problem in words; responses are msgspec structs, which are written in microseconds. The schemas
here are shared by all groups of endpoints; each group declares its own in the module of its handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import methodcaller
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Raw, Struct
from msgspec.json import Encoder
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from starlette.responses import Response

from rgcn.errors import MAX_NAMES_SHOWN, AmbiguousNameError, DataError, RgcnError, UnknownNameError
from rgcn.serve.address import Limits
from rgcn.system.formatting import shorten

ENCODER = Encoder(enc_hook=methodcaller("item"))  # NumPy scalars become Python numbers
# For each status: the error codes that clients may rely on, and its description in the OpenAPI document.
STATUSES = {
    400: ("bad_request", "The request is malformed."),
    401: ("unauthorized", "The token is missing or wrong."),
    403: ("wrong_host cross_site", "The server does not accept this host, or requests from another web site."),
    404: ("not_found unknown_model unknown_node unknown_relation unknown_class", "There is nothing of this name."),
    405: ("wrong_method", "The path takes other methods."),
    408: ("too_slow", "The body took too long to arrive."),
    409: ("wrong_task", "The model does not answer this kind of question."),
    413: ("too_large", "The body is too large."),
    415: ("wrong_content_type", "The body is not sent as JSON."),
    422: ("invalid ambiguous cannot_explain", "Something is missing, unknown, out of bounds, or ambiguous."),
    431: ("header_too_large", "The first line and the headers are too long."),
    500: ("failed", "The server failed."),
    503: ("too_busy took_too_long", "The server is busy: try again after the seconds in Retry-After."),
}
CODES = {code: status for status, (codes, _) in STATUSES.items() for code in codes.split()}
MAX_PROBLEMS, MAX_VALUE_LENGTH = 5, 60  # in one error message
EXAMPLE = "unknown node 'Swizerland'. Did you mean 'Switzerland'?"


class RequestSchema(BaseModel):
    """Base class of parameters and bodies. Unknown fields are errors, so that misspelled names are noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseSchema(Struct, forbid_unknown_fields=True, gc=False):
    """Base class of responses; a handler returns one, and `ENCODER` writes it."""


def six_digits(numbers: Iterable[float]) -> list[Any]:
    """Format numbers for JSON with six digits, the precision of float32 scores; NaN becomes null.

    >>> ENCODER.encode(six_digits([0.123456789, 1e-12]))
    b'[0.123457,1e-12]'
    """
    return [Raw(b"%.6g" % number) if number == number else None for number in numbers]


Split = Literal["train", "valid", "test"]
Score = Annotated[float, Meta(description="The model's raw score: higher is likelier.")]
Probability = Annotated[
    Annotated[float, Meta(ge=0, le=1)] | None,
    Meta(description="Calibrated on held-out data; null for known triples and for models that are not calibrated."),
]
NAME = (
    "The unique name: use it in requests. A name that takes more than 9,000 bytes in a URL is given as its beginning "
    "and a checksum, which requests accept too."
)


class Node(ResponseSchema):
    """A node of the graph."""

    name: Annotated[str, Meta(description=NAME)]
    title: Annotated[str, Meta(description="The display name: shortened if long, percent-encoding decoded.")]
    description: Annotated[str | None, Meta(description="A description, if the data set has one.")]
    kind: Annotated[
        Literal["iri", "literal", "blank", "name"],
        Meta(description="Kind of RDF term; `name` for a plain name, as in tables, that is not an IRI."),
    ]


class Relation(ResponseSchema):
    """A relation of the graph."""

    name: Annotated[str, Meta(description=NAME)]
    title: str


class Class(ResponseSchema):
    """A class of nodes."""

    name: Annotated[str, Meta(description=NAME)]
    title: str


class ErrorDetails(ResponseSchema):
    """What is wrong with a request."""

    code: Annotated[str, Meta(description="For programs.", examples=["unknown_node"])]
    message: Annotated[str, Meta(description="For people: what is wrong, and what to do.", examples=[EXAMPLE])]
    suggestions: Annotated[list[str], Meta(description="Similar names that exist.", examples=[["Switzerland"]])]


class Error(ResponseSchema):
    """The body of every response that is not a success."""

    error: ErrorDetails


class RequestError(Exception):
    """A request that is answered with an error.

    Args:
        code: A code of `STATUSES`, which decides the status.
        message: What is wrong, and what to do.
        suggestions: Similar names that exist.
        headers: Further headers of the response.
    """

    def __init__(
        self, code: str, message: str, suggestions: Iterable[str] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.suggestions = code, message, list(suggestions)
        self.status, self.headers = CODES[code], dict(headers or {})

    def response(self) -> Response:
        """Return the error as an HTTP response."""
        body = ENCODER.encode(Error(ErrorDetails(self.code, self.message, self.suggestions)))
        return Response(body, self.status, self.headers, "application/json")

    @classmethod
    def from_exception(cls, error: Exception) -> RequestError:
        """Convert an exception of the package; unexpected exceptions reveal nothing to the client."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, UnknownNameError):
            message = f"unknown {error.kind} {shortened(error.name)}.{error.hint}"
            return cls(f"unknown_{error.kind}", message, error.suggestions)
        if isinstance(error, AmbiguousNameError):
            return cls("ambiguous", str(error), error.names[:MAX_NAMES_SHOWN])
        if isinstance(error, RgcnError):
            return cls("invalid" if isinstance(error, DataError) else "bad_request", str(error))
        return cls("failed", "the server failed on this request; its log says why")


def retry_later(code: str, message: str) -> RequestError:
    """Return an error of a busy server, with the header that tells the client when to try again."""
    return RequestError(code, f"{message}: try again in a moment", headers={"Retry-After": "1"})


def validation_error(error: ValidationError, where: str) -> RequestError:
    """Convert pydantic's problems.

    Args:
        error: The problems.
        where: "parameter" or "field".
    """
    problems = error.errors(include_url=False)
    sentences = [_problem_message(problem, where) for problem in problems[:MAX_PROBLEMS]]
    more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
    return RequestError("invalid", "; ".join([*sentences, *more]))


def _problem_message(problem: Mapping[str, Any], where: str) -> str:
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', problem['msg'])}"
    place = ".".join(str(part)[:60] for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{place} is missing: this {where} is required"
    message: str = problem["msg"].removeprefix("Value error, ")
    value = problem.get("input")
    got = f" (got {shortened(value)})" if isinstance(value, (str, int, float)) else ""
    return f"{place}: {message}{got}" if place else message


def shortened(value: object) -> str:
    """Return the repr of a value for a message, cut to a maximum length.

    >>> shortened("x" * 1000) == "'" + "x" * 58 + "…"
    True
    """
    return shorten(repr(value), MAX_VALUE_LENGTH)


T = TypeVar("T")
# The keyword of JSON Schema and the message for each limit of a request.
BOUNDS = {
    "max_k": ("maximum", "at most {:,} here"),
    "max_name_length": ("maxLength", "at most {:,} characters here"),
    "max_items": ("maxItems", "at most {:,} entries here"),
}


class AtMost:
    """Mark a field whose upper bound is one of `Limits`.

    Validation finds the limits in its context, the OpenAPI document at `x-limit`.
    """

    def __init__(self, limit: str) -> None:
        self.limit = limit

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(schema), "x-limit": self.limit}

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        maximum = getattr(info.context or Limits(), self.limit)
        if (value if isinstance(value, int) else len(value)) > maximum:
            raise PydanticCustomError("too_much", "{words}", {"words": BOUNDS[self.limit][1].format(maximum)})
        return value


def _whole_number(value: Any, info: ValidationInfo) -> Any:
    """Read a number of a query string; pydantic would also accept "10.0", " 10" and "1_0" as ten."""
    if info.mode == "json" or not isinstance(value, str):
        return value
    if not (value.isascii() and value.removeprefix("-").isdigit()) or len(value) > 18:
        raise PydanticCustomError("whole_number", "a whole number is needed")
    return int(value)


Number = BeforeValidator(_whole_number)
# Bounds come before the validator that reads the text: after it they would be missing from the JSON schema.
Count = Annotated[int, Field(ge=1), AtMost("max_k"), Number]
Name = Annotated[str, Field(min_length=1), AtMost("max_name_length")]
NodeName = Annotated[Name, Field(description="A node: its name, title, or last part of its IRI, upper or lower case.")]
RelationName = Annotated[Name, Field(description="A relation: its name or its title.")]
Many = Annotated[list[T], Field(min_length=1), AtMost("max_items")]
