"""Find missing triples: the best unknown objects of every (subject, relation), ranked over all of them.

A long completion keeps its intermediate results in a file (`UnfinishedFile`), from which the same call resumes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration import AnsweringModel, Calibration
from rgcn.links.relation_constraints import AnswerFilter, Ids, relation_constraints
from rgcn.links.top_k import AnswerMask, ScoredTriples, best_of, question_normalizer
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import shorten
from rgcn.system.memory import release_memory

BLOCK_BYTES = 32 << 20  # scores held at once; small enough for the allocator to reuse memory that is in the cache
MAX_SUBJECTS = 4096
DEFAULT_MIN_PROBABILITY = 0.01
KEPT_PROBABILITY = 0.001  # less probable triples are not kept; `Completion.best` still counts them
BLOCKS_PER_MEMORY_RELEASE = 50
FORMAT, FORMAT_VERSION = "rgcn-completion", "1"
SAVE_INTERVAL = 5.0  # seconds; longer if saving would take more than this share of the time
MAX_SAVE_SHARE = 0.02
CHANCE = " The less likely it is that a subject and relation lack a triple, the lower are their probabilities."
MEANING = (
    "A probability is the share of true answers among those with such a score, measured on held-out triples, times the "
    "chance that the subject and relation lack a triple."
)
_INSTEAD = "repeat that call to continue it, or start again (`rgcn complete --restart`, or remove the file)"

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Completion(ScoredTriples):
    """Triples that are not in the graph, best first; equal ones by subject, relation, object.

    Args:
        calibration: How scores became probabilities.
        num_asked: Number of (subject, relation) pairs whose objects were scored.
        num_skipped: Number of pairs that were not scored because the time was up or the user stopped.
        num_found: Number of triples with at least `min_probability`, including those beyond the limit.
        best: Probability, or else score, of the best unknown triple that was scored; -inf if there is none.
    """

    calibration: Calibration
    num_asked: int
    num_skipped: int
    num_found: int
    best: float


class _RelationQuestions(NamedTuple):
    """The questions (subject, relation, ?) of one relation, with candidate objects."""

    relation: int
    subjects: Ids
    objects: Ids
    expected_answers: float  # per subject


@dataclass(frozen=True)
class CompletionSession:
    """Time limit, progress and intermediate results of a completion.

    Args:
        minutes: Time limit for scoring questions; at least one block of questions is scored.
        resume: File for intermediate results, which is written every few seconds. If it exists, the completion resumes
            from it, and the result is the same as without the interruption. A file of another model or of other
            questions is refused (`min_probability` may differ). The file is not removed.
        on_progress: Called before each block with the number of pairs that are done and of all pairs. If it returns
            False, the completion stops.
        memory_budget: Bytes for scores.
    """

    minutes: float | None = None
    resume: str | Path | None = None
    on_progress: Callable[[int, int], bool | None] | None = None
    memory_budget: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        """Check the time limit."""
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"minutes must be above 0, not {self.minutes}")


@torch.no_grad()
def complete(
    model: AnsweringModel,
    relations: Sequence[int] | None = None,
    *,
    k: int = 10,
    min_probability: float | None = None,
    limit: int = 1_000_000,
    answer_filter: AnswerFilter = AnswerFilter(),  # noqa: B008 - it is immutable
    known: Sequence[str] = (),
    session: CompletionSession = CompletionSession(),  # noqa: B008 - it is immutable
) -> Completion:
    """Return the best missing triples: of the k best unknown objects of every subject and relation the best `limit`.

    Triples are ordered by probability: that of an answer (`answer_links`), which assumes that the question has one,
    times the probability that the subject lacks any (`RelationConstraints.probability_of_more`). Without a calibration
    they are ordered by score. Questions with the most expected answers are asked first.

    Args:
        model: A trained model with its graph.
        relations: Ids; None for all relations.
        k: Number of objects of each subject and relation.
        min_probability: Least probability, by default `DEFAULT_MIN_PROBABILITY`. Not for models without a calibration.
        limit: Number of triples.
        answer_filter: Which triples are allowed: subjects and objects of a relation, reversed known triples, loops.
            Literals are never subjects. Of a triple and its reversal in a one-way relation only the better one counts.
        known: Splits whose triples are known; all by default. Hide a split to measure a completion with it.
        session: Time limit, progress and intermediate results.

    Raises:
        ConfigError: If an option is invalid.
        DataError: If the file to resume from is damaged, or belongs to another completion.
    """
    least = _min_probability(model.calibration_, min_probability)
    if k < 1 or limit < 1:
        raise ConfigError(f"k and limit must be at least 1; got k = {k}, limit = {limit}")
    graph, scorer = model.graph_, model.scorer()
    wanted = range(graph.num_relations) if relations is None else sorted(set(relations))
    answer_filter = answer_filter._replace(new=tuple(model.new_nodes))
    kept_from = -np.inf if least is None else min(least, KEPT_PROBABILITY)
    # Of a triple and its reversal one may be removed below: twice as many are kept.
    pool = _Pool(limit * 2 if answer_filter.directions else limit, kept_from)
    search = _Search(model, k, pool, known, answer_filter)
    unfinished = None
    if session.resume is not None:
        options = {"model": model.fingerprint_, "relations": list(wanted), "k": k, "limit": limit}
        options |= {"known": sorted(known), "least": kept_from, **answer_filter._asdict()}
        options |= {"memory_budget": session.memory_budget, "at once": scorer.questions_per_batch}
        unfinished = UnfinishedFile(Path(session.resume), {**options, "device": str(scorer.device)})
        if (state := unfinished.read()) is not None:
            pool.restore(state)
    questions = _questions(graph, wanted, answer_filter, kept_from)
    total = sum(len(question.subjects) for question in questions)
    search.run(questions, session, unfinished, total)
    triples, values = pool.best()
    num_found = pool.num_found
    if answer_filter.directions:
        is_better = _is_better_direction(triples, relation_constraints(graph).is_one_way)
        triples, values, num_found = triples[is_better], values[is_better], num_found - int((~is_better).sum())
    (value, score), probability, calibration = values[:limit].T, None, model.calibration_
    triples = triples[:limit]
    if least is not None:
        count = int(np.count_nonzero(value >= least))  # the first ones
        num_found = num_found if count == len(value) else count
        triples, score, probability = triples[:count], score[:count], value[:count]
        calibration = replace(calibration, kind="completion", words=calibration.words + CHANCE, meaning=MEANING)
    columns = triples, score, probability, np.zeros(len(triples), dtype=bool), None
    return Completion(*columns, calibration, pool.num_asked, total - pool.num_asked, num_found, pool.best_value)


def _is_better_direction(triples: Ids, is_one_way: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which triples, best first, are not the reversal of a better one in a one-way relation, bool [n]."""
    if not len(triples):
        return np.ones(0, dtype=bool)
    ends, relation = np.sort(triples[:, [0, 2]], axis=1), triples[:, 1:2]
    _, first, pair = np.unique(np.concatenate([relation, ends], axis=1), axis=0, return_index=True, return_inverse=True)
    return np.asarray((first[pair.reshape(-1)] == np.arange(len(triples))) | ~is_one_way[triples[:, 1]])


def _questions(
    graph: KnowledgeGraph, relations: Sequence[int], answer_filter: AnswerFilter, least: float = -np.inf
) -> list[_RelationQuestions]:
    """Return the questions, those with the largest `expected_answers` first.

    Each relation has two groups of questions: subjects with known objects, and subjects without any. Subjects whose
    probability of lacking an object is below `least` are left out: no answer could have a higher probability.

    `expected_answers` of a group is estimated by hiding each training triple once. The subject of the hidden triple
    then has other objects or none, so the triple belongs to the first group or to the second. Its value is the number
    of such triples per subject of the group. So all countries without a capital come before a second capital of any
    country. On FB15k-237, the first tenth of the questions have 85 % of the validation triples as answers (35 % in the
    order of the relations); on `world` 48 % (3 %).
    """
    constraints, triples, result = relation_constraints(graph), graph.split_triples("train"), list[_RelationQuestions]()
    new = np.array(answer_filter.new, dtype=np.int64)
    for relation in relations:
        excluded = constraints.excluded_nodes(relation + graph.num_relations, answer_filter.nodes)
        objects = np.union1d(np.flatnonzero(~excluded.numpy()), new)
        subjects = np.union1d(constraints.nodes_of(relation, answer_filter.nodes), new)
        count = np.bincount(triples[triples[:, 1] == relation, 0], minlength=graph.num_nodes)[subjects]
        is_asked = np.ones(len(subjects), dtype=bool)
        if answer_filter.nodes != "any" and constraints.is_single[relation]:
            is_asked = count == 0
        if least > 0:
            numbers = np.unique(count[is_asked]).tolist()
            unlikely = [number for number in numbers if constraints.probability_of_more(relation, number) < least]
            is_asked &= ~np.isin(count, unlikely)
        subjects, count = subjects[is_asked], count[is_asked]
        num_single = np.count_nonzero(count == 1)
        for group, num_hidden in ((count > 0, count.sum() - num_single), (count == 0, num_single)):
            if group.any():
                expected = float(num_hidden / group.sum())
                result.append(_RelationQuestions(relation, subjects[group], objects, expected))
    return sorted(result, key=lambda question: -question.expected_answers)


def _min_probability(calibration: Calibration, min_probability: float | None) -> float | None:
    """Check the least probability; None for models without probabilities."""
    if not calibration.fitted:
        if min_probability is not None:
            raise ConfigError(f"min_probability needs probabilities: leave it out. {calibration.words}")
        return None
    if min_probability is not None and not 0.0 <= min_probability <= 1.0:
        raise ConfigError(f"min_probability must be between 0 and 1, not {min_probability}")
    return DEFAULT_MIN_PROBABILITY if min_probability is None else min_probability


class _Search:
    """Scores the questions block by block and adds the answers to a pool."""

    def __init__(
        self, model: AnsweringModel, k: int, pool: _Pool, known: Sequence[str], answer_filter: AnswerFilter
    ) -> None:
        self.graph, self.scorer, self.k, self.pool = model.graph_, model.scorer(), k, pool
        self.constraints, self.curve = relation_constraints(self.graph), model.calibration_.curve
        self.answer_filter = answer_filter._replace(nodes="any")  # the questions already select subjects and objects
        self.index = KnownTriples.of_graph(self.graph, *known, device=self.scorer.device)
        self.train_index = KnownTriples.of_graph(self.graph, "train")
        self.buffer = torch.empty(0, device=self.scorer.device)

    def run(
        self,
        questions: list[_RelationQuestions],
        session: CompletionSession,
        unfinished: UnfinishedFile | None,
        total: int,
    ) -> None:
        """Score as many questions as the session allows; save intermediate results between blocks."""
        start, before, minutes = time.monotonic(), self.pool.num_asked, session.minutes
        on_progress = session.on_progress or (lambda done, total: None)
        is_saving = before > 0  # the results of a short completion are not worth a file
        for number, size in enumerate(self.blocks(questions, session.memory_budget), 1):
            if number % BLOCKS_PER_MEMORY_RELEASE == 0:
                release_memory()
            done, seconds = self.pool.num_asked - before, time.monotonic() - start
            is_late = minutes is not None and done > 0 and seconds * (done + size) / done > 60 * minutes
            if on_progress(self.pool.num_asked, total) is False or is_late:
                is_saving = True
                break
            if unfinished is not None and time.monotonic() >= unfinished.due:
                unfinished.write(self.pool.state())
                is_saving = True
        else:
            on_progress(self.pool.num_asked, total)
        if unfinished is not None and is_saving and self.pool.num_asked > before:
            unfinished.write(self.pool.state())

    def blocks(self, questions: list[_RelationQuestions], memory_budget: int) -> Iterator[int]:
        """Score all blocks that were not scored before; yield the size of each block before it is scored."""
        before, passed, most = self.pool.num_asked, 0, self.scorer.questions_per_batch or MAX_SUBJECTS
        for question in questions:
            objects = torch.from_numpy(question.objects).to(self.scorer.device)
            rows = min(max(1, memory_budget // (4 * max(1, len(objects)))), most)
            for subjects in torch.split(torch.from_numpy(question.subjects), rows):
                passed += len(subjects)
                if passed > before:
                    yield len(subjects)
                    if len(objects):
                        self._ask(question.relation, subjects.to(self.scorer.device), objects)
                    self.pool.num_asked += len(subjects)

    def _ask(self, relation: int, subjects: Tensor, objects: Tensor) -> None:
        candidates = None if len(objects) == self.scorer.num_nodes else objects
        questions, size = Questions(subjects, torch.full_like(subjects, relation)), len(subjects) * len(objects)
        if self.buffer.numel() < size:  # reused: new memory for every block would take as long as the product
            self.buffer = torch.empty(size, device=self.scorer.device)
        scores = self.scorer.scores(questions, candidates, self.buffer[:size].view(len(subjects), len(objects)))
        mask = AnswerMask.of(self.graph, self.index, questions, self.answer_filter, candidates)
        node, score, _ = best_of(scores, self.k, mask, True, self.graph.nodes, self.scorer.rounding)
        value = score.float()
        if self.curve is not None:
            questions, normalizer = questions.to("cpu"), question_normalizer(scores, mask).cpu()
            known = self.constraints.num_known_answers(self.train_index, questions)
            value = self.curve.probabilities(score, normalizer, known, self.constraints.answer_slot(questions))
            has_more = [self.constraints.probability_of_more(relation, number) for number in known.tolist()]
            value *= torch.tensor(has_more, dtype=value.dtype)[:, None]
        row, column = torch.nonzero(node >= 0, as_tuple=True)
        ends = subjects.cpu()[row], torch.full_like(row, relation), node[row, column]
        values = torch.stack([value[row, column], score[row, column].float()], dim=1)
        self.pool.add(torch.stack(ends, dim=1).numpy(), values.numpy())


class _Pool:
    """The best `limit` of the triples added, by value and then by score; holds at most twice as many.

    Triples with a value below `least` are not kept. `num_found` counts all others, `num_asked` the pairs of subject and
    relation that were asked.
    """

    def __init__(self, limit: int, least: float) -> None:
        self.limit, self.least, self.num_asked, self.num_found, self.best_value = limit, least, 0, 0, -np.inf
        self._floor = least  # rises as the pool fills
        self._parts = [(np.empty((0, 3), np.int64), np.empty((0, 2), np.float32))]  # triples; value and score
        self._size = 0

    def add(self, triples: Ids, values: NDArray[np.float32]) -> None:
        """Add triples int64 [n, 3] with value and score [n, 2]."""
        self.num_found += int(np.count_nonzero(values[:, 0] >= self.least))
        self.best_value = max(self.best_value, float(values[:, 0].max(initial=-np.inf)))
        is_good = values[:, 0] >= self._floor
        self._parts.append((triples[is_good], values[is_good]))
        self._size += len(self._parts[-1][0])
        if self._size > 2 * self.limit:
            self._parts = [self.best()]
            self._size = len(self._parts[0][0])
            self._floor = max(self._floor, float(self._parts[0][1][-1, 0]))

    def state(self) -> Arrays:
        """Return the intermediate results."""
        triples, values = map(np.concatenate, zip(*self._parts, strict=True))
        counts = np.array([self.num_found, self._floor])
        arrays = {"triples": triples.astype(np.uint32), "values": values, "counts": counts}
        return {**arrays, "best": np.array(self.best_value), "pairs": np.array(self.num_asked)}

    def restore(self, state: Arrays) -> None:
        """Continue from intermediate results."""
        self._parts, self._size = [(state["triples"].astype(np.int64), state["values"])], len(state["triples"])
        self.num_found, self._floor = int(state["counts"][0]), float(state["counts"][1])
        self.best_value, self.num_asked = state["best"].item(), state["pairs"].item()

    def best(self) -> tuple[Ids, NDArray[np.float32]]:
        """(triples [n, 3], value and score [n, 2]) of the best `limit`: by value, score, subject, relation, object."""
        triples, values = map(np.concatenate, zip(*self._parts, strict=True))
        if len(values) > self.limit:  # selecting the best is faster than sorting all
            cut = np.partition(values[:, 0], len(values) - self.limit)[len(values) - self.limit]
            triples, values = triples[values[:, 0] >= cut], values[values[:, 0] >= cut]
        columns = triples[:, 2], triples[:, 1], triples[:, 0], -values[:, 1], -values[:, 0]
        order = np.lexsort(columns)[: self.limit]
        return triples[order], values[order]


class UnfinishedFile:
    """A file with the intermediate results of a completion.

    Args:
        path: The file.
        options: What must be the same to resume: the model and the options of the completion, plain values.
    """

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        """Name the file; nothing is read or written yet."""
        self.path, self.options = path, {name: json.dumps(value) for name, value in options.items()}
        self.due = time.monotonic() + SAVE_INTERVAL

    def read(self) -> Arrays | None:
        """Return the intermediate results; None if there is no file.

        Raises:
            DataError: If the file is damaged, or belongs to another completion.
        """
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                stored = dict(file.metadata() or {})
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        except (OSError, SafetensorError) as error:
            raise DataError(f"{self.path}: damaged, or not an unfinished completion ({error}): {_INSTEAD}") from None
        if (stored.pop("format", None), stored.pop("version", None)) != (FORMAT, FORMAT_VERSION):
            raise DataError(f"{self.path}: not an unfinished completion of this version of rgcn: {_INSTEAD}")
        if stored != self.options:
            changes = {name: (stored.get(name), now) for name, now in self.options.items() if stored.get(name) != now}
            parts = (shorten(f"{name} was {before}, now {now}", 80) for name, (before, now) in changes.items())
            difference = f"with other options ({'; '.join(parts)})"
            difference = "of another model, or over another graph" if "model" in changes else difference
            raise DataError(f"{self.path} holds an unfinished completion {difference}: {_INSTEAD}")
        return arrays

    def write(self, state: Arrays) -> None:
        """Replace the intermediate results.

        Raises:
            DataError: If the file cannot be written.
        """
        from safetensors.numpy import save

        start = time.monotonic()
        header = {"format": FORMAT, "version": FORMAT_VERSION, **self.options}
        content = save({name: np.ascontiguousarray(array) for name, array in state.items()}, header)
        try:
            write_atomically(self.path, content)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        now = time.monotonic()
        self.due = now + max(SAVE_INTERVAL, (now - start) / MAX_SAVE_SHARE)
