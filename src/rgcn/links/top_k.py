"""Missing ends of triples: the best objects of (subject, relation, ?), the best subjects of (?, relation, object).

Exact, known answers marked or left out. Equal scores come in the order of a hash of the names, not of the ids,
which follow the order of the input's rows.

An answer has the score of the direction that was asked; a given triple (`rate_triples`) the mean of both directions.
Either way a known triple is hidden while it is scored, where the model can hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
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

from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.links.calibration import AnsweringModel, Calibration
from rgcn.links.relation_constraints import OPEN, Permitted, rules_of
from rgcn.nn.scorer import Questions, Scorer
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.progress import Budget

Known = Literal["mark", "drop"]

# Scores held at once, in bytes; fifty questions over the nodes of WN18 are 8 MB.
BLOCK = 64 << 20
# Known answers to a question that may be shown by a model which hides them: each costs a question of its own. As many
# whatever k is, so that a longer list begins with the shorter one. Fewer where so many cost more work than this
# (`Scorer.work`), one at least.
MOST_KNOWN, KNOWN_WORK = 20, 1e11
# A list is kept in order by moving its members; of more than these, sorting everything is cheaper.
LONGEST_LIST = 512
# Fewer comparisons than this are done before a second thread has woken up.
WORTH_A_THREAD = 4_000_000

Best = tuple[Tensor, Tensor, Tensor]  # node int64 [q, k], score float [q, k], known bool [q, k]; on the CPU


@dataclass(frozen=True, eq=False)
class LinkAnswers:
    """The best answers to q questions, best first, on the CPU; k as asked for, or all nodes if they are fewer."""

    node: Tensor  # int64 [q, k]: -1 where a question has fewer than k answers
    score: Tensor  # float [q, k]: the model's own numbers, of known triples as if they were not known; -inf there
    # float [q, k]: calibrated; 0 there, NaN for what is known. None where there was nothing to calibrate on
    probability: Tensor | None
    known: Tensor  # bool [q, k]: whether it is a training triple
    expected: Tensor  # int8 [q]: OPEN, FINISHED or SENSELESS (`RelationRules.expectation`)
    not_shown: Tensor  # int64 [q]: known answers that would fit into k and were left out (`most_known`)

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
    # [n]: what is to be said of the question that each answers, or None; None where they answer none
    note: NDArray[np.object_] | None

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> ScoredTriples:
        columns = self.triples, self.score, self.probability, self.known, self.note
        return ScoredTriples(*(None if column is None else column[part] for column in columns))  # type: ignore[arg-type]

    def at_least(self, probability: float) -> ScoredTriples:
        """Those that are known, or at least so probable."""
        return self if self.probability is None else self[self.known | (self.probability >= probability)]

    @classmethod
    def of_answers(
        cls, questions: Questions, answers: LinkAnswers, notes: Sequence[str | None] | None = None
    ) -> ScoredTriples:
        """The triples that answers make with their questions, question by question, best first; notes: on each."""
        row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
        node, asked = answers.node[row, column], questions.node[row]
        is_object = questions.asks_objects()[row]
        subject, object_ = torch.where(is_object, asked, node), torch.where(is_object, node, asked)
        share = answers.probability
        return cls(
            torch.stack([subject, questions.relation[row], object_], dim=1).numpy(),
            _numbers(answers.score[row, column]),
            None if share is None else _numbers(share[row, column]),
            answers.known[row, column].numpy(),
            None if notes is None else np.array(notes, dtype=object)[row.numpy()],
        )


def _numbers(column: Tensor) -> NDArray[Any]:
    return column.to(torch.promote_types(column.dtype, torch.float32)).numpy()  # NumPy has no bfloat16


def answer_links(
    model: AnsweringModel,
    questions: Questions,
    k: int = 10,
    known: Known = "mark",
    permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
) -> LinkAnswers:
    """The k best answers to many questions at once: the one top-k of this package.

    known      "mark" or "drop"     training triples are marked, or left out. A model that can hide a triple it is asked
                                    about ranks each by its score while it is hidden, among the new answers; of each
                                    question 20 at most (`most_known`), those that score highest while nothing is hidden
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
    counts = rules.known_answers(index, asked)
    if calibration is not None:
        probability = calibration.answer_probabilities(score, level, counts, rules.answer_place(asked))
        probability = probability.masked_fill_(node < 0, 0.0).masked_fill_(is_known, torch.nan)
    expected = torch.zeros(questions.size, dtype=torch.int8)
    if permitted.nodes != "any":
        expected = rules.expectation(asked, index, permitted.new)
    most = most_known(model.scorer()) if known == "mark" and model.scorer().hides else k
    not_shown = (counts - most).clamp(min=0) * (k > most)
    return LinkAnswers(node, score, probability, is_known, expected, not_shown)


def most_known(scorer: Scorer) -> int:
    """How many known answers to a question may be shown by a model that hides them: it follows from counts alone."""
    return max(1, Budget(KNOWN_WORK).times(scorer.work, MOST_KNOWN))


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
    scorer, names = model.scorer(), model.graph_.nodes
    index = KnownTriples.of_graph(model.graph_, "train", device=scorer.device)
    k, rows = min(k, scorer.num_nodes), max(1, BLOCK // (4 * scorer.num_nodes))
    for_objects = questions.asks_objects()
    order = torch.argsort(~for_objects, stable=True)
    found: list[Best] = [(torch.empty(0, k, dtype=torch.int64), torch.empty(0, k), torch.empty(0, k).bool())]
    levels, partition, candidates, among = [torch.empty(0)], scorer.placement.partition, None, None
    if partition is not None:  # each process looks among its local nodes
        candidates = torch.sort(partition.nodes.to(scorer.device)).values
        among = partition.row(candidates)
    for part in torch.split(order, rows):
        together = questions.take(part).to(scorer.device)
        every, objects = scorer.local(together).scores(together, among), int(for_objects[part].sum())
        for side, first in ((slice(objects), True), (slice(objects, None), False)):
            asked, scores = together.take(side)._replace(for_objects=first), every[side]
            if not asked.size:
                continue
            marks = Marks.of(model.graph_, index, asked, permitted, candidates)
            drop = known == "drop" or scorer.hides
            best = best_of(scores, k, marks, drop, names, candidates, scorer.rounding)
            if known == "mark" and scorer.hides:
                best = _with_known(model, asked, scores, best, k, marks)
            found.append(best if partition is None else merged(best, k, scorer.placement, names))
            levels.append(level_of(scores, marks, candidates, scorer.placement).cpu())
    back = torch.argsort(order)
    node, score, is_known = found[1] if len(found) == 2 else map(torch.cat, zip(*found, strict=True))
    return (node[back], score[back], is_known[back]), torch.cat(levels)[back]


def _with_known(model: AnsweringModel, questions: Questions, scores: Tensor, new: Best, k: int, marks: Marks) -> Best:
    """The k best of new answers and of known ones, each of these scored as if its triple were not known."""
    scorer, names, only_known = model.scorer(), model.graph_.nodes, marks._replace(out=torch.ones_like(marks.out))
    node, score, is_known = best_of(scores, most_known(scorer), only_known, False, names, rounding=scorer.rounding)
    row, column = torch.nonzero(is_known, as_tuple=True)
    if len(row):
        score[row, column] = scorer.answer_scores(questions.take(row), node[row, column]).cpu()
    both = (torch.cat(pair, dim=1) for pair in zip(new, (node, score, is_known), strict=True))
    return first_of(tuple(both), k, names, scorer.rounding)  # type: ignore[arg-type]


def _calibration(model: AnsweringModel) -> Calibration | None:
    """None where there was nothing to calibrate on; what was fitted to classes says nothing about links."""
    calibration = model.calibration_
    return calibration if calibration.fitted and calibration.curve is not None else None


@dataclass(frozen=True, eq=False)
class TripleStanding:
    """Each of n triples as an answer: row 0 of [2, n] to (subject, relation, ?), row 1 to (?, relation, object).

    On the CPU. A known triple is hidden while its score and its level are computed, where the model can hide it.
    """

    scores: Tensor  # float [2, n]
    level: Tensor  # float [2, n], as `level_of`
    known_answers: Tensor  # int64 [2, n]: how many answers the question has, but for this one
    place: Tensor  # int64 [2, n]: where the answer stands (`RelationRules.answer_place`)
    forbidden: Tensor  # bool [2, n]: it is not known, and rules leave it out of the answers
    known: Tensor  # bool [n]

    @property
    def score(self) -> Tensor:
        """float64 [n]: of the triples, the mean of both directions."""
        return self.scores.double().mean(0)

    @property
    def ruled_out(self) -> Tensor:
        """bool [n]: left out of the answers from whichever end one asks."""
        return self.forbidden.all(0)

    def by_scores(self, calibration: Calibration, scores: Tensor) -> Tensor:
        """[n]: the probabilities that these scores [2, n] would give, whether the triples are known or ruled out.

        The mean over the directions in which rules permit the answer; over both where they permit it in none.
        """
        columns = (part.flatten() for part in (self.level, self.known_answers, self.place))
        found = calibration.answer_probabilities(scores.reshape(-1, 1), *columns).view(2, -1)
        counted = ~self.forbidden | self.ruled_out
        return (found * counted).sum(0) / counted.sum(0)

    def probability(self, calibration: Calibration | None) -> Tensor | None:
        """[n]: the mean of what the answer is given in each direction; of a known triple, which is in the data, NaN.

        One that is ruled out is given what such triples had in the validation split. None without a calibration.
        """
        if calibration is None:
            return None
        found = self.by_scores(calibration, self.scores)
        if calibration.ruled_out_share is not None:
            found[self.ruled_out] = calibration.ruled_out_share
        return found.masked_fill_(self.known, torch.nan)


@torch.no_grad()
def standing_of(model: AnsweringModel, triples: Tensor) -> TripleStanding:
    """How triples int64 [n, 3] stand among the other answers to the two questions that each is an answer to."""
    graph, triples = model.graph_, triples.cpu()
    index, rules = KnownTriples.of_graph(graph, "train"), rules_of(graph)
    known, columns = index.contains(triples), list[tuple[Tensor, ...]]()
    for for_objects in (True, False):
        node, relation, answer = triples[:, [0, 1, 2] if for_objects else [2, 1, 0]].unbind(1)
        questions = Questions(node, relation, for_objects)
        score, level, forbidden = _as_answers(model, questions, answer, known)
        counts = rules.known_answers(index, questions) - known.long()
        columns.append((score, level, counts, rules.answer_place(questions), forbidden))
    score, level, counts, place, forbidden = map(torch.stack, zip(*columns, strict=True))
    return TripleStanding(score, level, counts, place, forbidden, known)


def _as_answers(
    model: AnsweringModel, questions: Questions, answers: Tensor, known: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of one answer int64 [q] to each question its score, the level it is compared with, and whether rules forbid it.

    Answers that are not known (bool [q]) and have the same question share one row of scores.
    """
    graph, scorer = model.graph_, model.scorer()
    index, permitted = KnownTriples.of_graph(graph, "train", device=scorer.device), Permitted(new=model.new_nodes)
    alone = torch.where(known, 1 + torch.arange(len(known)), 0)
    keys = torch.stack([questions.node, questions.relation, alone], dim=1)
    distinct, row = torch.unique(keys, dim=0, return_inverse=True)
    numbers, size = torch.arange(len(row)), max(1, BLOCK // (4 * scorer.num_nodes))
    one = numbers.new_zeros(len(distinct)).scatter_reduce(0, row, numbers, "amin", include_self=False)  # of each row
    parts, order = [(torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.bool))], torch.argsort(row, stable=True)
    for first, chosen in zip(range(0, len(one), size), torch.split(one, size), strict=True):
        asked, answer = questions.take(chosen).to(scorer.device), answers[chosen].to(scorer.device)
        scores, hidden = scorer.scores_hiding(asked, answer), torch.where(known[chosen].to(answer.device), answer, -1)
        marks = Marks.of(graph, index, asked, permitted, hidden=hidden)
        mine = order[(row[order] >= first) & (row[order] < first + size)]
        at = (row[mine] - first).to(scorer.device), answers[mine].to(scorer.device)
        score, level = scores[at], level_of(scores, marks)[at[0]]
        parts.append((score.cpu(), level.cpu(), marks.out[at].cpu() & ~known[mine]))
    back = torch.argsort(order)
    score, level, forbidden = map(torch.cat, zip(*parts, strict=True))
    return score[back], level[back], forbidden[back]


@torch.no_grad()
def rate_triples(model: AnsweringModel, triples: Tensor) -> tuple[Tensor, Tensor | None]:
    """(scores [n], calibrated probabilities [n]) of given triples int64 [n, 3]: the mean of both directions.

    A known triple is hidden while it is scored, where the model can hide it; it is in the data, and its probability is
    NaN. One that rules leave out of the answers from one end has the probability of the other; one that they leave out
    from both, what such triples had in the validation split. No probabilities where there was nothing to calibrate on.
    """
    calibration = _calibration(model)
    if calibration is None:
        return model.scorer().triple_scores(triples).cpu(), None
    standing = standing_of(model, triples)
    return standing.score, standing.probability(calibration)


class Marks(NamedTuple):
    """What is known of the answers to q questions: those of question i are known[known_begin[i] : known_end[i]]."""

    known: Tensor  # int64: nodes
    known_begin: Tensor
    known_end: Tensor
    out: Tensor  # bool [q, n]: which candidates rules leave out, unless they are known

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        index: KnownTriples,
        questions: Questions,
        permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
        candidates: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Marks:
        """Of questions that all ask for objects, or all for subjects.

        Args:
            graph: Its training triples and ontology say what rules forbid.
            index: What is known.
            questions: On the device where the marks are wanted; `for_objects` is one bool.
            permitted: Which rules hold.
            candidates: int64 [n], ascending: the nodes that the columns are; by default all nodes in order.
            hidden: int64 [q]: a known answer to each question that counts as a new one, or -1.
        """
        given, relation, for_objects = questions
        key, device, rules = given * index.num_relations + relation, given.device, rules_of(graph)
        same, other = (index.objects, index.subjects) if for_objects else (index.subjects, index.objects)
        begin, end = same.ranges(key)
        chosen: Tensor | slice = slice(None) if candidates is None else candidates
        if candidates is None:
            candidates = torch.arange(graph.num_nodes, device=device)
        out = torch.zeros(len(given), len(candidates), dtype=torch.bool, device=device)
        places = rules.answer_place(questions).tolist()
        if permitted.nodes != "any":
            for number, place in enumerate(places):
                out[number] = rules.outside(place, permitted.nodes).to(device)[chosen]
            if permitted.new:
                out[:, torch.isin(candidates, torch.tensor(permitted.new, device=device))] = False
            expected = rules.expectation(questions, index, permitted.new)
            out[(expected != OPEN).to(device)] = True
        if permitted.directions and len(candidates):
            found = (rules.one_way, rules.without_loops)
            one_way, without_loops = (torch.from_numpy(of).to(device)[relation] for of in found)
            turned_begin, turned_end = other.ranges(key)
            row, node = other.expand(turned_begin, torch.where(one_way, turned_end, turned_begin))
            own = torch.nonzero(without_loops).squeeze(1)
            mark(out, candidates, torch.cat([row, own]), torch.cat([node, given[own]]))
        row, node = same.expand(begin, end)
        if hidden is not None:
            # That its node has this answer told what rules expect of it: then only who can stand there counts.
            for number in torch.nonzero(hidden >= 0).flatten().tolist():
                out[number] = rules.outside(places[number], "seen").to(device)[chosen]
            heard = node != hidden[row]
            node, end = node[heard], begin + torch.bincount(row[heard], minlength=len(given))
        stop = torch.cumsum(end - begin, 0)
        return cls(node, stop - (end - begin), stop, out)

    def known_nodes(self) -> tuple[Tensor, Tensor]:
        """(question, node) of every known answer."""
        return torch.repeat_interleave(self.known_end - self.known_begin), self.known

    def take(self, row: int) -> Marks:
        """Those of one question."""
        begin, end = int(self.known_begin[row]), int(self.known_end[row])
        known = self.known[begin:end]
        return Marks(known, known.new_tensor([0]), known.new_tensor([end - begin]), self.out[row : row + 1])


def mark(table: Tensor, candidates: Tensor, row: Tensor, node: Tensor) -> Tensor:
    """Set bool [q, n] true at these nodes of these rows, where they are among the candidates int64 [n], ascending."""
    if len(candidates):
        column = torch.searchsorted(candidates, node).clamp_(max=len(candidates) - 1)
        there = candidates[column] == node
        table[row[there], column[there]] = True
    return table


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

    Args:
        scores: A row for each question.
        k: How many are wanted.
        marks: What is known of the answers to each row's question; what rules forbid is left out.
        drop: Whether known answers are left out; else they are marked.
        names: Of all nodes: equal scores come in the order of the names' hashes.
        candidates: int64 [n], ascending: the nodes that the columns are; by default all nodes in order.
        rounding: Of two scores that differ by less than this share of them, none is higher (`Scorer.rounding`).
    """
    k, size = min(k, scores.shape[1]), scores.shape[1]
    if candidates is None:
        candidates = torch.arange(size, device=scores.device)
    is_fast = scores.device.type == "cpu" and k < LONGEST_LIST and scores.dtype in (torch.float32, torch.float64)
    find = _compiled_best if is_fast and _compiled() is not None else _plainly
    one_more = find(scores, min(k + 1, size), marks, drop, candidates)  # as good as the last one?
    node, score, is_known = best = tuple(part[:, :k] for part in one_more)
    for row in torch.nonzero((~_falls(one_more[1], rounding) & torch.isfinite(one_more[1][:, 1:])).any(1)).flatten():
        every = _plainly(scores[row : row + 1], size, marks.take(int(row)), drop, candidates)
        level = torch.cumsum(_falls(every[1][0], rounding), 0)  # of the second score and all after it
        count = 1 + int((level <= (level[k - 2] if k > 1 else 0)).sum())
        node_of, score_of, known_of = (part[:, :count] for part in every)
        chosen = first_of((node_of, score_of, known_of), k, names, rounding)
        for part, found in zip(best, chosen, strict=True):
            part[row] = found[0]
    return node, score, is_known


def first_of(found: Best, k: int, names: Vocabulary, rounding: float = 0.0) -> Best:
    """The k best of nodes and scores [q, n] in any order, best first, equal ones by their names' hashes."""
    node, score, _ = found
    by_score = torch.argsort(score, dim=1, descending=True, stable=True)
    level = torch.cumsum(_falls(score.gather(1, by_score), rounding), 1)
    keys = names.keys(node.gather(1, by_score).clamp(min=0).flatten().numpy()).reshape(node.shape)
    order = np.lexsort((keys, np.pad(level.numpy(), ((0, 0), (1, 0)))))
    best = by_score.gather(1, torch.from_numpy(order[:, :k]))
    return tuple(part.gather(1, best) for part in found)  # type: ignore[return-value]


def _falls(score: Tensor, rounding: float) -> Tensor:
    """bool [..., n - 1]: whether each score but the first is lower than the one before it."""
    before, after = score[..., :-1], score[..., 1:]
    return before - after > rounding * before.abs().clamp(min=1.0)


def merged(best: Best, k: int, placement: Placement, names: Vocabulary) -> Best:
    """The k best of what each process found among its local nodes."""
    missing = k - best[0].shape[1]
    whole = [F.pad(part, (0, missing), value=fill) for part, fill in zip(best, (-1, -torch.inf, False), strict=True)]
    every = [placement.stack_over_nodes(part).cpu() for part in whole]
    node, score, is_known = (part.transpose(0, 1).flatten(1) for part in every)
    return first_of((node, score, is_known), k, names)


def level_of(scores: Tensor, marks: Marks, candidates: Tensor | None = None, placement: Placement = LOCAL) -> Tensor:
    """[q]: log Σ exp(score) over the answers to each question that are neither known nor forbidden; 0 without any.

    Models learn to tell the answers to one question apart: only less this are scores of several questions comparable.

    Args:
        scores: [q, n].
        marks: What is known of the answers.
        candidates: int64 [n], ascending: the nodes that the columns are; by default all nodes in order.
        placement: Of the scorer: where nodes are divided among processes, each has other candidates.
    """
    if candidates is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    nothing = mark(marks.out.clone(), candidates, *marks.known_nodes())
    level = torch.logsumexp(scores.masked_fill(nothing, -torch.inf), dim=1)
    if placement.partition is not None:
        level = torch.logsumexp(placement.stack_over_nodes(level), dim=0)
    return torch.where(torch.isfinite(level), level, 0.0)


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
    known = mark(torch.zeros_like(marks.out), candidates, *marks.known_nodes())
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
        from rgcn.links import top_k_loops
    except ImportError:
        return None
    return top_k_loops
