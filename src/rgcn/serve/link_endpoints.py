"""/links and /score: of a model that answers for links."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, NamedTuple, get_args

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rgcn.answers.links import Known, answer_links, triple_probabilities
from rgcn.errors import DataError
from rgcn.known import KnownTriples
from rgcn.scoring import Questions
from rgcn.serve.about import FEW, Shown
from rgcn.serve.batching import Lane
from rgcn.serve.desk import Desk
from rgcn.serve.endpoints import Endpoints, Example, OnStep, endpoint
from rgcn.serve.limits import AtMost
from rgcn.serve.refusals import Refusal
from rgcn.serve.route import Answer
from rgcn.serve.served import Served
from rgcn.serve.shapes import NODE_WORDS, RELATION_WORDS, Answered, Asked, Count, Name, Node, Relation, Scored, Split
from rgcn.serve.writing import BOOL, SPLIT_BY_NUMBER, listed, number

# Questions for so many answers go together, this many at a time: one for a thousand must not hold up those for ten.
SIZES = ((16, 64), (128, 32), (1 << 30, 8))
# Products with this many rows take longer than one with twelve: BLAS has no good kernel for them (measured, MKL).
AWKWARD, FILLED_UP = range(3, 12), 12
TRIPLES_AT_ONCE = 4096

K_WORDS = "How many answers, best first."
KNOWN_WORDS = "Answers that are training triples: `mark` them, or `drop` them."
SPLIT_WORDS = "What the graph has the triple for, where it has splits: `valid` and `test` were kept from the model."


class LinkQuestion(Asked):
    """A triple with one end missing: give a subject to ask for objects, an object to ask for subjects."""

    relation: Name = Field(description=RELATION_WORDS)
    subject: Name | None = Field(None, description="Asks for objects of (subject, relation, ?). " + NODE_WORDS)
    object: Name | None = Field(None, description="Asks for subjects of (?, relation, object). " + NODE_WORDS)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.subject is None) == (self.object is None):
            given = "neither" if self.subject is None else "both"
            words = "give either subject or object, the other is what is asked for; {given} was given"
            raise PydanticCustomError("one_end", words, {"given": given})
        return self


class LinksQuery(LinkQuestion):
    k: Count = Field(10, description=K_WORDS)
    known: Known = Field("mark", description=KNOWN_WORDS)


class LinksBody(Asked):
    """Triples with one end missing each."""

    queries: Annotated[list[LinkQuestion], Field(min_length=1), AtMost("items")]
    k: Annotated[int, Field(ge=1), AtMost("k")] = Field(10, description=K_WORDS + " For each question.")
    known: Known = Field("mark", description=KNOWN_WORDS)


class NamedTriple(Asked):
    """A triple by names."""

    subject: Name = Field(description=NODE_WORDS)
    relation: Name = Field(description=RELATION_WORDS)
    object: Name = Field(description=NODE_WORDS)


class ScoreBody(Asked):
    """Triples to be scored."""

    triples: Annotated[list[NamedTriple], Field(min_length=1), AtMost("items")]


class LinkQuery(Answered):
    """The question as it was understood; what was asked for is null."""

    subject: Node | None
    relation: Relation
    object: Node | None


class ScoredLink(Scored):
    known: bool = Field(description="Whether it is a training triple.")
    split: Split | None = Field(description=SPLIT_WORDS)


class Link(ScoredLink):
    node: Node = Field(description="The answer.")


class LinkAnswer(Answered):
    query: LinkQuery
    links: list[Link] = Field(description="Best first.")


class LinkAnswers(Answered):
    answers: list[LinkAnswer]


class ScoredTriple(ScoredLink):
    subject: Node
    relation: Relation
    object: Node


class Scores(Answered):
    triples: list[ScoredTriple]


class LinkAsked(NamedTuple):
    """(given, relation, ?) where objects are asked for, else (?, relation, given)."""

    given: int
    relation: int
    for_objects: bool
    k: int


Triple = tuple[int, int, int]


class LinkEndpoints(Endpoints):
    """Questions that wait together are answered by one product; what they are made of is computed when loading."""

    tag = "links"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        on_step("encoding the graph")
        problem = served.opened.scorer().problem()
        if problem is not None:
            raise DataError(f"{served.opened.path}: {problem}")
        self._splits = KnownTriples.of_graph(served.graph)
        self._lanes = {
            (known, size): Lane((served.name, "links"), partial(self.answer, known=known), most)
            for known in get_args(Known)
            for size, most in SIZES
        }
        self._scores = Lane((served.name, "scores"), self.scored, TRIPLES_AT_ONCE)
        for lane in self._lanes.values():  # what is made at the first full batch is made now, its memory too
            lane.answer([LinkAsked(0, 0, number % 2 == 0, 1) for number in range(lane.most)])
        self.scored([(0, 0, 0)])

    def lane(self, known: Known, k: int) -> Lane:
        """The lane for questions of this size."""
        return self._lanes[known, next(size for size, _ in SIZES if k <= size)]

    @endpoint("GET", "links", LinksQuery, LinkAnswer)
    async def predict_links(self, desk: Desk, query: LinksQuery) -> Answer:
        """The most likely missing end of a triple: of (subject, relation, ?) or (?, relation, object)."""
        return Answer((await desk.ask(self.lane(query.known, query.k), [self._asked(query, query.k)]))[0])

    @endpoint("POST", "links", LinksBody, LinkAnswers)
    async def predict_many_links(self, desk: Desk, body: LinksBody) -> Answer:
        """The most likely missing ends of many triples."""
        rows, most = len(body.queries) * min(body.k, self.served.graph.num_nodes), desk.limits.links
        if rows > most:
            words = f"{len(body.queries):,} queries with k = {body.k:,} are {rows:,} links; one answer holds at most"
            raise Refusal("invalid", f"{words} {most:,}: ask in several requests")
        asked = await desk.resolved(body.queries, lambda query: self._asked(query, body.k))
        return Answer(b'{"answers":' + listed(await desk.ask(self.lane(body.known, body.k), asked)) + b"}")

    @endpoint("POST", "score", ScoreBody, Scores)
    async def score(self, desk: Desk, body: ScoreBody) -> Answer:
        """How given triples score, and whether the graph has them."""
        triples = await desk.resolved(body.triples, self._triple)
        return Answer(b'{"triples":' + listed(await desk.ask(self._scores, triples)) + b"}")

    def examples(self, shown: Shown) -> dict[str, Example]:
        triple = {key: shown.words[key] for key in ("subject", "relation", "object")}
        ends = {key: triple[key] for key in ("subject", "relation")}
        links = json.loads(self.answer([LinkAsked(shown.node, shown.relation, True, FEW)], "mark")[0])
        scored = json.loads(self.scored([(shown.node, shown.relation, shown.object)])[0])
        return {
            "GET links": ({**ends, "k": FEW}, links),
            "POST links": ({"queries": [ends], "k": FEW}, {"answers": [links]}),
            "POST score": ({"triples": [triple]}, {"triples": [scored]}),
        }

    # -- names to numbers, on the event loop -------------------------------------------------------------

    def _asked(self, query: LinkQuestion, k: int) -> LinkAsked:
        names, given = self.served.names, query.object if query.subject is None else query.subject
        assert given is not None
        return LinkAsked(names.node(given), names.relation(query.relation), query.subject is not None, k)

    def _triple(self, named: NamedTriple) -> Triple:
        names = self.served.names
        return names.node(named.subject), names.relation(named.relation), names.node(named.object)

    # -- in the model's thread ---------------------------------------------------------------------------

    def answer(self, asked: list[LinkAsked], known: Known) -> list[bytes]:
        """Questions → the JSON of their answers."""
        filled = [*asked, *[asked[0]] * (FILLED_UP - len(asked))] if len(asked) in AWKWARD else asked
        given, relation, objects, k = zip(*filled, strict=True)
        questions = Questions(torch.tensor(given), torch.tensor(relation), torch.tensor(objects))
        found = answer_links(self.served.opened, questions, max(k), known)
        own, is_object = questions.node[:, None], questions.asks_objects()[:, None]
        subject, object_ = torch.where(is_object, own, found.node), torch.where(is_object, found.node, own)
        triples = torch.stack([subject, questions.relation[:, None].expand_as(subject), object_], dim=-1)
        splits = self._splits.split_of(triples).tolist()
        nodes, scores, marks = found.node.tolist(), found.score.tolist(), found.known.tolist()
        shares = (
            [[None] * found.node.shape[1]] * len(nodes) if found.probability is None else found.probability.tolist()
        )
        return list(map(self._written, asked, nodes, scores, shares, marks, splits))  # without what only fills up

    def _written(
        self,
        asked: LinkAsked,
        nodes: list[int],
        scores: list[float],
        shares: Sequence[float | None],
        known: list[bool],
        splits: list[int],
    ) -> bytes:
        piece, given = self.served.pieces.node, self.served.pieces.node(asked.given)
        links = [
            b'{"node":%b,"score":%.6g,"probability":%b,"known":%b,"split":%b}'
            % (piece(node), score, number(share), BOOL[is_known], SPLIT_BY_NUMBER[split])
            for node, score, share, is_known, split in zip(
                nodes[: asked.k], scores, shares, known, splits, strict=False
            )
            if node >= 0
        ]
        return b'{"query":{"subject":%b,"relation":%b,"object":%b},"links":[%b]}' % (
            given if asked.for_objects else b"null",
            self.served.pieces.relations[asked.relation],
            b"null" if asked.for_objects else given,
            b",".join(links),
        )

    def scored(self, triples: list[Triple]) -> list[bytes]:
        """Triples → the JSON of each with its score."""
        opened, ids = self.served.opened, torch.tensor(triples)
        with torch.no_grad():
            scores = opened.scorer().triple_scores(ids).cpu()
            found = triple_probabilities(opened, ids, scores)
        shares = [None] * len(triples) if found is None else found.tolist()
        known = KnownTriples.of_graph(self.served.graph, "train").contains(ids).tolist()
        node, relations = self.served.pieces.node, self.served.pieces.relations
        return [
            b'{"subject":%b,"relation":%b,"object":%b,"score":%.6g,"probability":%b,"known":%b,"split":%b}'
            % (node(s), relations[r], node(o), score, number(share), BOOL[is_known], SPLIT_BY_NUMBER[split])
            for (s, r, o), score, share, is_known, split in zip(
                triples, scores.tolist(), shares, known, self._splits.split_of(ids).tolist(), strict=True
            )
        ]
