"""Missing ends of triples: the best objects of (subject, relation, ?), the best subjects of (?, relation, object).

Exact, known answers marked or left out, ties in the order of the ids.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.by_example import Marks, is_ruled_out
from rgcn.answers.calibration import AnsweringModel, Calibration
from rgcn.errors import ConfigError, DataError
from rgcn.known import KnownTriples
from rgcn.scoring import Questions

Known = Literal["mark", "drop"]
Best = tuple[Tensor, Tensor, Tensor]  # node int64 [q, k], score float [q, k], known bool [q, k]; on the CPU

# Scores held at once, in bytes; fifty questions over the nodes of WN18 are 8 MB.
BLOCK = 64 << 20
# A list is kept in order by moving its members; of more than these, sorting everything is cheaper.
LONGEST_LIST = 512
# Fewer comparisons than this are done before a second thread has woken up.
WORTH_A_THREAD = 4_000_000


@dataclass(frozen=True, eq=False)
class LinkAnswers:
    """The best answers to q questions, best first, on the CPU; k as asked for, or all nodes if they are fewer."""

    node: Tensor  # int64 [q, k]: -1 where a question has fewer than k answers
    score: Tensor  # float [q, k]: the model's own numbers; -inf there
    probability: Tensor | None  # float [q, k]: calibrated; 0 there. None where there was nothing to calibrate on
    known: Tensor  # bool [q, k]: whether it is a training triple

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, eq=False)
class ScoredTriples:
    """Triples with what a model says of them."""

    triples: NDArray[np.int64]  # [n, 3]
    score: NDArray[np.float32]  # [n]: the model's own number
    probability: NDArray[np.float32] | None  # [n]: calibrated; None where there was nothing to calibrate on
    known: NDArray[np.bool_]  # [n]: whether it is a training triple

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> ScoredTriples:
        share = None if self.probability is None else self.probability[part]
        return ScoredTriples(self.triples[part], self.score[part], share, self.known[part])

    def at_least(self, probability: float) -> ScoredTriples:
        """Those that are at least so probable."""
        return self if self.probability is None else self[self.probability >= probability]

    @classmethod
    def of_answers(cls, questions: Questions, answers: LinkAnswers) -> ScoredTriples:
        """The triples that answers make with their questions, question by question, best first."""
        row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
        node, asked = answers.node[row, column], questions.node[row]
        is_object = questions.asks_objects()[row]
        subject, object_ = torch.where(is_object, asked, node), torch.where(is_object, node, asked)
        share = answers.probability
        return cls(
            torch.stack([subject, questions.relation[row], object_], dim=1).numpy(),
            answers.score[row, column].float().numpy(),
            None if share is None else share[row, column].float().numpy(),
            answers.known[row, column].numpy(),
        )


def answer_links(
    model: AnsweringModel, questions: Questions, k: int = 10, known: Known = "mark", *, by_example: bool = True
) -> LinkAnswers:
    """The k best answers to many questions at once: the one top-k of this package.

    known       "mark" or "drop"     training triples are marked, or left out
    by_example  leave out answers that the training triples rule out by example (`GraphExamples`): known ones turned
                round, where a relation only goes one way, and the given node itself, where no node is linked to itself.
                DistMult cannot tell these from true ones and would put them first

    All questions are scored together, and the best are picked in one pass over the scores: fifty questions cost little
    more than the product itself, far less than fifty calls. Safe to call from several threads. Scores of more than
    64 MB are made in parts.
    """
    _check(model, questions, k, known)
    node, score, is_known = _best(model, questions, k, known, by_example)
    probability, calibration = None, _calibration(model)
    if calibration is not None:
        probability = calibration.link_probabilities(score).masked_fill_(node < 0, 0.0)
    return LinkAnswers(node, score, probability, is_known)


def _check(model: AnsweringModel, questions: Questions, k: int, known: str) -> None:
    if k < 1 or known not in ("mark", "drop"):
        raise ConfigError(f'k is at least 1 and known is "mark" or "drop"; got k = {k}, known = {known!r}')
    node, relation, _ = questions
    if node.ndim != 1 or node.shape != relation.shape:
        shapes = f"{list(node.shape)} and {list(relation.shape)}"
        raise DataError(f"questions are a node and a relation each, int64 [q]; got {shapes}")
    graph = model.graph_
    for ids, size, what in ((node, graph.num_nodes, "node"), (relation, graph.num_relations, "relation")):
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= size):
            raise DataError(f"a question refers to a {what} outside 0..{size - 1}")


@torch.no_grad()
def _best(model: AnsweringModel, questions: Questions, k: int, known: Known, by_example: bool) -> Best:
    """The answers, in the order of the questions; those that ask for objects are looked at first."""
    scorer = model.scorer()
    index = KnownTriples.of_graph(model.graph_, "train", device=scorer.device)
    k, rows = min(k, scorer.num_nodes), max(1, BLOCK // (4 * scorer.num_nodes))
    for_objects = questions.asks_objects().cpu()
    order = torch.argsort(~for_objects, stable=True)
    found: list[Best] = [(torch.empty(0, k, dtype=torch.int64), torch.empty(0, k), torch.empty(0, k).bool())]
    for part in torch.split(order, rows):
        asked = Questions(questions.node[part], questions.relation[part], for_objects[part]).to(scorer.device)
        scores = scorer.scores(asked)
        objects = int(for_objects[part].sum())
        for side, first in ((slice(objects), True), (slice(objects, None), False)):
            node = asked.node[side]
            if len(node):
                marks = Marks.of(model.graph_, index, node, asked.relation[side], first, by_example)
                found.append(best_of(scores[side], k, marks, known == "drop"))
    back = torch.argsort(order)
    node, score, is_known = found[1] if len(found) == 2 else map(torch.cat, zip(*found, strict=True))
    return node[back], score[back], is_known[back]


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
    if calibration.ruled_out_share is not None:
        out = is_ruled_out(model.graph_, KnownTriples.of_graph(model.graph_, "train"), triples.cpu())
        probability[out.to(probability.device)] = calibration.ruled_out_share
    return probability


def best_of(
    scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor | None = None, floor: float = -torch.inf
) -> Best:
    """The k best columns of each row of scores [q, n], best first; -1, -inf and False where there are fewer.

    marks       what is known of the answers to each row's question; what examples rule out is left out
    drop        whether known answers are left out; else they are marked
    candidates  int64 [n], ascending: the nodes that the columns are; by default all nodes in order
    floor       only scores above it count
    """
    k = min(k, scores.shape[1])
    if candidates is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    compiled = _compiled() if scores.device.type == "cpu" and k <= LONGEST_LIST else None
    if compiled is None or scores.dtype not in (torch.float32, torch.float64):
        return _plainly(scores, k, marks, drop, candidates, floor)
    size = len(scores)
    node, score, is_known = (torch.empty(size, k, dtype=kind) for kind in (torch.int64, scores.dtype, torch.bool))
    known = (marks.known.node, marks.known_begin, marks.known_end)
    turned = (marks.turned.node, marks.turned_begin, marks.turned_end)
    given = (scores, candidates, *known, *turned, marks.own)
    lowest = scores.new_full((size,), floor)
    arrays: list[Any] = [tensor.contiguous().numpy() for tensor in given]
    arrays += [drop, *[tensor.numpy() for tensor in (lowest, node, score, is_known)]]
    threads = torch.get_num_threads()
    if threads == 1 or scores.numel() < WORTH_A_THREAD:
        strange = compiled.best(0, size, *arrays)
    else:
        cuts = [size * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            strange = sum(pool.map(lambda cut: compiled.best(*cut, *arrays), pairwise(cuts)))
    if strange:
        _refuse_strange()
    return node, score, is_known


def _plainly(scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor, floor: float) -> Best:
    """In PyTorch, on any device."""
    if bool(scores.isnan().any()):
        _refuse_strange()
    known = _mask(scores, candidates, *marks.known_nodes())
    ruled_out = _mask(scores, candidates, *marks.ruled_out())
    out = (scores <= floor) | (known | ruled_out if drop else ruled_out & ~known)
    ordered = torch.sort(scores.masked_fill(out, -torch.inf), dim=1, descending=True, stable=True)
    column, score = ordered.indices[:, :k], ordered.values[:, :k]
    nothing = out.gather(1, column)
    node, is_known = candidates[column].masked_fill(nothing, -1), known.gather(1, column) & ~nothing
    return node.cpu(), score.cpu(), is_known.cpu()


def _mask(scores: Tensor, candidates: Tensor, row: Tensor, node: Tensor) -> Tensor:
    """bool like the scores: true at these nodes of these rows, as far as they are candidates."""
    mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    if len(candidates):
        column = torch.searchsorted(candidates, node).clamp_(max=len(candidates) - 1)
        is_candidate = candidates[column] == node
        mask[row[is_candidate], column[is_candidate]] = True
    return mask


def _refuse_strange() -> NoReturn:
    raise DataError("the scores contain NaN: nothing can be ranked by them; the training has probably diverged")


@cache
def _compiled() -> ModuleType | None:
    """The numba loop; None where numba does not run. Same answers, another speed."""
    try:
        from rgcn.answers import _best
    except ImportError:
        return None
    return _best
