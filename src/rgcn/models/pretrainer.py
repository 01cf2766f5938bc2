"""Weights for any graph: steps go back and forth between views of several graphs, which all share the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import PretrainingConfig
from rgcn.data.registry import named_or_read
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.models.link_predictor import LinkPredictor
from rgcn.nn.link_network import LinkNetwork, LinkPlan
from rgcn.nn.relational_encoder import edge_options
from rgcn.plugins import ENCODERS
from rgcn.sampling.synthetic_graphs import augmented, draw_graph, with_labels
from rgcn.training.fitting import Trainer
from rgcn.training.link_trainer import LinkTrainer, Stepping
from rgcn.training.plan import on_device

DRAWN = "drawn"  # stands for graphs by rules among those of the registry
SEEDS = 2**62


class Pretrainer(LinkPredictor):
    """A link predictor that learns from other graphs than the one it is fitted on, which is there to watch it."""

    task = "pretraining"
    training_section = PretrainingConfig
    training: PretrainingConfig
    measures_by_itself = False  # weights for any graph are not chosen by one, unless someone wants that

    def measured_splits(self) -> list[str]:
        return [split for split in super().measured_splits() if split == "valid"]  # a test split is for the very end

    def read(self, name: str) -> KnowledgeGraph:
        """One of the graphs it learns from, by its name."""
        return named_or_read(name, mirror=self.mirror)

    def trainer(self) -> PretrainingTrainer:  # type: ignore[override]
        if self.network_.knows_nodes or self.network_.knows_relations:
            raise ConfigError(f"{self.model.title} has weights that belong to a graph: set model.name to universal")
        graphs = {name: self.read(name) for name in self.training.graphs}
        for name, graph in graphs.items():
            if len(np.unique(graph.split_triples("train")[:, [0, 2]])) < 2:
                raise DataError(f"{name} has no training triple between two nodes: leave it out of training.graphs")
        return PretrainingTrainer(self, graphs)


class PretrainingTrainer(Trainer):
    """Takes steps on views of graphs. A round has some views, drawn by share; each step goes on with one of them.

    What a round is follows from the seed and its number alone, so that a training can go on in the middle of one.
    """

    network: LinkNetwork

    def __init__(self, pretrainer: Pretrainer, graphs: dict[str, KnowledgeGraph]) -> None:
        self.graphs, self.model, self.training = graphs, pretrainer.model, pretrainer.training
        self.network, self.device, self.seed = pretrainer.network_, pretrainer.adjacency_.device, pretrainer.seed
        self.stepping = Stepping(self.network, self.training, self.device, self.seed)
        self.generator, self.optimizer = self.stepping.generator, self.stepping.optimizer
        self.placement, training = self.network.placement, self.training
        shares = {**training.graphs, **({DRAWN: training.drawn} if training.drawn else {})}
        self.names, weight = list(shares), np.array(list(shares.values()))
        self.share = weight / weight.sum()
        self.steps_taken, self.round, self.views = 0, -1, list[LinkTrainer]()
        self._open = ExitStack()

    def step(self) -> Tensor:
        number = self.steps_taken // self.training.round_steps
        if number != self.round:
            self._begin(number)
        view = self.views[int(self._random(1, self.steps_taken).integers(len(self.views)))]
        view.steps_taken = self.steps_taken
        self.steps_taken += 1
        return view.step()

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._open.close()
            self.round = -1

    def state(self) -> dict[str, Any]:
        return {"round": self.round, "samplers": [view.state() for view in self.views]}

    def restore(self, steps_taken: int, state: dict[str, Any]) -> None:
        self.steps_taken = steps_taken
        if state["round"] >= 0:
            self._begin(state["round"], state["samplers"])

    def _random(self, *what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *what])

    def _begin(self, number: int, samplers: list[dict[str, Any]] | None = None) -> None:
        self._open.close()
        self.views.clear()  # before others are made: each takes memory
        self.round, random = number, self._random(0, number)
        for place in range(self.training.round_views):
            name, seed = self.names[int(random.choice(len(self.names), p=self.share))], int(random.integers(SEEDS))
            view = self.view_of(name, seed, *random.random(3) < (self.training.altered, 0.5, self.training.labelled))
            if samplers is not None:
                view.restore(0, samplers[place])
            self._open.enter_context(view.running())
            self.views.append(view)

    def view_of(self, name: str, seed: int, alters: bool, hides: bool, labels: bool = False) -> LinkTrainer:
        """Steps on a graph of a name: as it is or altered, hiding pairs where that is wanted of it, asking labels."""
        if name == DRAWN:
            graph = draw_graph(seed)
        else:
            graph = augmented(self.graphs[name], seed) if alters else self.graphs[name]
        asked = None
        if labels:
            graph, asked = with_labels(graph, seed)
        paired = hides and not labels and name in self.training.pairs_hidden_in
        training = self.training.model_copy(update={"hidden": "pair" if paired else self.training.hidden})
        model = self.model
        adjacency = RelationalAdjacency.from_graph(graph, split="train", device=self.device, **edge_options(model))
        plan = LinkPlan(model, training, graph.num_nodes, graph.num_relations, adjacency, torch.Generator())
        network: LinkNetwork = ENCODERS.find(model.encoder).for_links(plan).to(self.device)
        network.load_state_dict(self.network.state_dict(keep_vars=True), assign=True)  # the very same parameters
        network.placement = self.placement
        triples = on_device(graph.split_triples("train"), self.device)
        questions = None
        if asked is not None:  # as often as all the rest
            often = on_device(asked, self.device).repeat(-(-len(triples) // len(asked)), 1)
            questions = torch.cat([triples, often])
        return LinkTrainer(network, triples, adjacency, model, training, seed, self.stepping, questions)
