"""Explanations on demand: slow to make, so made in a thread of their own and remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from rgcn.errors import ConfigError, DataError
from rgcn.explain import explain_class, explain_link
from rgcn.serve.refusals import Refusal
from rgcn.serve.served import Served
from rgcn.serve.writing import as_json

REMEMBERED = 256


class WhyAsked(NamedTuple):
    """Why a node has a class (`class_` None: the predicted one), or why a triple is likely."""

    model: str
    method: str
    edges: int
    node: int | None = None
    class_: int | None = None
    subject: int | None = None
    relation: int | None = None
    object: int | None = None


class Explanations:
    """Makes and remembers explanations; the least lately asked one is forgotten first.

    `made` is asked on the event loop, `answer` in the thread. The answer looks again at what is remembered: the same
    question may have waited behind itself.
    """

    def __init__(self, models: dict[str, Served], most: int = REMEMBERED) -> None:
        self._models, self._most = models, most
        self._remembered: OrderedDict[WhyAsked, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._remembered)

    def made(self, question: WhyAsked) -> bytes | None:
        with self._lock:
            found = self._remembered.get(question)
            if found is not None:
                self._remembered.move_to_end(question)
            return found

    def answer(self, questions: list[WhyAsked]) -> list[bytes]:
        return [self.made(question) or self._make(question) for question in questions]

    def _make(self, question: WhyAsked) -> bytes:
        opened = self._models[question.model].opened
        how = {"method": question.method, "edges": question.edges}
        try:
            if question.node is not None:
                explanation = explain_class(opened, question.node, question.class_, **how)  # type: ignore[arg-type]
            else:
                assert question.subject is not None
                assert question.relation is not None
                assert question.object is not None
                triple = question.subject, question.relation, question.object
                explanation = explain_link(opened, *triple, **how)  # type: ignore[arg-type]
        except (DataError, ConfigError) as error:
            raise Refusal("cannot_explain", str(error)) from None
        answer = as_json({**explanation.as_dict(), "svg": str(explanation.as_svg())})
        with self._lock:
            self._remembered[question] = answer
            while len(self._remembered) > self._most:
                self._remembered.popitem(last=False)
        return answer
