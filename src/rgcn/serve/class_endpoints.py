"""/class and /classes, for models that predict classes of nodes."""

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
from rgcn.serve.batching import Dispatcher, RequestQueue
from rgcn.serve.schemas import Class, Many, Node, NodeName, Probability, RequestSchema, ResponseSchema, Score, Split
from rgcn.serve.served_model import Endpoints, Example, ExampleEntities, OnStage, ServedModel, endpoint, run_later


class ClassQuery(RequestSchema):
    """A node whose class is wanted."""

    node: NodeName


class ClassesBody(RequestSchema):
    """Nodes whose classes are wanted."""

    nodes: Many[NodeName]


class ScoredClass(ResponseSchema):
    """A class with its score."""

    class_: Class = field(name="class")
    score: Score
    probability: Probability


class ClassAnswer(ResponseSchema):
    """The most likely class of a node."""

    node: Node
    class_: Class = field(name="class")
    score: Score
    probability: Probability
    classes: Annotated[list[ScoredClass], Meta(description="Every class, likeliest first.")]
    label: Annotated[Class | None, Meta(description="The node's class in the data, if it is labeled.")]
    label_split: Split | None


class ClassAnswerList(ResponseSchema):
    """Answers in the order of the nodes."""

    predictions: list[ClassAnswer]


class ClassEndpoints(Endpoints):
    """Predict classes. The scores of all nodes are computed once, for a large graph in the background."""

    tag = "classes"

    def __init__(self, served: ServedModel, on_stage: OnStage) -> None:
        super().__init__(served, on_stage)
        self._scores: NDArray[np.float32] | None = None  # [num_nodes, num_classes]
        if served.is_large:
            run_later("rgcn-classify", self._score_all)
        else:
            on_stage("classifying every node")
            self._score_all()
        self._labels: dict[int, tuple[Class, Any]] = {}
        if (labels := served.graph.labels) is not None:
            rows = zip(labels.nodes.tolist(), labels.classes.tolist(), labels.splits.tolist(), strict=True)
            self._labels = {node: (served.classes[label], SPLITS[split]) for node, label, split in rows}
        self._queue = RequestQueue((served.name, "classes"), self.answers, 64)

    def _score_all(self) -> None:
        if not self.served.opened.model.hooks_.hides_query:
            self._scores = _finite_scores(self.served.opened, range(self.served.graph.num_nodes))

    @endpoint("GET", "class")
    async def predict_class(self, dispatcher: Dispatcher, query: ClassQuery) -> ClassAnswer:
        """The most likely class of a node, and the scores of all classes."""
        nodes = [self.served.names.node(query.node)]
        answers = await dispatcher.ask(self._queue, nodes) if self._scores is None else self.answers(nodes)
        return answers[0]

    @endpoint("POST", "classes")
    async def predict_classes(self, dispatcher: Dispatcher, body: ClassesBody) -> ClassAnswerList:
        """The most likely classes of many nodes."""
        nodes = await dispatcher.resolve_names(body.nodes, self.served.names.node)
        # In the thread even if all scores are there: a thousand nodes would block the event loop for too long.
        return ClassAnswerList(list(await dispatcher.ask(self._queue, nodes)))

    def examples(self, entities: ExampleEntities) -> dict[str, Example]:
        """Return a request with its response for each endpoint."""
        node, [answer] = entities.parameters["node"], self.answers(entities.nodes[:1])
        return {"GET class": ({"node": node}, answer), "POST classes": ({"nodes": [node]}, ClassAnswerList([answer]))}

    def answers(self, nodes: Sequence[int]) -> list[ClassAnswer]:
        """Return the answer for each node."""
        all_scores, calibration = self._scores, self.served.calibration
        scores = _finite_scores(self.served.opened, nodes) if all_scores is None else all_scores[nodes]
        probabilities = np.empty((len(nodes), 0))
        if calibration.fitted:
            probabilities = calibration.class_probabilities(torch.from_numpy(scores)).numpy()
        return list(map(self._answer, nodes, scores.tolist(), probabilities.tolist()))

    def _answer(self, node: int, scores: list[float], probabilities: list[float]) -> ClassAnswer:
        formatted = schemas.six_digits(probabilities) if probabilities else repeat(None)
        rows = list(map(ScoredClass, self.served.classes, schemas.six_digits(scores), formatted))
        rows = [rows[number] for number in sorted(range(len(rows)), key=scores.__getitem__, reverse=True)]
        best, (label, split) = rows[0], self._labels.get(node, (None, None))
        return ClassAnswer(self.served.node(node), best.class_, best.score, best.probability, rows, label, split)


def _finite_scores(opened: OpenModel, nodes: Sequence[int]) -> NDArray[np.float32]:
    """Return the scores of nodes, `[num_nodes, num_classes]`, in one pass through the network."""
    scores = opened.logits(nodes).float().numpy()
    if not np.isfinite(scores).all():
        raise DataError(f"{opened.path}: the model's scores are not finite; its training has diverged: train it again")
    return scores
