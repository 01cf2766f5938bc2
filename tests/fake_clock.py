"""A clock that tests advance by hand, and a scorer that takes time on it."""

from __future__ import annotations


class FakeClock:
    """A clock that returns `seconds` when called; a test adds to them."""

    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


class SlowScorer:
    """A scorer that counts its questions and advances a clock by some seconds for each.

    Args:
        scorer: The scorer that computes the scores.
        clock: The clock to advance.
        seconds: Seconds per question.
        changes: Attributes that replace those of the scorer.
    """

    def __init__(self, scorer, clock, seconds, **changes):
        self.scorer, self.clock, self.seconds_per_question, self.changes = scorer, clock, seconds, changes
        self.num_questions = 0

    def __getattr__(self, name):
        return self.changes[name] if name in self.changes else getattr(self.scorer, name)

    def _count(self, questions):
        self.num_questions += questions.size
        self.clock.seconds += self.seconds_per_question * questions.size

    def scores(self, questions, *more):
        self._count(questions)
        return self.scorer.scores(questions, *more)

    def scores_hiding_answers(self, questions, *more):
        self._count(questions)
        return self.scorer.scores_hiding_answers(questions, *more)
