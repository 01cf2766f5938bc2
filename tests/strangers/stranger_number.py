"""A kind of answer from another package: a number for each node, with the regression task that predicts it. Everything
is in this file. The labels of the graph are numbers: "2.5". A configuration names the task, `task:
stranger_number:Regression`; everything else follows from what the task and the kind bring.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from pydantic import Field
from torch import Tensor, nn

from rgcn.adjacency import ReceptiveField
from rgcn.config import NodeModelConfig, NodeTrainingConfig, RunConfig
from rgcn.config.model_section import Head as HeadName
from rgcn.explain.question import ComputationGraph, Question, frozen_copy
from rgcn.models import NodeClassifier
from rgcn.models.answer_kind import AnswerKind
from rgcn.models.task import NodeClassification
from rgcn.nn.relational_encoder import Head
from rgcn.predict.answer_tables import NodeTables, known_columns
from rgcn.serve.batching import RequestQueue
from rgcn.serve.schemas import Node, NodeName, RequestSchema, ResponseSchema
from rgcn.serve.served_model import Endpoints, endpoint
from rgcn.training.fitting import Trainer
from rgcn.training.history import Metric

ERROR = Metric("rmse", "root mean square error", higher_is_better=False)


# -- what is learned ------------------------------------------------------------------------------------------


class OneNumber(Head):
    """From the last states [n, width] to one number each, [n, 1]."""

    def __init__(self, hidden: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(hidden, generator=generator))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, states: Tensor) -> Tensor:
        return (states @ self.weight + self.bias)[:, None]


class NumberModel(NodeModelConfig):
    head: HeadName = "stranger_number:OneNumber"


class Run(RunConfig):
    task: str = "stranger_number:Regression"
    model: NumberModel = Field(default_factory=NumberModel)
    training: NodeTrainingConfig = Field(default_factory=NodeTrainingConfig)


class SquaredError(Trainer):
    """Steps on the mean squared error of the training labels."""

    def __init__(self, model: NumberPredictor) -> None:
        self.network, settings = model.network_, model.training
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.generator = torch.Generator().manual_seed(model.seed)
        self.adjacency, self.depth = model.adjacency_, len(self.network.layers)
        self.train, self.valid = (self._split(model, split) for split in ("train", "valid"))

    def _split(self, model: NumberPredictor, split: str) -> tuple[ReceptiveField, Tensor] | None:
        nodes, numbers = model.labeled(model.graph_, split)
        field = ReceptiveField.of(self.adjacency, torch.from_numpy(nodes.copy()), self.depth)
        return (field, torch.from_numpy(numbers).float()) if len(nodes) else None

    def _error(self, part: tuple[ReceptiveField, Tensor]) -> Tensor:
        field, numbers = part
        return (self.network(field)[:, 0] - numbers).square().mean()

    def step(self) -> Tensor:
        assert self.train is not None
        self.network.train()
        self.optimizer.zero_grad()
        loss = self._error(self.train)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def validate(self) -> dict[str, float]:
        assert self.valid is not None
        self.network.eval()
        with torch.no_grad():
            return {"rmse": float(self._error(self.valid).sqrt())}


class NumberPredictor(NodeClassifier):
    """A relational graph convolutional network that gives each node a number."""

    task = "stranger_number:Regression"
    model_section = NumberModel
    metric_columns = ("valid_rmse",)

    @staticmethod
    def labeled(graph: Any, split: str) -> tuple[np.ndarray, np.ndarray]:
        """(nodes, their numbers) of a split."""
        nodes, classes = graph.labels.of(split)
        return nodes, np.array([float(graph.labels.names[int(number)]) for number in classes])

    def trainer(self) -> SquaredError:
        return SquaredError(self)

    def numbers(self, nodes: Any) -> list[float]:
        return self.logits(nodes)[:, 0].tolist()

    def evaluate(self, kg: Any = None, split: str = "test", *, at_most: int | None = None) -> dict[str, Any]:
        nodes, numbers = self.labeled(self.graph_ if kg is None else kg, split)
        wrong = np.array(self.numbers(nodes.tolist())) - numbers
        return {"rmse": float(np.sqrt((wrong**2).mean())), "count": len(nodes)}


# -- what is asked --------------------------------------------------------------------------------------------


class Numbers(AnswerKind):
    """The kind of answer: a number of a node."""

    name = "number"
    topic = "nodes"
    ability = "gives nodes a number"
    question = "a question about a node's number"
    example = "`rgcn train numbers.yaml`"
    commands = ("rgcn predict RUN --nodes names.txt --out numbers.csv",)
    needs_labels = True
    parts: ClassVar = {
        "NodeTables": "stranger_number:NumberTables",
        "Question": "stranger_number:NumberQuestion",
        "Endpoints": "stranger_number:NumberEndpoints",
    }


class Regression(NodeClassification):
    """A task like node classification, with another measure."""

    name = "regression"
    noun = "numbers"
    description = "Regression: how large is the number of a node?"
    metrics = validation_metrics = (ERROR,)
    answers = (Numbers,)
    run = "stranger_number:Run"
    estimator = "stranger_number:NumberPredictor"
    folds = 1
    memory = None
    parts: ClassVar = {}

    def candidates(self) -> dict[str, Any]:
        return {}


class NumberTables(NodeTables):
    """`rgcn predict`: one row per node."""

    answer = "number"

    def frame(self, opened: Any, ids: np.ndarray, nested: bool = False) -> pl.DataFrame:
        known, numbers = known_columns(opened, ids), opened.model.numbers(ids.tolist())
        return pl.DataFrame({**known, "number": numbers}, schema_overrides={"label_split": pl.String})


class NumberQuestion(Question):
    """`rgcn explain`: which triples make a node's number larger, and which smaller?"""

    argument_kinds = ("node",)
    strength_name = "the number"

    @classmethod
    def of(cls, opened: Any, *queried: int) -> NumberQuestion:
        model, network = opened.model, frozen_copy(opened.model.network_)
        subgraph = ComputationGraph.of_model(model, list(queried))
        with torch.no_grad():
            full = network(subgraph.field)
        made = cls(subgraph, opened.calibration, full_output=full, nodes=queried)
        object.__setattr__(made, "network", network)
        return made

    def about(self, opened: Any) -> dict[str, Any]:
        return {"kind": "number", "node": opened.describe(self.nodes[0])}

    def title(self, opened: Any) -> str:
        return f"Why {self.full_output.item():.3g} for {opened.titles.of(self.nodes[0])}?"

    def output(self, field: Any) -> Tensor:
        return self.network(field)

    def baseline_output(self) -> Tensor:
        return self.network(self.subgraph.without_messages(loops=0.0))

    def score(self, output: Tensor) -> Tensor:
        return output[0, 0]

    def log_probability(self, output: Tensor) -> Tensor:
        """The log density of a normal distribution around the full answer."""
        return -(self.score(output) - self.full_output[0, 0]).square() / 2


class NumberQuery(RequestSchema):
    node: NodeName


class NumberAnswer(ResponseSchema):
    """The number that the model gives a node."""

    node: Node
    number: float


class NumberEndpoints(Endpoints):
    """`rgcn serve`: GET /number."""

    tag = "number"

    def __init__(self, served: Any, on_stage: Any) -> None:
        super().__init__(served, on_stage)
        self._queue = RequestQueue((served.name, "number"), self.answers)

    @endpoint("GET", "number")
    async def predict_number(self, dispatcher: Any, query: NumberQuery) -> NumberAnswer:
        """The number of a node."""
        return (await dispatcher.ask(self._queue, [self.served.names.node(query.node)]))[0]

    def answers(self, nodes: list[int]) -> list[NumberAnswer]:
        numbers = self.served.opened.model.numbers(nodes)
        return [NumberAnswer(self.served.node(node), number) for node, number in zip(nodes, numbers, strict=True)]

    def examples(self, entities: Any) -> dict[str, Any]:
        return {"GET number": ({"node": entities.parameters["node"]}, self.answers(entities.nodes[:1])[0])}
