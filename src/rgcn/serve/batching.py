"""Questions that wait while others are answered are answered together next, by one thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rgcn.serve.refusals import come_later

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


@dataclass(eq=False)
class _Request:
    """Questions that came together, and the answers so far."""

    questions: Sequence[Any]
    future: asyncio.Future[Sequence[Any]]
    answers: list[Any] = field(default_factory=list)
    asked: int = 0
    counted: bool = True
    failure: Exception | None = None


_Part = tuple[_Request, int, int]  # of a request, the first question and the one after the last


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
        observe: Callable[[Lane, int], None] = lambda lane, size: None,
        busy_words: str = "the model is busy",
        questions: int = 20_000,
    ) -> None:
        self.name, self.waiting, self.seconds, self.busy_words = name, waiting, seconds, busy_words
        self.questions, self._observe = questions, observe
        self._lanes: deque[Lane] = deque()  # those with something to do, in turns
        self._count = 0
        self.questions_waiting = 0  # of the requests that wait or are being answered
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """Requests that wait or are being answered."""
        return self._count

    # -- on the event loop -------------------------------------------------------------------------------

    async def ask(self, lane: Lane, questions: Sequence[Any]) -> Sequence[Any]:
        """The answers to questions of one lane; Refusal where too many wait or it takes too long."""
        loop = asyncio.get_running_loop()
        request = _Request(questions, loop.create_future())
        self._put(lane, request)
        timer = loop.call_later(self.seconds, self._give_up, request.future)
        try:
            return await request.future
        finally:
            timer.cancel()
            if request.counted:  # its time is over, or whoever asked has gone
                self._forget(lane, request)

    def check_room(self, questions: int) -> None:
        """Refuse a request with so many questions where it would find no place."""
        if self._stopping:
            raise come_later("too_busy", "the server is stopping: try again in a moment")
        if self._count >= self.waiting:
            full = f"{self._count:,} requests"
        elif questions > 1 and self._count and self.questions_waiting + questions > self.questions:
            full = f"{self.questions_waiting:,} questions"
        else:
            return
        raise come_later("too_busy", f"{self.busy_words} and {full} wait already: try again in a moment")

    def _put(self, lane: Lane, request: _Request) -> None:
        with self._changed:
            self.check_room(len(request.questions))
            self._count += 1
            self.questions_waiting += len(request.questions)
            if lane not in self._lanes:  # it may be there without questions, where all were forgotten
                self._lanes.append(lane)
            (lane.single if len(request.questions) == 1 else lane.bulk).append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            words = f"the answer took longer than {self.seconds:g} seconds and is no longer waited for"
            future.set_exception(come_later("took_too_long", f"{words}: ask for less, or later"))

    def _forget(self, lane: Lane, request: _Request) -> None:
        """What the thread has not begun with, or not finished, is not computed any more."""
        with self._changed:
            for waiting in (lane.single, lane.bulk):
                if request in waiting:
                    waiting.remove(request)
                    self._uncount(request)

    def _uncount(self, request: _Request) -> None:
        """Under the lock."""
        if request.counted:
            request.counted = False
            self._count -= 1
            self.questions_waiting -= len(request.questions)

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
                if lane.single or lane.bulk:
                    self._lanes.append(lane)
            if parts:
                self._answer(lane, parts)

    def _take(self, lane: Lane) -> list[_Part]:
        """What the next batch answers."""
        room = lane.most - (lane.most // BULK_SHARE if lane.bulk else 0)
        parts: list[_Part] = [(lane.single.popleft(), 0, 1) for _ in range(min(room, len(lane.single)))]
        room = lane.most - len(parts)
        while lane.bulk and room:
            request = lane.bulk.popleft()
            first, request.asked = request.asked, min(request.asked + room, len(request.questions))
            parts.append((request, first, request.asked))
            room -= request.asked - first
            if request.asked < len(request.questions):
                lane.bulk.append(request)  # behind the others: they take turns
        return parts

    def _answer(self, lane: Lane, parts: list[_Part]) -> None:
        questions = [question for request, first, last in parts for question in request.questions[first:last]]
        self._observe(lane, len(questions))
        failure: Exception | None = None
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
        with self._changed:
            for request in finished:
                self._uncount(request)
                if request.failure is not None and request in lane.bulk:
                    lane.bulk.remove(request)
        for loop in {request.future.get_loop() for request in finished}:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver, [one for one in finished if one.future.get_loop() is loop])


def _deliver(finished: list[_Request]) -> None:
    for request in finished:
        if request.future.done():
            continue
        if request.failure is None:
            request.future.set_result(request.answers)
        else:
            request.future.set_exception(request.failure)
