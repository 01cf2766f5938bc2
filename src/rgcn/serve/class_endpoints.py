"""/class and /classes: of a model that answers for classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from rgcn.errors import DataError
from rgcn.graph import SPLITS, NodeLabels
from rgcn.predict import OpenModel
from rgcn.serve.about import Shown
from rgcn.serve.batching import Lane
from rgcn.serve.desk import Desk
from rgcn.serve.endpoints import Endpoints, Example, OnStep, endpoint
from rgcn.serve.limits import AtMost
from rgcn.serve.route import Answer
from rgcn.serve.served import Served
from rgcn.serve.shapes import NODE_WORDS, Answered, Asked, Class, Name, Node, Scored, Split
from rgcn.serve.writing import SPLIT, listed, number

NODES_AT_ONCE = 1 << 16


class ClassQuery(Asked):
    node: Name = Field(description=NODE_WORDS)


class ClassesBody(Asked):
    """Nodes whose classes are asked for."""

    nodes: Annotated[list[Name], Field(min_length=1), AtMost("items")] = Field(description="Nodes, as in `node`.")


class ScoredClass(Scored):
    class_: Class = Field(alias="class")


class ClassAnswer(ScoredClass):
    """The class a node most likely has."""

    node: Node
    classes: list[ScoredClass] = Field(description="Every class, likeliest first.")
    label: Class | None = Field(description="The class the data give it, where they do.")
    label_split: Split | None


class ClassAnswers(Answered):
    predictions: list[ClassAnswer]


class ClassEndpoints(Endpoints):
    """Every node is classified when the model is loaded; a question is looked up."""

    tag = "classes"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        on_step("classifying every node")
        self._scores = _every_score(served.opened)
        self._labels = {} if served.graph.labels is None else _by_node(served.graph.labels)
        self._many = Lane((served.name, "classes"), self.answer, 64)

    @endpoint("GET", "class", ClassQuery, ClassAnswer, (404, 409))
    async def predict_class(self, desk: Desk, query: ClassQuery) -> Answer:
        """The class a node most likely has, and how every other one scores."""
        return Answer(self.answer([self.served.names.node(query.node)])[0])

    @endpoint("POST", "classes", ClassesBody, ClassAnswers)
    async def predict_classes(self, desk: Desk, body: ClassesBody) -> Answer:
        """The classes of many nodes."""
        nodes = await desk.resolved(body.nodes, self.served.names.node)
        # A thousand would keep the event loop busy too long.
        return Answer(b'{"predictions":' + listed(await desk.ask(self._many, nodes)) + b"}")

    def examples(self, shown: Shown) -> dict[str, Example]:
        node, answer = shown.words["node"], json.loads(self.answer([shown.node])[0])
        return {
            "GET class": ({"node": node}, answer),
            "POST classes": ({"nodes": [node]}, {"predictions": [answer]}),
        }

    def answer(self, nodes: Sequence[int]) -> list[bytes]:
        """Nodes → the JSON of their answers."""
        scores, calibration = self._scores[nodes], self.served.calibration
        shares: Sequence[Sequence[float | None]] = [[None] * scores.shape[1]] * len(nodes)
        if calibration.fitted:
            shares = calibration.class_probabilities(torch.from_numpy(scores)).tolist()
        return list(map(self._written, nodes, scores.tolist(), shares))

    def _written(self, node: int, scores: list[float], shares: Sequence[float | None]) -> bytes:
        classes = self.served.pieces.classes
        order = sorted(range(len(scores)), key=lambda c: -scores[c])
        rows = [
            b'"class":%b,"score":%b,"probability":%b' % (classes[c], number(scores[c]), number(shares[c]))
            for c in order
        ]
        label, split = self._labels.get(node, (None, None))
        return b'{"node":%b,%b,"classes":[{%b}],"label":%b,"label_split":%b}' % (
            self.served.pieces.node(node),
            rows[0],
            b"},{".join(rows),
            b"null" if label is None else classes[label],
            SPLIT[split],
        )


def _by_node(labels: NodeLabels) -> dict[int, tuple[int, str]]:
    splits = (SPLITS[i] for i in labels.splits.tolist())
    return dict(zip(labels.nodes.tolist(), zip(labels.classes.tolist(), splits, strict=True), strict=True))


def _every_score(opened: OpenModel) -> NDArray[np.float32]:
    """[N, C]: asked for one by one, each node would cost a pass through the network; all cost a few."""
    count = opened.graph.num_nodes
    parts = [
        opened.logits(range(begin, min(begin + NODES_AT_ONCE, count))).float().numpy()
        for begin in range(0, count, NODES_AT_ONCE)
    ]
    table = np.concatenate(parts)
    if not np.isfinite(table).all():
        raise DataError(f"{opened.path}: the model's numbers are not finite; its training has diverged")
    return table
