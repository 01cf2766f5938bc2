"""Where questions arrive: the served models, the threads that answer for them, and what is remembered."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from rgcn.serve.batching import Batcher, Lane
from rgcn.serve.limits import Limits
from rgcn.serve.served import Served
from rgcn.serve.shapes import AnswerShape

RESOLVED_AT_ONCE = 100
REMEMBERED = 256
Named = TypeVar("Named")
Resolved = TypeVar("Resolved")
Made = tuple[Hashable, Callable[[], AnswerShape]]  # what is asked, and what makes its answer


class Desk:
    """One for each application; every handler is given it.

    ask   the answers to questions of one `Lane`, from the models' thread (`Batcher.ask`)
    slow  answers that take long, from a thread of their own
    """

    def __init__(self, models: Iterable[Served], quick: Batcher, slow: Batcher, limits: Limits) -> None:
        self.models = {served.name: served for served in models}
        self.limits, self.ask, self.check_room = limits, quick.ask, quick.check_room
        self.slow = Remembered(slow)
        self._resolving = asyncio.Lock()

    async def resolved(self, named: Sequence[Named], resolve: Callable[[Named], Resolved]) -> list[Resolved]:
        """Names of a long request to numbers: a few, then others have their turn, one such request at a time.

        Were all of them under way at once, each turn of the event loop would be a part of every one.
        """
        self.check_room(len(named))
        found: list[Resolved] = []
        async with self._resolving:
            for at in range(0, len(named), RESOLVED_AT_ONCE):
                if at:
                    await asyncio.sleep(0)
                found += map(resolve, named[at : at + RESOLVED_AT_ONCE])
        return found


class Remembered:
    """Answers that are slow to make; the least lately asked one is forgotten first.

    `found` is asked on the event loop, `answer` in the thread. The answer looks again at what is remembered: the same
    question may have waited behind itself.
    """

    def __init__(self, slow: Batcher, most: int = REMEMBERED) -> None:
        self._slow, self._most = slow, most
        self._kept: OrderedDict[Hashable, AnswerShape] = OrderedDict()
        self._lock = threading.Lock()
        self._lane = Lane(("any", "explain"), self.answer, most=1)

    def __len__(self) -> int:
        return len(self._kept)

    async def ask(self, question: Hashable, make: Callable[[], AnswerShape]) -> AnswerShape:
        found: AnswerShape = self.found(question) or (await self._slow.ask(self._lane, [(question, make)]))[0]
        return found

    def found(self, question: Hashable) -> AnswerShape | None:
        with self._lock:
            if question in self._kept:
                self._kept.move_to_end(question)
            return self._kept.get(question)

    def answer(self, asked: list[Made]) -> list[AnswerShape]:
        return [self.found(question) or self._made(question, make) for question, make in asked]

    def _made(self, question: Hashable, make: Callable[[], AnswerShape]) -> AnswerShape:
        answer = make()
        with self._lock:
            self._kept[question] = answer
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return answer
