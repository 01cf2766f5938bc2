"""The vectors a model has learned: of nodes, a part of them at a time, and of relations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.errors import ConfigError, DataError
from rgcn.nn import RelationalGraphConv
from rgcn.predict import OpenModel
from rgcn.tasks import NodeClassifier

# A part is small beside a graph's weights, and large beside the cost of looking up what its nodes hear.
NODES_AT_ONCE = 1 << 15

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class NodeVectors:
    """The vectors of a model's nodes.

    layer  of a classifier, the layer after which its states are taken: -2 the last hidden one, -1 the logits
    """

    opened: OpenModel
    layer: int | None = None

    @classmethod
    def of(cls, opened: OpenModel, layer: int | None = None) -> NodeVectors:
        """layer None: the last hidden one; where a classifier has a single layer, its logits. Link predictors: none."""
        if not isinstance(opened.model, NodeClassifier):
            if layer is not None:
                raise ConfigError(
                    "layer is for classifiers: a link predictor has one vector for each node, the one its scores "
                    "are made of"
                )
            return cls(opened)
        count = len(opened.model.network_.layers)
        if layer is None:
            layer = -2 if count > 1 else -1
        if not -count <= layer < count:
            raise ConfigError(f"layer {layer} does not exist: the network has {count} layers, {-count} to {count - 1}")
        return cls(opened, layer)

    @property
    def width(self) -> int:
        """Numbers a node."""
        model = self.opened.model
        if self.layer is None or not isinstance(model, NodeClassifier):
            return self.opened.predictor.network_.decoder.width
        return _layer(model, self.layer).out_features

    @property
    def words(self) -> str:
        """What the vectors are, in a few words."""
        if self.layer is None:
            return "the vectors the model scores triples with"
        count = len(self.opened.classifier.network_.layers)
        depth = self.layer % count + 1
        return "the logits, a number for each class" if depth == count else f"states after layer {depth} of {count}"

    def take(self, nodes: Integers) -> Floats:
        """[n, width]: the vectors of some nodes, at once."""
        model = self.opened.model
        if isinstance(model, NodeClassifier):
            assert self.layer is not None
            return model.embeddings(nodes.tolist(), layer=self.layer)
        # Behind the vector a decoder may hold a node's biases, which say how frequent it is and not what it is.
        encoded = model.encoded()
        rows = encoded[torch.from_numpy(nodes).to(encoded.device), : self.width]
        return np.ascontiguousarray(rows.cpu().numpy(), dtype=np.float32)

    def gather(self, nodes: Integers, on_nodes: Callable[[int], None] | None = None) -> Floats:
        """The same for any number of nodes, computed a part at a time."""
        parts = []
        for part in in_parts(nodes):
            parts.append(self.take(part))
            if on_nodes is not None:
                on_nodes(len(part))
        return np.concatenate(parts)


def _layer(model: NodeClassifier, number: int) -> RelationalGraphConv:
    layer = model.network_.layers[number]
    assert isinstance(layer, RelationalGraphConv)
    return layer


def in_parts(nodes: Integers) -> Iterator[Integers]:
    """Node ids, `NODES_AT_ONCE` at a time."""
    for first in range(0, len(nodes), NODES_AT_ONCE):
        yield nodes[first : first + NODES_AT_ONCE]


@dataclass(frozen=True, eq=False)
class RelationVectors:
    """What a model has learned of each relation.

    forward  float32 [R, width]
    inverse  float32 [R, width] where the inverse has weights of its own, as in a classifier's layers; else None
    words    what the numbers are
    """

    forward: Floats
    inverse: Floats | None
    words: str

    @property
    def whole(self) -> Floats:
        """[R, width or twice that]: both directions of a relation, one behind the other."""
        return self.forward if self.inverse is None else np.concatenate([self.forward, self.inverse], axis=1)


def relation_vectors(opened: OpenModel) -> RelationVectors:
    """A link predictor's relation vectors, or the weight matrices W_r of a classifier's last layer, in a row."""
    model = opened.model
    if not isinstance(model, NodeClassifier):
        forward = model.network_.decoder.relation.detach().float().cpu().numpy()
        return RelationVectors(np.array(forward), None, "the vector of each relation in the decoder")
    last = _layer(model, -1)
    if last.is_one_hot:
        raise DataError(
            f"{opened.name} has a single layer on nodes without features: its relations share no weights that could "
            "be compared; train with two layers or more"
        )
    with torch.no_grad():
        dense = last.dense_weight().float().cpu().numpy()
    count = opened.graph.num_relations
    rows = np.ascontiguousarray(dense.reshape(len(dense), -1))
    inverse = rows[count : 2 * count] if last.inverse else None
    sizes = " × ".join(map(str, dense.shape[1:]))
    words = f"the weight matrix of each relation in the last layer ({sizes}), written in a row"
    return RelationVectors(rows[:count], inverse, words)
