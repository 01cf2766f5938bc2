"""Questions that wait while others are answered are answered together next, by one thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rgcn.serve.refusals import Refusal, too_busy, took_too_long

# Of a batch's places this share is kept for requests with many questions, so that single ones cannot starve them.
BULK_SHARE = 4


@dataclass(eq=False)
class Lane:
    """Questions that can be answered by one call.

    key     what is counted together: the model and the kind of question
    answer  from questions to their answers, in order; called in the thread
    most    questions in one call
    """

    key: tuple[str, str]
    answer: Callable[[list[Any]], Sequence[Any]]
    most: int = 64
    single: deque[_Request] = field(default_factory=deque)
    bulk: deque[_Request] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.single or self.bulk)


@dataclass(eq=False)
class _Request:
    """Questions that came together, and the answers so far."""

    questions: Sequence[Any]
    future: asyncio.Future[Sequence[Any]]
    loop: asyncio.AbstractEventLoop
    answers: list[Any] = field(default_factory=list)
    asked: int = 0
    counted: bool = True
    failure: BaseException | None = None


class Batcher:
    """One thread, and what waits for it.

    Nothing is waited for to fill a batch: where the thread is free a question is answered at once and alone; what
    arrives meanwhile is the next batch. Requests with many questions are answered in parts, each part beside the
    single questions that wait, so that a long request delays the others by one batch and no more.

    waiting    requests that may wait; further ones are refused
    seconds    until a request is no longer waited for
    questions  of all requests together that may wait; beyond, requests with many are refused, single ones are not
    observe    called in the thread with (lane, number of questions) of each batch
    """

    def __init__(
        self,
        name: str,
        waiting: int,
        seconds: float,
        observe: Callable[[Lane, int], None] | None = None,
        busy_words: str = "the model is busy",
        questions: int = 20_000,
    ) -> None:
        self.name, self.waiting, self.seconds, self.busy_words = name, waiting, seconds, busy_words
        self.questions, self._observe = questions, observe
        self._lanes: deque[Lane] = deque()  # those with something to do, in turns
        self._count = self._questions = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """Requests that wait or are being answered."""
        return self._count

    @property
    def questions_waiting(self) -> int:
        """Questions of the requests that wait or are being answered."""
        return self._questions

    # -- on the event loop -------------------------------------------------------------------------------

    async def ask(self, lane: Lane, questions: Sequence[Any]) -> Sequence[Any]:
        """The answers to questions of one lane; Refusal where too many wait or it takes too long."""
        loop = asyncio.get_running_loop()
        request = _Request(questions, loop.create_future(), loop)
        self._put(lane, request)
        timer = loop.call_later(self.seconds, self._give_up, request.future)
        try:
            return await request.future
        finally:
            timer.cancel()
            self._forget(lane, request)  # where its time is over, or whoever asked has gone

    def _forget(self, lane: Lane, request: _Request) -> None:
        with self._changed:
            if request.counted:
                for waiting in (lane.single, lane.bulk):
                    if request in waiting:
                        waiting.remove(request)
                        self._uncount(request)

    def _uncount(self, request: _Request) -> None:
        """Under the lock."""
        if request.counted:
            request.counted = False
            self._count -= 1
            self._questions -= len(request.questions)

    def check_room(self, questions: int) -> None:
        """Refuse a request with so many questions where it would find no place."""
        if self._stopping:
            raise too_busy("the server is stopping")
        if self._count >= self.waiting:
            raise too_busy(f"{self.busy_words} and {self._count:,} requests wait already")
        if questions > 1 and self._count and self._questions + questions > self.questions:
            raise too_busy(f"{self.busy_words} and {self._questions:,} questions wait already")

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(took_too_long(self.seconds))

    def _put(self, lane: Lane, request: _Request) -> None:
        with self._changed:
            self.check_room(len(request.questions))
            self._count += 1
            self._questions += len(request.questions)
            if lane not in self._lanes:  # it may be there without questions, where all were forgotten
                self._lanes.append(lane)
            (lane.single if len(request.questions) == 1 else lane.bulk).append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """No more questions; the thread ends when it has answered those it has."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    # -- in the thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._lanes:
                    if self._stopping:
                        return
                    self._changed.wait()
                lane = self._lanes.popleft()
                parts = self._take(lane)
                if lane:
                    self._lanes.append(lane)
            self._answer(lane, parts)

    def _take(self, lane: Lane) -> list[tuple[_Request, int, int]]:
        """What the next batch answers: (request, first question, last) each. Those nobody waits for are dropped."""
        parts: list[tuple[_Request, int, int]] = []
        room = lane.most - (lane.most // BULK_SHARE if lane.bulk else 0)
        while lane.single and room:
            request = lane.single.popleft()
            if request.future.done():
                self._uncount(request)
                continue
            parts.append((request, 0, 1))
            room -= 1
        room = lane.most - len(parts)
        while lane.bulk and room:
            request = lane.bulk[0]
            if request.future.done():
                self._uncount(request)
                lane.bulk.popleft()
                continue
            last = min(request.asked + room, len(request.questions))
            parts.append((request, request.asked, last))
            room -= last - request.asked
            request.asked = last
            if last == len(request.questions):
                lane.bulk.popleft()
            elif len(lane.bulk) > 1:
                lane.bulk.rotate(-1)
        return parts

    def _answer(self, lane: Lane, parts: list[tuple[_Request, int, int]]) -> None:
        if not parts:
            return
        questions = [question for request, first, last in parts for question in request.questions[first:last]]
        if self._observe is not None:
            self._observe(lane, len(questions))
        failure: BaseException | None = None
        answers: Sequence[Any] = ()
        try:
            answers = lane.answer(questions)
        except Exception as error:
            failure = error
        finished, at = [], 0
        for request, first, last in parts:
            request.failure = request.failure or failure
            request.answers.extend(answers[at : at + last - first])
            at += last - first
            if request.failure is not None or last == len(request.questions):
                finished.append(request)
        if finished:
            self._hand_over(lane, finished)

    def _hand_over(self, lane: Lane, finished: list[_Request]) -> None:
        with self._changed:
            for request in finished:
                self._uncount(request)
                if request.failure is not None and request in lane.bulk:
                    lane.bulk.remove(request)
        for loop in {request.loop for request in finished}:
            mine = [request for request in finished if request.loop is loop]
            try:
                loop.call_soon_threadsafe(_deliver, mine)
            except RuntimeError:  # the loop is closed: nobody waits any more
                continue


def _deliver(finished: list[_Request]) -> None:
    for request in finished:
        if request.future.done():
            continue
        if request.failure is None:
            request.future.set_result(request.answers)
        elif isinstance(request.failure, Refusal):
            # A copy: one exception raised in several tasks would mix their tracebacks.
            failure = request.failure
            again = Refusal(failure.code, failure.message, failure.suggestions, failure.headers)
            request.future.set_exception(again)
        else:
            request.future.set_exception(request.failure)
