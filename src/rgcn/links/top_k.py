"""Missing ends of triples: the best objects of (subject, relation, ?), the best subjects of (?, relation, object).

Exact, known answers marked or left out. Equal scores come in the order of a hash of the names (`best_answers`), not of
the ids, which follow the order of the input's rows.

An answer has the score of the direction that was asked; a given triple (`rate_triples`) the mean of both directions.
Either way a known triple is hidden while it is scored, where the model can hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.links.best_answers import Best, Marks, best_of, first_of, level_of, merged
from rgcn.links.calibration import AnsweringModel, Calibration
from rgcn.links.relation_constraints import Permitted, rules_of
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.progress import Budget

Known = Literal["mark", "drop"]

# Scores held at once, in bytes; fifty questions over the nodes of WN18 are 8 MB.
BLOCK = 64 << 20
# Known answers to a question that may be shown by a model which hides them: each costs a question of its own. As many
# whatever k is, so that a longer list begins with the shorter one. Fewer where so many cost more work than this
# (`Scorer.work`), one at least.
MOST_KNOWN, KNOWN_WORK = 20, 1e11


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
    most = most_known(model.scorer())
    not_shown = (counts - most).clamp(min=0) * (known == "mark" and k > most and model.scorer().hides)
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
    return calibration if calibration.fitted and calibration.kind != "classes" else None


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
