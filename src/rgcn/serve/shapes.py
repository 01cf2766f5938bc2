"""What may be asked and what is answered: each shape is stated once, and reading, bytes and OpenAPI follow from it.

Questions are pydantic's, which says every problem in words; answers are msgspec's, which writes them in microseconds.
These are what all groups of endpoints share; each has its own beside its handlers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.json import Encoder
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic import ValidationInfo as Info
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rgcn.serve.limits import Limits

# -- what is asked ---------------------------------------------------------------------------------------

T = TypeVar("T")
# How a bound of a kind of value is called in JSON Schema, and how it is said.
BOUNDS = {
    "integer": ("maximum", "at most {:,} here"),
    "string": ("maxLength", "at most {:,} characters here"),
    "array": ("maxItems", "at most {:,} entries here"),
}


class QuestionShape(BaseModel):
    """Base of all parameters and bodies: what is not known is refused, so that no misspelt name goes unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AtMost:
    """Marks a field whose upper bound is one of `Limits`, known only once the server starts.

    Validation takes the limits from its context; the OpenAPI document puts the number where `x-limit` stands.
    """

    def __init__(self, limit: str) -> None:
        self.limit = limit

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "x-limit": self.limit}

    def _check(self, value: Any, info: Info) -> Any:
        most = getattr(info.context or Limits(), self.limit)
        if (value if isinstance(value, int) else len(value)) > most:
            kind = "integer" if isinstance(value, int) else "string" if isinstance(value, str) else "array"
            raise PydanticCustomError("too_much", "{words}", {"words": BOUNDS[kind][1].format(most)})
        return value


def _plain_number(value: Any, info: Info) -> Any:
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
NODE_WORDS = "A node: its name, its title, or the last part of its IRI, in any case."
NodeName = Annotated[Name, Field(description=NODE_WORDS)]
RelationName = Annotated[Name, Field(description="A relation: its name or its title.")]
Many = Annotated[list[T], Field(min_length=1), AtMost("items")]

# -- what is answered ------------------------------------------------------------------------------------

WRITER = Encoder()


class AnswerShape(Struct, forbid_unknown_fields=True):
    """Base of all answers; a handler gives one back, and `WRITER` writes it."""


def six_digits(number: float) -> float:
    """What scores of float32 are good for.

    >>> six_digits(0.123456789), six_digits(1e-12)
    (0.123457, 1e-12)
    """
    return float(f"{number:.6g}")


Split = Literal["train", "valid", "test"]
Score = Annotated[float, Meta(description="What the model computes: higher is likelier.")]
Probability = Annotated[
    Annotated[float, Meta(ge=0, le=1)] | None,
    Meta(description="The score, calibrated on held-out data; null where there was nothing to calibrate on."),
]


class Node(AnswerShape, frozen=True, gc=False):
    """A node of the graph."""

    name: Annotated[str, Meta(description="What tells it apart: ask with this.")]
    title: Annotated[str, Meta(description="What people call it.")]
    description: Annotated[str | None, Meta(description="What it is, where the data set says so.")]
    kind: Literal["iri", "literal", "blank"]


class Relation(AnswerShape, frozen=True, gc=False):
    name: str
    title: str


class Class(AnswerShape, frozen=True, gc=False):
    name: str
    title: str
