"""All missing triples worth adding: the best unknown objects of every (subject, relation), ranked over all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration import AnsweringModel, Calibration
from rgcn.links.partial_completion import Found, UnfinishedFile
from rgcn.links.relation_constraints import Ids, Marks, Permitted, rules_of
from rgcn.links.top_k import ScoredTriples, best_of, level_of
from rgcn.nn.scorer import Questions, Scorer
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.memory import give_back

# Scores held at once, in bytes. Small enough to stay in the memory the allocator keeps warm.
BLOCK = 32 << 20
MOST_SUBJECTS = 4096
WORTH_ADDING, WORTH_LOOKING_AT = 0.01, 0.001  # probabilities
BLOCKS_UNTIL_TIDY = 50  # where memory is given back that blocks of questions left in holes
CHANCE = " Of a subject and a relation to which probably nothing is missing, so much less."
MEANING = (
    "A probability is the share of such answers, to a question that has one, that were held out, times the chance that "
    "this subject and relation lack any."
)


@dataclass(frozen=True, eq=False)
class Completion(ScoredTriples):
    """Triples the graph does not have, best first; equal ones by subject, relation, object."""

    calibration: Calibration  # how scores became probabilities
    pairs: int  # (subject, relation) that were asked
    left: int  # that were not: time was up, or somebody stopped it
    found: int  # how many were good enough; more than there are here where a limit cut them
    best: float  # probability, else score, of any unknown triple that was looked at; -inf without any


class _Question(NamedTuple):
    """A relation, the subjects it is asked of, and the nodes that may be its objects.

    worth  how many answers there are to be found, for each subject (`_questions`)
    """

    relation: int
    subjects: Ids
    objects: Ids
    worth: float


@torch.no_grad()
def complete(
    model: AnsweringModel,
    relations: Sequence[int] | None = None,
    *,
    k: int = 10,
    min_probability: float | None = None,
    limit: int = 1_000_000,
    permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
    known: Sequence[str] = (),
    memory_budget: int = BLOCK,
    minutes: float | None = None,
    resume: str | Path | None = None,
    on_begin: Callable[[int], None] | None = None,
    on_progress: Callable[[int], bool | None] | None = None,
) -> Completion:
    """The best k unknown objects of every subject and relation that are good enough, and of all these the best `limit`.

    Best is what is most probable: an answer's probability (`answer_links`), which is that of a question that has one,
    times the chance that the subject lacks any (`RelationRules.chance_of_more`). Of a model that is not calibrated,
    what has the highest score.

    What is most worth asking is asked first: of each relation the subjects that have objects already and those without,
    these groups in the order of how many hidden training triples each question would find.

    relations        ids; None for all
    min_probability  least probability; None: 0.01 where the model is calibrated. One that is not has scores alone, and
                     no bound
    permitted        which triples make sense (`RelationRules`): who may be subject and object of a relation, known ones
                     turned round, nodes linked to themselves. Literals are never subjects; of a triple and the same
                     turned round, in a relation that goes one way, the better one is proposed
    known            splits whose triples the graph is said to have; all by default. To be measured, hide one
    memory_budget    bytes for scores. Neither nodes × nodes nor all answers are ever held
    minutes          ask no longer than this, but for one block of questions; the rest is `left`
    resume           file to keep in what was found, every few seconds, and to go on from: after an interruption the
                     same call ends with the result of a call that was never interrupted. Refused where model or
                     questions are others (min_probability may be). It stays when all is asked: remove it then
    on_begin, on_progress   called with the number of pairs there are, and before each block with how many are done;
                     where that returns False, nothing more is asked
    """
    calibration = model.calibration_
    least = _least(calibration, min_probability)
    if k < 1 or limit < 1:
        raise ConfigError(f"k and limit are at least 1; got k = {k}, limit = {limit}")
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"minutes is above 0, not {minutes}")
    graph, scorer = model.graph_, model.scorer()
    wanted = range(graph.num_relations) if relations is None else sorted(set(relations))
    permitted = permitted._replace(new=tuple(model.new_nodes))
    # Of a triple and the same turned round one may go: twice as many are held.
    looked_at = -np.inf if least is None else min(least, WORTH_LOOKING_AT)
    pool = _Pool(limit * 2 if permitted.directions else limit, looked_at)
    search = _Search(graph, scorer, k, pool, known, permitted, calibration if calibration.fitted else None)
    unfinished = None
    if resume is not None:
        asked = {
            **{"model": model.fingerprint_, "relations": list(wanted), "k": k, "limit": limit},
            **{"known": sorted(known), "least": looked_at, **permitted._asdict()},
            **{"memory_budget": memory_budget, "at once": scorer.questions_at_once, "device": str(scorer.device)},
        }
        unfinished = UnfinishedFile(Path(resume), asked)
        search.restore(unfinished.read())
    questions = _questions(graph, wanted, permitted, looked_at)
    total = sum(len(question.subjects) for question in questions)
    if on_begin is not None:
        on_begin(total)
    _ask(search, questions, memory_budget, minutes, unfinished, on_progress)
    triples, value, score = pool.ranked()
    good = pool.found
    if permitted.directions:
        better = _one_of_both(triples, rules_of(graph).one_way)
        triples, value, score, good = triples[better], value[better], score[better], good - int((~better).sum())
    triples, value, score = triples[:limit], value[:limit], score[:limit]
    counts = search.pairs, total - search.pairs
    if least is None:
        new = np.zeros(len(triples), dtype=bool)
        return Completion(triples, score, None, new, None, calibration, *counts, good, search.best)
    kept = int(np.count_nonzero(value >= least))  # the first ones
    found = good if kept == len(value) else kept
    words = calibration.words + CHANCE
    calibration = replace(calibration, kind="completion", words=words, meaning=MEANING)
    rows = triples[:kept], score[:kept], value[:kept], np.zeros(kept, dtype=bool)
    return Completion(*rows, None, calibration, *counts, found, search.best)


def _one_of_both(triples: Ids, one_way: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool [n]: which of the triples int64 [n, 3], best first, are not a better one turned round that goes one way."""
    if not len(triples):
        return np.ones(0, dtype=bool)
    ends, relation = np.sort(triples[:, [0, 2]], axis=1), triples[:, 1:2]
    _, first, pair = np.unique(np.concatenate([relation, ends], axis=1), axis=0, return_index=True, return_inverse=True)
    return np.asarray((first[pair.reshape(-1)] == np.arange(len(triples))) | ~one_way[triples[:, 1]])


def _questions(
    graph: KnowledgeGraph, relations: Sequence[int], permitted: Permitted, least: float = -np.inf
) -> list[_Question]:
    """Those with most to find first: of each relation the subjects that have objects already, and those without.

    Subjects that lack an object with a chance below `least` are not asked: no answer could have a higher probability.

    Were one training triple hidden, it could be found by asking its subject: one that still has objects where it had
    several, one without any where it had this one. `worth` counts these, for each question of the kind. So who has a
    capital is not asked for another before those who have none. On FB15k-237, 85 of 100 validation triples are answers
    to the first tenth of the questions (in the order of the relations: 35); on `world` 48 (3).
    """
    rules, triples, found = rules_of(graph), graph.split_triples("train"), list[_Question]()
    new = np.array(permitted.new, dtype=np.int64)
    for relation in relations:
        objects = np.flatnonzero(~rules.outside(relation + graph.num_relations, permitted.nodes).numpy())
        subjects = rules.subjects(relation, permitted.nodes)
        subjects, objects = (np.union1d(of, new) for of in (subjects, objects))
        count = np.bincount(triples[triples[:, 1] == relation, 0], minlength=graph.num_nodes)[subjects]
        if permitted.nodes != "any" and rules.single[relation]:  # who has one is done
            subjects, count = subjects[count == 0], count[count == 0]
        if least > 0:
            counts, which = np.unique(count, return_inverse=True)
            chance = np.array([rules.chance_of_more(relation, times) for times in counts.tolist()])
            worth = chance[which] >= least if len(counts) else which > 0
            subjects, count = subjects[worth], count[worth]
        only = np.count_nonzero(count == 1)
        for asked, hidden in ((count > 0, count.sum() - only), (count == 0, only)):
            if asked.any():
                found.append(_Question(relation, subjects[asked], objects, float(hidden / asked.sum())))
    return sorted(found, key=lambda question: -question.worth)


def _ask(
    search: _Search,
    questions: list[_Question],
    memory_budget: int,
    minutes: float | None,
    unfinished: UnfinishedFile | None,
    on_progress: Callable[[int], bool | None] | None,
) -> None:
    """As many of the questions as there is time for; what was found is kept between two blocks."""
    began, before = time.monotonic(), search.pairs
    on_progress = on_progress or (lambda pairs: None)
    kept = before > 0  # what a short call found is found again sooner than it is written
    for number, size in enumerate(search.blocks(questions, memory_budget), 1):
        if number % BLOCKS_UNTIL_TIDY == 0:
            give_back()
        asked, seconds = search.pairs - before, time.monotonic() - began
        late = minutes is not None and asked > 0 and seconds * (asked + size) / asked > 60 * minutes
        if on_progress(search.pairs) is False or late:
            kept = True
            break
        if unfinished is not None and unfinished.is_due:
            unfinished.write(search.found())
            kept = True
    else:
        on_progress(search.pairs)
    if unfinished is not None and kept and search.pairs > before:
        unfinished.write(search.found())


def _least(calibration: Calibration, asked: float | None) -> float | None:
    """The bound on probabilities; None where there are none."""
    if not calibration.fitted:
        if asked is not None:
            raise ConfigError(f"a bound on probabilities needs some. {calibration.words}")
        return None
    if asked is not None and not 0.0 <= asked <= 1.0:
        raise ConfigError(f"min_probability lies between 0 and 1, not at {asked}")
    return WORTH_ADDING if asked is None else asked


class _Search:
    """Goes through the subjects of one relation after another and keeps the best of what it finds."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        scorer: Scorer,
        k: int,
        pool: _Pool,
        known: Sequence[str],
        permitted: Permitted,
        calibration: Calibration | None,
    ) -> None:
        self.graph, self.scorer, self.k, self.pool, self.calibration = graph, scorer, k, pool, calibration
        self.permitted = permitted._replace(nodes="any")  # who is asked, and who may be an answer, is in the questions
        self.index = KnownTriples.of_graph(graph, *known, device=scorer.device)
        self.learned = KnownTriples.of_graph(graph, "train")
        self.best, self.pairs = -np.inf, 0
        self.buffer = torch.empty(0, device=scorer.device)

    def blocks(self, questions: list[_Question], memory_budget: int) -> Iterator[int]:
        """Ask them block by block, but those that were asked before; gives the size of each before it is asked."""
        before, passed = self.pairs, 0
        for question in questions:
            objects = torch.from_numpy(question.objects).to(self.scorer.device)
            most = self.scorer.questions_at_once or MOST_SUBJECTS
            rows = min(max(1, memory_budget // (4 * max(1, len(objects)))), most)
            for subject in torch.split(torch.from_numpy(question.subjects), rows):
                passed += len(subject)
                if passed > before:
                    yield len(subject)
                    if len(objects):
                        self._ask(question, subject.to(self.scorer.device), objects)
                    self.pairs += len(subject)

    def _ask(self, question: _Question, subject: Tensor, objects: Tensor) -> None:
        relation = torch.full_like(subject, question.relation)
        candidates = None if len(objects) == self.scorer.num_nodes else objects
        room = self._room(len(subject), len(objects))
        scores = self.scorer.scores(Questions(subject, relation), candidates, room)
        marks = Marks.of(self.graph, self.index, subject, relation, True, self.permitted, objects)
        node, best, _ = best_of(scores, self.k, marks, True, self.graph.nodes, objects, self.scorer.rounding)
        value = best.float()
        if self.calibration is not None:
            asked, level = Questions(subject.cpu(), relation.cpu()), level_of(scores, marks, objects)
            value = self._probabilities(asked, best, level.cpu())
        self._take(subject.cpu(), question.relation, node, value, best.float())

    def _probabilities(self, questions: Questions, best: Tensor, level: Tensor) -> Tensor:
        """[q, k], of the best answers; each is of a question that has one, and some have none."""
        assert self.calibration is not None
        rules = rules_of(self.graph)
        known, asked = rules.known_answers(self.learned, questions), rules.asked_place(questions)
        given = self.calibration.answer_probabilities(best, level, known, rules.answer_place(questions))
        chances = map(rules.chance_of_more, asked.tolist(), known.tolist())
        return given * torch.tensor(list(chances), dtype=given.dtype)[:, None]

    def found(self) -> Found:
        """All that the blocks asked so far have left; `restore` takes it."""
        return {**self.pool.found_so_far(), "best": np.array(self.best), "pairs": np.array(self.pairs)}

    def restore(self, found: Found | None) -> None:
        if found is not None:
            self.pool.restore(found)
            self.best, self.pairs = found["best"].item(), found["pairs"].item()

    def _room(self, rows: int, columns: int) -> Tensor:
        """Memory for scores that is used again: fresh memory for every block costs as much as the product."""
        if self.buffer.numel() < rows * columns:
            self.buffer = torch.empty(rows * columns, device=self.scorer.device)
        return self.buffer[: rows * columns].view(rows, columns)

    def _take(self, subject: Tensor, relation: int, node: Tensor, value: Tensor, score: Tensor) -> None:
        row, column = torch.nonzero(node >= 0, as_tuple=True)
        values, scores = value[row, column].numpy(), score[row, column].numpy()
        if len(values):
            self.best = max(self.best, float(values.max()))
            ends = subject[row].numpy(), node[row, column].numpy()
            self.pool.add(np.stack([ends[0], np.full(len(values), relation), ends[1]], axis=1), values, scores)


class _Pool:
    """The best `limit` of the triples added, by value and then by score; at most twice as many are held at any time.

    least  only values of at least this count
    found  how many counted, held or not
    """

    def __init__(self, limit: int, least: float) -> None:
        self.limit, self.least, self.found = limit, least, 0
        self._floor = least  # rises as the pool fills
        self._triples, self._values = np.empty((0, 3), np.int64), np.empty((0, 2), np.float32)
        self._added: list[tuple[Ids, NDArray[np.float32]]] = []
        self._size = 0

    def add(self, triples: Ids, values: NDArray[np.float32], scores: NDArray[np.float32]) -> None:
        self.found += int(np.count_nonzero(values >= self.least))
        good = values >= self._floor
        self._added.append((triples[good], np.stack([values[good], scores[good]], axis=1)))
        self._size += len(self._added[-1][0])
        if self._size > 2 * self.limit:
            self._prune()

    def _all(self) -> tuple[Ids, NDArray[np.float32]]:
        """(triples [n, 3], value and score [n, 2])"""
        triples, values = zip((self._triples, self._values), *self._added, strict=True)
        self._triples, self._values, self._added = np.concatenate(triples), np.concatenate(values), []
        return self._triples, self._values

    def found_so_far(self) -> Found:
        triples, values = self._all()
        return {"triples": triples.astype(np.uint32), "values": values, "counts": np.array([self.found, self._floor])}

    def restore(self, found: Found) -> None:
        self._triples, self._values, self._added = found["triples"].astype(np.int64), found["values"], []
        self._size, self.found, self._floor = len(found["values"]), int(found["counts"][0]), float(found["counts"][1])

    def _prune(self) -> None:
        """Keep the best `limit`; what is as good as the last of them is told apart as `ranked` does."""
        triples, values = self._all()
        value = values[:, 0]
        cut = np.partition(value, len(value) - self.limit)[len(value) - self.limit]
        better, as_good = np.flatnonzero(value > cut), np.flatnonzero(value == cut)
        of_these = _order(triples[as_good], values[as_good])[: self.limit - len(better)]
        kept = np.concatenate([better, as_good[of_these]])
        self._triples, self._values, self._size = triples[kept], values[kept], len(kept)
        self._floor = max(self._floor, float(cut))

    def ranked(self) -> tuple[Ids, NDArray[np.float32], NDArray[np.float32]]:
        """(triples [n, 3], values [n], scores [n]), best first."""
        if self._size > self.limit:
            self._prune()
        triples, values = self._all()
        order = _order(triples, values)
        return triples[order], values[order, 0], values[order, 1]


def _order(triples: Ids, values: NDArray[np.float32]) -> Ids:
    """Best first: by value, then score, then subject, relation, object."""
    return np.lexsort((triples[:, 2], triples[:, 1], triples[:, 0], -values[:, 1], -values[:, 0]))
