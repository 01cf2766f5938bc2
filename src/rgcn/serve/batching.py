"""Batching: one thread answers together all questions that arrived while it computed the previous batch."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from rgcn.serve.address import Limits
from rgcn.serve.schemas import RequestError, retry_later

if TYPE_CHECKING:
    from rgcn.serve.served_model import ServedModel

# One place in BULK_SHARE of a batch is reserved for requests with many questions, so that single ones do not starve
# them.
BULK_SHARE = 4
NAMES_PER_TURN, CACHED_ANSWERS = 100, 256
Name = TypeVar("Name")
Resolved = TypeVar("Resolved")


@dataclass(eq=False)
class RequestQueue:
    """Requests whose questions can be answered by one call.

    Attributes:
        key: Labels of the metrics: the model and the kind of question.
        answer: Maps questions to their answers, in order. Called in the worker thread.
        max_batch: Questions per call.
        seconds_each: Time per question of the last full batch.
    """

    key: tuple[str, str]
    answer: Callable[[list[Any]], Iterable[Any]]
    max_batch: int = 64
    seconds_each: float = 0.0
    single: deque[_Request] = field(default_factory=deque)
    bulk: deque[_Request] = field(default_factory=deque)

    def next_batch(self) -> list[_Part]:
        """Take the questions of the next batch off the queue: single questions, and a part of a long request."""
        places = self.max_batch - (self.max_batch // BULK_SHARE if self.bulk else 0)
        parts = [self.single.popleft().part(1) for _ in range(min(places, len(self.single)))]
        free_places = self.max_batch - len(parts)
        while self.bulk and free_places:
            request, part = self.bulk.popleft().part(free_places)
            parts.append((request, part))
            free_places -= len(part)
            if request.num_taken < len(request.questions):
                self.bulk.append(request)  # behind the other long requests: they take turns
        return parts


@dataclass(eq=False)
class _Request:
    """The questions of one HTTP request."""

    questions: Sequence[Any]
    future: asyncio.Future[Sequence[Any]]
    num_taken: int = 0
    answers: list[Any] = field(default_factory=list)

    def part(self, num_questions: int) -> _Part:
        first, self.num_taken = self.num_taken, min(self.num_taken + num_questions, len(self.questions))
        return self, self.questions[first : self.num_taken]

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


_Part = tuple[_Request, Sequence[Any]]


@dataclass(eq=False)
class BatchingExecutor:
    """A worker thread, and the requests that wait for it.

    No request waits for a batch to fill. If the thread is idle, a question is answered at once and alone; questions
    that arrive meanwhile form the next batch. Requests with many questions are answered in parts, each part together
    with the single questions that wait, so that a long request delays the others by one batch at most.

    Attributes:
        name: Name of the thread.
        max_waiting: Requests that may wait. Further ones are refused.
        timeout_s: Seconds until a request fails.
        observe: Called in the thread with the queue and the size of each batch.
        busy_message: Beginning of the message of a refused request.
        max_questions: Questions that may wait, of all requests together. Beyond, only single questions are accepted.
    """

    name: str
    max_waiting: int
    timeout_s: float
    observe: Callable[[RequestQueue, int], None] = lambda queue, size: None
    busy_message: str = "the model is busy"
    max_questions: int = 20_000

    def __post_init__(self) -> None:
        self._num_requests = self.num_questions = 0  # that wait or are being answered
        self._queues: deque[RequestQueue] = deque()  # those with requests; they take turns
        self._thread = ThreadPoolExecutor(1, self.name)
        self._working: asyncio.Task[None] | None = None
        self._is_stopping = False

    def __len__(self) -> int:
        """Return the number of requests that wait or are being answered."""
        return self._num_requests

    async def ask(self, queue: RequestQueue, questions: Sequence[Any]) -> Sequence[Any]:
        """Answer questions of one queue. Call it on the event loop.

        Raises:
            RequestError: If too many requests wait, or the answer takes too long.
        """
        self.check_room(len(questions))
        if len(questions) > 1 and len(questions) * queue.seconds_each > self.timeout_s:
            possible = max(1, int(0.5 * self.timeout_s / queue.seconds_each))
            message = f"{len(questions):,} questions would take longer than the {self.timeout_s:g} seconds of a request"
            raise RequestError("invalid", f"{message}: ask {possible:,} at a time")
        loop = asyncio.get_running_loop()
        request = _Request(questions, loop.create_future())
        waiting = queue.single if len(questions) == 1 else queue.bulk
        self._num_requests += 1
        self.num_questions += len(questions)
        waiting.append(request)
        if queue not in self._queues:  # an empty queue may still be listed, if its clients have disconnected
            self._queues.append(queue)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        message = f"the answer took longer than {self.timeout_s:g} seconds and was dropped"
        timer = loop.call_later(self.timeout_s, request.fail, retry_later("took_too_long", message))
        try:
            return await request.future
        finally:
            timer.cancel()
            self._num_requests -= 1
            self.num_questions -= len(questions)
            if request.num_taken < len(questions):  # timed out, or the client has disconnected
                with suppress(ValueError):
                    waiting.remove(request)

    def check_room(self, num_questions: int) -> None:
        """Raise RequestError if a request with this many questions cannot be accepted now."""
        if self._is_stopping:
            raise retry_later("too_busy", "the server is stopping")
        if self._num_requests >= self.max_waiting:
            raise retry_later("too_busy", f"{self.busy_message} and {self._num_requests:,} requests wait already")
        if num_questions > 1 and self._num_requests and self.num_questions + num_questions > self.max_questions:
            raise retry_later("too_busy", f"{self.busy_message} and {self.num_questions:,} questions wait already")

    def stop(self) -> None:
        """Accept no more questions, and end the thread when the accepted ones are answered."""
        self._is_stopping = True
        if self._working is None or self._working.done():
            self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        """Pass batches to the thread, and their answers to the requests, until no request waits."""
        while self._queues:
            queue = self._queues.popleft()
            parts = queue.next_batch()
            if queue.single or queue.bulk:
                self._queues.append(queue)
            questions = [question for _, part in parts for question in part]
            if not questions:
                continue
            try:
                batch = asyncio.get_running_loop().run_in_executor(self._thread, self._answer, queue, questions)
                answers = iter(await batch)
            except Exception as error:
                for request, _ in parts:
                    request.fail(error)
                continue
            for request, part in parts:
                request.answers.extend(islice(answers, len(part)))
                if len(request.answers) == len(request.questions) and not request.future.done():
                    request.future.set_result(request.answers)
        if self._is_stopping:
            self._thread.shutdown(wait=False)

    def _answer(self, queue: RequestQueue, questions: list[Any]) -> list[Any]:
        """Answer one batch, in the thread."""
        self.observe(queue, len(questions))
        start = time.monotonic()
        answers = list(queue.answer(questions))
        if len(questions) == queue.max_batch:
            queue.seconds_each = (time.monotonic() - start) / len(questions)
        return answers


class Dispatcher:
    """The served models and the executors that answer for them. Every endpoint handler receives it.

    Attributes:
        models: The served models by name.
        ask: Answers questions in the models' thread: `await dispatcher.ask(queue, questions)`.
        cache: Explanations computed so far, least recently used first.
    """

    def __init__(
        self, models: Iterable[ServedModel], executor: BatchingExecutor, explainer: BatchingExecutor, limits: Limits
    ) -> None:
        self.models = {served.name: served for served in models}
        self.limits, self._executor, self._explainer, self.ask = limits, executor, explainer, executor.ask
        self._resolving = asyncio.Lock()
        self.cache = OrderedDict[Hashable, Any]()
        self._explanations = RequestQueue(("any", "explain"), self._compute, max_batch=1)

    async def resolve_names(self, names: Sequence[Name], resolve: Callable[[Name], Resolved]) -> list[Resolved]:
        """Map the names of a long request to ids, one request at a time, in parts between which other tasks run."""
        self._executor.check_room(len(names))
        ids: list[Resolved] = []
        async with self._resolving:
            for first in range(0, len(names), NAMES_PER_TURN):
                if first:
                    await asyncio.sleep(0)
                ids += map(resolve, names[first : first + NAMES_PER_TURN])
        return ids

    async def cached_answer(self, question: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the answer to a slow question: computed in the explanations' thread, or from the cache."""
        if question not in self.cache:
            await self._explainer.ask(self._explanations, [(question, compute)])
        self.cache.move_to_end(question)
        while len(self.cache) > CACHED_ANSWERS:
            self.cache.popitem(last=False)
        return self.cache[question]

    def _compute(self, questions: list[tuple[Hashable, Callable[[], Any]]]) -> list[None]:
        """Add answers to the cache, in the thread; an equal question may have waited before this one."""
        self.cache.update({question: compute() for question, compute in questions if question not in self.cache})
        return [None] * len(questions)
