"""Questions that wait while others are answered are answered together next, by one thread; where they arrive."""

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
from rgcn.serve.schemas import Refusal, come_later

if TYPE_CHECKING:
    from rgcn.serve.served_model import Served

# Of a batch's places this share is kept for requests with many questions, so that single ones cannot starve them.
BULK_SHARE = 4
RESOLVED_AT_ONCE, REMEMBERED = 100, 256
Named = TypeVar("Named")
Resolved = TypeVar("Resolved")


@dataclass(eq=False)
class Lane:
    """Questions that can be answered by one call."""

    key: tuple[str, str]  # what is counted together: the model and the kind of question
    answer: Callable[[list[Any]], Iterable[Any]]  # to questions their answers, in order; called in the thread
    most: int = 64  # questions in one call
    seconds_each: float = 0.0  # that a question of the last full call took
    single: deque[_Request] = field(default_factory=deque)
    bulk: deque[_Request] = field(default_factory=deque)


@dataclass(eq=False)
class _Request:
    """Questions that came together."""

    questions: Sequence[Any]
    future: asyncio.Future[Sequence[Any]]
    taken: int = 0  # how many of them
    answers: list[Any] = field(default_factory=list)  # so far

    def part(self, most: int) -> _Part:
        first, self.taken = self.taken, min(self.taken + most, len(self.questions))
        return self, self.questions[first : self.taken]

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


_Part = tuple[_Request, Sequence[Any]]


@dataclass(eq=False)
class Batcher:
    """One thread, and what waits for it.

    Nothing is waited for to fill a batch: where the thread is free a question is answered at once and alone; what
    arrives meanwhile is the next batch. Requests with many questions are answered in parts, each part beside the
    single questions that wait, so that a long request delays the others by one batch and no more.
    """

    name: str
    waiting: int  # requests that may wait; further ones are refused
    seconds: float  # until a request is no longer waited for
    observe: Callable[[Lane, int], None] = lambda lane, size: None  # told in the thread of each batch and its size
    busy_words: str = "the model is busy"
    questions: int = 20_000  # that may wait, of all requests; beyond, those with many are refused, single ones are not

    def __post_init__(self) -> None:
        self._count = self.questions_waiting = 0  # requests that are waited for, and their questions
        self._lanes: deque[Lane] = deque()  # those with something to do, in turns
        self._thread = ThreadPoolExecutor(1, self.name)
        self._working: asyncio.Task[None] | None = None
        self._stopping = False

    def __len__(self) -> int:
        """Requests that wait or are being answered."""
        return self._count

    async def ask(self, lane: Lane, questions: Sequence[Any]) -> Sequence[Any]:
        """On the event loop: the answers to questions of one lane; Refusal where too many wait or it takes too long."""
        self.check_room(len(questions))
        if len(questions) > 1 and len(questions) * lane.seconds_each > self.seconds:
            most = max(1, int(0.5 * self.seconds / lane.seconds_each))
            words = f"{len(questions):,} questions would take longer than the {self.seconds:g} seconds of a request"
            raise Refusal("invalid", f"{words}: ask {most:,} at a time")
        loop = asyncio.get_running_loop()
        request = _Request(questions, loop.create_future())
        queue = lane.single if len(questions) == 1 else lane.bulk
        self._count += 1
        self.questions_waiting += len(questions)
        queue.append(request)
        if lane not in self._lanes:  # it may be there without questions, where nobody waits for them any more
            self._lanes.append(lane)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        words = f"the answer took longer than {self.seconds:g} seconds and is no longer waited for"
        timer = loop.call_later(self.seconds, request.fail, come_later("took_too_long", words))
        try:
            return await request.future
        finally:
            timer.cancel()
            self._count -= 1
            self.questions_waiting -= len(questions)
            if request.taken < len(questions):  # its time is over, or whoever asked has gone
                with suppress(ValueError):
                    queue.remove(request)

    def check_room(self, questions: int) -> None:
        """Refuse a request with so many questions where it would find no place."""
        if self._stopping:
            raise come_later("too_busy", "the server is stopping")
        if self._count >= self.waiting:
            raise come_later("too_busy", f"{self.busy_words} and {self._count:,} requests wait already")
        if questions > 1 and self._count and self.questions_waiting + questions > self.questions:
            raise come_later("too_busy", f"{self.busy_words} and {self.questions_waiting:,} questions wait already")

    def stop(self) -> None:
        """No more questions; the thread ends when it has answered those it has."""
        self._stopping = True
        if self._working is None or self._working.done():
            self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        """While there is something to do: the next batch to the thread, its answers to those who wait for them."""
        while self._lanes:
            lane = self._lanes.popleft()
            parts = self._take(lane)
            if lane.single or lane.bulk:
                self._lanes.append(lane)
            questions = [question for _, part in parts for question in part]
            if not questions:
                continue
            try:
                found = asyncio.get_running_loop().run_in_executor(self._thread, self._answer, lane, questions)
                answers = iter(await found)
            except Exception as error:
                for request, _ in parts:
                    request.fail(error)
                continue
            for request, part in parts:
                request.answers.extend(islice(answers, len(part)))
                if len(request.answers) == len(request.questions) and not request.future.done():
                    request.future.set_result(request.answers)
        if self._stopping:
            self._thread.shutdown(wait=False)

    def _take(self, lane: Lane) -> list[_Part]:
        places = lane.most - (lane.most // BULK_SHARE if lane.bulk else 0)
        parts = [lane.single.popleft().part(1) for _ in range(min(places, len(lane.single)))]
        room = lane.most - len(parts)
        while lane.bulk and room:
            request, part = lane.bulk.popleft().part(room)
            parts.append((request, part))
            room -= len(part)
            if request.taken < len(request.questions):
                lane.bulk.append(request)  # behind the others: they take turns
        return parts

    def _answer(self, lane: Lane, questions: list[Any]) -> list[Any]:
        """In the thread."""
        self.observe(lane, len(questions))
        began = time.monotonic()
        answers = list(lane.answer(questions))
        if len(questions) == lane.most:
            lane.seconds_each = (time.monotonic() - began) / len(questions)
        return answers


class Desk:
    """Where questions arrive: the served models and the threads that answer for them; every handler is given it."""

    def __init__(self, models: Iterable[Served], quick: Batcher, slow: Batcher, limits: Limits) -> None:
        self.models = {served.name: served for served in models}
        self.limits, self._quick, self._slow, self.ask = limits, quick, slow, quick.ask
        self._resolving = asyncio.Lock()
        self.kept = OrderedDict[Hashable, Any]()
        self._slowly = Lane(("any", "explain"), self._make, most=1)

    async def resolved(self, named: Sequence[Named], resolve: Callable[[Named], Resolved]) -> list[Resolved]:
        """Names of a long request to numbers: a few, then others have their turn, one such request at a time."""
        self._quick.check_room(len(named))
        found: list[Resolved] = []
        async with self._resolving:
            for at in range(0, len(named), RESOLVED_AT_ONCE):
                if at:
                    await asyncio.sleep(0)
                found += map(resolve, named[at : at + RESOLVED_AT_ONCE])
        return found

    async def remembered(self, question: Hashable, make: Callable[[], Any]) -> Any:
        """An answer that is slow to make: made in a thread for such, the least lately asked one forgotten first."""
        if question not in self.kept:
            await self._slow.ask(self._slowly, [(question, make)])
        self.kept.move_to_end(question)
        while len(self.kept) > REMEMBERED:
            self.kept.popitem(last=False)
        return self.kept[question]

    def _make(self, asked: list[tuple[Hashable, Callable[[], Any]]]) -> list[None]:
        """In the thread, which only ever adds; what waited behind itself is not made again."""
        self.kept.update({question: make() for question, make in asked if question not in self.kept})
        return [None] * len(asked)
