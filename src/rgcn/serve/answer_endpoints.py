"""Endpoints for predictions: /class and /classes for classes of nodes, /links and /score for links."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.links.calibration import Calibration
from rgcn.links.top_k import KnownMode, answer_links, rate_triples
from rgcn.nn.scorer import Questions, Scorer
from rgcn.predict import OpenModel
from rgcn.predict.questions import answer_notes
from rgcn.sampling.known_triples import KnownTriples, split_of
from rgcn.serve import schemas
from rgcn.serve.batching import Dispatcher, RequestQueue
from rgcn.serve.common_endpoints import EXAMPLE_ROWS
from rgcn.serve.schemas import Class, Many, Node, NodeName, Probability, Relation, RelationName, Score, Split
from rgcn.serve.served_model import Endpoints, Example, ExampleEntities, OnStage, ServedModel, endpoint, run_later

# Questions with similar k form a batch: one for a thousand answers must not delay those for ten. For each largest k:
# the batch size is divided by this. `Scorer.questions_per_batch` gives the batch size of scorers with costly questions.
BATCH_DIVISORS = ((16, 1), (128, 2), (1 << 30, 8))
# A scorer that hides triples scores a question again for each known answer, so the question counts this many times.
KNOWN_ANSWERS_FACTOR = 8
MAX_QUESTIONS, MAX_TRIPLES, MAX_SCORES = 64, 4096, 1 << 24  # of one batch
# Matrix products with these numbers of rows take longer than one with twelve (measured with MKL): they are padded.
SLOW_BATCH_SIZES, PADDED_BATCH_SIZE = range(3, 12), 12
SPLIT_NAMES: tuple[Any, ...] = (*SPLITS, None)  # -1 is no split

K = Annotated[schemas.Count, Field(description="How many answers to each question, best first.")]
KnownAnswers = Annotated[KnownMode, Field(description="Answers that are training triples: `mark` or `drop` them.")]


class ClassQuery(schemas.RequestSchema):
    """A node whose class is wanted."""

    node: NodeName


class ClassesBody(schemas.RequestSchema):
    """Nodes whose classes are wanted."""

    nodes: Many[NodeName]


class ScoredClass(schemas.ResponseSchema):
    """A class with its score."""

    class_: Class = msgspec.field(name="class")
    score: Score
    probability: Probability


class ClassAnswer(schemas.ResponseSchema):
    """The most likely class of a node."""

    node: Node
    class_: Class = msgspec.field(name="class")
    score: Score
    probability: Probability
    classes: Annotated[list[ScoredClass], Meta(description="Every class, likeliest first.")]
    label: Annotated[Class | None, Meta(description="The node's class in the data, if it is labeled.")]
    label_split: Split | None


class ClassAnswerList(schemas.ResponseSchema):
    """Answers in the order of the nodes."""

    predictions: list[ClassAnswer]


class ClassEndpoints(Endpoints):
    """Predict classes. The scores of all nodes are computed once, for a large graph in the background."""

    tag = "classes"

    def __init__(self, served: ServedModel, on_stage: OnStage) -> None:
        super().__init__(served, on_stage)
        self._scores: NDArray[np.float32] | None = None  # [num_nodes, num_classes]
        if served.is_large:
            run_later("rgcn-classify", self._score_all)
        else:
            on_stage("classifying every node")
            self._score_all()
        self._labels: dict[int, tuple[Class, Any]] = {}
        if (labels := served.graph.labels) is not None:
            rows = zip(labels.nodes.tolist(), labels.classes.tolist(), labels.splits.tolist(), strict=True)
            self._labels = {node: (served.classes[label], SPLITS[split]) for node, label, split in rows}
        self._queue = RequestQueue((served.name, "classes"), self.answers, 64)

    def _score_all(self) -> None:
        if not self.served.opened.model.hooks_.hides_query:
            self._scores = _finite_scores(self.served.opened, range(self.served.graph.num_nodes))

    @endpoint("GET", "class")
    async def predict_class(self, dispatcher: Dispatcher, query: ClassQuery) -> ClassAnswer:
        """The most likely class of a node, and the scores of all classes."""
        nodes = [self.served.names.node(query.node)]
        answers = await dispatcher.ask(self._queue, nodes) if self._scores is None else self.answers(nodes)
        return answers[0]

    @endpoint("POST", "classes")
    async def predict_classes(self, dispatcher: Dispatcher, body: ClassesBody) -> ClassAnswerList:
        """The most likely classes of many nodes."""
        nodes = await dispatcher.resolve_names(body.nodes, self.served.names.node)
        # In the thread even if all scores are there: a thousand nodes would block the event loop for too long.
        return ClassAnswerList(list(await dispatcher.ask(self._queue, nodes)))

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return a request with its response for each endpoint."""
        node, [answer] = entities.parameters["node"], self.answers(entities.nodes[:1])
        return {"GET class": ({"node": node}, answer), "POST classes": ({"nodes": [node]}, ClassAnswerList([answer]))}

    def answers(self, nodes: Sequence[int]) -> list[ClassAnswer]:
        """Return the answer for each node."""
        all_scores, calibration = self._scores, self.served.calibration
        scores = _finite_scores(self.served.opened, nodes) if all_scores is None else all_scores[nodes]
        probabilities = np.empty((len(nodes), 0))
        if calibration.fitted:
            probabilities = calibration.class_probabilities(torch.from_numpy(scores)).numpy()
        return list(map(self._answer, nodes, scores.tolist(), probabilities.tolist()))

    def _answer(self, node: int, scores: list[float], probabilities: list[float]) -> ClassAnswer:
        formatted = schemas.six_digits(probabilities) if probabilities else repeat(None)
        rows = list(map(ScoredClass, self.served.classes, schemas.six_digits(scores), formatted))
        rows = [rows[number] for number in sorted(range(len(rows)), key=scores.__getitem__, reverse=True)]
        best, (label, split) = rows[0], self._labels.get(node, (None, None))
        return ClassAnswer(self.served.node(node), best.class_, best.score, best.probability, rows, label, split)


def _finite_scores(opened: OpenModel, nodes: Sequence[int]) -> NDArray[np.float32]:
    """Return the scores of nodes, `[num_nodes, num_classes]`, in one pass through the network."""
    scores = opened.logits(nodes).float().numpy()
    if not np.isfinite(scores).all():
        raise DataError(f"{opened.path}: the model's scores are not finite; its training has diverged: train it again")
    return scores


class MissingEnd(schemas.RequestSchema):
    """A triple with one end missing: give a subject to get objects, an object to get subjects."""

    relation: RelationName
    subject: NodeName | None = Field(None, description="Find objects of (subject, relation, ?).")
    object: NodeName | None = Field(None, description="Find subjects of (?, relation, object).")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.subject is None) == (self.object is None):
            given = "neither" if self.subject is None else "both"
            message = "give either subject or object, the other one is predicted; {given} was given"
            raise PydanticCustomError("one_end", message, {"given": given})
        return self


class LinksQuery(MissingEnd):
    """One question."""

    k: K = 10
    known: KnownAnswers = "mark"


class LinksBody(schemas.RequestSchema):
    """Many questions."""

    queries: Many[MissingEnd]
    k: K = 10
    known: KnownAnswers = "mark"


class NamedTriple(schemas.RequestSchema):
    """A triple by names."""

    subject: NodeName
    relation: RelationName
    object: NodeName


class ScoreBody(schemas.RequestSchema):
    """Triples to score."""

    triples: Many[NamedTriple]


IsKnown = Annotated[bool, Meta(description="True if it is a training triple.")]
SplitOfTriple = Annotated[Split | None, Meta(description="Its split, if any. The model never saw `valid` and `test`.")]


class UnderstoodQuery(schemas.ResponseSchema):
    """The question, with the nodes and the relation that were found; the missing end is null."""

    subject: Node | None
    relation: Relation
    object: Node | None


class Link(schemas.ResponseSchema):
    """An answer: the node at the missing end."""

    node: Annotated[Node, Meta(description="The answer.")]
    score: Score
    probability: Probability
    known: IsKnown
    split: SplitOfTriple


class LinkAnswer(schemas.ResponseSchema):
    """The most likely nodes at the missing end."""

    query: UnderstoodQuery
    links: Annotated[list[Link], Meta(description="Best first.")]
    note: Annotated[str | None, Meta(description="A remark, for example that nothing is missing in the data.")]


class LinkAnswerList(schemas.ResponseSchema):
    """Answers in the order of the queries."""

    answers: list[LinkAnswer]


class TripleScore(schemas.ResponseSchema):
    """A triple with its score: the mean of both directions."""

    subject: Node
    relation: Relation
    object: Node
    score: Score
    probability: Probability
    known: IsKnown
    split: SplitOfTriple


class Scores(schemas.ResponseSchema):
    """Scores in the order of the triples."""

    triples: list[TripleScore]


class LinkRequest(NamedTuple):
    """A query by ids: (node, relation, ?) if objects are wanted, else (?, relation, node)."""

    node: int
    relation: int
    for_objects: bool
    k: int


Triple = tuple[int, int, int]
Rating = tuple[Any, Any, bool, Any]  # score, probability, known, split


class LinkAnswerer:
    """The parts of a served model that answers need (`AnsweringModel`), looked up once."""

    def __init__(self, served: ServedModel, scorer: Scorer) -> None:
        self._served, self.graph_, self.new_nodes = served, served.graph, served.opened.new_nodes
        self.scorer = lambda: scorer

    @property
    def calibration_(self) -> Calibration:
        """The calibration, which may be fitted after the start."""
        return self._served.calibration


class LinkEndpoints(Endpoints):
    """Predict links. Waiting questions are answered by one matrix product, over node vectors computed when loading."""

    tag = "links"

    def __init__(self, served: ServedModel, on_stage: OnStage) -> None:
        super().__init__(served, on_stage)
        on_stage("encoding the graph")
        scorer = served.opened.scorer()
        problem = scorer.problem()
        if problem is not None:
            raise DataError(f"{served.opened.path}: {problem}")
        self._model: Any = LinkAnswerer(served, scorer)
        at_once = scorer.questions_per_batch
        self._slow_batch_sizes = SLOW_BATCH_SIZES if at_once is None else ()
        max_batch = at_once or max(1, min(MAX_QUESTIONS, MAX_SCORES // served.graph.num_nodes))
        factors: dict[KnownMode, int] = {"mark": KNOWN_ANSWERS_FACTOR if scorer.can_hide_triples else 1, "drop": 1}
        self._queues = dict[tuple[KnownMode, int], RequestQueue]()
        for known, factor in factors.items():
            for k, divisor in BATCH_DIVISORS:
                answer, size = partial(self.answer, known=known), max(1, max_batch // (divisor * factor))
                self._queues[known, k] = RequestQueue((served.name, "links"), answer, size)
        self._scores = RequestQueue((served.name, "scores"), self.scored, at_once or MAX_TRIPLES)
        if served.is_large:  # its first questions take a second or two; the start does not wait for that
            return
        # Run a full batch of each size, so that no request waits for what is allocated and compiled then.
        for queue in {queue.max_batch: queue for queue in self._queues.values()}.values():
            queue.answer([LinkRequest(0, 0, number % 2 == 0, 1) for number in range(queue.max_batch)])
        self.scored([(0, 0, 0)])

    def queue(self, known: KnownMode, k: int) -> RequestQueue:
        """Return the queue of questions for `k` answers."""
        return self._queues[known, next(largest for largest, _ in BATCH_DIVISORS if k <= largest)]

    @endpoint("GET", "links")
    async def predict_links(self, dispatcher: Dispatcher, query: LinksQuery) -> LinkAnswer:
        """The most likely missing end of a triple: of (subject, relation, ?) or (?, relation, object)."""
        answers = await dispatcher.ask(self.queue(query.known, query.k), [self._question(query, query.k)])
        return answers[0]  # type: ignore[no-any-return]

    @endpoint("POST", "links")
    async def predict_many_links(self, dispatcher: Dispatcher, body: LinksBody) -> LinkAnswerList:
        """The most likely missing ends of many triples."""
        rows, max_links = len(body.queries) * min(body.k, self.served.graph.num_nodes), dispatcher.limits.max_links
        if rows > max_links:
            message = f"{len(body.queries):,} queries with k = {body.k:,} have {rows:,} answers; one response holds"
            raise schemas.RequestError("invalid", f"{message} at most {max_links:,}: split the request")
        questions = await dispatcher.resolve_names(body.queries, lambda query: self._question(query, body.k))
        return LinkAnswerList(list(await dispatcher.ask(self.queue(body.known, body.k), questions)))

    @endpoint("POST", "score")
    async def score(self, dispatcher: Dispatcher, body: ScoreBody) -> Scores:
        """Scores of triples, as the mean of both directions, and whether the graph has them."""
        triples = await dispatcher.resolve_names(body.triples, self._triple)
        return Scores(list(await dispatcher.ask(self._scores, triples)))

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return a request with its response for each endpoint."""
        triple = {key: entities.parameters[key] for key in ("subject", "relation", "object")}
        query = {key: triple[key] for key in ("subject", "relation")}
        links = self.answer([LinkRequest(*entities.triple[:2], True, EXAMPLE_ROWS)], "mark")
        return {
            "GET links": ({**query, "k": EXAMPLE_ROWS}, links[0]),
            "POST links": ({"queries": [query], "k": EXAMPLE_ROWS}, LinkAnswerList(links)),
            "POST score": ({"triples": [triple]}, Scores(self.scored([entities.triple]))),
        }

    def _question(self, query: MissingEnd, k: int) -> LinkRequest:
        names, node = self.served.names, query.object if query.subject is None else query.subject
        assert node is not None
        return LinkRequest(names.node(node), names.relation(query.relation), query.subject is not None, k)

    def _triple(self, triple: NamedTriple) -> Triple:
        names = self.served.names
        return names.node(triple.subject), names.relation(triple.relation), names.node(triple.object)

    def answer(self, questions: list[LinkRequest], known: KnownMode) -> list[LinkAnswer]:
        """Answer a batch of questions, in the model's thread."""
        num_missing = PADDED_BATCH_SIZE - len(questions) if len(questions) in self._slow_batch_sizes else 0
        node, relation, for_objects, k = zip(*questions, *[questions[0]] * num_missing, strict=True)
        batch = Questions(torch.tensor(node), torch.tensor(relation), torch.tensor(for_objects))
        best = answer_links(self._model, batch, max(k), known)
        given, is_object = batch.node[:, None], torch.tensor(for_objects)[:, None]
        subject, object_ = torch.where(is_object, given, best.node), torch.where(is_object, best.node, given)
        triples = torch.stack([subject, batch.relation[:, None].expand_as(subject), object_], dim=-1)
        probabilities = repeat(None) if best.probability is None else best.probability.tolist()
        splits = split_of(self.served.graph, triples).tolist()
        ratings = map(_ratings, best.score.tolist(), probabilities, best.known.tolist(), splits)
        notes = answer_notes(self.served.opened.titles, batch, best, shown=k)
        return list(map(self._link_answer, questions, best.node.tolist(), ratings, notes))  # drops the padding

    def _link_answer(
        self, question: LinkRequest, nodes: list[int], ratings: Iterable[Rating], note: str | None
    ) -> LinkAnswer:
        node, relation = self.served.node, self.served.relations[question.relation]
        given = node(question.node)
        ends = (given, relation, None) if question.for_objects else (None, relation, given)
        rows = zip(nodes[: question.k], ratings, strict=False)
        return LinkAnswer(UnderstoodQuery(*ends), [Link(node(id_), *rating) for id_, rating in rows if id_ >= 0], note)

    def scored(self, triples: list[Triple]) -> list[TripleScore]:
        """Score a batch of triples, in the model's thread."""
        ids, node, relations = torch.tensor(triples), self.served.node, self.served.relations
        scores, probability = rate_triples(self._model, ids)
        known = KnownTriples.of_graph(self.served.graph, "train").contains(ids).tolist()
        probabilities = None if probability is None else probability.tolist()
        ratings = _ratings(scores.tolist(), probabilities, known, split_of(self.served.graph, ids).tolist())
        rows = zip(triples, ratings, strict=True)
        return [TripleScore(node(s), relations[r], node(o), *rating) for (s, r, o), rating in rows]


def _ratings(
    scores: list[float], probabilities: list[float] | None, known: list[bool], splits: list[int]
) -> Iterable[Rating]:
    """Yield score, probability, known and split of each triple, as responses have them."""
    formatted = repeat(None) if probabilities is None else schemas.six_digits(probabilities)
    return zip(schemas.six_digits(scores), formatted, known, map(SPLIT_NAMES.__getitem__, splits), strict=False)
