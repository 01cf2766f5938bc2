"""The section `training`: how the network of each task is trained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from rgcn.config.fields import ComponentOf, OptionsOf, Section, rule, tuned
from rgcn.config.model_section import CONVOLVES, DECODER_NAMES, WALKS
from rgcn.plugins import OBJECTIVES, OPTIMIZERS, SAMPLERS

Objective = Annotated[str, ComponentOf(OBJECTIVES)]
Sampler = Annotated[str, ComponentOf(SAMPLERS)]
Optimizer = Annotated[str, ComponentOf(OPTIMIZERS)]
SAMPLED = {"training.objective": ("sampled-bce", "self-adversarial", "sampled-softmax")}  # these draw false triples
ALL_NODES = {"training.objective": ("softmax-unfiltered",)}
PENALIZED = {"training.objective": (*SAMPLED["training.objective"], *ALL_NODES["training.objective"])}
PASSES_MESSAGES = {"model.encoder": (*CONVOLVES["model.encoder"], *WALKS["model.encoder"])}
WEIGHTED = {"training.objective": ("bce", "self-adversarial")}


# A softmax over all nodes without leaving out known answers, N3 and Adagrad: chosen by validation on codex-s and world.
EMBEDDING_DEFAULTS = {
    "objective": "softmax-unfiltered",
    "sampler": "grouped",
    "batch_edges": 1024,
    "optimizer": "adagrad",
    "learning_rate": 0.1,
}
PATH_DEFAULTS = {
    "objective": "softmax",
    "sampler": "shuffled",
    "batch_edges": 32,
    "edge_dropout": 0.1,
    "self_loop_dropout": 0.0,
    "schedule": "cosine",
}


def _known_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; there are auto, cpu, cuda and cuda:N")
    return value


Device = Annotated[str, AfterValidator(_known_device)]


class TrainingSection(Section):
    """Base of the section `training` of every task. The length of a training is counted in `unit`."""

    unit: ClassVar[str] = "epoch"  # of the length, of reports, and of `patience` unless its description differs

    @property
    def length_key(self) -> str:
        """The name of the setting that holds the length: "epochs" or "steps"."""
        return f"{self.unit}s"

    @property
    def length(self) -> int:
        """The length of the training, in `unit`."""
        return int(getattr(self, self.length_key))


class NodeTrainingConfig(TrainingSection):
    """The training of node classification."""

    epochs: int = tuned(50, low=20, high=200, log=True, ge=1)
    """Passes over the training labels; each is one step on the whole graph, or as many steps as there are batches."""
    batch_labels: int | None = Field(None, ge=1)
    """Training labels per step, in a new random order each epoch. null: all; but 10000, with fan_out 10, on a graph of
    more than 2 million triples that would not fit into memory or has more than 50000 labels. The run records these."""
    fan_out: int | None = Field(None, ge=1)
    """Maximal number of edges that a step samples per node, relation and layer, scaled to keep the expected sum."""
    learning_rate: float = tuned(0.01, low=1e-3, high=0.1, log=True, gt=0)
    """Learning rate of Adam."""
    weight_decay: float = tuned(0.0, low=1e-6, high=1e-2, log=True, ge=0)
    """Weight decay of Adam, on every parameter."""
    l2_penalty: float = tuned(0.0, low=1e-6, high=1e-2, log=True, ge=0)
    """Factor on the sum of squares of the first layer's weights, which is added to the loss."""
    edge_dropout: float = tuned(0.0, low=0.0, high=0.6, ge=0, lt=1)
    """Share of triples that are dropped from the graph in each step."""
    self_loop_dropout: float = tuned(0.0, low=0.0, high=0.5, when={"model.self_loops": True}, ge=0, lt=1)
    """Share of self-loops that are dropped in each step."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: each class has the same weight in the loss, however many labels it has."""
    validation: float = Field(0.0, ge=0, lt=1)
    """Share of training labels held out if the data have no validation split. The best validated weights are kept."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many epochs without a better validation metric."""
    watch: Literal["loss", "accuracy"] = "loss"
    """Validation metric that determines the best weights, and that patience refers to."""
    device: Device = "auto"
    """cpu, cuda, cuda:1, or auto: a GPU if there is one."""
    deterministic: bool = False
    """Use only operations that sum in a fixed order, on a GPU too: the same seed gives the same bits."""
    sharded: bool | None = None
    """Whether each process (`--processes`) holds only a part of the nodes, with their rows of tables and edges; else
    they only divide the labels. null: true if several processes start the run and nodes have vectors; recorded."""

    def is_batched(self, num_labels: int) -> bool:
        """Return True if a step uses only a part of the training labels, or samples edges."""
        return self.fan_out is not None or (self.batch_labels is not None and self.batch_labels < num_labels)


class LinkTrainingConfig(TrainingSection):
    """The training of link prediction."""

    unit: ClassVar = "step"  # `patience` counts measurements

    # Defaults of a model that Python code selects by name; a file states its settings itself.
    shorthands: ClassVar = {
        "path": {**PATH_DEFAULTS, "learning_rate": 0.005},
        "universal": {**PATH_DEFAULTS, "learning_rate": 0.0005},
        **dict.fromkeys(DECODER_NAMES, EMBEDDING_DEFAULTS),
    }

    steps: int = tuned(1000, low=500, high=10000, log=True, ge=0)
    """Optimizer steps; each uses one batch of training triples. 0: the initial weights are kept."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the training triples, instead of `steps`. The run records the resulting steps, and null here."""
    batch_edges: int | None = Field(None, ge=1)
    """Number of positive edges per step; with objective: softmax-unfiltered of questions, two for each triple. null:
    all of a small graph, else as many as fit into memory; the run records it. path and universal, which hide the
    triples of a batch, use at most half of them, and 64 for null."""
    sampler: Sampler = "neighborhood"
    """Draws batches. neighborhood: growing along edges, as in the original code. uniform: at random. shuffled: each
    triple once per pass. scattered: the same without a permutation of all triples in memory, for graphs of any size.
    grouped: each triple once per pass, those with the same subject and relation together; for softmax-unfiltered,
    whose equal questions are then computed once."""
    objective: Objective = "sampled-bce"
    """sampled-bce: binary cross-entropy of true triples and negatives; self-adversarial: negatives weighted by score;
    sampled-softmax: the answer among the negatives; softmax, bce: among all nodes but other known answers;
    softmax-unfiltered: among all nodes, each triple asked in both directions."""
    negatives: int = tuned(10, low=1, high=32, log=True, when=SAMPLED, ge=1)
    """Negatives for each true triple; with shared_by, for each of its sides. softmax and bce need none."""
    shared_by: int | None = Field(None, ge=1)
    """Number of true triples, such as 1000, that share their negative nodes; null: none. Scores are then matrix
    products, much faster. Both sides are corrupted; known triples are negatives unless filtered_negatives is set."""
    head_probability: float = Field(0.5, ge=0, le=1)
    """Share of negatives with another subject, or of questions that ask for the subject."""
    filtered_negatives: bool = False
    """Draw a negative again if it is a known triple."""
    temperature: float = tuned(1.0, low=0.25, high=4.0, log=True, when=WEIGHTED, ge=0)
    """With objective: bce or self-adversarial, wrong answers are weighted by softmax(temperature x score)."""
    penalty: float = tuned(0.01, low=1e-4, high=0.1, log=True, when=PENALIZED, ge=0)
    """Factor on the regularizer. With softmax and bce use weight_decay instead."""
    regularizer: Literal["l2", "n3"] | None = None
    """l2: mean squares of the vectors of scored triples. n3, with softmax-unfiltered: the sum of the cubes of a
    triple's vectors, the mean over the batch. null: n3 with softmax-unfiltered, else l2."""
    message_edges: Literal["batch", "graph", "graph-without-batch"] = "batch"
    """Edges that carry messages in a step with batch_edges. batch: those of the batch, as published; graph: all, as
    when the model is evaluated; graph-without-batch: all others."""
    hidden: Literal["triple", "pair"] = tuned("triple", ["triple", "pair"], when=WALKS)
    """path, universal: the edges that are removed while a triple is predicted: the triple itself, or every triple
    between its two nodes. Choose by validation: pair is better on FB15k-237, and worse on WN18RR."""
    edge_dropout: float = tuned(0.5, low=0.0, high=0.8, when=PASSES_MESSAGES, ge=0, lt=1)
    """Share of edges that are dropped in each step."""
    self_loop_dropout: float = tuned(0.2, low=0.0, high=0.5, when={**CONVOLVES, "model.self_loops": True}, ge=0, lt=1)
    """Share of self-loops that are dropped in each step."""
    self_loop_dropout_on: Literal["edge", "message"] = tuned(
        "edge", ["edge", "message"], when={"model.self_loop_apart": True, "model.input": "embedding"}
    )
    """edge: drop whole self-loops. message: drop numbers of their messages, as the original code does."""
    optimizer: Optimizer | None = None
    """adam; adagrad (learning rate about 0.1); lazy-adam, which updates only the embedding rows that a step uses;
    row-adagrad, the same with one number of state per row. null: adam, but for 100 million numbers of embeddings or
    more, in batches, lazy-adam, or row-adagrad if the state would not fit into memory; the run records it."""
    tables: Literal["memory", "disk"] | None = None
    """Where node embeddings are stored during the training. disk: in a file in the cache folder (RGCN_CACHE), mapped
    into memory; only on a CPU and with lazy-adam or row-adagrad. null: memory, or disk if they would not fit."""
    learning_rate: float = tuned(0.01, low=1e-3, high=0.1, log=True, gt=0)
    """Learning rate of the optimizer."""
    schedule: Literal["constant", "cosine", "step"] = tuned("constant", ["constant", "cosine"])
    """Learning rate schedule: constant, along a cosine to zero, or in steps."""
    warmup: int = Field(0, ge=0)
    """Number of first steps in which the learning rate rises from zero."""
    step_every: int = Field(1000, ge=1)
    """With schedule: step, number of steps between two reductions."""
    step_factor: float = Field(0.5, gt=0, le=1)
    """With schedule: step, factor of each reduction."""
    weight_decay: float = Field(0.0, ge=0)
    """Factor on each updated parameter, which is added to its gradient."""
    clip: float | None = Field(None, gt=0)
    """Maximal norm of the gradients; larger ones are scaled down. null: no limit."""
    objective_options: Annotated[dict[str, Any], OptionsOf(("objective", "sampler"))] = Field({})
    """Settings of an objective or sampler of another package, by name."""
    validation: float | None = Field(None, ge=0, lt=1)
    """Share of training triples held out if the graph has no validation split. null: 0.1 if data.split is set."""
    evaluate_every: int | None = Field(None, ge=0)
    """Number of steps between two measurements on the validation triples; the best weights are kept. null: ten
    measurements in a training, each on at most a thousand triples. 0: none, and the last weights are kept."""
    evaluate_at_most: int | None = Field(None, ge=1)
    """Maximal number of validation triples or labels of such a measurement; final metrics always use all."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many measurements in a row (one each `evaluate_every` steps) without a better one."""
    watch: Literal["mrr", "hits@1", "hits@3", "hits@10", "mean_rank"] = "mrr"
    """Validation metric that determines the best weights, and that patience refers to."""
    device: Device = "auto"
    """cpu, cuda, cuda:1, or auto: a GPU if there is one."""
    deterministic: bool = False
    """Use only operations that sum in a fixed order, on a GPU too: the same seed gives the same bits."""
    sharded: bool | None = None
    """Whether each process (`--processes`) holds only a part of the nodes, with their rows of tables and edges; else
    they only divide the triples. null: true if several processes start the run and nodes have embeddings; recorded."""

    @rule("patience", "evaluate_every")
    def _patience_counts_measurements(self) -> Iterator[str]:
        if self.patience is not None and not self.evaluate_every:
            yield "`patience` counts measurements: set `evaluate_every` too, or `patience` to null"

    @rule("tables", "optimizer")
    def _disk_for_rows(self) -> Iterator[str]:
        if self.tables == "disk" and self.optimizer in ("adam", "adagrad"):
            yield (
                f"{self.optimizer} updates every row of a table in every step: with tables: disk, choose lazy-adam or "
                "row-adagrad"
            )

    @rule("regularizer", "objective", "penalty")
    def _n3_of_a_batch(self) -> Iterator[str]:
        if self.regularizer == "n3" and self.objective != "softmax-unfiltered" and self.penalty:
            yield "`regularizer: n3` goes with `objective: softmax-unfiltered`: set regularizer to l2"


class ClassLinkTrainingConfig(LinkTrainingConfig):
    """The training of classification by links."""

    class_share: float | None = tuned(None, low=0.1, high=1.0, when=WALKS, gt=0, le=1)
    """Share of the questions that ask for a class; the others ask for triples of the graph. null: a label is used as
    often as any triple. With 1, also set head_probability to 0, so that all questions ask for classes."""

    validation: float = Field(0.0, ge=0, lt=1)
    """Share of training labels held out for validation if the data have no validation split."""
    watch: Literal["accuracy"] = "accuracy"  # type: ignore[assignment]
    """Validation metric that determines the best weights, and that patience refers to."""


class PretrainingConfig(LinkTrainingConfig):
    """The pretraining of weights for any graph, on several graphs."""

    graphs: dict[str, Annotated[float, Field(gt=0)]] = Field({}, examples=[{"codex-s": 1.0}])
    """Data sets or paths to train on (their training triples), and the share of steps of each."""
    drawn: float = Field(1.0, ge=0)
    """Share of synthetic graphs; shares are relative to their sum."""
    altered: float = Field(0.5, ge=0, le=1)
    """Share of the views of a graph that are a part of it, with relations dropped, merged, split or inverted."""
    labeled: float = Field(0.2, ge=0, le=1)
    """Share of all views in which one relation has few known triples, like labels; half of the questions ask for it."""
    pairs_hidden_in: list[str] = Field([])
    """Graphs for which half of the views remove every triple between the two nodes of a question (`hidden: pair`)."""
    round_steps: int = Field(600, ge=1)
    """Number of steps after which new views are drawn."""
    round_views: int = Field(6, ge=1)
    """Number of views that a round alternates between."""

    @rule("graphs", "drawn")
    def _something_to_learn_from(self) -> Iterator[str]:
        if not self.graphs and not self.drawn:
            yield "there is no graph to train on: name some in `graphs`, or set `drawn` to 1"
        if "drawn" in self.graphs:
            yield "the name `drawn` is reserved for synthetic graphs: give the whole path of a file of this name"

    @rule("pairs_hidden_in", "graphs")
    def _pairs_of_graphs_that_are_there(self) -> Iterator[str]:
        for name in self.pairs_hidden_in:
            if name not in self.graphs:
                yield f"{name!r} is not a training graph: name it in `graphs` too, or remove it here"
