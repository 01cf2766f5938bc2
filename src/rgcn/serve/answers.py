"""The shape of every answer. The bytes are written by hand, for speed; the tests hold them to these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answered(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


Split = Literal["train", "valid", "test"]


class Node(Answered):
    """A node of the graph."""

    name: str = Field(description="What tells it apart: ask with this.")
    title: str = Field(description="What people call it.")
    description: str | None = Field(description="What it is, where the data set says so.")
    kind: Literal["iri", "literal", "blank"]


class NodeWithDegree(Node):
    """A node, and the number of triples it takes part in."""

    degree: int


class Relation(Answered):
    name: str
    title: str


class Class(Answered):
    name: str
    title: str


class RelationWithCount(Relation):
    count: int = Field(description="Triples of this relation in the graph.")


class ClassWithCount(Class):
    count: int = Field(description="Nodes labelled with this class.")


class Health(Answered):
    status: Literal["ok"]
    version: str
    uptime_s: float
    models: list[str]


class ModelLine(Answered):
    """A served model in a line."""

    name: str
    task: Literal["node-classification", "link-prediction"]
    model: str
    dataset: str
    nodes: int
    relations: int
    triples: int
    headline: str = Field(description="The figure it is judged by, in words.")


class Models(Answered):
    models: list[ModelLine]


class Counts(Answered):
    nodes: int
    relations: int
    triples: int
    classes: int


class Examples(Answered):
    """Something to begin with."""

    nodes: list[Node]
    relation: str | None


class ModelDetails(Answered):
    name: str
    task: Literal["node-classification", "link-prediction"]
    model: str
    dataset: str
    seed: int | None
    created: str | None
    metrics: dict[str, dict[str, Any]]
    counts: Counts
    relations: list[RelationWithCount]
    classes: list[ClassWithCount]
    calibration: dict[str, Any] = Field(description="How scores become probabilities, and how well that works.")
    explain_methods: list[str] = Field(description="Empty where the model looks at no neighbors.")
    examples: Examples


class Found(Answered):
    query: str
    nodes: list[NodeWithDegree]


class Fact(Answered):
    """A triple seen from a node."""

    relation: Relation
    node: Node = Field(description="The other end.")
    outgoing: bool = Field(description="Whether the node asked about is the subject.")
    split: Split | None = Field(description="What the triple was used for, where the graph has splits.")


class Neighbors(Answered):
    node: Node
    degree: int = Field(description="Triples the node takes part in.")
    total: int = Field(description="Facts there are to page through.")
    facts: list[Fact]


class ClassProbability(Answered):
    class_: Class = Field(alias="class")
    probability: float = Field(ge=0, le=1)


class ClassAnswer(Answered):
    """The class a node most likely has."""

    node: Node
    class_: Class = Field(alias="class")
    probability: float = Field(ge=0, le=1)
    probabilities: list[ClassProbability] = Field(description="Every class, most likely first.")
    label: Class | None = Field(description="The class the data give it, where they do.")
    label_split: Split | None
    calibrated: bool = Field(description="Whether probabilities were fitted on held-out data.")


class ClassAnswers(Answered):
    predictions: list[ClassAnswer]


class LinkQuery(Answered):
    """The question as it was understood; what was asked for is null."""

    subject: Node | None
    relation: Relation
    object: Node | None


class Link(Answered):
    node: Node = Field(description="The answer.")
    score: float = Field(ge=0, le=1, description="The raw score between 0 and 1, through the logistic function.")
    raw_score: float = Field(description="What the model computes.")
    probability: float = Field(ge=0, le=1)
    known: bool = Field(description="Whether the graph already has the triple.")
    split: Split | None


class LinkAnswer(Answered):
    query: LinkQuery
    calibrated: bool
    links: list[Link] = Field(description="Best first.")


class LinkAnswers(Answered):
    answers: list[LinkAnswer]


class ScoredTriple(Answered):
    subject: Node
    relation: Relation
    object: Node
    score: float = Field(ge=0, le=1, description="The raw score between 0 and 1, through the logistic function.")
    raw_score: float = Field(description="What the model computes.")
    probability: float = Field(ge=0, le=1)
    known: bool


class Scores(Answered):
    calibrated: bool
    triples: list[ScoredTriple]


class Open(BaseModel):
    """A part of an explanation; it may say more than is declared here."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class ExplainedQuestion(Open):
    """About a node's class, or about a triple."""

    kind: Literal["class", "link"]
    node: Node | None = None
    class_: Class | None = Field(None, alias="class")
    subject: Node | None = None
    relation: Relation | None = None
    object: Node | None = None


class ExplainedEdge(Open):
    """A triple and what it did."""

    subject: Node
    relation: Relation
    object: Node
    importance: float = Field(description="Positive where it speaks for the answer.")
    share: float = Field(description="Of the importance of all triples in reach, signs left aside.")
    hop: int = Field(description="1 where it touches an asked node, 2 where it touches a neighbor.")
    itself: bool = Field(description="Whether it is the triple that was asked about.")


class ExplainedNeighbor(Open):
    node: Node
    importance: float
    share: float


class Step(Open):
    subject: Node
    relation: Relation
    object: Node
    forward: bool


class ExplainedPath(Open):
    text: str = Field(description="The path as a sentence: A —worksAt→ B —partOf→ C.")
    importance: float
    steps: list[Step]


class Effect(Open):
    """How much the answer changes for the named triples, and for as many drawn at random."""

    named: float
    random: float


class Fidelity(Open):
    """How far the explanation can be believed."""

    edges: int
    draws: int
    without: Effect = Field(description="When these triples go.")
    only: Effect = Field(description="When only these triples stay.")
    words: str


class Explained(Open):
    """Why the model answered so: the triples that mattered, and how far that can be believed."""

    question: ExplainedQuestion
    method: str
    probability: float = Field(ge=0, le=1)
    score: float = Field(description="What the model computes, before it is made a probability.")
    own_share: float | None = Field(description="How much comes from the node itself rather than from triples.")
    edges: list[ExplainedEdge] = Field(description="Triples with their importance, most important first.")
    neighbors: list[ExplainedNeighbor]
    paths: list[ExplainedPath]
    fidelity: Fidelity
    considered: int = Field(description="Triples within reach of the answer.")
    svg: str = Field(description="The explanation drawn, as an <svg> element.")


class ErrorDetails(Answered):
    code: str = Field(description="For programs: unknown_node, invalid, too_busy, ...")
    message: str = Field(description="For people: what is wrong, and what would do.")
    suggestions: list[str] = Field(description="Names that may have been meant.")


class Error(Answered):
    """Every request that is not answered gets this."""

    error: ErrorDetails
