"""Missing ends of triples: the best objects of (subject, relation, ?), the best subjects of (?, relation, object).

Exact, known answers marked or left out. Equal scores come in the order of a hash of the names (`ties`), not of the ids,
which follow the order of the input's rows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.calibration import AnsweringModel, Calibration
from rgcn.answers.relation_rules import Marks, Permitted, mark, rules_of
from rgcn.answers.ties import settle_ties
from rgcn.errors import ConfigError, DataError
from rgcn.graph import Vocabulary
from rgcn.known import KnownTriples
from rgcn.processes import Processes
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
    # float [q, k]: calibrated; 0 there, NaN for what is known. None where there was nothing to calibrate on
    probability: Tensor | None
    known: Tensor  # bool [q, k]: whether it is a training triple
    expected: Tensor  # int8 [q]: OPEN, FINISHED or SENSELESS (`RelationRules.expectation`)

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, eq=False)
class ScoredTriples:
    """Triples with what a model says of them."""

    triples: NDArray[np.int64]  # [n, 3]
    score: NDArray[np.float32]  # [n]: the model's own number
    # [n]: calibrated; NaN for what is known. None where there was nothing to calibrate on
    probability: NDArray[np.float32] | None
    known: NDArray[np.bool_]  # [n]: whether it is a training triple

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> ScoredTriples:
        share = None if self.probability is None else self.probability[part]
        return ScoredTriples(self.triples[part], self.score[part], share, self.known[part])

    def at_least(self, probability: float) -> ScoredTriples:
        """Those that are known, or at least so probable."""
        return self if self.probability is None else self[self.known | (self.probability >= probability)]

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
    model: AnsweringModel,
    questions: Questions,
    k: int = 10,
    known: Known = "mark",
    permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
) -> LinkAnswers:
    """The k best answers to many questions at once: the one top-k of this package.

    known      "mark" or "drop"     training triples are marked, or left out
    permitted  which answers make sense (`RelationRules`); `EVERYTHING` permits all. Where none does, only known ones
               are given, and `expected` says why

    All questions are scored together, and the best are picked in one pass over the scores: fifty questions cost little
    more than the product itself, far less than fifty calls. Safe to call from several threads. Scores of more than
    64 MB are made in parts.
    """
    _check(model, questions, k, known)
    permitted = permitted._replace(new=tuple(model.new_nodes))
    index, rules = KnownTriples.of_graph(model.graph_, "train"), rules_of(model.graph_)
    asked = Questions(questions.node.cpu(), questions.relation.cpu(), questions.asks_objects().cpu())
    (node, score, is_known), level = _best(model, asked, k, known, permitted)
    probability, calibration = None, _calibration(model)
    if calibration is not None:
        counts = rules.known_answers(index, asked)
        probability = calibration.answer_probabilities(score, level, counts, rules.answer_place(asked))
        probability = probability.masked_fill_(node < 0, 0.0).masked_fill_(is_known, torch.nan)
    expected = torch.zeros(questions.size, dtype=torch.int8)
    if permitted.nodes != "any":
        expected = rules.expectation(asked, index, permitted.new)
    return LinkAnswers(node, score, probability, is_known, expected)


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
def _best(
    model: AnsweringModel, questions: Questions, k: int, known: Known, permitted: Permitted
) -> tuple[Best, Tensor]:
    """The answers and the levels, in the order of the questions; those that ask for objects are looked at first."""
    scorer = model.scorer()
    index = KnownTriples.of_graph(model.graph_, "train", device=scorer.device)
    k, rows = min(k, scorer.num_nodes), max(1, BLOCK // (4 * scorer.num_nodes))
    for_objects = questions.asks_objects()
    order = torch.argsort(~for_objects, stable=True)
    found: list[Best] = [(torch.empty(0, k, dtype=torch.int64), torch.empty(0, k), torch.empty(0, k).bool())]
    levels, shards, candidates = [torch.empty(0)], scorer.shards, None
    if shards is not None:  # each looks among its own nodes
        candidates = torch.sort(shards.own.to(scorer.device)).values
    for part in torch.split(order, rows):
        asked = questions.take(part).to(scorer.device)
        if shards is None or candidates is None:
            scores = scorer.scores(asked)
        else:
            scores = scorer.own(asked).scores(asked, shards.place(candidates))
        objects = int(for_objects[part].sum())
        for side, first in ((slice(objects), True), (slice(objects, None), False)):
            node = asked.node[side]
            if len(node):
                marks = Marks.of(model.graph_, index, node, asked.relation[side], first, permitted, candidates)
                names, rounding = model.graph_.nodes, scorer.rounding
                best = best_of(scores[side], k, marks, known == "drop", names, candidates, rounding)
                group = None if shards is None else shards.group
                found.append(best if group is None else merged(best, k, group, names))
                levels.append(level_of(scores[side], marks, candidates, group=group).cpu())
    back = torch.argsort(order)
    node, score, is_known = found[1] if len(found) == 2 else map(torch.cat, zip(*found, strict=True))
    return (node[back], score[back], is_known[back]), torch.cat(levels)[back]


def merged(best: Best, k: int, group: Processes, names: Vocabulary) -> Best:
    """The k best of what each process found among its own nodes; equal ones by their names' hashes, as in one."""
    missing = k - best[0].shape[1]
    whole = [F.pad(part, (0, missing), value=fill) for part, fill in zip(best, (-1, -torch.inf, False), strict=True)]
    every = [group.gather(part.to(group.device)).cpu().view(group.size, len(part), k) for part in whole]
    node, score, is_known = (part.transpose(0, 1).flatten(1) for part in every)
    keys = names.keys(node.clamp(min=0).flatten().numpy()).reshape(node.shape)
    by_key = torch.from_numpy(np.argsort(keys, axis=1, kind="stable"))
    order = by_key.gather(1, torch.argsort(score.gather(1, by_key), dim=1, descending=True, stable=True))[:, :k]
    return node.gather(1, order), score.gather(1, order), is_known.gather(1, order)


def level_of(
    scores: Tensor,
    marks: Marks,
    candidates: Tensor | None = None,
    hidden: tuple[Tensor, Tensor] | None = None,
    group: Processes | None = None,
) -> Tensor:
    """[q]: log Σ exp(score) over the answers to each question that are neither known nor forbidden; 0 without any.

    Models learn to tell the answers to one question apart: only less this are scores of several questions comparable.

    candidates  int64 [n], ascending: the nodes that the columns are; by default all nodes in order
    hidden      (question, node) of answers that count as new, whatever is known
    group       processes of which each has other candidates
    """
    nothing = marks.out.clone()
    if candidates is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    mark(nothing, candidates, *marks.known_nodes())
    if hidden is not None:
        nothing[hidden] = False
    level = torch.logsumexp(scores.masked_fill(nothing, -torch.inf), dim=1)
    if group is not None:
        level = torch.logsumexp(group.gather(level.to(group.device)).view(group.size, -1), dim=0)
    return torch.where(torch.isfinite(level), level, 0.0)


def _calibration(model: AnsweringModel) -> Calibration | None:
    """None where there was nothing to calibrate on; what was fitted to classes says nothing about links."""
    calibration = model.calibration_
    return calibration if calibration.fitted and calibration.kind != "classes" else None


class QuestionStanding(NamedTuple):
    """What a calibration asks of q questions (`LinkCurve.probabilities`), [q] each, on the CPU."""

    level: Tensor
    known: Tensor
    place: Tensor


@torch.no_grad()
def standing_of(model: AnsweringModel, triples: Tensor) -> tuple[QuestionStanding, Tensor]:
    """Of the questions (subject, relation, ?) that triples int64 [n, 3] answer; and bool [n], which are forbidden.

    A known triple is hidden, where the model can hide it.
    """
    graph, scorer = model.graph_, model.scorer()
    index, rules = KnownTriples.of_graph(graph, "train", device=scorer.device), rules_of(graph)
    permitted, found = Permitted(new=tuple(model.new_nodes)), [(torch.empty(0), torch.empty(0, dtype=torch.bool))]
    for part in torch.split(triples.to(scorer.device), max(1, BLOCK // (4 * scorer.num_nodes))):
        subject, relation, object_ = part.unbind(1)
        scores = scorer.scores_hiding(Questions(subject, relation), object_)
        marks = Marks.of(graph, index, subject, relation, True, permitted)
        forbidden = marks.out.gather(1, object_[:, None]).squeeze(1).cpu()
        row = torch.nonzero(index.contains(part)).squeeze(1)
        for number in row.tolist():  # that it is there told what rules expect: as `hidden_examples` has it
            marks.out[number] = rules.outside(int(relation[number]) + graph.num_relations, "seen").to(scores.device)
        found.append((level_of(scores, marks, hidden=(row, object_[row])).cpu(), forbidden))
    level, out = map(torch.cat, zip(*found, strict=True))
    questions, there = Questions(triples[:, 0], triples[:, 1]), index.contains(triples.to(scorer.device)).cpu()
    known = rules.known_answers(index.to("cpu"), questions) - there.long()
    return QuestionStanding(level, known, rules.answer_place(questions)), out & ~there


def forbidden(model: AnsweringModel, triples: Tensor) -> Tensor:
    """bool [n], on the CPU: which of triples int64 [n, 3] are not known and rules forbid; no score is computed."""
    graph, (subject, relation, object_) = model.graph_, triples.cpu().unbind(1)
    index, candidates = KnownTriples.of_graph(graph, "train"), torch.unique(object_)
    marks = Marks.of(graph, index, subject, relation, True, Permitted(new=tuple(model.new_nodes)), candidates)
    out = marks.out.gather(1, torch.searchsorted(candidates, object_)[:, None]).squeeze(1)
    return out & ~index.contains(triples.cpu())


def triple_probabilities(model: AnsweringModel, triples: Tensor, scores: Tensor) -> Tensor | None:
    """Calibrated probabilities [n] of given triples int64 [n, 3] and their scores [n]: as `answer_links` has them.

    A known triple is in the data: NaN. One that is not known and that rules forbid is given what such triples had in
    the validation split. None where there was nothing to calibrate on.
    """
    calibration = _calibration(model)
    if calibration is None:
        return None
    standing, out = standing_of(model, triples)
    probability = calibration.answer_probabilities(scores.cpu()[:, None], *standing).squeeze(1)
    if calibration.ruled_out_share is not None:
        probability[out] = calibration.ruled_out_share
    known = KnownTriples.of_graph(model.graph_, "train").contains(triples.cpu())
    return probability.masked_fill_(known, torch.nan).to(scores.device)


def best_of(
    scores: Tensor,
    k: int,
    marks: Marks,
    drop: bool,
    names: Vocabulary,
    candidates: Tensor | None = None,
    rounding: float = 0.0,
) -> Best:
    """The k best columns of each row of scores [q, n], best first; -1, -inf and False where there are fewer.

    marks       what is known of the answers to each row's question; what rules forbid is left out
    drop        whether known answers are left out; else they are marked
    names       of all nodes: equal scores come in the order of the names' hashes
    candidates  int64 [n], ascending: the nodes that the columns are; by default all nodes in order
    rounding    scores that differ by less than this share are equal
    """
    k = min(k, scores.shape[1])
    if candidates is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    compiled = _compiled() if scores.device.type == "cpu" and k < LONGEST_LIST else None
    plainly = compiled is None or scores.dtype not in (torch.float32, torch.float64)
    one_more = min(k + 1, scores.shape[1])  # shows whether the last one is as good as others that are left out
    found = (_plainly if plainly else _compiled_best)(scores, one_more, marks, drop, candidates)

    def scores_of(row: int) -> Tensor:
        nothing, known = marks.out[row : row + 1].clone(), marks.known[marks.known_begin[row] : marks.known_end[row]]
        there = torch.zeros_like(nothing)
        mark(there, candidates, torch.zeros_like(known), known)
        return scores[row].masked_fill((nothing | there if drop else nothing & ~there)[0], -torch.inf)

    node, score, rows = settle_ties(found[0], found[1], k, scores_of, candidates, names, rounding)
    is_known = found[2][:, :k].clone()
    for row in rows:
        is_known[row] = torch.isin(node[row], marks.known[marks.known_begin[row] : marks.known_end[row]].cpu())
    return node, score, is_known


def _compiled_best(scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor) -> Best:
    """By numba, on the CPU; of equal scores the first column comes first."""
    compiled, size = _compiled(), len(scores)
    assert compiled is not None
    node, score, is_known = (torch.empty(size, k, dtype=kind) for kind in (torch.int64, scores.dtype, torch.bool))
    arrays: list[Any] = [tensor.contiguous().numpy() for tensor in (scores, candidates, *marks)]
    arrays += [drop, *[tensor.numpy() for tensor in (node, score, is_known)]]
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


def _plainly(scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor) -> Best:
    """In PyTorch, on any device; of equal scores the first column comes first."""
    if bool(scores.isnan().any()):
        _refuse_strange()
    known = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    if len(candidates):
        mark(known, candidates, *marks.known_nodes())
    out = (scores == -torch.inf) | (known | marks.out if drop else marks.out & ~known)
    ordered = torch.sort(scores.masked_fill(out, -torch.inf), dim=1, descending=True, stable=True)
    column, score = ordered.indices[:, :k], ordered.values[:, :k]
    nothing = out.gather(1, column)
    node, is_known = candidates[column].masked_fill(nothing, -1), known.gather(1, column) & ~nothing
    return node.cpu(), score.cpu(), is_known.cpu()


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
