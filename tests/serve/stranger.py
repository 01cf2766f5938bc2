"""Tasks of another package: one with its own endpoints, and one that answers two kinds of questions."""

from __future__ import annotations

from typing import ClassVar

from rgcn.models import NodeClassifier
from rgcn.models.link_classifier import LinkClassifier
from rgcn.models.task import NodeClassification
from rgcn.serve.batching import RequestQueue
from rgcn.serve.schemas import Name, RequestSchema, ResponseSchema
from rgcn.serve.served_model import Endpoints, endpoint


class Cousins(NodeClassification):
    """A task with one endpoint: nodes of the same class. It has no kind of answer of the package."""

    name = "stranger:Cousins"
    answers = ()
    parts: ClassVar = {**NodeClassification.parts, "Endpoints": "stranger:CousinEndpoints"}
    estimator = "stranger:CousinFinder"


class CousinFinder(NodeClassifier):
    task = "stranger:Cousins"


class CousinsQuery(RequestSchema):
    node: Name


class CousinsAnswer(ResponseSchema):
    cousins: list[str]


class CousinEndpoints(Endpoints):
    tag = "cousins"

    def __init__(self, served, on_stage):
        super().__init__(served, on_stage)
        on_stage("looking for cousins")
        self._queue = RequestQueue((served.name, "cousins"), self.answer)

    @endpoint("GET", "cousins")
    async def find_cousins(self, dispatcher, query: CousinsQuery) -> CousinsAnswer:
        """Nodes of the same class."""
        return (await dispatcher.ask(self._queue, [self.served.names.node(query.node)]))[0]

    def answer(self, nodes):
        labels = self.served.graph.labels
        class_of = dict(zip(labels.nodes.tolist(), labels.classes.tolist(), strict=True))
        found = [[n for n in class_of if n != node and class_of[n] == class_of.get(node)] for node in nodes]
        return [CousinsAnswer([self.served.graph.nodes[n] for n in some]) for some in found]

    def examples(self, entities):
        return {"GET cousins": ({"node": entities.parameters["node"]}, {"cousins": ["somebody"]})}


class Both(NodeClassification):
    """Classes and links from one model."""

    name = "stranger:Both"
    answers = ("classes", "links")
    estimator = "stranger:BothAtOnce"


class BothAtOnce(LinkClassifier):
    task = "stranger:Both"


class Thief(Cousins):
    """A task that declares an endpoint which another group has already."""

    name = "stranger:Thief"
    parts: ClassVar = {**NodeClassification.parts, "Endpoints": "stranger:ThiefEndpoints"}
    estimator = "stranger:ThiefFinder"


class ThiefFinder(NodeClassifier):
    task = "stranger:Thief"


class ThiefEndpoints(Endpoints):
    tag = "theft"

    @endpoint("GET", "links")
    async def links(self, dispatcher, query: CousinsQuery) -> CousinsAnswer:
        """Something else."""
        return CousinsAnswer([])
