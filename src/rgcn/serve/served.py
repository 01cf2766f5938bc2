"""A model as the server holds it: loaded once, everything looked up that can be looked up, answers as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.answers.links import Known, predict_links, triple_probabilities
from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.known import KnownTriples
from rgcn.predict import OpenModel
from rgcn.predict.opened import CLASSIFIES, PREDICTS_LINKS
from rgcn.serve.batching import Lane
from rgcn.serve.facts import Facts
from rgcn.serve.refusals import Refusal
from rgcn.serve.writing import Pieces, as_json, listed, number

NODES_AT_ONCE = 1 << 16
# Questions for so many answers go together, this many at a time: one for a thousand must not hold up those for ten.
SIZES = ((16, 64), (128, 32), (1 << 30, 8))
# Products with this many rows take longer than one with twelve: BLAS has no good kernel for them (measured, MKL).
AWKWARD, FILLED_UP = range(3, 12), 12
TRIPLES_AT_ONCE = 4096
EXAMPLES = 5

_SPLIT_JSON: dict[str | None, bytes] = {None: b"null", **{split: as_json(split) for split in SPLITS}}
_SPLIT_NAMES = (*SPLITS, None)  # so that -1, no split, is None
_BOOL = (b"false", b"true")


class LinkAsked(NamedTuple):
    """(given, relation, ?) where objects are asked for, else (?, relation, given)."""

    given: int
    relation: int
    for_objects: bool
    k: int


class TripleAsked(NamedTuple):
    subject: int
    relation: int
    object: int


class Served:
    """One model and everything the endpoints ask of it."""

    def __init__(
        self, opened: OpenModel, name: str | None = None, on_step: Callable[[str], None] = lambda what: None
    ) -> None:
        self.opened, self.name, self.graph = opened, name or opened.name, opened.graph
        on_step("calibrating")
        self.calibration = opened.calibration
        on_step("indexing names")
        self.names = opened.names
        self.names.prepare()
        self.pieces = Pieces(opened)
        self.facts = Facts.of(self.graph)
        self._labels = _labels(opened)
        self._probabilities: NDArray[np.float32] | None = None
        if opened.task == CLASSIFIES:
            on_step("classifying every node")
            self._probabilities = _class_probabilities(opened)
        self._calibrated = _BOOL[self.calibration.fitted]
        self._links = {
            (known, size): Lane((self.name, "links"), self._answering(known), most)
            for known in get_args(Known)
            for size, most in SIZES
        }
        self.scores = Lane((self.name, "scores"), self.answer_scores, TRIPLES_AT_ONCE)
        self.classes = Lane((self.name, "classes"), self.answer_classes, 64)
        self.searches = Lane((self.name, "search"), self._answer_searches, 8)
        if opened.task == PREDICTS_LINKS:
            on_step("encoding the graph")
            self._warm()

    def _warm(self) -> None:
        """Everything that is made at the first question is made now; scores that are no numbers are found now."""
        predictor = self.opened.predictor
        numbers = predictor.encoded(), *predictor.network_.decoder.parameters()
        if not all(bool(torch.isfinite(tensor).all()) for tensor in numbers):
            raise DataError(f"{self.opened.path}: the model's numbers are not finite; its training has diverged")
        for lane in self._links.values():
            lane.answer([LinkAsked(0, 0, True, 1), LinkAsked(0, 0, False, 1)])
        self.answer_scores([TripleAsked(0, 0, 0)])

    # -- names -------------------------------------------------------------------------------------------

    def must(self, task: str) -> None:
        """Refuse a question that is of the other task."""
        if self.opened.task != task:
            can, cannot = "predicts links: ask /links, /score", "classifies nodes: ask /class, /classes"
            words = can if task == CLASSIFIES else cannot
            raise Refusal(
                "wrong_task", f"the model {self.name!r} {words}, /explain, /search or /neighbors, or another model"
            )

    # -- looking up --------------------------------------------------------------------------------------

    def searched(self, query: str, nodes: list[int]) -> bytes:
        degree = self.facts.degree
        found = (self.pieces.node(node)[:-1] + b',"degree":%d}' % degree[node] for node in nodes)
        return b'{"query":' + as_json(query) + b',"nodes":' + listed(found) + b"}"

    def _answer_searches(self, questions: list[tuple[str, int]]) -> list[list[int]]:
        return [self.names.find(query, limit) for query, limit in questions]

    def neighbors(self, node: int, limit: int, offset: int) -> bytes:
        pieces = self.pieces
        facts = (
            b'{"relation":%b,"node":%b,"outgoing":%b,"split":%b}'
            % (pieces.relations[fact.relation], pieces.node(fact.node), _BOOL[fact.outgoing], _SPLIT_JSON[fact.split])
            for fact in self.facts.page(node, limit, offset)
        )
        return b'{"node":%b,"degree":%d,"total":%d,"facts":%b}' % (
            pieces.node(node),
            self.facts.degree[node],
            self.facts.total(node),
            listed(facts),
        )

    # -- classes -----------------------------------------------------------------------------------------

    def class_of(self, node: int) -> bytes:
        assert self._probabilities is not None
        classes, row = self.pieces.classes, self._probabilities[node].tolist()
        order = sorted(range(len(row)), key=lambda c: -row[c])
        every = listed(b'{"class":%b,"probability":%b}' % (classes[c], number(row[c])) for c in order)
        label, split = self._labels.get(node, (None, None))
        return (
            b'{"node":%b,"class":%b,"probability":%b,"probabilities":%b,"label":%b,"label_split":%b,"calibrated":%b}'
            % (
                self.pieces.node(node),
                classes[order[0]],
                number(row[order[0]]),
                every,
                b"null" if label is None else classes[label],
                _SPLIT_JSON[split],
                self._calibrated,
            )
        )

    def answer_classes(self, nodes: list[int]) -> list[bytes]:
        """Of many nodes, in the model's thread: a thousand would keep the event loop busy too long."""
        return [self.class_of(node) for node in nodes]

    # -- links and scores, in the model's thread ---------------------------------------------------------

    def links(self, known: Known, k: int) -> Lane:
        """The lane for questions of this size; those that wait together are answered by one matrix product."""
        size = next(size for size, _ in SIZES if k <= size)
        return self._links[known, size]

    def _answering(self, known: Known) -> Callable[[list[LinkAsked]], list[bytes]]:
        return lambda questions: self.answer_links(questions, known)

    def answer_links(self, questions: list[LinkAsked], known: Known) -> list[bytes]:
        """Questions → the JSON of their answers."""
        given, relation, objects, k = zip(*questions, strict=True)
        filled = FILLED_UP if len(questions) in AWKWARD else len(questions)
        nodes, relations = torch.zeros(filled, dtype=torch.int64), torch.zeros(filled, dtype=torch.int64)
        nodes[: len(questions)], relations[: len(questions)] = torch.tensor(given), torch.tensor(relation)
        for_objects = torch.ones(filled, dtype=torch.bool)
        for_objects[: len(questions)] = torch.tensor(objects)
        found = predict_links(self.opened, nodes, relations, for_objects, max(k), known)
        own, is_object = nodes[:, None], for_objects[:, None]
        subject, object_ = torch.where(is_object, own, found.node), torch.where(is_object, found.node, own)
        triples = torch.stack([subject, relations[:, None].expand_as(subject), object_], dim=-1)
        splits = KnownTriples.of_graph(self.graph).split_of(triples)
        columns = [
            tensor.tolist()
            for tensor in (found.node, found.score.sigmoid(), found.score, found.probability, found.known)
        ]
        rows = zip(*columns, splits.tolist(), strict=True)
        pairs = zip(questions, rows, strict=False)  # without the rows that only fill up
        return [self._written(asked, *row) for asked, row in pairs]

    def _written(
        self,
        asked: LinkAsked,
        nodes: list[int],
        scores: list[float],
        raw_scores: list[float],
        probabilities: list[float],
        known: list[bool],
        splits: list[int],
    ) -> bytes:
        piece, given = self.pieces.node, self.pieces.node(asked.given)
        links = [
            b'{"node":%b,"score":%.6g,"raw_score":%.6g,"probability":%.6g,"known":%b,"split":%b}'
            % (piece(node), score, raw, probability, _BOOL[is_known], _SPLIT_JSON[_SPLIT_NAMES[split]])
            for node, score, raw, probability, is_known, split in zip(
                nodes[: asked.k], scores, raw_scores, probabilities, known, splits, strict=False
            )
            if node >= 0
        ]
        return b'{"query":{"subject":%b,"relation":%b,"object":%b},"calibrated":%b,"links":[%b]}' % (
            given if asked.for_objects else b"null",
            self.pieces.relations[asked.relation],
            b"null" if asked.for_objects else given,
            self._calibrated,
            b",".join(links),
        )

    def answer_scores(self, questions: list[TripleAsked]) -> list[bytes]:
        """Triples → the JSON of each with its score."""
        predictor = self.opened.predictor
        ids = torch.tensor(questions)
        with torch.no_grad():
            nodes, (subject, relation, object_) = predictor.encoded(), ids.unbind(1)
            here = nodes.device
            rows = nodes.index_select(0, subject.to(here)), relation.to(here), nodes.index_select(0, object_.to(here))
            raw_scores = predictor.network_.decoder.score(*rows).cpu()
            probabilities = triple_probabilities(self.opened, ids, raw_scores)
        return [
            b'{"subject":%b,"relation":%b,"object":%b,"score":%.6g,"raw_score":%.6g,"probability":%.6g,"known":%b}'
            % (
                self.pieces.node(asked.subject),
                self.pieces.relations[asked.relation],
                self.pieces.node(asked.object),
                score,
                raw,
                probability,
                _BOOL[is_known],
            )
            for asked, score, raw, probability, is_known in zip(
                questions,
                raw_scores.sigmoid().tolist(),
                raw_scores.tolist(),
                probabilities.tolist(),
                KnownTriples.of_graph(self.graph).contains(ids).tolist(),
                strict=True,
            )
        ]

    def scored(self, triples: list[bytes]) -> bytes:
        return b'{"calibrated":%b,"triples":%b}' % (self._calibrated, listed(triples))


def _labels(opened: OpenModel) -> dict[int, tuple[int, str]]:
    labels = opened.graph.labels
    if labels is None or opened.task != CLASSIFIES:
        return {}
    splits = (SPLITS[i] for i in labels.splits.tolist())
    return dict(zip(labels.nodes.tolist(), zip(labels.classes.tolist(), splits, strict=True), strict=True))


def _class_probabilities(opened: OpenModel) -> NDArray[np.float32]:
    """[N, C]: asked for one by one, each class would cost a pass through the network; for all, a few."""
    model, count = opened.classifier, opened.graph.num_nodes
    parts = []
    for begin in range(0, count, NODES_AT_ONCE):
        logits = model.embeddings(range(begin, min(begin + NODES_AT_ONCE, count)), layer=-1)
        parts.append(opened.calibration.class_probabilities(torch.from_numpy(logits)).numpy())
    table = np.concatenate(parts).astype(np.float32)
    if not np.isfinite(table).all():
        raise DataError(f"{opened.path}: the model's numbers are not finite; its training has diverged")
    return table
