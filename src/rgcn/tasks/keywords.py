"""The keyword arguments of the estimators, so that a type checker knows them as the configuration does.

A test holds them to the fields of `rgcn.config`, which say what each one means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict

from rgcn.config import Scheme

if TYPE_CHECKING:
    from rgcn.nn.decoders import Decoder
    from rgcn.nn.encoders import Encoder
    from rgcn.nn.heads import Head
    from rgcn.objectives import Objective
    from rgcn.sampling import EdgeSampler


class SharedSettings(TypedDict, total=False):
    """Settings of every estimator."""

    encoder: str | type[Encoder]
    layers: int
    embedding: int
    bases: int | None
    blocks: int | None
    normalization: Literal["relation", "node", "direction", "none"]
    aggregation: Literal["sum", "mean"]
    inverse: bool
    self_loops: bool
    bias: bool
    init: Scheme
    gain: float
    options: dict[str, Any]
    epochs: int
    learning_rate: float
    weight_decay: float
    edge_dropout: float
    self_loop_dropout: float
    patience: int | None
    device: str
    deterministic: bool


class NodeSettings(SharedSettings, total=False):
    """Settings of a `NodeClassifier`: those of `NodeModelConfig` and of `NodeTrainingConfig`."""

    head: str | type[Head]
    hidden: int
    input: Literal["auto", "one-hot", "features"]
    decomposition: Literal["none", "basis", "block", "diagonal"]
    dropout: float
    fans: Literal["matrix", "stacked"]
    embedding_init: Scheme
    embedding_gain: float
    l2_penalty: float
    class_weights: Literal["none", "balanced"]
    validation: float
    watch: Literal["loss", "accuracy"]


class LinkSettings(SharedSettings, total=False):
    """Settings of a `LinkPredictor`: those of `LinkModelConfig` and of `LinkTrainingConfig`."""

    decoder: str | type[Decoder]
    bottleneck: int
    input: Literal["embedding", "one-hot"]
    activated_input: bool
    decomposition: Literal["none", "basis", "block"]
    self_loop_apart: bool | None
    separate_inverse_bases: bool
    coefficient_init: Literal["same", "normal"]
    fans: Literal["matrix", "published"]
    decoder_biases: bool
    batch_edges: int | None
    sampler: str | type[EdgeSampler]
    objective: str | type[Objective]
    negatives: int
    head_probability: float
    filtered_negatives: bool
    penalty: float
    self_loop_dropout_on: Literal["edge", "message"]
    schedule: Literal["constant", "cosine", "step"]
    warmup: int
    step_every: int
    step_factor: float
    clip: float | None
    objective_options: dict[str, Any]
    evaluate_every: int | None
    watch: Literal["mrr", "hits@1", "hits@3", "hits@10", "mean_rank"]
