"""What is answered when a request cannot be: one shape for every refusal, with words that help."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The codes a client may rely on, with the status each comes with.
CODES = {
    "bad_request": 400,
    "unauthorized": 401,
    "wrong_host": 403,
    "cross_site": 403,
    "not_found": 404,
    "unknown_model": 404,
    "unknown_node": 404,
    "unknown_relation": 404,
    "unknown_class": 404,
    "wrong_method": 405,
    "too_slow": 408,
    "wrong_task": 409,
    "too_large": 413,
    "wrong_content_type": 415,
    "invalid": 422,
    "ambiguous": 422,
    "cannot_explain": 422,
    "header_too_large": 431,
    "failed": 500,
    "too_busy": 503,
    "took_too_long": 503,
}
RETRY_AFTER = "1"


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
        self.status = CODES[code]
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """{"error": {"code", "message", "suggestions"}}; ASCII, so that nothing in a name can break it."""
        error = {"code": self.code, "message": self.message, "suggestions": self.suggestions}
        return json.dumps({"error": error}).encode()


def too_busy(what: str) -> Refusal:
    return Refusal("too_busy", f"{what}: try again in a moment", headers={"Retry-After": RETRY_AFTER})


def took_too_long(seconds: float) -> Refusal:
    message = f"the answer took longer than {seconds:g} seconds and is no longer waited for: ask for less, or later"
    return Refusal("took_too_long", message, headers={"Retry-After": RETRY_AFTER})


def invalid(problems: Sequence[Mapping[str, Any]], where: str) -> Refusal:
    """From pydantic's problems: which field, and what would do.

    where: "query" or "body", the place that the fields are in
    """
    shown = [_said(problem, where) for problem in problems[:5]]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return Refusal("invalid", "; ".join(shown))


def _said(problem: Mapping[str, Any], where: str) -> str:
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', problem['msg'])}"
    place = ".".join(str(part)[:60] for part in problem["loc"])
    words = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{place} is missing: this {'parameter' if where == 'query' else 'field'} is needed"
    given = problem.get("input")
    seen = f" (got {shortened(given)})" if isinstance(given, (str, int, float, bool)) and place else ""
    return f"{place}: {words}{seen}" if place else words


def shortened(value: object, most: int = 60) -> str:
    """A value for a message, never longer than a line.

    >>> shortened("x" * 100, 8)
    "'xxxx…"
    """
    words = repr(value[: most * 2] if isinstance(value, str) else value)
    return words if len(words) <= most else words[: most - 3] + "…"
