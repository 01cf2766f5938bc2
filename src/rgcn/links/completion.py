"""All missing triples worth adding: the best unknown objects of every (subject, relation), ranked over all of them.

What a long completion has found so far is kept in a file (`UnfinishedFile`), and the same call goes on from there.
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
from rgcn.links.relation_constraints import Ids, Permitted, rules_of
from rgcn.links.top_k import Marks, ScoredTriples, best_of, level_of
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import shortened
from rgcn.system.memory import give_back

# Scores held at once, in bytes. Small enough to stay in the memory the allocator keeps warm.
BLOCK = 32 << 20
MOST_SUBJECTS = 4096
WORTH_ADDING, WORTH_LOOKING_AT = 0.01, 0.001  # probabilities
BLOCKS_UNTIL_TIDY = 50  # where memory is given back that blocks of questions left in holes
FORMAT, FORMAT_VERSION = "rgcn-completion", "1"
SAVED_EVERY = 5.0  # seconds; or so rarely that saving takes at most this share of the time
SHARE_OF_TIME = 0.02
CHANCE = " Of a subject and a relation to which probably nothing is missing, so much less."
MEANING = (
    "A probability is the share of such answers, to a question that has one, that were held out, times the chance that "
    "this subject and relation lack any."
)

Found = Mapping[str, NDArray[Any]]


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


@dataclass(frozen=True)
class CompletionSession:
    """How long a completion asks, and what it keeps and tells meanwhile.

    minutes        ask no longer than this, but for one block of questions; the rest is `Completion.left`
    resume         file to keep in what was found, every few seconds, and to go on from: after an interruption the same
                   call ends with the result of a call that was never interrupted. Refused where model or questions are
                   others (min_probability may be). It stays when all is asked: remove it then
    on_progress    called before each block with how many pairs are done, and how many there are; where it returns
                   False, nothing more is asked
    memory_budget  bytes for scores. Neither nodes × nodes nor all answers are ever held
    """

    minutes: float | None = None
    resume: str | Path | None = None
    on_progress: Callable[[int, int], bool | None] | None = None
    memory_budget: int = BLOCK

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"minutes is above 0, not {self.minutes}")


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
    session: CompletionSession = CompletionSession(),  # noqa: B008 - it is immutable
) -> Completion:
    """The best k unknown objects of every subject and relation that are good enough, and of all these the best `limit`.

    Best is what is most probable: an answer's probability (`answer_links`), which is that of a question that has one,
    times the chance that the subject lacks any (`RelationRules.chance_of_more`). Of a model that is not calibrated,
    what has the highest score.

    What is most worth asking is asked first (`_questions`).

    relations        ids; None for all
    min_probability  least probability; None: 0.01 where the model is calibrated. One that is not has scores alone, and
                     no bound
    permitted        which triples make sense (`RelationRules`): who may be subject and object of a relation, known ones
                     turned round, nodes linked to themselves. Literals are never subjects; of a triple and the same
                     turned round, in a relation that goes one way, the better one is proposed
    known            splits whose triples the graph is said to have; all by default. To be measured, hide one
    session          how long to ask, where to keep what was found, and whom to tell
    """
    calibration = model.calibration_
    least = _least(calibration, min_probability)
    if k < 1 or limit < 1:
        raise ConfigError(f"k and limit are at least 1; got k = {k}, limit = {limit}")
    graph, scorer = model.graph_, model.scorer()
    wanted = range(graph.num_relations) if relations is None else sorted(set(relations))
    permitted = permitted._replace(new=tuple(model.new_nodes))
    # Of a triple and the same turned round one may go: twice as many are held.
    looked_at = -np.inf if least is None else min(least, WORTH_LOOKING_AT)
    pool = _Pool(limit * 2 if permitted.directions else limit, looked_at)
    search = _Search(model, k, pool, known, permitted)
    unfinished = None
    if session.resume is not None:
        asked = {"model": model.fingerprint_, "relations": list(wanted), "k": k, "limit": limit}
        asked |= {"known": sorted(known), "least": looked_at, **permitted._asdict()}
        asked |= {"memory_budget": session.memory_budget, "at once": scorer.questions_at_once}
        asked |= {"device": str(scorer.device)}
        unfinished = UnfinishedFile(Path(session.resume), asked)
        search.restore(unfinished.read())
    questions = _questions(graph, wanted, permitted, looked_at)
    total = sum(len(question.subjects) for question in questions)
    search.run(questions, session, unfinished, total)
    triples, values = pool.best()
    (value, score), good = values.T, pool.found
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

    def __init__(self, model: AnsweringModel, k: int, pool: _Pool, known: Sequence[str], permitted: Permitted) -> None:
        self.graph, self.scorer, self.k, self.pool = model.graph_, model.scorer(), k, pool
        self.calibration = model.calibration_ if model.calibration_.fitted else None
        self.permitted = permitted._replace(nodes="any")  # who is asked, and who may be an answer, is in the questions
        self.index = KnownTriples.of_graph(self.graph, *known, device=self.scorer.device)
        self.learned = KnownTriples.of_graph(self.graph, "train")
        self.best, self.pairs = -np.inf, 0
        self.buffer = torch.empty(0, device=self.scorer.device)

    def run(
        self, questions: list[_Question], session: CompletionSession, unfinished: UnfinishedFile | None, total: int
    ) -> None:
        """Ask as many of the questions as there is time for; what was found is kept between two blocks."""
        began, before, minutes = time.monotonic(), self.pairs, session.minutes
        on_progress = session.on_progress or (lambda pairs, total: None)
        kept = before > 0  # what a short call found is found again sooner than it is written
        for number, size in enumerate(self.blocks(questions, session.memory_budget), 1):
            if number % BLOCKS_UNTIL_TIDY == 0:
                give_back()
            asked, seconds = self.pairs - before, time.monotonic() - began
            late = minutes is not None and asked > 0 and seconds * (asked + size) / asked > 60 * minutes
            if on_progress(self.pairs, total) is False or late:
                kept = True
                break
            if unfinished is not None and time.monotonic() >= unfinished.due:
                unfinished.write(self.found())
                kept = True
        else:
            on_progress(self.pairs, total)
        if unfinished is not None and kept and self.pairs > before:
            unfinished.write(self.found())

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
        asked = Questions(subject, relation)
        scores = self.scorer.scores(asked, candidates, room)
        marks = Marks.of(self.graph, self.index, asked, self.permitted, candidates)
        node, best, _ = best_of(scores, self.k, marks, True, self.graph.nodes, candidates, self.scorer.rounding)
        value = best.float()
        if self.calibration is not None:
            value = self._probabilities(asked.to("cpu"), best, level_of(scores, marks, candidates).cpu())
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
        self.limit, self.least, self.found, self._size = limit, least, 0, 0
        self._floor = least  # rises as the pool fills
        self._parts = [(np.empty((0, 3), np.int64), np.empty((0, 2), np.float32))]  # triples; value and score

    def add(self, triples: Ids, values: NDArray[np.float32], scores: NDArray[np.float32]) -> None:
        self.found += int(np.count_nonzero(values >= self.least))
        good = values >= self._floor
        self._parts.append((triples[good], np.stack([values[good], scores[good]], axis=1)))
        self._size += len(self._parts[-1][0])
        if self._size > 2 * self.limit:
            self._keep(*self.best())
            self._floor = max(self._floor, float(self._parts[0][1][-1, 0]))

    def _keep(self, triples: Ids, values: NDArray[np.float32]) -> None:
        self._parts, self._size = [(triples, values)], len(triples)

    def found_so_far(self) -> Found:
        triples, values = map(np.concatenate, zip(*self._parts, strict=True))
        return {"triples": triples.astype(np.uint32), "values": values, "counts": np.array([self.found, self._floor])}

    def restore(self, found: Found) -> None:
        self._keep(found["triples"].astype(np.int64), found["values"])
        self.found, self._floor = int(found["counts"][0]), float(found["counts"][1])

    def best(self) -> tuple[Ids, NDArray[np.float32]]:
        """(triples [n, 3], value and score [n, 2]) of the best `limit`: by value, score, subject, relation, object."""
        triples, values = map(np.concatenate, zip(*self._parts, strict=True))
        if len(values) > self.limit:  # to cut is cheaper than to sort
            cut = np.partition(values[:, 0], len(values) - self.limit)[len(values) - self.limit]
            triples, values = triples[values[:, 0] >= cut], values[values[:, 0] >= cut]
        columns = triples[:, 2], triples[:, 1], triples[:, 0], -values[:, 1], -values[:, 0]
        order = np.lexsort(columns)[: self.limit]
        return triples[order], values[order]


class UnfinishedFile:
    """Where a completion keeps what it has found.

    asked  what must be the same to go on: the model, and what is asked of it; plain values
    """

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        self.path, self.asked = path, {name: json.dumps(value) for name, value in asked.items()}
        self.due = time.monotonic() + SAVED_EVERY

    def read(self) -> Found | None:
        """What was found before; None where nothing was begun, DataError where the file is of something else."""
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                said = dict(file.metadata() or {})
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        except (OSError, SafetensorError) as error:
            raise DataError(f"{self.path}: damaged, or no unfinished completion ({error}): {_instead()}") from None
        if (said.pop("format", None), said.pop("version", None)) != (FORMAT, FORMAT_VERSION):
            raise DataError(f"{self.path}: not an unfinished completion of this version of rgcn: {_instead()}")
        if said != self.asked:
            raise DataError(f"{self.path} holds an unfinished completion {self._difference(said)}: {_instead()}")
        return found

    def _difference(self, said: dict[str, str]) -> str:
        if said.get("model") != self.asked["model"]:
            return "of another model, or over another graph"
        differ = [name for name, value in self.asked.items() if said.get(name) != value]
        words = (shortened(f"{name} {said.get(name)}, now {self.asked[name]}", 80) for name in differ)
        return f"that asked something else ({'; '.join(words)})"

    def write(self, found: Found) -> None:
        """Replace what was kept."""
        from safetensors.numpy import save

        began = time.monotonic()
        header = {"format": FORMAT, "version": FORMAT_VERSION, **self.asked}
        content = save({name: np.ascontiguousarray(array) for name, array in found.items()}, header)
        try:
            write_atomically(self.path, content)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        now = time.monotonic()
        self.due = now + max(SAVED_EVERY, (now - began) / SHARE_OF_TIME)


def _instead() -> str:
    return "repeat that call to go on with it, or begin anew (`rgcn complete --restart`, or remove the file)"
