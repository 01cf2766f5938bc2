"""The best objects of (subject, relation, ?) and the best subjects of (?, relation, object).

Results are exact. Known answers are marked or dropped. Equal scores are ordered by a hash of the node names: ids would
depend on the order of the rows of the input.

An answer has the score of the direction that was asked. A given triple (`rate_triples`) has the mean of both
directions. In both cases a known triple is hidden while it is scored, if the model can hide triples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.kernels import reference
from rgcn.kernels.dispatch import kernels_for
from rgcn.links.calibration import AnsweringModel, Calibration
from rgcn.links.relation_constraints import OPEN, AnswerFilter, relation_constraints
from rgcn.nn.scorer import Questions, Scorer
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.progress import Budget

KnownMode = Literal["mark", "drop"]

BLOCK_BYTES = 64 << 20  # scores held at once; fifty questions over the nodes of WN18 take 8 MB
# A model that hides triples scores each known answer by a question of its own. The number of known answers does not
# depend on k, so that a longer list begins with the shorter one. Less than MAX_KNOWN, but at least one, if they cost
# more than MAX_KNOWN_WORK (`Scorer.work`).
MAX_KNOWN, MAX_KNOWN_WORK = 20, 1e11
MAX_INSERTION_K = 512  # for a larger k sorting all scores is faster than inserting into a sorted list
MIN_SCORES_FOR_THREADS = 4_000_000  # with fewer scores, starting threads takes longer than the work

Best = tuple[Tensor, Tensor, Tensor]  # node int64 [q, k], score float [q, k], is_known bool [q, k]; on the CPU


@dataclass(frozen=True, eq=False)
class LinkAnswers:
    """The k best answers to q questions, best first, on the CPU. With fewer than k nodes there are fewer columns.

    Args:
        node: int64 [q, k]; -1 where a question has fewer than k answers.
        score: float [q, k]: raw scores, of known triples while they are hidden; -inf where there is no answer.
        probability: float [q, k]: calibrated; NaN for known answers, 0 where there is no answer. None if the model is
            not calibrated.
        known: bool [q, k]: True for training triples.
        status: int8 [q]: OPEN, ANSWERED or IMPLAUSIBLE (`RelationConstraints.question_status`).
        num_omitted: int64 [q]: known answers that were left out because of `max_known`.
    """

    node: Tensor
    score: Tensor
    probability: Tensor | None
    known: Tensor
    status: Tensor
    num_omitted: Tensor


@dataclass(frozen=True, eq=False)
class ScoredTriples:
    """Triples with scores and probabilities.

    Args:
        triples: int64 [n, 3].
        score: float [n]: raw scores.
        probability: float [n]: calibrated; NaN for known triples. None if the model is not calibrated.
        known: bool [n]: True for training triples.
        note: str or None [n]: a note on the question of each triple. None if the triples answer no questions.
    """

    triples: NDArray[np.int64]
    score: NDArray[np.float32]
    probability: NDArray[np.float32] | None
    known: NDArray[np.bool_]
    note: NDArray[np.object_] | None

    def __len__(self) -> int:
        """Return the number of triples."""
        return len(self.triples)

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> ScoredTriples:
        """Return some of the triples."""
        columns = self.triples, self.score, self.probability, self.known, self.note
        return ScoredTriples(*(None if column is None else column[part] for column in columns))  # type: ignore[arg-type]

    def at_least(self, probability: float) -> ScoredTriples:
        """Return the triples that are known or at least this probable; all if there are no probabilities."""
        return self if self.probability is None else self[self.known | (self.probability >= probability)]

    @classmethod
    def of_answers(
        cls, questions: Questions, answers: LinkAnswers, notes: Sequence[str | None] | None = None
    ) -> ScoredTriples:
        """Return the triples that answers form with their questions, question by question, best first.

        Args:
            questions: q questions.
            answers: Their answers.
            notes: A note on each question.
        """
        row, column = torch.nonzero(answers.node >= 0, as_tuple=True)
        node, given = answers.node[row, column], questions.node[row]
        is_object, share = questions.is_for_objects()[row], answers.probability
        subject, object_ = torch.where(is_object, given, node), torch.where(is_object, node, given)
        return cls(
            torch.stack([subject, questions.relation[row], object_], dim=1).numpy(),
            answers.score[row, column].numpy(),
            None if share is None else share[row, column].numpy(),
            answers.known[row, column].numpy(),
            None if notes is None else np.array(notes, dtype=object)[row.numpy()],
        )


def answer_links(
    model: AnsweringModel,
    questions: Questions,
    k: int = 10,
    known: KnownMode = "mark",
    answer_filter: AnswerFilter = AnswerFilter(),  # noqa: B008 - it is immutable
) -> LinkAnswers:
    """Return the k best answers to each question.

    All questions are scored together, and the best answers are selected in one pass over the scores: fifty questions
    take little more time than one matrix product. More than `BLOCK_BYTES` of scores are computed in blocks. The
    function is thread-safe.

    Args:
        model: A trained model with its graph.
        questions: q questions; directions may be mixed.
        k: Number of answers.
        known: Whether training triples are marked or dropped. A model that can hide triples scores known answers while
            they are hidden. Of each question it shows `max_known` of them, those with the best scores while nothing is
            hidden.
        answer_filter: Which answers are allowed. If no new answer is allowed, only known answers are returned, and
            `status` says why.

    Returns:
        The answers in the order of the questions.

    Raises:
        ConfigError: If k or `known` is invalid.
        DataError: If ids are out of range, or scores are NaN.
    """
    graph, scorer, constraints = model.graph_, model.scorer(), relation_constraints(model.graph_)
    _check(graph, questions, k, known)
    answer_filter = answer_filter._replace(new=tuple(model.new_nodes))
    questions = Questions(questions.node.cpu(), questions.relation.cpu(), questions.is_for_objects().cpu())
    node, score, is_known, normalizer, counts = _best_answers(model, questions, k, known, answer_filter)
    probability = model.calibration_.answer_probabilities(score, normalizer, counts, constraints.answer_slot(questions))
    if probability is not None:
        probability = probability.masked_fill_(node < 0, 0.0).masked_fill_(is_known, torch.nan)
    status = torch.full((questions.size,), OPEN, dtype=torch.int8)
    if answer_filter.nodes != "any":
        status = constraints.question_status(questions, KnownTriples.of_graph(graph, "train"), answer_filter.new)
    most = max_known(scorer) if known == "mark" and scorer.can_hide_triples else k
    return LinkAnswers(node, score, probability, is_known, status, (counts - most).clamp(min=0) * (k > most))


def max_known(scorer: Scorer) -> int:
    """Return how many known answers to a question a model that hides triples scores."""
    return max(1, Budget(MAX_KNOWN_WORK).max_repetitions(scorer.work, MAX_KNOWN))


def _check(graph: KnowledgeGraph, questions: Questions, k: int, known: str) -> None:
    if k < 1 or known not in ("mark", "drop"):
        raise ConfigError(f'k must be at least 1 and known "mark" or "drop"; got k = {k}, known = {known!r}')
    node, relation, _ = questions
    if node.ndim != 1 or node.shape != relation.shape:
        shapes = f"{list(node.shape)} and {list(relation.shape)}"
        raise DataError(f"questions are a node and a relation each, int64 [q]; got {shapes}")
    for ids, size, kind in ((node, graph.num_nodes, "node"), (relation, graph.num_relations, "relation")):
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= size):
            raise DataError(f"a question refers to a {kind} outside 0..{size - 1}")


@torch.no_grad()
def _best_answers(
    model: AnsweringModel, questions: Questions, k: int, known: KnownMode, answer_filter: AnswerFilter
) -> Iterator[Tensor]:
    """Return the best answers (`Best`), the normalizers of the questions, and how many answers are known."""
    scorer, names = model.scorer(), model.graph_.nodes
    index = KnownTriples.of_graph(model.graph_, "train", device=scorer.device)
    k, rows = min(k, scorer.num_nodes), max(1, BLOCK_BYTES // (4 * scorer.num_nodes))
    for_objects = questions.is_for_objects()
    order, empty = torch.argsort(~for_objects, stable=True), torch.empty(0, k)
    parts: list[tuple[Tensor, ...]] = [(empty.long(), empty, empty.bool(), torch.empty(0), torch.empty(0).long())]
    partition, candidates, local_rows = scorer.placement.partition, None, None
    if partition is not None:  # each process searches its local nodes
        candidates = torch.sort(partition.nodes.to(scorer.device)).values
        local_rows = partition.row(candidates)
    for block in torch.split(order, rows):
        both = questions.take(block).to(scorer.device)
        scores, num_objects = scorer.local(both).scores(both, local_rows), int(for_objects[block].sum())
        for side, is_object in ((slice(num_objects), True), (slice(num_objects, None), False)):
            part, part_scores = both.take(side)._replace(for_objects=is_object), scores[side]
            if not part.size:
                continue
            mask = AnswerMask.of(model.graph_, index, part, answer_filter, candidates)
            best = best_of(part_scores, k, mask, known == "drop" or scorer.can_hide_triples, names, scorer.rounding)
            if known == "mark" and scorer.can_hide_triples:
                best = _add_known(model, part, part_scores, best, k, mask)
            if partition is not None:
                best = _merge_local(best, k, scorer.placement, names)
            normalizer = question_normalizer(part_scores, mask, scorer.placement)
            parts.append((*best, normalizer.cpu(), mask.num_known.cpu()))
    inverse = torch.argsort(order)
    return (torch.cat(column)[inverse] for column in zip(*parts, strict=True))


def _add_known(
    model: AnsweringModel, questions: Questions, scores: Tensor, new: Best, k: int, mask: AnswerMask
) -> Best:
    """Return the k best of new answers and of known ones, each of which is scored while it is hidden."""
    scorer, names, only_known = model.scorer(), model.graph_.nodes, torch.ones_like(mask.is_excluded)
    best = best_of(scores, max_known(scorer), mask._replace(is_excluded=only_known), False, names, scorer.rounding)
    node, score, is_known = best
    row, column = torch.nonzero(is_known, as_tuple=True)
    if len(row):
        score[row, column] = scorer.answer_scores(questions.take(row), node[row, column]).cpu()
    node, score, is_known = (torch.cat(pair, dim=1) for pair in zip(new, best, strict=True))
    return first_of((node, score, is_known), k, names, scorer.rounding)


@dataclass(frozen=True, eq=False)
class DirectionScores:
    """n triples as answers: row 0 of [2, n] to (subject, relation, ?), row 1 to (?, relation, object). On the CPU.

    A known triple is hidden while its score and its normalizer are computed, if the model can hide triples.

    Args:
        scores: float [2, n].
        normalizer: float [2, n] (`question_normalizer`).
        num_known_answers: int64 [2, n]: other known answers to the question.
        is_excluded: bool [2, n]: the answer is not known, and the constraints do not allow it.
        slot: int64 [2, n]: the slot of the answer (`RelationConstraints.answer_slot`).
        known: bool [n].
    """

    scores: Tensor
    normalizer: Tensor
    num_known_answers: Tensor
    is_excluded: Tensor
    slot: Tensor
    known: Tensor

    @property
    def ruled_out(self) -> Tensor:
        """Triples that are not allowed in either direction, bool [n]."""
        return self.is_excluded.all(0)

    def probability_of_scores(self, calibration: Calibration, scores: Tensor) -> Tensor | None:
        """Return the probabilities [n] that the triples would have with these scores [2, n]; None without a curve.

        The mean over the directions in which the answer is allowed; over both if it is allowed in neither.
        """
        columns = (part.flatten() for part in (self.normalizer, self.num_known_answers, self.slot))
        result = calibration.answer_probabilities(scores.reshape(-1, 1), *columns)
        counts = ~self.is_excluded | self.ruled_out
        return None if result is None else (result.view(2, -1) * counts).sum(0) / counts.sum(0)

    def probability(self, calibration: Calibration) -> Tensor | None:
        """Return the probabilities [n]; None without a calibration of links.

        The probability of a known triple is NaN. That of a triple that is allowed in neither direction is the share of
        such triples in the validation split.
        """
        result = self.probability_of_scores(calibration, self.scores)
        if result is None:
            return None
        if calibration.ruled_out_share is not None:
            result[self.ruled_out] = calibration.ruled_out_share
        return result.masked_fill_(self.known, torch.nan)


def questions_of(triples: Tensor, for_objects: bool) -> tuple[Questions, Tensor]:
    """Return the questions that triples int64 [n, 3] answer in one direction, and the answers int64 [n]."""
    node, relation, answer = triples[:, [0, 1, 2] if for_objects else [2, 1, 0]].unbind(1)
    return Questions(node, relation, for_objects), answer


@torch.no_grad()
def score_both_directions(model: AnsweringModel, triples: Tensor) -> DirectionScores:
    """Score triples int64 [n, 3] as answers to both of their questions."""
    triples, columns = triples.cpu(), list[Iterator[Tensor]]()
    known = KnownTriples.of_graph(model.graph_, "train").contains(triples)
    for for_objects in (True, False):
        columns.append(_score_answers(model, *questions_of(triples, for_objects), known))
    score, normalizer, num_known, is_excluded, slot = map(torch.stack, zip(*columns, strict=True))
    return DirectionScores(score, normalizer, num_known, is_excluded, slot, known)


def _score_answers(model: AnsweringModel, questions: Questions, answers: Tensor, known: Tensor) -> Iterator[Tensor]:
    """Return the first five columns of `DirectionScores` for one direction; known triples (bool [q]) are hidden.

    Answers that are not known share one row of scores if they have the same question.
    """
    graph, scorer = model.graph_, model.scorer()
    index = KnownTriples.of_graph(graph, "train", device=scorer.device)
    answer_filter = AnswerFilter(new=model.new_nodes)
    separate = torch.where(known, 1 + torch.arange(len(known)), 0)
    keys = torch.stack([questions.node, questions.relation, separate], dim=1)
    _, representative, inverse = np.unique(keys.numpy(), axis=0, return_index=True, return_inverse=True)
    row, empty = torch.from_numpy(inverse.reshape(-1)), torch.empty(0)
    size = max(1, BLOCK_BYTES // (4 * scorer.num_nodes))
    parts, order = [(empty, empty, empty.long(), empty.bool())], torch.argsort(row, stable=True)
    for first in range(0, len(representative), size):
        block = torch.from_numpy(representative[first : first + size])
        part, answer = questions.take(block).to(scorer.device), answers[block].to(scorer.device)
        hidden = torch.where(known[block].to(answer.device), answer, -1)
        scores = scorer.scores_hiding_answers(part, answer)
        mask = AnswerMask.of(graph, index, part, answer_filter, None, hidden)
        rows = order[(row[order] >= first) & (row[order] < first + size)]
        at = (row[rows] - first).to(scorer.device), answers[rows].to(scorer.device)
        normalizer, num_known = question_normalizer(scores, mask)[at[0]].cpu(), mask.num_known[at[0]].cpu()
        parts.append((scores[at].cpu(), normalizer, num_known, mask.is_excluded[at].cpu() & ~known[rows]))
    columns = [torch.cat(column)[torch.argsort(order)] for column in zip(*parts, strict=True)]
    return iter([*columns, relation_constraints(graph).answer_slot(questions)])


@torch.no_grad()
def rate_triples(model: AnsweringModel, triples: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return scores and probabilities of given triples: the means of both directions.

    Args:
        model: A trained model with its graph.
        triples: int64 [n, 3].

    Returns:
        Scores [n], and probabilities [n] (`DirectionScores.probability`) or None if the model is not calibrated.
    """
    if model.calibration_.curve is None:
        return model.scorer().triple_scores(triples).cpu(), None
    scored = score_both_directions(model, triples)
    return scored.scores.double().mean(0), scored.probability(model.calibration_)


class AnswerMask(NamedTuple):
    """Known and excluded answers among n candidates for q questions.

    Args:
        known: Node ids, int64: the known answers to question i are known[known_begin[i] : known_end[i]].
        known_begin: int64 [q].
        known_end: int64 [q].
        is_excluded: bool [q, n]: candidates that the constraints do not allow, unless they are known.
        candidates: int64 [n], ascending.
    """

    known: Tensor
    known_begin: Tensor
    known_end: Tensor
    is_excluded: Tensor
    candidates: Tensor

    @property
    def num_known(self) -> Tensor:
        """How many answers to each question are known, without hidden ones, int64 [q]."""
        return self.known_end - self.known_begin

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        index: KnownTriples,
        questions: Questions,
        answer_filter: AnswerFilter = AnswerFilter(),  # noqa: B008 - it is immutable
        candidates: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> AnswerMask:
        """Return the mask for questions of one direction.

        Args:
            graph: The graph whose training triples and ontology give the constraints.
            index: The known triples.
            questions: q questions on the device of the mask; `for_objects` is one bool.
            answer_filter: Which answers are allowed.
            candidates: int64 [n], ascending; None for all nodes.
            hidden: int64 [q]: a known answer to each question that counts as new, or -1.
        """
        given, relation, for_objects = questions
        key, device, constraints = given * index.num_relations + relation, given.device, relation_constraints(graph)
        forward, backward = (index.objects, index.subjects) if for_objects else (index.subjects, index.objects)
        begin, end = forward.ranges(key)
        row, known = forward.expand(begin, end)
        num_known = end - begin
        if hidden is not None:
            is_visible = known != hidden[row]
            known, num_known = known[is_visible], torch.bincount(row[is_visible], minlength=len(given))
        chosen: Tensor | slice = slice(None) if candidates is None else candidates
        candidates = torch.arange(graph.num_nodes, device=device) if candidates is None else candidates
        is_excluded = torch.zeros(len(given), len(candidates), dtype=torch.bool, device=device)
        slots = constraints.answer_slot(questions).tolist()
        if answer_filter.nodes != "any":
            for i, slot in enumerate(slots):
                is_excluded[i] = constraints.excluded_nodes(slot, answer_filter.nodes).to(device)[chosen]
            if answer_filter.new:
                is_excluded[:, torch.isin(candidates, torch.tensor(answer_filter.new, device=device))] = False
            status = constraints.question_status(questions, index, answer_filter.new)
            is_excluded[(status != OPEN).to(device)] = True
        if answer_filter.directions and len(candidates):
            flags = constraints.is_one_way, constraints.is_irreflexive
            is_one_way, is_irreflexive = (torch.from_numpy(flag).to(device)[relation] for flag in flags)
            begin, end = backward.ranges(key)
            row, node = backward.expand(begin, torch.where(is_one_way, end, begin))
            loops = torch.nonzero(is_irreflexive).squeeze(1)
            _set_nodes(is_excluded, candidates, torch.cat([row, loops]), torch.cat([node, given[loops]]))
        if hidden is not None:
            # The constraints were computed from all triples, also from the hidden one. Only the nodes seen in the slot
            # are used here, since the other constraints would reveal the hidden answer.
            for i in torch.nonzero(hidden >= 0).flatten().tolist():
                is_excluded[i] = constraints.excluded_nodes(slots[i], "seen").to(device)[chosen]
        stop = torch.cumsum(num_known, 0)
        return cls(known, stop - num_known, stop, is_excluded, candidates)

    def is_known(self) -> Tensor:
        """Return which candidates are known answers, bool [q, n]."""
        row = torch.repeat_interleave(self.num_known)
        return _set_nodes(torch.zeros_like(self.is_excluded), self.candidates, row, self.known)

    def take(self, row: int) -> AnswerMask:
        """Return the mask of one question."""
        begin, end = int(self.known_begin[row]), int(self.known_end[row])
        known, excluded = self.known[begin:end], self.is_excluded[row : row + 1]
        return AnswerMask(known, known.new_tensor([0]), known.new_tensor([end - begin]), excluded, self.candidates)


def _set_nodes(table: Tensor, candidates: Tensor, row: Tensor, node: Tensor) -> Tensor:
    """Set bool [q, n] to True at these nodes of these rows, as far as they are candidates."""
    if len(candidates):
        column = torch.searchsorted(candidates, node).clamp_(max=len(candidates) - 1)
        is_candidate = candidates[column] == node
        table[row[is_candidate], column[is_candidate]] = True
    return table


def best_of(scores: Tensor, k: int, mask: AnswerMask, drop: bool, names: Vocabulary, rounding: float = 0.0) -> Best:
    """Return the k best candidates of each row, best first; -1, -inf and False where there are fewer.

    Args:
        scores: [q, n]: one row for each question.
        k: Number of answers.
        mask: Known and excluded answers. Excluded ones are left out.
        drop: Leave out known answers too.
        names: All nodes. Equal scores are ordered by the hashes of their names.
        rounding: Scores that differ by less than this share are equal (`Scorer.rounding`).
    """
    num_candidates = scores.shape[1]
    k = min(k, num_candidates)
    is_fast = not scores.is_cuda and k < MAX_INSERTION_K and kernels_for(scores) is not reference
    find = _compiled_best if is_fast else _plain_best
    # Whether the best score that was left out equals the last one that was kept.
    one_more, has_nan = find(scores, min(k + 1, num_candidates), mask, drop)
    if has_nan:
        raise DataError(
            "the scores contain NaN and cannot be ranked: the training has probably diverged, train again with a lower "
            "learning rate"
        )
    best = one_more[0][:, :k], one_more[1][:, :k], one_more[2][:, :k]
    has_ties = ~_is_lower(one_more[1], rounding) & torch.isfinite(one_more[1][:, 1:])
    for row in torch.nonzero(has_ties.any(1)).flatten().tolist():
        (node, score, is_known), _ = _plain_best(scores[row : row + 1], num_candidates, mask.take(row), drop)
        group = torch.cumsum(_is_lower(score[0], rounding), 0)  # groups of equal scores, from the second score on
        count = 1 + int((group <= (group[k - 2] if k > 1 else 0)).sum())
        tied = node[:, :count], score[:, :count], is_known[:, :count]
        for column, values in zip(best, first_of(tied, k, names, rounding), strict=True):
            column[row] = values[0]
    return best


def first_of(answers: Best, k: int, names: Vocabulary, rounding: float = 0.0) -> Best:
    """Return the k best of answers [q, n] in any order, best first; arguments as for `best_of`."""
    node, score, _ = answers
    by_score = torch.argsort(score, dim=1, descending=True, stable=True)
    group = torch.cumsum(_is_lower(score.gather(1, by_score), rounding), 1)
    keys = names.hashes(node.gather(1, by_score).clamp(min=0).flatten().numpy()).reshape(node.shape)
    order = np.lexsort((keys, np.pad(group.numpy(), ((0, 0), (1, 0)))))
    best = by_score.gather(1, torch.from_numpy(order[:, :k]))
    return tuple(part.gather(1, best) for part in answers)  # type: ignore[return-value]


def _is_lower(score: Tensor, rounding: float) -> Tensor:
    """Return whether each score but the first is lower than the score before it, bool [..., n - 1]."""
    before, after = score[..., :-1], score[..., 1:]
    return before - after > rounding * before.abs().clamp(min=1.0)


def _merge_local(best: Best, k: int, placement: Placement, names: Vocabulary) -> Best:
    """Return the k best of the answers that the processes found among their local nodes."""
    missing = k - best[0].shape[1]
    padded = [F.pad(part, (0, missing), value=fill) for part, fill in zip(best, (-1, -torch.inf, False), strict=True)]
    stacked = (placement.stack_over_nodes(part).cpu() for part in padded)
    node, score, is_known = (part.transpose(0, 1).flatten(1) for part in stacked)
    return first_of((node, score, is_known), k, names)


def question_normalizer(scores: Tensor, mask: AnswerMask, placement: Placement = LOCAL) -> Tensor:
    """Return log Σ exp(score) over the new, allowed answers to each question, [q]; 0 if there are none.

    Models are trained to separate the answers to one question. Scores of different questions are comparable only after
    this normalizer is subtracted.

    Args:
        scores: [q, n].
        mask: Known and excluded answers.
        placement: The placement of the scorer: if nodes are divided among processes, each has other candidates.
    """
    normalizer = torch.logsumexp(scores.masked_fill(mask.is_excluded | mask.is_known(), -torch.inf), dim=1)
    if placement.partition is not None:
        normalizer = torch.logsumexp(placement.stack_over_nodes(normalizer), dim=0)
    return torch.where(torch.isfinite(normalizer), normalizer, 0.0)


def _compiled_best(scores: Tensor, k: int, mask: AnswerMask, drop: bool) -> tuple[Best, bool]:
    """The k best by the numba loop, equal scores in the order of the columns; and whether there are NaN."""
    from rgcn.links.top_k_loops import find_best  # not needed by scorers on a GPU, and numba takes time to load

    best = tuple(scores.new_empty(len(scores), k, dtype=dtype) for dtype in (torch.int64, scores.dtype, torch.bool))
    inputs, outputs = (scores, mask.candidates, *mask[:4]), [tensor.numpy() for tensor in best]
    arrays = [tensor.contiguous().numpy() for tensor in inputs]
    threads = torch.get_num_threads() if scores.numel() >= MIN_SCORES_FOR_THREADS else 1
    bounds = [len(scores) * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        search = pool.map if threads > 1 else map
        calls = search(lambda rows: find_best(*rows, *arrays, drop, *outputs), pairwise(bounds))  # type: ignore[call-arg]
        num_nan = sum(calls)
    return best, num_nan > 0  # type: ignore[return-value]


def _plain_best(scores: Tensor, k: int, mask: AnswerMask, drop: bool) -> tuple[Best, bool]:
    """As `_compiled_best`, by PyTorch on any device."""
    known, excluded = mask.is_known(), mask.is_excluded
    omitted = (scores == -torch.inf) | (known | excluded if drop else excluded & ~known)
    ordered = torch.sort(scores.masked_fill(omitted, -torch.inf), dim=1, descending=True, stable=True)
    column, score = ordered.indices[:, :k], ordered.values[:, :k]
    is_empty = omitted.gather(1, column)
    node, is_known = mask.candidates[column].masked_fill(is_empty, -1), known.gather(1, column) & ~is_empty
    return (node.cpu(), score.cpu(), is_known.cpu()), bool(scores.isnan().any())
