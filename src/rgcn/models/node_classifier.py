"""Node classification: fit on labeled nodes, predict the class of any node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency.operator import edge_options
from rgcn.adjacency.receptive_field import ReceptiveField, StoredEdges
from rgcn.config import NodeModelConfig, NodeTrainingConfig, Scheme
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels
from rgcn.kernels.ahead import compile_ahead
from rgcn.models.answer_kind import ClassKind
from rgcn.models.estimator import Estimator, ModelHooks, Nodes, one_hot_message
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoders import Encoder
from rgcn.nn.relational_encoder import Head, NodeNetwork, NodePlan
from rgcn.nn.relational_graph_conv import MessageFunction, RelationalGraphConv
from rgcn.nn.row_tables import NodeEmbedding, NodeFeatures
from rgcn.placement import current
from rgcn.plugins import ENCODERS
from rgcn.system.memory import release_memory
from rgcn.training.node_trainer import NodeTrainer
from rgcn.training.plan import choose_device, default_batches

if TYPE_CHECKING:
    import polars as pl

MIN_STORED_TRIPLES = 2_000_000  # a saved model of a graph with so many triples reads edges from disk when it needs them


class ClassEstimator(Estimator):
    """What estimators that predict classes share: answers, and evaluation on a split of the labels."""

    @property
    def _labels(self) -> NodeLabels:
        assert self.graph_.labels is not None
        return self.graph_.labels

    @property
    def classes_(self) -> list[str]:
        """Class names, in the order of the columns of `logits` and `predict_proba`."""
        return list(self._labels.names)

    def predict(self, nodes: Nodes | None = None) -> NDArray[np.object_]:
        """Predict the class of each node.

        Args:
            nodes: Nodes by name or id; None: all nodes that are no literals.

        Returns:
            Class names, [num_nodes].
        """
        names: NDArray[np.object_] = np.array(self.classes_, dtype=np.object_)
        return names[self.logits(self._ids_to_classify(nodes)).argmax(1).numpy()]  # type: ignore[no-any-return]

    def predict_proba(self, nodes: Nodes | None = None) -> NDArray[np.float32]:
        """Compute the calibrated probability of every class for each node.

        Args:
            nodes: Nodes by name or id; None: all nodes that are no literals.

        Returns:
            The probabilities [num_nodes, num_classes], in the order of `classes_`.

        Raises:
            DataError: There are too few labels to calibrate on. `softmax(logits(nodes))` are uncalibrated numbers.
        """
        if not self.calibration_.fitted:
            raise DataError(self.calibration_.words)
        return np.asarray(self.calibration_.class_probabilities(self.logits(self._ids_to_classify(nodes))).numpy())

    def predict_frame(self, nodes: Nodes | None = None) -> pl.DataFrame:
        """Predict the class of each node, as a table.

        Args:
            nodes: Nodes by name or id; None: all nodes that are no literals.

        Returns:
            A row for each node: `node`, `class`, `score` (the logit of the class) and `probability` (calibrated; null
            if there are too few labels to calibrate on).
        """
        import polars as pl

        ids = self._ids_to_classify(nodes)
        logits, calibration = self.logits(ids), self.calibration_
        best = logits.argmax(1, keepdim=True)
        shares = calibration.class_probabilities(logits) if calibration.fitted else None
        columns = {
            "node": [self.graph_.nodes[node] for node in ids],
            "class": [self.classes_[number] for number in best.squeeze(1).tolist()],
            "score": logits.gather(1, best).squeeze(1).float().numpy(),
            "probability": [None] * len(ids) if shares is None else shares.gather(1, best).squeeze(1).float().numpy(),
        }
        return pl.DataFrame(columns, schema_overrides={"probability": pl.Float32})

    def _ids_to_classify(self, nodes: Nodes | None) -> list[int]:
        """Return the ids of nodes; None: of all nodes that are no literals."""
        nodes = np.flatnonzero(~self.graph_.is_literal).tolist() if nodes is None else nodes
        return self._node_ids(nodes).tolist()  # type: ignore[no-any-return]

    def evaluate(
        self, kg: KnowledgeGraph | None = None, split: str = "test", *, at_most: int | None = None
    ) -> dict[str, Any]:
        """Compute the accuracy on one split of a graph's labels.

        Args:
            kg: The graph; None: the one the model was fitted on.
            split: "train", "valid" or "test".
            at_most: Measure on so many labels, drawn with the seed.

        Returns:
            `accuracy`, `count` (of labels) and, if labels were drawn, `accuracy_error` (its standard error).
        """
        graph = self.graph_ if kg is None else kg
        if graph.labels is None:
            raise DataError("the graph has no labels to measure accuracy on: read it with labels=FILE")
        num_labels = len(graph.labels.of(split)[0])
        if not num_labels:
            raise DataError(f"the graph has no labels in split {split!r}; it has {dict(graph.labels.counts())}")
        drawn = self._draw_rows(torch.arange(num_labels), at_most).numpy()
        nodes, classes = (column[drawn] for column in graph.labels.of(split))
        number_of = {name: number for number, name in enumerate(self.classes_)}
        expected = np.array([number_of.get(graph.labels.names[number], -1) for number in classes])
        predicted = self.logits([graph.nodes[node] for node in nodes]).argmax(1).numpy()
        accuracy, share = float((predicted == expected).mean()), len(nodes) / num_labels
        error = (accuracy * (1 - accuracy) * (1 - share) / len(nodes)) ** 0.5
        return {"accuracy": accuracy, "count": len(nodes), **({} if share == 1 else {"accuracy_error": error})}

    def measured_splits(self) -> list[str]:
        """Return the splits that have labels."""
        return list(self._labels.counts())


class NodeHooks(ModelHooks):
    """Explanations, vectors and new nodes of a node classifier."""

    estimator: NodeClassifier

    @property
    def num_layers(self) -> int:
        """How many hops a message travels."""
        return self.estimator.model.layers

    @property
    def message_triples(self) -> NDArray[np.int64]:
        """The triples whose edges carry messages: all of the graph, [num_triples, 3]."""
        graph = self.estimator.graph_
        return graph.triples if self.estimator._stored_edges is None else graph._rows

    def class_logits(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        """Compute the logits of a node, [1, num_classes], with gradients of the field's edges."""
        return network(field)  # type: ignore[no-any-return]

    def embedding_layer(self, layer: int | None) -> int:
        """Return the given layer, or the default: the last hidden one."""
        count = len(self.estimator.network_.layers)
        layer = max(-2, -count) if layer is None else layer
        if not -count <= layer < count:
            raise ConfigError(f"layer {layer} does not exist: the network has {count} layers, {-count} to {count - 1}")
        return layer

    def describe_embeddings(self, layer: int | None) -> str:
        """Say in a few words what the states after a layer are."""
        network = self.estimator.network_
        count = len(network.layers)
        depth = self.embedding_layer(layer) % count + 1
        is_logits = depth == count and not network.head.needs_activation
        return "the logits, a number for each class" if is_logits else f"states after layer {depth} of {count}"

    def relation_embeddings(self) -> tuple[Tensor, Tensor | None, str]:
        """Return the weight matrices W_r of the last layer, flattened."""
        last, count = self.estimator.network_.layers[-1], self.estimator.graph_.num_relations
        assert isinstance(last, RelationalGraphConv)
        if last.is_one_hot:
            message = "a single layer on nodes without features has no weights of relations that could be compared"
            raise DataError(f"{message}: train with two layers or more")
        dense = last.dense_weight().detach().float().cpu()
        rows, sizes = dense.reshape(len(dense), -1), " × ".join(map(str, dense.shape[1:]))
        text = f"the weight matrix of each relation in the last layer ({sizes}), written in a row"
        return rows[:count], rows[count : 2 * count] if last.inverse else None, text

    def why_not_extensible(self) -> str | None:
        """Return why the model cannot answer for new nodes: its inputs are one-hot."""
        has_rows = isinstance(self.estimator.network_.source, (NodeEmbedding, NodeFeatures))
        return None if has_rows else one_hot_message("e-rgcn, or rgcn on a graph with features")


class NodeClassifier(ClassEstimator):
    """Node classification with RGCN, e-RGCN, or any other encoder and head.

    Args:
        model: Shorthand for the encoder: "rgcn" or "e-rgcn".
        seed: Seed of every random choice.
        prune: Keep only the part of the graph within so many hops of labeled nodes; True: as many as there are layers.
        encoder: Name or class of the encoder; None: that of `model`, else rgcn.

    The other arguments are described by `rgcn.config.NodeModelConfig` (network) and `rgcn.config.NodeTrainingConfig`
    (training), whose fields they are; `rgcn train --explain` shows them.

    Example:
        >>> import rgcn
        >>> kg = rgcn.load("world")
        >>> clf = rgcn.NodeClassifier(model="rgcn", hidden=16, seed=0, epochs=5).fit(kg)
        >>> 0.0 <= clf.score(kg, split="test") <= 1.0
        True
        >>> clf.predict(["Switzerland", "Peru"]).shape
        (2,)
        >>> clf.predict_frame(["Switzerland"]).columns
        ['node', 'class', 'score', 'probability']
    """

    task = "node-classification"
    model_section, training_section = NodeModelConfig, NodeTrainingConfig
    own_settings: ClassVar = {"seed": 0, "prune": False}
    hooks = NodeHooks

    model: NodeModelConfig
    training: NodeTrainingConfig
    prune: bool | int
    _network: NodeNetwork | None

    @property
    def network_(self) -> NodeNetwork:
        """The PyTorch module."""
        return self._fitted(self._network)

    def __init__(
        self,
        model: str | None = None,
        *,
        seed: int = 0,
        prune: bool | int = False,
        encoder: str | type[Encoder] | None = None,
        head: str | type[Head] = "convolution",
        layers: int = 2,
        hidden: int = 16,
        embedding: int = 32,
        input: Literal["auto", "one-hot", "features"] = "auto",
        decomposition: str | type[Decomposition] = "none",
        message_function: str | type[MessageFunction] = "linear",
        convolution_options: dict[str, Any] | None = None,
        bases: int | None = None,
        blocks: int | None = None,
        normalization: Literal["relation", "node", "direction", "none"] = "relation",
        aggregation: Literal["sum", "mean"] = "sum",
        inverse: bool = True,
        self_loops: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        init: Scheme = "glorot-uniform",
        gain: float = 2**0.5,
        fans: Literal["matrix", "stacked"] = "matrix",
        embedding_init: Scheme = "kaiming-normal",
        embedding_gain: float = 2**0.5,
        options: dict[str, Any] | None = None,
        epochs: int = 50,
        batch_labels: int | None = None,
        fan_out: int | None = None,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        l2_penalty: float = 0.0,
        edge_dropout: float = 0.0,
        self_loop_dropout: float = 0.0,
        class_weights: Literal["none", "balanced"] = "none",
        validation: float = 0.0,
        patience: int | None = None,
        watch: Literal["loss", "accuracy"] = "loss",
        device: str = "auto",
        deterministic: bool = False,
        sharded: bool | None = None,
    ) -> None:
        self._configure(locals())

    def _configure(self, params: Mapping[str, Any], *, is_trusted: bool = True) -> None:
        super()._configure(params, is_trusted=is_trusted)
        layers, prune = self.model.layers, self.prune
        if prune and prune is not True and prune < layers:
            message = f"prune = {prune} removes nodes within the {layers} hops that messages travel"
            raise ConfigError(f"{message}: prune to {layers} hops or more, or set prune=True")

    @property
    def num_parameters_as_published_(self) -> int:
        """Number of parameters if every relation had a row for every node, as the paper counts them."""
        graph, source = self.graph_, self.network_.source
        inputs = source.features.shape[1] if isinstance(source, NodeFeatures) else graph.num_nodes
        encoder = ENCODERS.resolve(self.model.encoder)
        count = encoder.num_published_parameters(self.model, inputs, graph.num_relations, self._labels.num_classes)
        return self.num_parameters_ if count is None else count

    def _schedule_options(self, trainer: NodeTrainer) -> dict[str, Any]:
        every, measure = trainer.steps_per_unit, None if trainer.valid is None else trainer.validate
        return {"report_every": every, "measure": measure, "measure_every": every}

    @property
    def metric_columns(self) -> tuple[str, ...]:
        """Names of the metrics that reports of the training may have besides the loss."""
        return ("train_accuracy", "valid_loss", "valid_accuracy")

    def _hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        labels = trainable_labels(kg)
        if self.training.patience is not None or self.training.validation:
            labels = with_validation(labels, self.training.validation, self.seed)
        graph = kg if labels is kg.labels else replace(kg, labels=labels)
        return graph.prune(self.model.layers if self.prune is True else self.prune) if self.prune else graph

    def _derived_settings(self, graph: KnowledgeGraph) -> dict[str, Any]:
        return dict(default_batches(self.model, self.training, graph))

    def _build(self, graph: KnowledgeGraph) -> Self:
        """Build the operator and the untrained network, for a graph whose splits are drawn."""
        encoder, device = ENCODERS.resolve(self.model.encoder), choose_device(self.training.device)
        if device.type == "cpu":
            compile_ahead(*encoder.kernels(self.model.decomposition))
        adjacency, generator = self._begin(graph)
        assert graph.labels is not None
        nodes = graph.labels.of("train")[0]
        # Rows out of reach of the loss stay out of the parameters, unless decay or sharding needs all rows, or batches
        # touch few of them anyway.
        decays = self.training.weight_decay > 0 or self.training.l2_penalty > 0
        field, is_batched = None, self.training.is_batched(len(nodes))
        if not (decays or is_batched or self.placement.partition is not None):
            field = ReceptiveField.of(adjacency, torch.tensor(nodes, device=device), self.model.layers)
        plan = NodePlan(self.model, graph, adjacency, field, generator, self.placement)
        self._network = encoder.build_node_network(plan).to(adjacency.device)
        if len(graph) >= MIN_STORED_TRIPLES:
            release_memory()
        return self

    def _build_saved(self, graph: KnowledgeGraph) -> Self:
        device = choose_device(self.training.device)
        if len(graph) < MIN_STORED_TRIPLES or current().is_distributed or device.type != "cpu":
            return super()._build_saved(graph)
        _, generator = self._begin(graph, has_messages=False)
        plan = NodePlan(self.model, graph, self._operator(graph, None), None, generator)
        self._network = ENCODERS.resolve(self.model.encoder).build_node_network(plan)
        self._adjacency, self._stored_edges = None, StoredEdges(graph, **edge_options(self.model))
        release_memory()
        return self

    def trainer(self) -> NodeTrainer:
        """Return the `NodeTrainer` that takes the steps; after `prepare`."""
        return NodeTrainer(
            self.network_, self.adjacency_, self._labels, self.training, self.seed, placement=self.placement
        )

    def logits(self, nodes: Nodes) -> Tensor:
        """Compute the logits of nodes, [num_nodes, num_classes], on the CPU."""
        states = self._states(self._node_ids(nodes), -1)
        with torch.no_grad():
            return self.network_.head(states).cpu()  # type: ignore[no-any-return]

    def embeddings(self, nodes: Nodes | None = None, layer: int | None = None) -> NDArray[np.float32]:
        """Return the states of nodes after a layer, [num_nodes, width].

        Args:
            nodes: Nodes by name or id; None: all nodes.
            layer: The layer, -1 for the last one; None: the last hidden one.
        """
        layer = self.hooks(self).embedding_layer(layer)
        return np.asarray(self._states(self._node_ids(nodes), layer).cpu().numpy())

    def _states(self, ids: NDArray[np.int64], layer: int) -> Tensor:
        network = self.network_
        if not len(ids):
            raise DataError("the list of nodes is empty: name at least one")
        distinct, back = np.unique(ids, return_inverse=True)
        depth = layer % len(network.layers) + 1
        network.eval()
        nodes = torch.tensor(distinct, device=choose_device(self.training.device))
        if self.placement.partition is None:
            states = network.node_states(self.rows_, nodes, depth)
        else:
            exchange = self.placement.exchange(nodes)
            with torch.no_grad():
                field = ReceptiveField.of(self.adjacency_, exchange.needed, depth, self.placement)
                states = exchange(network.layer_outputs(field, depth)[-1])
        return states[torch.from_numpy(back).to(states.device)]


def trainable_labels(kg: KnowledgeGraph) -> NodeLabels:
    """Return the labels of a graph.

    Raises:
        DataError: There are no training labels, or all are of one class.
    """
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
    """Return labels with a validation split: the data's own, or a share of the training labels of each class."""
    if (labels.splits == SPLITS.index("valid")).any():
        return labels
    if not share:
        raise ConfigError("patience needs a validation split, and the data has none: set validation, for example 0.1")
    return labels.hold_out("valid", share, seed)
