"""A model as the server holds it: loaded once, everything looked up that can be looked up."""

from __future__ import annotations

from rgcn.predict import OpenModel
from rgcn.serve.endpoints import Endpoints, Handler, OnStep, groups_of
from rgcn.serve.facts import Facts
from rgcn.serve.refusals import Refusal
from rgcn.serve.writing import Pieces


class Served:
    """One model, what all its endpoints share, and the groups of them that it has.

    names     what people type → numbers
    pieces    the JSON of nodes, relations and classes
    facts     every node's triples
    handlers  what answers, by `Endpoint.key`
    """

    def __init__(self, opened: OpenModel, name: str | None = None, on_step: OnStep = lambda what: None) -> None:
        self.opened, self.name, self.graph = opened, name or opened.name, opened.graph
        on_step("calibrating")
        self.calibration = opened.calibration
        on_step("indexing names")
        self.names = opened.names
        self.names.prepare()
        self.pieces = Pieces(opened)
        self.facts = Facts.of(self.graph)
        self.groups: list[Endpoints] = [group(self, on_step) for group in groups_of(opened.task)]
        self.handlers: dict[str, Handler] = {}
        for group in self.groups:
            self.handlers |= group.handlers()

    def handler(self, key: str) -> Handler:
        """What answers at an endpoint, "GET links"; a refusal that says what can be asked where nothing does."""
        found = self.handlers.get(key)
        if found is None:
            raise self.cannot(f"/{key.partition(' ')[2]}")
        return found

    def cannot(self, what: str) -> Refusal:
        """The answer to a question that this model's task does not answer."""
        paths = dict.fromkeys(f"/{path}" for path in (key.partition(" ")[2] for key in self.handlers) if path)
        task = self.opened.task.name
        words = f"the model {self.name!r} is for {task} and does not answer {what}: ask it {', '.join(paths)}"
        return Refusal("wrong_task", f"{words}, or ask another model")
