"""All missing triples worth adding: the best unknown objects of every (subject, relation), ranked over all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.answers.calibration import AnsweringModel, Calibration, calibrate_completion
from rgcn.answers.links import ScoredTriples, best_of
from rgcn.answers.relation_rules import Ids, Marks, Permitted, rules_of
from rgcn.answers.unfinished import Found, UnfinishedFile
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.known import KnownTriples
from rgcn.scoring import Questions, Scorer

# Scores held at once, in bytes. Small enough to stay in the memory the allocator keeps warm.
BLOCK = 32 << 20
MOST_SUBJECTS = 4096
WORTH_ADDING, WORTH_LOOKING_AT = 0.01, 0.001  # probabilities
TALLY = 64  # steps of a score that are told apart when scores are counted
TOO_FEW_MET = (
    " Too few validation triples were met to calibrate this completion itself; it also asks where nothing is missing, "
    "and there these probabilities are too high."
)


@dataclass(frozen=True, eq=False)
class Completion(ScoredTriples):
    """Triples the graph does not have, best first; equal ones by subject, relation, object."""

    calibration: Calibration  # how scores became probabilities: on this completion, where it met enough to do so
    pairs: int  # (subject, relation) that were asked
    left: int  # that were not: time was up, or somebody stopped it
    found: int  # how many were good enough; more than there are here where a limit cut them
    best: float  # score of any unknown triple that was looked at, good enough or not; -inf without any


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
    min_score: float | None = None,
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

    What is most worth asking is asked first: of each relation the subjects that have objects already and those without,
    these groups in the order of how many hidden training triples each question would find.

    relations        ids; None for all
    min_probability  least probability, calibrated on this very completion (`calibrate_completion`); None: 0.01 where
                     the model is calibrated. One that is not has scores alone, and no bound
    min_score        least score that is looked at; None: the one that the model's calibration gives a thousandth. What
                     lies below is not counted either when this completion is calibrated
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
    if min_score is None:
        min_score = calibration.score_of(WORTH_LOOKING_AT) if calibration.fitted else -np.inf
    permitted = permitted._replace(new=tuple(model.new_nodes))
    # Of a triple and the same turned round one may go: twice as many are held.
    pool = _Pool(limit * 2 if permitted.directions else limit, min_score)
    search = _Search(graph, scorer, k, pool, known, permitted)
    unfinished = None
    if resume is not None:
        asked = {
            **{"model": model.fingerprint_, "relations": list(wanted), "k": k, "limit": limit},
            **{"known": sorted(known), "min_score": float(min_score), **permitted._asdict()},
            **{"memory_budget": memory_budget, "at once": scorer.questions_at_once, "device": str(scorer.device)},
        }
        unfinished = UnfinishedFile(Path(resume), asked)
        search.restore(unfinished.read())
    questions = _questions(graph, wanted, permitted)
    total = sum(len(question.subjects) for question in questions)
    if on_begin is not None:
        on_begin(total)
    _ask(search, questions, memory_budget, minutes, unfinished, on_progress)
    triples, score = pool.ranked()
    good = pool.found
    if permitted.directions:
        better = _one_of_both(triples, rules_of(graph).one_way)
        triples, score, good = triples[better], score[better], good - int((~better).sum())
    triples, score = triples[:limit], score[:limit]
    new = np.zeros(len(triples), dtype=bool)
    counts = search.pairs, total - search.pairs
    if least is None:
        return Completion(triples, score, None, new, calibration, *counts, good, search.best)
    met = torch.cat([torch.empty(0), *search.met]).double().numpy()
    own = calibrate_completion(met[met >= pool.least], *pool.counts())
    calibration = own or replace(calibration, words=calibration.words + TOO_FEW_MET)
    probability = calibration.link_probabilities(torch.from_numpy(score)).float().numpy()
    keep = probability >= least
    found = good if keep.all() else int(keep.sum())
    kept = (triples[keep], score[keep], probability[keep], new[keep])
    return Completion(*kept, calibration, *counts, found, search.best)


def _one_of_both(triples: Ids, one_way: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool [n]: which of the triples int64 [n, 3], best first, are not a better one turned round that goes one way."""
    if not len(triples):
        return np.ones(0, dtype=bool)
    ends, relation = np.sort(triples[:, [0, 2]], axis=1), triples[:, 1:2]
    _, first, pair = np.unique(np.concatenate([relation, ends], axis=1), axis=0, return_index=True, return_inverse=True)
    return np.asarray((first[pair.reshape(-1)] == np.arange(len(triples))) | ~one_way[triples[:, 1]])


def _questions(graph: KnowledgeGraph, relations: Sequence[int], permitted: Permitted) -> list[_Question]:
    """Those with most to find first: of each relation the subjects that have objects already, and those without.

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
    for size in search.blocks(questions, memory_budget):
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
    """Goes through the subjects of one relation after another and keeps the best of what it finds.

    held_out  validation triples; none where they are hidden: then they are found like others, and prove nothing
    met       scores of those that would have been found, had they been missing
    """

    def __init__(
        self, graph: KnowledgeGraph, scorer: Scorer, k: int, pool: _Pool, known: Sequence[str], permitted: Permitted
    ) -> None:
        # Who is asked, and who may be an answer, is in the questions.
        self.graph, self.scorer, self.k, self.pool, self.permitted = (
            graph,
            scorer,
            k,
            pool,
            permitted._replace(nodes="any"),
        )
        self.index = KnownTriples.of_graph(graph, *known, device=scorer.device)
        hidden = graph.triple_splits is None or (bool(known) and "valid" not in known)
        self.held_out = np.empty((0, 3), np.int64) if hidden else graph.split_triples("valid")
        self.met: list[Tensor] = []
        self.best, self.pairs = -np.inf, 0
        self.buffer = torch.empty(0, device=scorer.device)

    def blocks(self, questions: list[_Question], memory_budget: int) -> Iterator[int]:
        """Ask them block by block, but those that were asked before; gives the size of each before it is asked."""
        before, passed = self.pairs, 0
        for question in questions:
            objects = torch.from_numpy(question.objects).to(self.scorer.device)
            rows = min(
                max(1, memory_budget // (4 * max(1, len(objects)))), self.scorer.questions_at_once or MOST_SUBJECTS
            )
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
        # Below the floor only what beats everything before is of interest: it is told where nothing is good enough.
        floor = np.nextafter(np.float32(min(self.pool.least, max(self.best, -3e38))), np.float32(-np.inf))
        node, best, _ = best_of(scores, self.k, marks, True, objects, float(floor))
        self._look_for_held_out(question, subject, scores.masked_fill(marks.out, -torch.inf), best)
        self._take(subject.cpu(), question.relation, node, best.float())

    def found(self) -> Found:
        """All that the blocks asked so far have left; `restore` takes it."""
        met = torch.cat([torch.empty(0), *self.met]).double().numpy()
        return {**self.pool.found_so_far(), "met": met, "best": np.array(self.best), "pairs": np.array(self.pairs)}

    def restore(self, found: Found | None) -> None:
        if found is not None:
            self.pool.restore(found)
            self.met = [torch.from_numpy(found["met"])]
            self.best, self.pairs = found["best"].item(), found["pairs"].item()

    def _room(self, rows: int, columns: int) -> Tensor:
        """Memory for scores that is used again: fresh memory for every block costs as much as the product."""
        if self.buffer.numel() < rows * columns:
            self.buffer = torch.empty(rows * columns, device=self.scorer.device)
        return self.buffer[: rows * columns].view(rows, columns)

    def _look_for_held_out(self, question: _Question, subject: Tensor, scores: Tensor, best: Tensor) -> None:
        """In a block of subjects, ascending, and their scores [q, n]; best [q, k] are those of the unknown objects."""
        subjects = subject.cpu().numpy()
        mine = self.held_out[self.held_out[:, 1] == question.relation]
        (row, is_subject), (column, is_object) = _places(subjects, mine[:, 0]), _places(question.objects, mine[:, 2])
        asked = is_subject & is_object
        if not asked.any():
            return
        rows, columns = torch.from_numpy(row[asked]), torch.from_numpy(column[asked])
        values = scores[rows.to(scores.device), columns.to(scores.device)].cpu()
        before = (best[rows] > values[:, None]).sum(1)
        self.met.append(values[(before < best.shape[1]) & torch.isfinite(values)])

    def _take(self, subject: Tensor, relation: int, node: Tensor, score: Tensor) -> None:
        row, column = torch.nonzero(node >= 0, as_tuple=True)
        values = score[row, column].numpy()
        if len(values):
            self.best = max(self.best, float(values.max()))
            ends = subject[row].numpy(), node[row, column].numpy()
            self.pool.add(np.stack([ends[0], np.full(len(values), relation), ends[1]], axis=1), values)


def _places(ascending: Ids, wanted: Ids) -> tuple[Ids, NDArray[np.bool_]]:
    """Where each wanted number stands, and whether it does."""
    place = np.clip(np.searchsorted(ascending, wanted), 0, len(ascending) - 1)
    return place, ascending[place] == wanted


class _Pool:
    """The best `limit` of the triples added; at most twice as many are held at any time.

    least  only scores of at least this count
    found  how many counted, held or not

    All that count are tallied by score, also those that are not held: a probability must not depend on the limit.
    """

    def __init__(self, limit: int, least: float) -> None:
        self.limit, self.least, self.found = limit, least, 0
        self._floor = least  # rises as the pool fills
        self._tally: Counter[int] = Counter()
        self._triples: list[Ids] = []
        self._scores: list[NDArray[np.float32]] = []
        self._size = 0

    def add(self, triples: Ids, scores: NDArray[np.float32]) -> None:
        counting = scores[scores >= self.least]
        self.found += len(counting)
        steps, count = np.unique(np.floor(counting.astype(np.float64) * TALLY).astype(np.int64), return_counts=True)
        self._tally.update(dict(zip(steps.tolist(), count.tolist(), strict=True)))
        good = scores >= self._floor
        self._triples.append(triples[good])
        self._scores.append(scores[good])
        self._size += len(self._scores[-1])
        if self._size > 2 * self.limit:
            self._prune()

    def found_so_far(self) -> Found:
        tally = np.array(sorted(self._tally.items()), dtype=np.int64).reshape(-1, 2)
        triples = np.concatenate([np.empty((0, 3), np.int64), *self._triples]).astype(np.uint32)
        scores = np.concatenate([np.empty(0, np.float32), *self._scores])
        return {"triples": triples, "scores": scores, "tally": tally, "counts": np.array([self.found, self._floor])}

    def restore(self, found: Found) -> None:
        self._triples, self._scores = [found["triples"].astype(np.int64)], [found["scores"]]
        self._size, self._tally = len(found["scores"]), Counter(dict(found["tally"].tolist()))
        self.found, self._floor = int(found["counts"][0]), float(found["counts"][1])

    def _prune(self) -> None:
        """Keep the best `limit`; of those that are as good as the last of them, the ones with the least ids."""
        triples, scores = np.concatenate(self._triples), np.concatenate(self._scores)
        cut = np.partition(scores, len(scores) - self.limit)[len(scores) - self.limit]
        better, as_good = np.flatnonzero(scores > cut), np.flatnonzero(scores == cut)
        of_these = np.lexsort(triples[as_good].T[::-1])[: self.limit - len(better)]
        kept = np.concatenate([better, as_good[of_these]])
        self._triples, self._scores, self._size = [triples[kept]], [scores[kept]], len(kept)
        self._floor = max(self._floor, float(cut))

    def counts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(scores, how many triples had about each), ascending."""
        steps = np.array(sorted(self._tally), dtype=np.float64)
        count = np.array([self._tally[int(step)] for step in steps], dtype=np.float64)
        return (steps + 0.5) / TALLY, count

    def ranked(self) -> tuple[Ids, NDArray[np.float32]]:
        """(triples [n, 3], scores [n]), best first."""
        if not self._size:
            return np.empty((0, 3), np.int64), np.empty(0, np.float32)
        if self._size > self.limit:
            self._prune()
        triples, scores = np.concatenate(self._triples), np.concatenate(self._scores)
        order = np.lexsort((triples[:, 2], triples[:, 1], triples[:, 0], -scores))
        return triples[order], scores[order]
