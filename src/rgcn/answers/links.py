"""Missing ends of triples: the best objects of (subject, relation, ?), the best subjects of (?, relation, object)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from rgcn.answers.marks import Marks, is_ruled_out
from rgcn.answers.model import AnsweringModel
from rgcn.answers.top import Best, best_of
from rgcn.errors import ConfigError, DataError
from rgcn.known import KnownTriples
from rgcn.scoring import Questions

if TYPE_CHECKING:
    from rgcn.answers.calibration import Calibration

Known = Literal["mark", "drop"]

# Scores held at once, in bytes; fifty questions over the nodes of WN18 are 8 MB.
BLOCK = 64 << 20


@dataclass(frozen=True, eq=False)
class LinkAnswers:
    """The best answers to q questions, best first, on the CPU.

    node        int64 [q, k]    node ids; -1 where a question has fewer than k answers
    score       float [q, k]    the model's own numbers; -inf there
    probability float [q, k]    calibrated; 0 there. None where there was nothing to calibrate on
    known       bool [q, k]     whether it is a training triple

    k is the number asked for, or the number of nodes where there are fewer.
    """

    node: Tensor
    score: Tensor
    probability: Tensor | None
    known: Tensor

    def __len__(self) -> int:
        return len(self.node)


def answer_links(
    model: AnsweringModel, questions: Questions, k: int = 10, known: Known = "mark", *, by_example: bool = True
) -> LinkAnswers:
    """The k best answers to many questions at once: the one top-k of this package.

    known       "mark" or "drop"     training triples are marked, or left out
    by_example  leave out answers that the training triples rule out by example (`by_example.Examples`): known ones
                turned round, where a relation only goes one way, and the given node itself, where no node is linked to
                itself. DistMult cannot tell these from true ones and would put them first

    All questions are scored together, and the best are picked in one pass over the scores: fifty questions cost little
    more than the product itself, far less than fifty calls. Safe to call from several threads. Scores of more than
    64 MB are made in parts.
    """
    _check(questions, k, known)
    graph = model.graph_
    for ids, size, what in (
        (questions.node, graph.num_nodes, "node"),
        (questions.relation, graph.num_relations, "relation"),
    ):
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= size):
            raise DataError(f"a question refers to a {what} outside 0..{size - 1}")
    best = _best(model, questions, k, known, by_example)
    probability, calibration = None, _calibration(model)
    if calibration is not None:
        probability = calibration.link_probabilities(best.score).masked_fill_(best.node < 0, 0.0)
    return LinkAnswers(best.node, best.score, probability, best.known)


def _check(questions: Questions, k: int, known: str) -> None:
    if k < 1 or known not in ("mark", "drop"):
        raise ConfigError(f'k is at least 1 and known is "mark" or "drop"; got k = {k}, known = {known!r}')
    node, relation, _ = questions
    if node.ndim != 1 or node.shape != relation.shape:
        shapes = f"{list(node.shape)} and {list(relation.shape)}"
        raise DataError(f"questions are a node and a relation each, int64 [q]; got {shapes}")


@torch.no_grad()
def _best(model: AnsweringModel, questions: Questions, k: int, known: Known, by_example: bool) -> Best:
    """The answers, in the order of the questions; those that ask for objects are looked at first."""
    scorer = model.scorer()
    index = KnownTriples.of_graph(model.graph_, "train", device=scorer.device)
    k, rows = min(k, scorer.num_nodes), max(1, BLOCK // (4 * scorer.num_nodes))
    for_objects = questions.asks_objects().cpu()
    order = torch.argsort(~for_objects, stable=True)
    found = [Best(torch.empty(0, k, dtype=torch.int64), torch.empty(0, k), torch.empty(0, k).bool())]
    for part in torch.split(order, rows):
        asked = Questions(questions.node[part], questions.relation[part], for_objects[part]).to(scorer.device)
        scores = scorer.scores(asked)
        objects = int(for_objects[part].sum())
        for side, first in ((slice(objects), True), (slice(objects, None), False)):
            node = asked.node[side]
            if len(node):
                marks = Marks.of(model.graph_, index, node, asked.relation[side], first, by_example)
                found.append(best_of(scores[side], k, marks, drop_known=known == "drop"))
    best = found[1] if len(found) == 2 else Best(*map(torch.cat, zip(*found, strict=True)))
    back = torch.argsort(order)
    return Best(*(tensor[back] for tensor in best))


def _calibration(model: AnsweringModel) -> Calibration | None:
    """None where there was nothing to calibrate on; what was fitted to classes says nothing about links."""
    calibration = model.calibration_
    return calibration if calibration.fitted and calibration.kind != "classes" else None


def triple_probabilities(model: AnsweringModel, triples: Tensor, scores: Tensor) -> Tensor | None:
    """Calibrated probabilities [n] of given triples int64 [n, 3] and their scores [n]: as `answer_links` has them.

    A triple that is not known and that examples rule out is given what such triples had in the validation split. None
    where there was nothing to calibrate on.
    """
    calibration = _calibration(model)
    if calibration is None:
        return None
    probability = calibration.link_probabilities(scores).clone()
    share = calibration.ruled_out_share
    if share is not None:
        out = is_ruled_out(model.graph_, KnownTriples.of_graph(model.graph_, "train"), triples.cpu())
        probability[out.to(probability.device)] = share
    return probability
