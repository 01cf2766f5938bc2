"""What the shapes of questions and of answers share; each group of endpoints has its own in its own file.

OpenAPI is made from these. The bytes of answers are written by hand, for speed; the tests hold them to their shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from rgcn.serve.limits import AtMost

# -- what is asked ---------------------------------------------------------------------------------------


def _plain_number(value: Any) -> Any:
    """Digits only: pydantic would also take "10.0", " 10" and "1_0" for ten."""
    if isinstance(value, str):
        if not (value.isascii() and value.removeprefix("-").isdigit()) or len(value) > 18:
            raise PydanticCustomError("whole_number", "a whole number is needed")
        return int(value)
    return value


class Asked(BaseModel):
    """Base of all parameters and bodies: what is not known is refused, so that no misspelt name goes unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Name = Annotated[str, Field(min_length=1), AtMost("name")]
Number = BeforeValidator(_plain_number)
# Bounds stand before what reads the text: after it they would not be in the JSON schema.
Count = Annotated[int, Field(ge=1), AtMost("k"), Number]

NODE_WORDS = "A node: its name, its title, or the last part of its IRI, in any case."
RELATION_WORDS = "A relation: its name or its title."

# -- what is answered ------------------------------------------------------------------------------------


class Answered(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


Split = Literal["train", "valid", "test"]
Score = Annotated[float, Field(description="What the model computes: higher is likelier.")]
Probability = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None,
    Field(description="The score, calibrated on held-out data; null where there was nothing to calibrate on."),
]


class Scored(Answered):
    score: Score
    probability: Probability


class Node(Answered):
    """A node of the graph."""

    name: str = Field(description="What tells it apart: ask with this.")
    title: str = Field(description="What people call it.")
    description: str | None = Field(description="What it is, where the data set says so.")
    kind: Literal["iri", "literal", "blank"]


class Relation(Answered):
    name: str
    title: str


class Class(Answered):
    name: str
    title: str


class ErrorDetails(Answered):
    code: str = Field(description="For programs.", examples=["unknown_node"])
    message: str = Field(
        description="For people: what is wrong, and what would do.",
        examples=["unknown node 'Swizerland'. Did you mean 'Switzerland'?"],
    )
    suggestions: list[str] = Field(description="Names that may have been meant.", examples=[["Switzerland"]])


class Error(Answered):
    """Every request that is not answered gets this."""

    error: ErrorDetails
