"""/links and /score: of a model that answers for links."""

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Annotated, Any, NamedTuple, get_args

import torch
from msgspec import Meta
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.links.calibration import Calibration
from rgcn.links.top_k import Known, answer_links, rate_triples
from rgcn.nn.scorer import Questions, Scorer
from rgcn.predict.questions import notes_of
from rgcn.sampling.known_triples import KnownTriples, split_of
from rgcn.serve import schemas
from rgcn.serve.batching import Desk, Lane
from rgcn.serve.graph_endpoints import FEW
from rgcn.serve.schemas import AnswerShape, Many, Node, NodeName, Probability, QuestionShape, Relation, RelationName
from rgcn.serve.served_model import Endpoints, Example, OnStep, Served, Shown, endpoint

# Questions for so many answers go together, this part of a batch at a time: one for a thousand must not hold up those
# for ten. How many a batch has, the scorer says where questions are dear (`Scorer.questions_at_once`).
PARTS = ((16, 1), (128, 2), (1 << 30, 8))
# Of a model that asks anew for each known answer it shows, a question counts as so many.
WITH_KNOWN = 8
QUESTIONS_AT_ONCE, TRIPLES_AT_ONCE, SCORES_AT_ONCE = 64, 4096, 1 << 24
# Products with this many rows take longer than one with twelve: BLAS has no good kernel for them (measured, MKL).
AWKWARD, FILLED_UP = range(3, 12), 12
SPLIT_OF: tuple[Any, ...] = (*SPLITS, None)  # so that -1 is no split

K = Annotated[schemas.Count, Field(description="How many answers, best first; to each question.")]
MarkOrDrop = Annotated[Known, Field(description="Answers that are training triples: `mark` them, or `drop` them.")]


class MissingEnd(QuestionShape):
    """A triple with one end missing: give a subject to ask for objects, an object to ask for subjects."""

    relation: RelationName
    subject: NodeName | None = Field(None, description="Asks for objects of (subject, relation, ?).")
    object: NodeName | None = Field(None, description="Asks for subjects of (?, relation, object).")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.subject is None) == (self.object is None):
            given = "neither" if self.subject is None else "both"
            words = "give either subject or object, the other is what is asked for; {given} was given"
            raise PydanticCustomError("one_end", words, {"given": given})
        return self


class LinksQuery(MissingEnd):
    k: K = 10
    known: MarkOrDrop = "mark"


class LinksBody(QuestionShape):
    """Triples with one end missing each."""

    queries: Many[MissingEnd]
    k: K = 10
    known: MarkOrDrop = "mark"


class NamedTriple(QuestionShape):
    """A triple by names."""

    subject: NodeName
    relation: RelationName
    object: NodeName


class ScoreBody(QuestionShape):
    """Triples to be scored."""

    triples: Many[NamedTriple]


IsKnown = Annotated[bool, Meta(description="Whether it is a training triple.")]
SplitOfTriple = Annotated[
    schemas.Split | None,
    Meta(description="What the graph has the triple for, where it has splits: the model saw no `valid` and `test`."),
]


class UnderstoodQuery(AnswerShape):
    """The question as it was understood; what was asked for is null."""

    subject: Node | None
    relation: Relation
    object: Node | None


class Link(AnswerShape):
    node: Annotated[Node, Meta(description="The answer.")]
    score: schemas.Score
    probability: Probability
    known: IsKnown
    split: SplitOfTriple


class LinkAnswer(AnswerShape):
    query: UnderstoodQuery
    links: Annotated[list[Link], Meta(description="Best first.")]
    note: Annotated[
        str | None,
        Meta(description="What is to be said of the question: it makes no sense, say, or nothing is missing."),
    ]


class LinkAnswerList(AnswerShape):
    answers: list[LinkAnswer]


class TripleScore(AnswerShape):
    subject: Node
    relation: Relation
    object: Node
    score: schemas.Score
    probability: Probability
    known: IsKnown
    split: SplitOfTriple


class Scores(AnswerShape):
    triples: list[TripleScore]


class LinkAsked(NamedTuple):
    """(given, relation, ?) where objects are asked for, else (?, relation, given)."""

    given: int
    relation: int
    for_objects: bool
    k: int


Triple = tuple[int, int, int]
Rated = tuple[Any, Any, bool, Any]


class ServedLinks:
    """What every answer needs of a served model, looked up once (`AnsweringModel`)."""

    def __init__(self, served: Served, scorer: Scorer) -> None:
        self._served, self.graph_, self.new_nodes = served, served.graph, served.opened.new_nodes
        self.scorer = lambda: scorer

    @property
    def calibration_(self) -> Calibration:
        return self._served.calibration


class LinkEndpoints(Endpoints):
    """Questions that wait together are answered by one product; what they are made of is computed when loading."""

    tag = "links"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        on_step("encoding the graph")
        self._scorer = served.opened.scorer()
        problem = self._scorer.problem()
        if problem is not None:
            raise DataError(f"{served.opened.path}: {problem}")
        self._model: Any = ServedLinks(served, self._scorer)
        at_once = self._scorer.questions_at_once
        product = max(1, min(QUESTIONS_AT_ONCE, SCORES_AT_ONCE // served.graph.num_nodes))
        self._awkward = AWKWARD if at_once is None else ()
        key, most = (served.name, "links"), at_once or product
        dear = {"mark": WITH_KNOWN if self._scorer.hides else 1, "drop": 1}
        self._lanes = {
            (known, size): Lane(key, partial(self.answer, known=known), max(1, most // (part * dear[known])))
            for known in get_args(Known)
            for size, part in PARTS
        }
        self._scores = Lane((served.name, "scores"), self.scored, at_once or TRIPLES_AT_ONCE)
        if served.is_large:  # who asks first waits a second or two; who starts it does not wait for all
            return
        # What is made at the first full batch is made now, its memory too.
        for lane in {lane.most: lane for lane in self._lanes.values()}.values():
            lane.answer([LinkAsked(0, 0, number % 2 == 0, 1) for number in range(lane.most)])
        self.scored([(0, 0, 0)])

    def lane(self, known: Known, k: int) -> Lane:
        return self._lanes[known, next(size for size, _ in PARTS if k <= size)]

    @endpoint("GET", "links")
    async def predict_links(self, desk: Desk, query: LinksQuery) -> LinkAnswer:
        """The most likely missing end of a triple: of (subject, relation, ?) or (?, relation, object)."""
        asked = [self._asked(query, query.k)]
        return (await desk.ask(self.lane(query.known, query.k), asked))[0]  # type: ignore[no-any-return]

    @endpoint("POST", "links")
    async def predict_many_links(self, desk: Desk, body: LinksBody) -> LinkAnswerList:
        """The most likely missing ends of many triples."""
        rows, most = len(body.queries) * min(body.k, self.served.graph.num_nodes), desk.limits.links
        if rows > most:
            words = f"{len(body.queries):,} queries with k = {body.k:,} are {rows:,} links; one answer holds at most"
            raise schemas.Refusal("invalid", f"{words} {most:,}: ask in several requests")
        asked = await desk.resolved(body.queries, lambda query: self._asked(query, body.k))
        return LinkAnswerList(list(await desk.ask(self.lane(body.known, body.k), asked)))

    @endpoint("POST", "score")
    async def score(self, desk: Desk, body: ScoreBody) -> Scores:
        """How given triples score, in the mean of both directions, and whether the graph has them."""
        triples = await desk.resolved(body.triples, self._triple)
        return Scores(list(await desk.ask(self._scores, triples)))

    def examples(self, shown: Shown) -> dict[str, Example]:
        triple = {key: shown.words[key] for key in ("subject", "relation", "object")}
        ends = {key: triple[key] for key in ("subject", "relation")}
        links = self.answer([LinkAsked(*shown.triple[:2], True, FEW)], "mark")
        return {
            "GET links": ({**ends, "k": FEW}, links[0]),
            "POST links": ({"queries": [ends], "k": FEW}, LinkAnswerList(links)),
            "POST score": ({"triples": [triple]}, Scores(self.scored([shown.triple]))),
        }

    def _asked(self, query: MissingEnd, k: int) -> LinkAsked:
        names, given = self.served.names, query.object if query.subject is None else query.subject
        assert given is not None
        return LinkAsked(names.node(given), names.relation(query.relation), query.subject is not None, k)

    def _triple(self, named: NamedTriple) -> Triple:
        names = self.served.names
        return names.node(named.subject), names.relation(named.relation), names.node(named.object)

    def answer(self, asked: list[LinkAsked], known: Known) -> list[LinkAnswer]:
        """In the model's thread."""
        filled = [*asked, *[asked[0]] * (FILLED_UP - len(asked))] if len(asked) in self._awkward else asked
        given, relation, objects, k = zip(*filled, strict=True)
        questions = Questions(torch.tensor(given), torch.tensor(relation), torch.tensor(objects))
        found = answer_links(self._model, questions, max(k), known)
        own, is_object = questions.node[:, None], torch.tensor(objects)[:, None]
        subject, object_ = torch.where(is_object, own, found.node), torch.where(is_object, found.node, own)
        triples = torch.stack([subject, questions.relation[:, None].expand_as(subject), object_], dim=-1)
        shares = repeat(None) if found.probability is None else found.probability.tolist()
        splits = split_of(self.served.graph, triples).tolist()
        rated = map(_rated, found.score.tolist(), shares, found.known.tolist(), splits)
        told = asked, found.node.tolist(), rated, notes_of(self.served.opened.titles, questions, found, shown=k)
        return list(map(self._answered, *told))  # without what only fills up

    def _answered(self, asked: LinkAsked, nodes: list[int], rated: Iterable[Rated], note: str | None) -> LinkAnswer:
        node, relation, given = self.served.node, self.served.relations[asked.relation], self.served.node(asked.given)
        ends = (given, relation, None) if asked.for_objects else (None, relation, given)
        found = zip(nodes[: asked.k], rated, strict=False)
        links = [Link(node(number), *rest) for number, rest in found if number >= 0]
        return LinkAnswer(UnderstoodQuery(*ends), links, note)

    def scored(self, triples: list[Triple]) -> list[TripleScore]:
        ids, node, relations = torch.tensor(triples), self.served.node, self.served.relations
        scores, found = rate_triples(self._model, ids)
        known = KnownTriples.of_graph(self.served.graph, "train").contains(ids).tolist()
        shares, splits = None if found is None else found.tolist(), split_of(self.served.graph, ids).tolist()
        rated = zip(triples, _rated(scores.tolist(), shares, known, splits), strict=True)
        return [TripleScore(node(s), relations[r], node(o), *rest) for (s, r, o), rest in rated]


def _rated(scores: list[float], shares: list[float] | None, known: list[bool], splits: list[int]) -> Iterable[Rated]:
    """What is said of each triple: its score, its probability, whether it is known, and its split."""
    probabilities = repeat(None) if shares is None else schemas.six_digits(shares)
    return zip(schemas.six_digits(scores), probabilities, known, map(SPLIT_OF.__getitem__, splits), strict=False)
