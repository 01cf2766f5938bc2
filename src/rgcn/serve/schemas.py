"""What may be asked and what is answered: each shape is stated once, and reading, bytes and OpenAPI follow from it.

Questions are pydantic's, which says every problem in words; answers are msgspec's, which writes them in microseconds.
These are what all groups of endpoints share; each has its own beside its handlers.
"""

from collections.abc import Iterable
from operator import methodcaller
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct
from msgspec.json import Encoder
from pydantic import BaseModel, ConfigDict

WRITER = Encoder(enc_hook=methodcaller("item"))  # of figures that numpy has computed


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
