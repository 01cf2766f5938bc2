"""Weights for any graph: steps alternate between views of several graphs, which share all weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency.operator import RelationalAdjacency, edge_options
from rgcn.config import PretrainingConfig
from rgcn.data.registry import load_or_read
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.models.link_predictor import LinkPredictor
from rgcn.nn.link_network import LinkNetwork, LinkPlan
from rgcn.plugins import ENCODERS
from rgcn.sampling.synthetic_graphs import augment, draw_graph, node_classification_view
from rgcn.training.fitting import Trainer
from rgcn.training.link_trainer import LinkTrainer, WeightUpdates

DRAWN = "drawn"  # stands for synthetic graphs, among names of data sets
MAX_SEED = 2**62


class Pretrainer(LinkPredictor):
    """A link predictor that learns from other graphs than the one it is fitted on, on which it is validated.

    Args:
        model: Preset of encoder and what suits it: "universal".
        graphs: Names of data sets to learn from, and the share of steps each gets.
        drawn: The share of steps on synthetic graphs; shares are relative to their sum.
        altered: Share of the views of a graph that are augmented.
        labeled: Share of all views with a relation of which few triples are known, as labels are.
        pairs_hidden_in: Graphs half of whose views hide every triple between the queried nodes.
        round_steps: Number of steps until other views are drawn.
        round_views: Number of views among which steps alternate.
        settings: Arguments of `LinkPredictor`.
    """

    task = "pretraining"
    training_section = PretrainingConfig
    training: PretrainingConfig
    validates_by_default = False  # weights for any graph are not selected by one graph, unless a setting says so

    def __init__(
        self,
        model: str | None = None,
        *,
        graphs: dict[str, float] | None = None,
        drawn: float = 1.0,
        altered: float = 0.5,
        labeled: float = 0.2,
        pairs_hidden_in: list[str] | None = None,
        round_steps: int = 600,
        round_views: int = 6,
        **settings: Any,
    ) -> None:
        params = locals()
        self._configure({**params.pop("settings"), **params})

    def measured_splits(self) -> list[str]:
        """Return "valid" if it has triples. The test split is not read."""
        return [split for split in super().measured_splits() if split == "valid"]

    def _read_graph(self, name: str) -> KnowledgeGraph:
        """Read one of the graphs to learn from, by name or path."""
        return load_or_read(name, mirror=self.mirror)

    def trainer(self) -> PretrainingTrainer:  # type: ignore[override]
        """Return the `PretrainingTrainer` that takes the steps; after `prepare`."""
        if self.network_.has_node_weights or self.network_.has_relation_weights:
            raise ConfigError(f"{self.model.title} has weights that belong to one graph: set model.name to universal")
        graphs = {name: self._read_graph(name) for name in self.training.graphs}
        for name, graph in graphs.items():
            if len(np.unique(graph.split_triples("train")[:, [0, 2]])) < 2:
                raise DataError(f"{name} has no training triple between two nodes: leave it out of training.graphs")
        return PretrainingTrainer(self, graphs)


class PretrainingTrainer(Trainer):
    """Takes steps on views of graphs. A round has some views, drawn by share; each step is on one of them.

    A round depends on the seed and its number alone, so that a training can resume in the middle of one.

    Args:
        pretrainer: The prepared estimator.
        graphs: The graphs to learn from, by name.
    """

    network: LinkNetwork

    def __init__(self, pretrainer: Pretrainer, graphs: dict[str, KnowledgeGraph]) -> None:
        self.graphs, self.model, self.training = graphs, pretrainer.model, pretrainer.training
        self.network, self.device, self.seed = pretrainer.network_, pretrainer.adjacency_.device, pretrainer.seed
        self.updates = WeightUpdates(self.network, self.training, self.device, self.seed)
        self.generator, self.optimizer = self.updates.generator, self.updates.optimizer
        self.placement, training = self.network.placement, self.training
        shares = {**training.graphs, **({DRAWN: training.drawn} if training.drawn else {})}
        self.names, weights = list(shares), np.array(list(shares.values()))
        self.shares = weights / weights.sum()
        self.steps_taken, self.round, self.views = 0, -1, list[LinkTrainer]()
        self._open = ExitStack()

    def step(self) -> Tensor:
        """Take a step on one of the views; return the loss before it."""
        number = self.steps_taken // self.training.round_steps
        if number != self.round:
            self._begin_round(number)
        view = self.views[int(self._random(1, self.steps_taken).integers(len(self.views)))]
        view.steps_taken = self.steps_taken
        self.steps_taken += 1
        return view.step()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep the views of a round while steps are taken."""
        try:
            yield
        finally:
            self._open.close()
            self.round = -1

    def state(self) -> dict[str, Any]:
        """Return the round, and the state of each view's sampler."""
        return {"round": self.round, "samplers": [view.state() for view in self.views]}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        """Resume from the state that another trainer had after `steps_taken` steps; called before the first step."""
        self.steps_taken = steps_taken
        if state["round"] >= 0:
            self._begin_round(state["round"], state["samplers"])

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])

    def _begin_round(self, number: int, samplers: list[dict[str, Any]] | None = None) -> None:
        self._open.close()
        self.views.clear()  # releases their memory before others are made
        self.round, random = number, self._random(0, number)
        for place in range(self.training.round_views):
            name, seed = self.names[int(random.choice(len(self.names), p=self.shares))], int(random.integers(MAX_SEED))
            view = self.view_of(name, seed, *random.random(3) < (self.training.altered, 0.5, self.training.labeled))
            if samplers is not None:
                view.restore(0, samplers[place])
            self._open.enter_context(view.running())
            self.views.append(view)

    def view_of(
        self, name: str, seed: int, is_altered: bool, hides_pairs: bool, has_labels: bool = False
    ) -> LinkTrainer:
        """Return a trainer on a view of a graph, with the shared weights.

        Args:
            name: The graph's name.
            seed: Seed of the view.
            is_altered: Augment the graph.
            hides_pairs: Hide every triple between the queried nodes, in graphs of `pairs_hidden_in`.
            has_labels: Give the view a relation of which few triples are known, and ask for it in half of the
                questions.
        """
        graph = draw_graph(seed) if name == DRAWN else self.graphs[name]
        if is_altered and name != DRAWN:
            graph = augment(graph, seed)
        graph, labels = node_classification_view(graph, seed) if has_labels else (graph, None)
        hides_pairs = hides_pairs and not has_labels and name in self.training.pairs_hidden_in
        training = self.training.model_copy(update={"hidden": "pair" if hides_pairs else self.training.hidden})
        model = self.model
        adjacency = RelationalAdjacency.from_graph(graph, split="train", device=self.device, **edge_options(model))
        plan = LinkPlan(model, training, graph.num_nodes, graph.num_relations, adjacency, torch.Generator())
        network: LinkNetwork = ENCODERS.resolve(model.encoder).build_link_network(plan).to(self.device)
        network.load_state_dict(self.network.state_dict(keep_vars=True), assign=True)  # shares the parameters
        network.placement = self.placement
        triples = torch.tensor(graph.split_triples("train"), device=self.device)
        questions = None
        if labels is not None:  # as many as all other questions
            repeated = torch.tensor(labels, device=self.device).repeat(-(-len(triples) // len(labels)), 1)
            questions = torch.cat([triples, repeated])
        return LinkTrainer(network, triples, adjacency, model, training, seed, self.updates, questions)
