"""Where questions arrive: the served models, the threads that answer for them, and how much may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rgcn.errors import close_matches
from rgcn.serve.batching import Batcher, Lane
from rgcn.serve.explanations import Explanations
from rgcn.serve.limits import Limits
from rgcn.serve.refusals import Refusal, shortened
from rgcn.serve.served import Served

RESOLVED_AT_ONCE = 100
Named = TypeVar("Named")
Resolved = TypeVar("Resolved")


class Desk:
    """One for each application; every handler is given it.

    quick  the models' thread
    why    explanations, and the thread that makes them
    """

    def __init__(self, models: Iterable[Served], quick: Batcher, slow: Batcher, limits: Limits) -> None:
        self.models = {served.name: served for served in models}
        self.quick, self.limits = quick, limits
        self.why = Explanations(self.models, slow)
        self._resolving = asyncio.Lock()

    def model(self, name: str) -> Served:
        """The model of a name."""
        served = self.models.get(name)
        if served is None:
            near = close_matches(name[:100], self.models)
            there = ", ".join(map(repr, self.models))
            raise Refusal("unknown_model", f"unknown model {shortened(name)}: this server has {there}", near)
        return served

    async def ask(self, lane: Lane, questions: Sequence[Any]) -> Sequence[Any]:
        """The answers to questions, from the models' thread."""
        return await self.quick.ask(lane, questions)

    async def resolved(self, named: Sequence[Named], resolve: Callable[[Named], Resolved]) -> list[Resolved]:
        """Names of a long request to numbers: a few, then others have their turn, one such request at a time.

        Were all of them under way at once, each turn of the event loop would be a part of every one.
        """
        self.quick.check_room(len(named))
        found: list[Resolved] = []
        async with self._resolving:
            for at in range(0, len(named), RESOLVED_AT_ONCE):
                if at:
                    await asyncio.sleep(0)
                found += map(resolve, named[at : at + RESOLVED_AT_ONCE])
        return found
