"""/class and /classes: of a model that answers for classes."""

from collections.abc import Sequence
from itertools import repeat
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta, field
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph import SPLITS
from rgcn.predict import OpenModel
from rgcn.serve import schemas
from rgcn.serve.batching import Desk, Lane
from rgcn.serve.schemas import AnswerShape, Class, Many, Node, NodeName, Probability, QuestionShape, Score, Split
from rgcn.serve.served_model import Endpoints, Example, OnStep, Served, Shown, endpoint, in_background


class ClassQuery(QuestionShape):
    node: NodeName


class ClassesBody(QuestionShape):
    """Nodes whose classes are asked for."""

    nodes: Many[NodeName]


class ScoredClass(AnswerShape):
    class_: Class = field(name="class")
    score: Score
    probability: Probability


class ClassAnswer(AnswerShape):
    """The class a node most likely has."""

    node: Node
    class_: Class = field(name="class")
    score: Score
    probability: Probability
    classes: Annotated[list[ScoredClass], Meta(description="Every class, likeliest first.")]
    label: Annotated[Class | None, Meta(description="The class the data give it, where they do.")]
    label_split: Split | None


class ClassAnswerList(AnswerShape):
    predictions: list[ClassAnswer]


class ClassEndpoints(Endpoints):
    """Every node is classified when the model is loaded, and a question looked up; of a large graph in the background,
    and whoever is asked for before has its own classes computed. So it is always of a network to which each node is a
    question of its own."""

    tag = "classes"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        self._table: NDArray[np.float32] | None = None  # [N, C]: scores
        if served.is_large:
            in_background("rgcn-classify", self._classify)
        else:
            on_step("classifying every node")
            self._classify()
        self._labels: dict[int, tuple[Class, Any]] = {}
        if (labels := served.graph.labels) is not None:
            given = zip(labels.nodes.tolist(), labels.classes.tolist(), labels.splits.tolist(), strict=True)
            self._labels = {node: (served.classes[kind], SPLITS[split]) for node, kind, split in given}
        self._many = Lane((served.name, "classes"), self.answers, 64)

    def _classify(self) -> None:
        """Every node, once."""
        if not self.served.opened.model.hides_asked_:
            self._table = _scores(self.served.opened, range(self.served.graph.num_nodes))

    @endpoint("GET", "class")
    async def predict_class(self, desk: Desk, query: ClassQuery) -> ClassAnswer:
        """The class a node most likely has, and how every other one scores."""
        nodes = [self.served.names.node(query.node)]
        found: ClassAnswer = (await desk.ask(self._many, nodes) if self._table is None else self.answers(nodes))[0]
        return found

    @endpoint("POST", "classes")
    async def predict_classes(self, desk: Desk, body: ClassesBody) -> ClassAnswerList:
        """The classes of many nodes."""
        nodes = await desk.resolved(body.nodes, self.served.names.node)
        # A thousand would keep the event loop busy too long.
        return ClassAnswerList(list(await desk.ask(self._many, nodes)))

    def examples(self, shown: Shown) -> dict[str, Example]:
        node, [answer] = shown.words["node"], self.answers(shown.nodes[:1])
        return {"GET class": ({"node": node}, answer), "POST classes": ({"nodes": [node]}, ClassAnswerList([answer]))}

    def answers(self, nodes: Sequence[int]) -> list[ClassAnswer]:
        table, calibration = self._table, self.served.calibration
        scores = _scores(self.served.opened, nodes) if table is None else table[nodes]
        shares = np.empty((len(nodes), 0))
        if calibration.fitted:
            shares = calibration.class_probabilities(torch.from_numpy(scores)).numpy()
        return list(map(self._answer, nodes, scores.tolist(), shares.tolist()))

    def _answer(self, node: int, scores: list[float], shares: list[float]) -> ClassAnswer:
        classes, probabilities = self.served.classes, schemas.six_digits(shares) if shares else repeat(None)
        rows = list(map(ScoredClass, classes, schemas.six_digits(scores), probabilities))
        rows = [rows[number] for number in sorted(range(len(rows)), key=scores.__getitem__, reverse=True)]
        best, (label, split) = rows[0], self._labels.get(node, (None, None))
        return ClassAnswer(self.served.node(node), best.class_, best.score, best.probability, rows, label, split)


def _scores(opened: OpenModel, nodes: Sequence[int]) -> NDArray[np.float32]:
    """[n, C]: all together, since one by one each may cost a pass through the network."""
    table = opened.logits(nodes).float().numpy()
    if not np.isfinite(table).all():
        raise DataError(f"{opened.path}: the model's numbers are not finite; its training has diverged")
    return table
