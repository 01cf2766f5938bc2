"""A clock that only goes on when a test says so."""

from __future__ import annotations


class FakeClock:
    """Call it for the seconds; add to them what something is said to take."""

    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


class SlowScorer:
    """Stands before a scorer: every question takes so many seconds of a clock, and is counted."""

    def __init__(self, scorer, clock, seconds, **changes):
        self.scorer, self.clock, self.each, self.changes, self.asked = scorer, clock, seconds, changes, 0

    def __getattr__(self, name):
        return self.changes[name] if name in self.changes else getattr(self.scorer, name)

    def _count(self, questions):
        self.asked += questions.size
        self.clock.seconds += self.each * questions.size

    def scores(self, questions, *more):
        self._count(questions)
        return self.scorer.scores(questions, *more)

    def scores_hiding(self, questions, *more):
        self._count(questions)
        return self.scorer.scores_hiding(questions, *more)
