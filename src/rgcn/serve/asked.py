"""What may be asked: the parameters and bodies of every request, with their bounds. OpenAPI is made from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from rgcn.explain.explaining import Method
from rgcn.serve.limits import AtMost


def _plain_number(value: Any) -> Any:
    """Digits only: pydantic would also take "10.0", " 10" and "1_0" for ten."""
    if isinstance(value, str):
        if not (value.isascii() and value.removeprefix("-").isdigit()) or len(value) > 18:
            raise PydanticCustomError("whole_number", "a whole number is needed")
        return int(value)
    return value


class Asked(BaseModel):
    """Base of all: what is not known is refused, so that a misspelt parameter cannot go unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Name = Annotated[str, Field(min_length=1), AtMost("name")]
Number = BeforeValidator(_plain_number)
# Bounds stand before what reads the text: after it they would not be in the JSON schema.
Count = Annotated[int, Field(ge=1), AtMost("k"), Number]
Known = Literal["mark", "drop"]

NODE_WORDS = "A node: its name, its title, or the last part of its IRI, in any case."
RELATION_WORDS = "A relation: its name or its title."
CLASS_WORDS = "A class: its name or its title. Without it, the predicted one."
KNOWN_WORDS = "Triples the graph already has: `mark` them, or `drop` them from the answer."
K_WORDS = "How many answers, best first."


class SearchQuery(Asked):
    q: Annotated[str, AtMost("name")] = Field(description="A part of a name or title. An empty one finds nothing.")
    limit: Count = Field(10, description="How many nodes at most.")


class NeighborsQuery(Asked):
    node: Name = Field(description=NODE_WORDS)
    limit: Count = Field(50, description="How many facts at most.")
    offset: Annotated[int, Field(ge=0, le=10**9), Number] = Field(0, description="How many facts to leave out first.")


class ClassQuery(Asked):
    node: Name = Field(description=NODE_WORDS)


class ClassesBody(Asked):
    """Nodes whose classes are asked for."""

    nodes: Annotated[list[Name], Field(min_length=1), AtMost("items")] = Field(description="Nodes, as in `node`.")


def _one_end(subject: str | None, object: str | None) -> None:
    if (subject is None) == (object is None):
        given = "neither" if subject is None else "both"
        words = "give either subject or object, the other is what is asked for; {given} was given"
        raise PydanticCustomError("one_end", words, {"given": given})


class LinksQuery(Asked):
    relation: Name = Field(description=RELATION_WORDS)
    subject: Name | None = Field(None, description="Asks for objects of (subject, relation, ?). " + NODE_WORDS)
    object: Name | None = Field(None, description="Asks for subjects of (?, relation, object). " + NODE_WORDS)
    k: Count = Field(10, description=K_WORDS)
    known: Known = Field("mark", description=KNOWN_WORDS)

    @model_validator(mode="after")
    def _check(self) -> LinksQuery:
        _one_end(self.subject, self.object)
        return self


class LinkQuestion(Asked):
    """A triple with one end missing: give a subject to ask for objects, an object to ask for subjects."""

    relation: Name = Field(description=RELATION_WORDS)
    subject: Name | None = Field(None, description=NODE_WORDS)
    object: Name | None = Field(None, description=NODE_WORDS)

    @model_validator(mode="after")
    def _check(self) -> LinkQuestion:
        _one_end(self.subject, self.object)
        return self


class LinksBody(Asked):
    """Triples with one end missing each."""

    queries: Annotated[list[LinkQuestion], Field(min_length=1), AtMost("items")]
    k: Annotated[int, Field(ge=1), AtMost("k")] = Field(10, description=K_WORDS + " For each question.")
    known: Known = Field("mark", description=KNOWN_WORDS)


class TripleAsked(Asked):
    """A triple by names."""

    subject: Name = Field(description=NODE_WORDS)
    relation: Name = Field(description=RELATION_WORDS)
    object: Name = Field(description=NODE_WORDS)


class ScoreBody(Asked):
    """Triples to be scored."""

    triples: Annotated[list[TripleAsked], Field(min_length=1), AtMost("items")]


class ExplainQuery(Asked):
    node: Name | None = Field(None, description="Explain this node's class. " + NODE_WORDS)
    class_: Name | None = Field(None, alias="class", description=CLASS_WORDS)
    subject: Name | None = Field(None, description="With relation and object: explain this triple. " + NODE_WORDS)
    relation: Name | None = Field(None, description=RELATION_WORDS)
    object: Name | None = Field(None, description=NODE_WORDS)
    method: Method = Field("integrated-gradients", description="How importance is found.")
    edges: Annotated[int, Field(ge=1, le=100), Number] = Field(10, description="How many triples to name.")

    @model_validator(mode="after")
    def _check(self) -> ExplainQuery:
        of_triple = (self.subject, self.relation, self.object)
        about_node = self.node is not None and of_triple == (None, None, None)
        about_triple = self.node is None and self.class_ is None and None not in of_triple
        if not (about_node or about_triple):
            raise PydanticCustomError(
                "one_question", "ask about a node (node, and class if you like) or a triple (subject, relation, object)"
            )
        return self
