"""Missing ends of triples: the best objects of (subject, relation, ?), the best subjects of (?, relation, object)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.known import KnownTriples
from rgcn.predict.marks import Marks, is_ruled_out
from rgcn.predict.top import Best, best_of
from rgcn.tasks import LinkPredictor

if TYPE_CHECKING:
    from rgcn.predict import OpenModel

Known = Literal["mark", "drop"]

# Scores held at once, in bytes; fifty questions over the nodes of WN18 are 8 MB.
BLOCK = 64 << 20


@dataclass(frozen=True, eq=False)
class LinkAnswers:
    """The best answers to q questions, best first, on the CPU.

    node        int64 [q, k]    node ids; -1 where a question has fewer than k answers
    score       float [q, k]    raw scores; -inf there
    probability float [q, k]    calibrated (`OpenModel.calibration`); 0 there
    known       bool [q, k]     whether the graph already has the triple

    k is the number asked for, or the number of nodes where there are fewer.
    """

    node: Tensor
    score: Tensor
    probability: Tensor
    known: Tensor

    def __len__(self) -> int:
        return len(self.node)


def predict_links(
    opened: OpenModel,
    given: Tensor,
    relation: Tensor,
    for_objects: bool | Tensor = True,
    k: int = 10,
    known: Known = "mark",
    *,
    by_example: bool = True,
) -> LinkAnswers:
    """The k best answers to many questions at once, each a given node and a relation.

    given        int64 [q]            the subject of each question, or its object
    relation     int64 [q]
    for_objects  bool, or bool [q]    True: `given` is the subject and objects are asked for; False: the other way round
    known        "mark" or "drop"     triples the graph already has are marked, or left out
    by_example   leave out answers that the known triples rule out by example (`by_example.Examples`): the known ones
                 turned round, where a relation only goes one way, and the given node itself, where no node is linked to
                 itself. DistMult cannot tell these from true ones and would put them first

    All questions are scored by one matrix product with all nodes, and the best are picked in one pass over the scores:
    fifty questions together cost little more than the product itself, far less than fifty calls. Safe to call from
    several threads. Scores of more than 64 MB are made in parts.
    """
    _check(given, relation, k, known)
    predictor, graph = opened.predictor, opened.graph
    for ids, size, what in ((given, graph.num_nodes, "node"), (relation, graph.num_relations, "relation")):
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= size):
            raise DataError(f"a question refers to a {what} outside 0..{size - 1}")
    if not isinstance(for_objects, Tensor):
        for_objects = torch.full(given.shape, bool(for_objects))
    best = _best(opened, predictor, given, relation, for_objects.cpu(), k, known, by_example)
    probability = opened.calibration.link_probabilities(best.score)
    return LinkAnswers(best.node, best.score, probability.masked_fill_(best.node < 0, 0.0), best.known)


def _check(given: Tensor, relation: Tensor, k: int, known: str) -> None:
    if k < 1 or known not in ("mark", "drop"):
        raise ConfigError(f'k is at least 1 and known is "mark" or "drop"; got k = {k}, known = {known!r}')
    if given.ndim != 1 or given.shape != relation.shape:
        shapes = f"{list(given.shape)} and {list(relation.shape)}"
        raise DataError(f"questions are a node and a relation each, int64 [q]; got {shapes}")


@torch.no_grad()
def _best(
    opened: OpenModel,
    predictor: LinkPredictor,
    given: Tensor,
    relation: Tensor,
    for_objects: Tensor,
    k: int,
    known: Known,
    by_example: bool,
) -> Best:
    """The answers, in the order of the questions; in the product those that ask for objects come first."""
    nodes = predictor.encoded()
    index = KnownTriples.of_graph(opened.graph, device=nodes.device)
    k, rows = min(k, len(nodes)), max(1, BLOCK // (4 * len(nodes)))
    order = torch.argsort(~for_objects, stable=True)
    found = [Best(torch.empty(0, k, dtype=torch.int64), nodes.new_empty(0, k).cpu(), torch.empty(0, k).bool())]
    for part in torch.split(order, rows):
        objects = int(for_objects[part].sum())
        node, r = given[part].to(nodes.device), relation[part].to(nodes.device)
        scores = _scores(predictor, nodes, node, r, objects)
        for side, first in ((slice(objects), True), (slice(objects, None), False)):
            if len(node[side]):
                marks = Marks.of(opened.graph, index, node[side], r[side], first, by_example)
                found.append(best_of(scores[side], k, marks, drop_known=known == "drop"))
    best = found[1] if len(found) == 2 else Best(*map(torch.cat, zip(*found, strict=True)))
    back = torch.argsort(order)
    return Best(*(tensor[back] for tensor in best))


def _scores(predictor: LinkPredictor, nodes: Tensor, given: Tensor, relation: Tensor, objects: int) -> Tensor:
    """[q, N]: the first `objects` questions ask for objects, the others for subjects; one product for all of them,
    since reading every node's vector is most of what a product of few rows costs."""
    decoder, row = predictor.network_.decoder, nodes.index_select(0, given)
    for_object, constant = decoder.object_queries(row[:objects], relation[:objects])
    for_subject, other = decoder.subject_queries(relation[objects:], row[objects:])
    scores = torch.cat([for_object, for_subject]) @ nodes.T
    return scores if constant is None or other is None else scores.add_(torch.cat([constant, other])[:, None])


def triple_probabilities(opened: OpenModel, triples: Tensor, scores: Tensor) -> Tensor:
    """Calibrated probabilities [n] of given triples int64 [n, 3] and their scores [n]: as `predict_links` has them.

    A triple that is not in the graph and that examples rule out is given what such triples had in the validation split.
    """
    probability = opened.calibration.link_probabilities(scores).clone()
    share = opened.calibration.ruled_out_share
    if share is not None:
        out = is_ruled_out(opened.graph, KnownTriples.of_graph(opened.graph), triples.cpu())
        probability[out.to(probability.device)] = share
    return probability
