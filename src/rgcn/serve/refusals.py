"""What is answered when a request cannot be: one shape for every refusal, with words that help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rgcn.errors import MOST_MEANT, AmbiguousNameError, DataError, RgcnError, UnknownNameError
from rgcn.serve.shapes import WRITER, AnswerShape

# The codes a client may rely on, by the status they come with.
BY_STATUS = {
    400: ["bad_request"],
    401: ["unauthorized"],
    403: ["wrong_host", "cross_site"],
    404: ["not_found", "unknown_model", "unknown_node", "unknown_relation", "unknown_class"],
    405: ["wrong_method"],
    408: ["too_slow"],
    409: ["wrong_task"],
    413: ["too_large"],
    415: ["wrong_content_type"],
    422: ["invalid", "ambiguous", "cannot_explain"],
    431: ["header_too_large"],
    500: ["failed"],
    503: ["too_busy", "took_too_long"],
}
CODES = {code: status for status, codes in BY_STATUS.items() for code in codes}
SHOWN = 5
_MESSAGE = Meta(
    description="For people: what is wrong, and what would do.",
    examples=["unknown node 'Swizerland'. Did you mean 'Switzerland'?"],
)


class ErrorDetails(AnswerShape):
    code: Annotated[str, Meta(description="For programs.", examples=["unknown_node"])]
    message: Annotated[str, _MESSAGE]
    suggestions: Annotated[list[str], Meta(description="Names that may have been meant.", examples=[["Switzerland"]])]


class Error(AnswerShape):
    """Every request that is not answered gets this."""

    error: ErrorDetails


class Refusal(Exception):  # noqa: N818 - not an error of ours: an answer
    """A request that is answered with an error.

    code         one of `CODES`, for programs
    message      a sentence for people: what is wrong and what would do
    suggestions  names that may have been meant
    headers      further ones that the status asks for
    """

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


def invalid(problems: Sequence[Mapping[str, Any]], where: str) -> Refusal:
    """From pydantic's problems: which field, and what would do.

    where  "parameter" or "field": what they are problems of
    """
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
