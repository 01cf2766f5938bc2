"""How much a slow answer may cost: decided from counts wherever it can be, with a clock for what counts do not tell."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """What may be spent on something that can be done a few times or many.

    work     multiply-adds. Two ordinary cores do some 3e10 a second. How often something is done follows from this
             alone, so that the same data give the same answer on every machine that is fast enough
    seconds  the upper bound for machines that are slower or busy
    clock    seconds from any beginning
    bars     whether to draw a progress bar; None: where standard error is a terminal

    >>> Budget(work=1e9, seconds=10.0).times(3e8, at_most=20)
    3
    """

    work: float = math.inf
    seconds: float = math.inf
    clock: Callable[[], float] = time.monotonic
    bars: bool | None = False

    def times(self, work_each: float, at_most: int) -> int:
        """How often something may be done that costs so much each time."""
        return at_most if work_each * at_most <= self.work else int(self.work / work_each)

    def started(self) -> Timer:
        """A timer that runs from now on."""
        return Timer(self, self.clock())


@dataclass(frozen=True)
class Timer:
    """The seconds of a budget since they began to count."""

    budget: Budget
    begin: float

    @property
    def elapsed(self) -> float:
        return self.budget.clock() - self.begin

    def is_over(self, needed: float = 0.0) -> bool:
        """Whether time is up, or would be if so many seconds more were needed."""
        return self.elapsed + needed > self.budget.seconds
