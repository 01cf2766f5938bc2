"""Node classification: fit on labelled nodes, ask for the class of any node."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self, Unpack

from rgcn.adjacency import ReceptiveField
from rgcn.adjacency.receptive_field import StoredEdges
from rgcn.config import NodeModelConfig, NodeTrainingConfig, Scheme
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels
from rgcn.kernels.ahead import compile_ahead
from rgcn.models.answer_kind import ClassKind
from rgcn.models.estimator import Estimator, Nodes, SharedSettings
from rgcn.models.hooks import one_hot_words
from rgcn.nn.relational_encoder import Head, NodeNetwork, NodePlan, edge_options
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.nn.row_tables import EmbeddingInput, FeatureInput
from rgcn.placement import current
from rgcn.plugins import ENCODERS
from rgcn.system.formatting import Rows
from rgcn.system.memory import give_back
from rgcn.training.node_trainer import NodeTrainer
from rgcn.training.plan import choose_device, default_batches, on_device

IN_PLACE = 2_000_000  # triples: a saved model of a larger graph answers from where it lies


class NodePrediction(NamedTuple):
    """The class a node most likely has.

    score          its logit; scores: those of all classes
    probability    calibrated on validation labels; None where there were none to calibrate on. probabilities: likewise
    """

    node: str
    label: str
    score: float
    probability: float | None
    scores: dict[str, float]
    probabilities: dict[str, float] | None


class ClassEstimator(Estimator):
    """What estimators that tell classes share: asking, and measuring on a split of the labels."""

    @property
    def _labels(self) -> NodeLabels:
        assert self.graph_.labels is not None
        return self.graph_.labels

    @property
    def classes_(self) -> list[str]:
        return list(self._labels.names)

    def predict(self, nodes: Nodes | None = None) -> list[NodePrediction]:
        """The class of each node; nodes by name or id, None for every node that is no literal."""
        if nodes is None:
            nodes = np.flatnonzero(~self.graph_.is_literal).tolist()
        ids = self.graph_.names.node_ids(nodes)
        logits, names, calibration = self.logits(ids.tolist()), self.classes_, self.calibration_
        shares = calibration.class_probabilities(logits).tolist() if calibration.fitted else [None] * len(ids)
        found = zip(ids.tolist(), logits.tolist(), logits.argmax(1).tolist(), shares, strict=True)
        return Rows(
            NodePrediction(
                self.graph_.nodes[node],
                names[best],
                row[best],
                None if share is None else share[best],
                dict(zip(names, row, strict=True)),
                None if share is None else dict(zip(names, share, strict=True)),
            )
            for node, row, best, share in found
        )

    def predict_proba(self, nodes: Nodes) -> NDArray[np.float32]:
        """softmax of the scores [nodes, classes], as trained: what scikit-learn calls so. It is not calibrated."""
        return np.asarray(torch.softmax(self.logits(nodes), dim=1).numpy())

    def score(self, kg: KnowledgeGraph | None = None, split: str = "test") -> float:
        """Accuracy on one split of a graph's labels (None: the graph it was fitted on)."""
        return float(self.evaluate(kg, split)["accuracy"])

    def evaluate(
        self, kg: KnowledgeGraph | None = None, split: str = "test", *, at_most: int | None = None
    ) -> dict[str, Any]:
        """Accuracy on one split of a graph's labels and how many there are; on `at_most` of them, drawn with the seed,
        with its standard error."""
        graph = self.graph_ if kg is None else kg
        if graph.labels is None:
            raise DataError("the graph has no labels to score against")
        nodes, classes = graph.labels.of(split)
        some, every = self._some(torch.arange(len(nodes)), at_most).numpy(), len(nodes)
        nodes, classes = nodes[some], classes[some]
        if not len(nodes):
            raise DataError(f"the graph has no labels in split {split!r}; it has {dict(graph.labels.counts())}")
        known = {name: i for i, name in enumerate(self.classes_)}
        expected = np.array([known.get(graph.labels.names[c], -1) for c in classes])
        predicted = self.logits([graph.nodes[n] for n in nodes]).argmax(1).numpy()
        right = float((predicted == expected).mean())
        drawn = len(nodes) / every
        error = {} if drawn == 1 else {"accuracy_error": (right * (1 - right) * (1 - drawn) / len(nodes)) ** 0.5}
        return {"accuracy": right, "count": len(nodes), **error}

    def measured_splits(self) -> list[str]:
        return list(self._labels.counts())


class NodeSettings(SharedSettings, total=False):
    """Settings of a `NodeClassifier`: those of `NodeModelConfig` and of `NodeTrainingConfig`."""

    head: str | type[Head]
    hidden: int
    input: Literal["auto", "one-hot", "features"]
    dropout: float
    fans: Literal["matrix", "stacked"]
    embedding_init: Scheme
    embedding_gain: float
    l2_penalty: float
    class_weights: Literal["none", "balanced"]
    batch_labels: int | None
    fan_out: int | None
    validation: float
    watch: Literal["loss", "accuracy"]


class NodeClassifier(ClassEstimator):
    """RGCN, e-RGCN, or any other encoder and head, for node classification.

    model    shorthand for the encoder: rgcn or e-rgcn
    prune    True keeps only the part of the graph that labelled nodes can hear, a number of hops that much of it
    settings the fields of `rgcn.config.NodeModelConfig` and of `NodeTrainingConfig`

    >>> import rgcn
    >>> kg = rgcn.load("world")
    >>> clf = rgcn.NodeClassifier(model="rgcn", hidden=16, seed=0, epochs=5).fit(kg)
    >>> 0.0 <= clf.score(kg, split="test") <= 1.0
    True
    >>> clf.predict(["Switzerland"])[0].label in clf.classes_
    True
    """

    task = "node-classification"
    model_section, training_section = NodeModelConfig, NodeTrainingConfig
    own_settings: ClassVar = {"seed": 0, "prune": False}

    model: NodeModelConfig
    training: NodeTrainingConfig
    prune: bool | int
    _network: NodeNetwork | None

    def __init__(
        self, model: str | None = None, *, seed: int = 0, prune: bool | int = False, **settings: Unpack[NodeSettings]
    ) -> None:
        self._configure({"model": model, "seed": seed, "prune": prune, **settings}, trusted=True)

    def _configure(self, settings: Mapping[str, Any], trusted: bool) -> None:
        super()._configure(settings, trusted)
        layers, prune = self.model.layers, self.prune
        if prune and prune is not True and prune < layers:
            raise ConfigError(
                f"prune = {prune} is less than the {layers} hops that {layers} layers hear: it would change "
                f"predictions; prune to {layers} hops or more, or prune=True"
            )

    @property
    def network_(self) -> NodeNetwork:
        return self._fitted(self._network)

    @property
    def num_layers_(self) -> int:
        return self.model.layers

    @property
    def num_parameters_as_published_(self) -> int:
        """Numbers the same network has where every relation holds a row for every node, as the paper counts."""
        graph, source = self.graph_, self.network_.source
        inputs = source.features.shape[1] if isinstance(source, FeatureInput) else graph.num_nodes
        encoder = ENCODERS.find(self.model.encoder)
        counted = encoder.published_parameters(self.model, inputs, graph.num_relations, self._labels.num_classes)
        return self.num_parameters_ if counted is None else counted

    def _measuring(self, trainer: NodeTrainer) -> dict[str, Any]:
        every, measure = trainer.steps_an_epoch, None if trainer.valid is None else trainer.validate
        return {"report_every": every, "measure": measure, "measure_every": every}

    @property
    def columns(self) -> tuple[str, ...]:
        return ("train_accuracy", "valid_loss", "valid_accuracy")

    def hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        labels = trainable_labels(kg)
        if self.training.patience is not None or self.training.validation:
            labels = with_validation(labels, self.training.validation, self.seed)
        graph = kg if labels is kg.labels else replace(kg, labels=labels)
        return graph.prune(self.model.layers if self.prune is True else self.prune) if self.prune else graph

    def open_settings(self, graph: KnowledgeGraph) -> dict[str, Any]:
        return dict(default_batches(self.model, self.training, graph))

    def build(self, graph: KnowledgeGraph) -> Self:
        encoder = ENCODERS.find(self.model.encoder)
        if choose_device(self.training.device).type == "cpu":
            compile_ahead(*encoder.kernels(self.model.decomposition))
        adjacency, generator = self._begin(graph)
        nodes = self._labels.of("train")[0]
        # Where all rows move anyway, or a batch touches its own alone, nothing is gained by holding some apart.
        decays = self.training.weight_decay > 0 or self.training.l2_penalty > 0
        whole = decays or self.training.in_batches(len(nodes)) or self.placement.partition is not None
        reach = None if whole else self._field(nodes, self.model.layers)
        plan = NodePlan(self.model, graph, adjacency, reach, generator, self.placement)
        self._network = encoder.for_nodes(plan).to(adjacency.device)
        if len(graph) >= IN_PLACE:
            give_back()
        return self

    def restore_saved(self, graph: KnowledgeGraph) -> Self:
        if len(graph) < IN_PLACE or current().is_distributed or choose_device(self.training.device).type != "cpu":
            return super().restore_saved(graph)
        _, generator = self._begin(graph, hears=False)
        plan = NodePlan(self.model, graph, self._operator(graph, None), None, generator)
        self._network = ENCODERS.find(self.model.encoder).for_nodes(plan)
        self._adjacency, self._in_place = None, StoredEdges(graph, **edge_options(self.model))
        give_back()  # what building took
        return self

    def trainer(self) -> NodeTrainer:
        about = self._labels, self.training, self.seed, self.placement
        return NodeTrainer(self.network_, self.adjacency_, *about)

    def training_step(self) -> Callable[[], tuple[Tensor, Tensor]]:
        """A function that takes a step and returns (loss, logits) from before it: for loops of one's own."""
        return self.trainer().both

    def _field(self, nodes: NDArray[np.int64], depth: int) -> ReceptiveField:
        """What the first `depth` layers must compute for these nodes."""
        return ReceptiveField.of(self.rows_, on_device(nodes, choose_device(self.training.device)), depth)

    def logits(self, nodes: Nodes) -> Tensor:
        states = self._states(self.graph_.names.node_ids(nodes), -1)
        with torch.no_grad():
            return self.network_.head(states).cpu()  # type: ignore[no-any-return]

    @property
    def message_triples_(self) -> NDArray[np.int64]:
        return self.graph_.triples if self._in_place is None else self.graph_._rows

    def class_heard(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        return network(field)  # type: ignore[no-any-return]

    def embeddings(self, nodes: Nodes | None = None, layer: int = -2) -> NDArray[np.float32]:
        """States [nodes, width] after a layer: -2 the last hidden one (of a deep enough network), -1 the last."""
        self.vector_layer(layer)
        ids = np.arange(self.graph_.num_nodes) if nodes is None else self.graph_.names.node_ids(nodes)
        return np.asarray(self._states(ids, layer).cpu().numpy())

    def _states(self, ids: NDArray[np.int64], layer: int) -> Tensor:
        network = self.network_
        if not len(ids):
            raise DataError("no nodes were asked for")
        distinct, back = np.unique(ids, return_inverse=True)
        depth = layer % len(network.layers) + 1
        network.eval()
        if self.placement.partition is not None:
            exchange = self.placement.exchange(on_device(distinct, self.adjacency_.device))
            with torch.no_grad():
                field = ReceptiveField.of(self.adjacency_, exchange.needed, depth, self.placement)
                states = exchange(network.states(field, depth)[-1])
            return states[torch.from_numpy(back).to(states.device)]
        states = network.states_of(self.rows_, on_device(distinct, choose_device(self.training.device)), depth)
        return states[torch.from_numpy(back).to(states.device)]

    def vector_layer(self, layer: int | None) -> int:
        count = len(self.network_.layers)
        if layer is None:
            return -2 if count > 1 else -1
        if not -count <= layer < count:
            raise ConfigError(f"layer {layer} does not exist: the network has {count} layers, {-count} to {count - 1}")
        return layer

    def vectors(self, nodes: NDArray[np.int64], layer: int | None = None) -> NDArray[np.float32]:
        return self.embeddings(nodes.tolist(), layer=self.vector_layer(layer))

    def vector_words(self, layer: int | None) -> str:
        count = len(self.network_.layers)
        depth = self.vector_layer(layer) % count + 1
        speaks = depth == count and not self.network_.head.activated
        return "the logits, a number for each class" if speaks else f"states after layer {depth} of {count}"

    def relation_vectors(self) -> tuple[Tensor, Tensor | None, str]:
        """The weight matrices W_r of the last layer, each in a row."""
        last = self.network_.layers[-1]
        assert isinstance(last, RelationalGraphConv)
        if last.is_one_hot:
            raise DataError(
                "a single layer on nodes without features: its relations share no weights that could be compared; "
                "train with two layers or more"
            )
        with torch.no_grad():
            dense = last.dense_weight().float().cpu()
        count, rows = self.graph_.num_relations, dense.reshape(len(dense), -1)
        sizes = " × ".join(map(str, dense.shape[1:]))
        words = f"the weight matrix of each relation in the last layer ({sizes}), written in a row"
        return rows[:count], rows[count : 2 * count] if last.inverse else None, words

    def cannot_extend(self) -> str | None:
        if isinstance(self.network_.source, (EmbeddingInput, FeatureInput)):
            return None
        return one_hot_words("e-rgcn, or rgcn on a graph with features")


def trainable_labels(kg: KnowledgeGraph) -> NodeLabels:
    """The labels of a graph, which must have something to tell apart."""
    if missing := ClassKind().missing(kg):
        raise DataError(f"the graph has {missing}")
    assert kg.labels is not None
    nodes, classes = kg.labels.of("train")
    if not len(nodes):
        raise DataError(f"the graph has no training labels; it has {dict(kg.labels.counts())}")
    if len(np.unique(classes)) < 2:
        raise DataError(f"all training labels are of one class, {kg.labels.names[int(classes[0])]!r}: nothing to learn")
    return kg.labels


def with_validation(labels: NodeLabels, share: float, seed: int) -> NodeLabels:
    """Labels with a validation split: the data's own, or one held out of the training labels, class by class."""
    if (labels.splits == SPLITS.index("valid")).any():
        return labels
    if not share:
        raise ConfigError("patience needs a validation split, and the data has none: set validation, for example 0.1")
    return labels.holding_out("valid", share, seed)
