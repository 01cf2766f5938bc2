"""Node classification: fit on labelled nodes, ask for the class of any node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import NodeModelConfig, NodeTrainingConfig, validated
from rgcn.errors import ConfigError, DataError, NotFittedError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels
from rgcn.kernels.ahead import compile_ahead
from rgcn.nn import RelationalEncoder
from rgcn.nn.encoder import FeatureInput
from rgcn.tasks.devices import choose_device
from rgcn.tasks.node_network import build_network, has_bias, kernels_of
from rgcn.tasks.node_training import Epoch, NodeFitting, NodeTrainer
from rgcn.tasks.settings import split_settings


class NodePrediction(NamedTuple):
    """The class a node most likely has, how sure the model is, and every class's probability."""

    node: str
    label: str
    probability: float
    probabilities: dict[str, float]


class NodeClassifier:
    """RGCN or e-RGCN for node classification, in the manner of scikit-learn.

    Keyword arguments are the fields of `rgcn.config.NodeModelConfig` (with `model` for its name) and of
    `NodeTrainingConfig`; `prune=True` keeps only the part of the graph that labelled nodes can hear, a number of hops
    that much of it.

    >>> import rgcn
    >>> kg = rgcn.load("world")
    >>> clf = rgcn.NodeClassifier(model="rgcn", hidden=16, seed=0, epochs=5).fit(kg)
    >>> 0.0 <= clf.score(kg, split="test") <= 1.0
    True
    >>> clf.predict(["Switzerland"])[0].label in clf.classes_
    True
    """

    def __init__(self, model: str = "rgcn", *, seed: int = 0, prune: bool | int = False, **settings: Any) -> None:
        own = ("model", "seed", "prune")
        in_model, in_training = split_settings("NodeClassifier", settings, NodeModelConfig, NodeTrainingConfig, own)
        self.model: NodeModelConfig = validated(NodeModelConfig, {"name": model, **in_model}, "NodeClassifier")
        self.training: NodeTrainingConfig = validated(NodeTrainingConfig, in_training, "NodeClassifier")
        self.seed, self.prune = seed, prune
        if prune and prune is not True and prune < self.model.layers:
            raise ConfigError(
                f"prune = {prune} is less than the {self.model.layers} hops that {self.model.layers} layers hear: it "
                f"would change predictions; prune to {self.model.layers} hops or more, or prune=True"
            )
        self.history_: list[Epoch] = []
        self._graph: KnowledgeGraph | None = None
        self._adjacency: RelationalAdjacency | None = None
        self._network: RelationalEncoder | None = None

    # -- scikit-learn's conventions ----------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by name, as the constructor takes them."""
        settings = {"model": self.model.name, "seed": self.seed, "prune": self.prune}
        return {**settings, **self.model.model_dump(exclude={"name"}), **self.training.model_dump()}

    def set_params(self, **settings: Any) -> NodeClassifier:
        """Change settings; the classifier must then be fitted again."""
        NodeClassifier.__init__(self, **{**self.get_params(), **settings})
        return self

    @property
    def classes_(self) -> list[str]:
        """Class names, in the order of `predict_proba`'s columns."""
        return list(self._labels.names)

    @property
    def graph_(self) -> KnowledgeGraph:
        """The graph the classifier was fitted on (pruned, if so asked)."""
        if self._graph is None:
            raise NotFittedError("this classifier has not been fitted: call fit(kg) first")
        return self._graph

    @property
    def network_(self) -> RelationalEncoder:
        """The trained network."""
        if self._network is None:
            raise NotFittedError("this classifier has not been fitted: call fit(kg) first")
        return self._network

    @property
    def num_parameters_(self) -> int:
        """Numbers that training may change."""
        return sum(p.numel() for p in self.network_.parameters())

    @property
    def num_parameters_as_published_(self) -> int:
        """Numbers the same network has where every relation holds a row for every node, as the paper counts."""
        graph, source = self.graph_, self.network_.source
        inputs = source.features.shape[1] if isinstance(source, FeatureInput) else graph.num_nodes
        return published_parameters(self.model, inputs, graph.num_relations, self._labels.num_classes)

    @property
    def _labels(self) -> NodeLabels:
        assert self.graph_.labels is not None
        return self.graph_.labels

    def __repr__(self) -> str:
        state = "not fitted" if self._graph is None else f"fitted on {self._graph!r}"
        return f"NodeClassifier({self.model.name!r}, {state})"

    # -- learning ----------------------------------------------------------------------------------------

    def fit(self, kg: KnowledgeGraph, on_epoch: Callable[[Epoch], None] | None = None) -> NodeClassifier:
        """Learn from the training labels. Test labels are not read.

        on_epoch is called after every epoch, for progress and records.
        """
        with self.fitting(kg) as fitting:
            for epoch in fitting:
                if on_epoch is not None and epoch is not None:
                    on_epoch(epoch)
            fitting.finish()
        return self

    def fitting(self, kg: KnowledgeGraph) -> NodeFitting:
        """`fit` a step at a time: a training that can be stopped, written down and continued."""
        return NodeFitting(self.prepare(kg).trainer(), self.seed, self.history_)

    def prepare(self, kg: KnowledgeGraph) -> NodeClassifier:
        """Everything before the first step: check the labels, build the operator and the untrained network."""
        if choose_device(self.training.device).type == "cpu":
            compile_ahead(*kernels_of(self.model))
        labels = _trainable_labels(kg)
        if self.training.patience is not None or self.training.validation:
            labels = _with_validation(labels, self.training, self.seed)
        graph = replace(kg, labels=labels)
        graph = graph.prune(self.model.layers if self.prune is True else self.prune) if self.prune else graph
        device = choose_device(self.training.device)
        self._graph, self._network, self.history_ = graph, None, []
        self._adjacency = RelationalAdjacency.from_graph(
            graph,
            inverse=self.model.inverse,
            self_loops=self.model.self_loops,
            normalization=self.model.normalization,
            aggregation=self.model.aggregation,
            device=device,
        )
        decays = self.training.weight_decay > 0 or self.training.l2_penalty > 0
        reach = None if decays else self._field(self._labels.of("train")[0])
        self._network = build_network(self.model, graph, self._adjacency, reach, self.seed).to(device)
        return self

    def trainer(self) -> NodeTrainer:
        """What takes the steps; after `prepare`."""
        assert self._adjacency is not None
        return NodeTrainer(self.network_, self._adjacency, self._labels, self.model, self.training, self.seed)

    def training_step(self) -> Callable[[], tuple[Tensor, Tensor]]:
        """A function that takes one step on all training labels and returns (loss, logits) from before it.

        For loops of one's own, after `prepare`; `fit` is a loop over it.
        """
        return self.trainer().step

    def _field(self, nodes: NDArray[np.int64]) -> ReceptiveField:
        """What the network must compute for these nodes."""
        assert self._adjacency is not None
        wanted = torch.from_numpy(np.array(nodes)).to(self._adjacency.device)
        return ReceptiveField.of(self._adjacency, wanted, self.model.layers)

    # -- asking ------------------------------------------------------------------------------------------

    def predict(self, nodes: Iterable[str | int] | None = None) -> list[NodePrediction]:
        """The class of each node, with probabilities; nodes by name or id, None for every node that is no literal."""
        if nodes is None:
            nodes = np.flatnonzero(~self.graph_.is_literal).tolist()
        ids = self.graph_.nodes.ids(nodes)
        probabilities = self.predict_proba(ids.tolist())
        names = self.classes_
        return [
            NodePrediction(
                self.graph_.nodes[i], names[row.argmax()], float(row.max()), dict(zip(names, row.tolist(), strict=True))
            )
            for i, row in zip(ids.tolist(), probabilities, strict=True)
        ]

    def predict_proba(self, nodes: Iterable[str | int]) -> NDArray[np.float32]:
        """Probabilities [nodes, classes], columns in the order of `classes_`."""
        logits = self._states(self.graph_.nodes.ids(nodes), -1)
        return np.asarray(torch.softmax(logits, dim=1).cpu().numpy())

    def score(self, kg: KnowledgeGraph | None = None, split: str = "test") -> float:
        """Accuracy on one split of a graph's labels (None: the graph it was fitted on)."""
        predicted, expected = self._compared(kg, split)
        return float((predicted == expected).mean())

    def _compared(self, kg: KnowledgeGraph | None, split: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Predicted and true class ids on a split."""
        graph = self.graph_ if kg is None else kg
        if graph.labels is None:
            raise DataError("the graph has no labels to score against")
        nodes, classes = graph.labels.of(split)
        if not len(nodes):
            raise DataError(f"the graph has no labels in split {split!r}; it has {dict(graph.labels.counts())}")
        known = {name: i for i, name in enumerate(self.classes_)}
        expected = np.array([known.get(graph.labels.names[c], -1) for c in classes])
        predicted = self.predict_proba([graph.nodes[n] for n in nodes]).argmax(1)
        return predicted, expected

    def embeddings(self, nodes: Iterable[str | int] | None = None, layer: int = -2) -> NDArray[np.float32]:
        """States [nodes, width] after a layer: -2 the last hidden one (of a deep enough network), -1 the logits."""
        count = len(self.network_.layers)
        if not -count <= layer < count:
            raise ConfigError(f"the network has {count} layers: layer lies in {-count}..{count - 1}")
        ids = np.arange(self.graph_.num_nodes) if nodes is None else self.graph_.nodes.ids(nodes)
        return np.asarray(self._states(ids, layer).cpu().numpy())

    def _states(self, ids: NDArray[np.int64], layer: int) -> Tensor:
        network = self.network_
        assert self._adjacency is not None
        if not len(ids):
            raise DataError("no nodes were asked for")
        distinct, back = np.unique(ids, return_inverse=True)
        depth = layer % len(network.layers) + 1
        wanted = torch.from_numpy(distinct).to(self._adjacency.device)
        field = ReceptiveField.of(self._adjacency, wanted, depth)
        network.eval()
        with torch.no_grad():
            states = network.states(field, depth)[-1]
        return states[torch.from_numpy(back).to(states.device)]

    # -- keeping -----------------------------------------------------------------------------------------

    def save(self, folder: str) -> None:
        """Write the model and its graph into a folder: safetensors and JSON, never pickle."""
        from rgcn.tasks.storage import save_model

        save_model(self, folder)

    @classmethod
    def load(cls, folder: str) -> NodeClassifier:
        """Read what `save` wrote."""
        from rgcn.tasks.storage import load_as

        return load_as(folder, cls)


def _trainable_labels(kg: KnowledgeGraph) -> NodeLabels:
    if kg.labels is None or not len(kg.labels):
        raise DataError(
            "the graph has no labels: read it with labels=FILE, or labels_from=RELATION to take them from the graph"
        )
    nodes, classes = kg.labels.of("train")
    if not len(nodes):
        raise DataError(f"the graph has no training labels; it has {dict(kg.labels.counts())}")
    if len(np.unique(classes)) < 2:
        raise DataError(f"all training labels are of one class, {kg.labels.names[int(classes[0])]!r}: nothing to learn")
    return kg.labels


def _with_validation(labels: NodeLabels, settings: NodeTrainingConfig, seed: int) -> NodeLabels:
    """Labels with a validation split: the data's own, or one held out of the training labels, class by class."""
    if (labels.splits == SPLITS.index("valid")).any():
        return labels
    if not settings.validation:
        raise ConfigError(
            "patience needs a validation split, and the data has none: set validation, for example to 0.1"
        )
    rng = np.random.default_rng(seed)
    splits = labels.splits.copy()
    train = np.flatnonzero(splits == SPLITS.index("train"))
    for label in np.unique(labels.classes[train]):
        members = rng.permutation(train[labels.classes[train] == label])
        held_out = min(round(settings.validation * len(members)), len(members) - 1)  # a class keeps one to learn from
        splits[members[:held_out]] = SPLITS.index("valid")
    if not (splits == SPLITS.index("valid")).any():
        raise ConfigError(f"validation = {settings.validation} of {len(train)} training labels holds out none")
    return NodeLabels(labels.nodes, labels.classes, labels.names, splits)


def published_parameters(config: NodeModelConfig, num_inputs: int, num_relations: int, num_classes: int) -> int:
    """Numbers in the network where W_r of the first layer has a row for every node, as published code holds it.

    num_inputs: the number of nodes, or of their features where these are given.

    >>> published_parameters(NodeModelConfig(), 8285, 45, 4)  # AIFB, RGCN: 91 · 8285 · 16 + 16 + 91 · 16 · 4 + 4
    12068804
    >>> published_parameters(NodeModelConfig(name="e-rgcn"), 8285, 45, 4)  # 8285 · 32 + 91 · 32 + 91 · 32 · 4 + 4
    279684
    """
    relations = num_relations * (1 + config.inverse) + config.self_loops
    total, width = 0, num_inputs
    if config.name == "e-rgcn":
        total, width = num_inputs * config.embedding, config.embedding
    for depth in range(config.layers):
        last = depth + 1 == config.layers
        embedded_first = config.name == "e-rgcn" and depth == 0
        out = num_classes if last else config.embedding if embedded_first else config.hidden
        if not last and (embedded_first or config.decomposition == "diagonal"):
            total += relations * width
        elif config.bases is not None:
            total += config.bases * width * out + relations * config.bases
        elif config.blocks is not None and out % config.blocks == 0:
            apart = int(config.self_loops)  # the self-loop's matrix stays full
            total += (relations - apart) * width * out // config.blocks + apart * width * out
        else:
            total += relations * width * out
        total += out if has_bias(config, depth) else 0
        width = out
    return total
