"""The section `training`: how the network of each task learns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from rgcn.config.fields import OnAxis, OptionsOf, Section, impossible, tuned
from rgcn.config.model_section import CONVOLVES, WALKS
from rgcn.plugins import OBJECTIVES, OPTIMIZERS, SAMPLERS

Objective = Annotated[str, OnAxis(OBJECTIVES)]
Sampler = Annotated[str, OnAxis(SAMPLERS)]
Optimizer = Annotated[str, OnAxis(OPTIMIZERS)]
SAMPLED = {"training.objective": ("sampled-bce", "self-adversarial", "sampled-softmax")}  # these draw false triples
PASSES_MESSAGES = {"model.encoder": (*CONVOLVES["model.encoder"], *WALKS["model.encoder"])}
WEIGHTED = {"training.objective": ("bce", "self-adversarial")}


# What suits a network that walks along edges.
ASKING = {
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


class NodeTrainingConfig(Section):
    """How the network learns."""

    epochs: int = tuned(50, low=20, high=200, log=True, ge=1)
    """Passes over the training labels; each is one step on the whole graph, or as many steps as there are batches."""
    batch_labels: int | None = Field(None, ge=1)
    """Training labels a step, which computes what these can hear; every label once an epoch, in an order drawn anew.
    null: all of them; but on a graph of more than 2 million triples where that would not fit the memory there is, or
    there are more than 50000 labels, it is 10000, and fan_out 10, which then are written down here."""
    fan_out: int | None = Field(None, ge=1)
    """Edges of each relation into a node that a step hears in each layer, at most, drawn anew in every step; each then
    counts for as many as there are, so that a step hears the same on average. null: all."""
    learning_rate: float = tuned(0.01, low=1e-3, high=0.1, log=True, gt=0)
    """Adam's learning rate."""
    weight_decay: float = tuned(0.0, low=1e-6, high=1e-2, log=True, ge=0)
    """Adam's weight decay, on every parameter."""
    l2_penalty: float = tuned(0.0, low=1e-6, high=1e-2, log=True, ge=0)
    """This times the sum of squares of the first layer's weights is added to the loss."""
    edge_dropout: float = tuned(0.0, low=0.0, high=0.6, ge=0, lt=1)
    """Share of triples left out of each step."""
    self_loop_dropout: float = tuned(0.0, low=0.0, high=0.5, when={"model.self_loops": True}, ge=0, lt=1)
    """Share of self-loops left out of each step."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: a rare class counts as much in the loss as a frequent one."""
    validation: float = Field(0.0, ge=0, lt=1)
    """Share of training labels held out for validation where the data has no such split. Where there is one, the
    weights that are best on it are kept."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many epochs without a better validation figure."""
    watch: Literal["loss", "accuracy"] = "loss"
    """The validation figure by which the best weights are told, and which patience watches."""
    device: Device = "auto"
    """cpu, cuda, cuda:1, or auto: a GPU where there is one."""
    deterministic: bool = False
    """Use only operations whose sums have a fixed order on a GPU too: the same seed gives the same bits."""
    sharded: bool | None = None
    """Whether processes (`--processes`) each hold a part of the nodes: their rows of tables and the edges into them.
    Else each holds everything, and they divide the labels. null: where several begin a run and its nodes have vectors,
    yes; that is then written down here. One process alone holds everything anyway."""

    def in_batches(self, labels: int) -> bool:
        """Whether a step takes a part of so many training labels, or hears a part of their edges."""
        return self.fan_out is not None or (self.batch_labels is not None and self.batch_labels < labels)


class LinkTrainingConfig(Section):
    """How the link predictor learns."""

    # What suits a model that is chosen by its name from Python; a file says what it wants.
    shorthands: ClassVar = {
        "path": {**ASKING, "learning_rate": 0.005},
        "universal": {**ASKING, "learning_rate": 0.0005},
    }

    epochs: int = tuned(1000, low=500, high=10000, log=True, ge=0)
    """Steps; each is one batch of positive edges (or all of them). 0: the model stays as it begins."""
    batch_edges: int | None = Field(None, ge=1)
    """Positive edges a step; null: the whole graph where it is small, else as many as suit the memory there is, which
    is then written down here. An encoder that may not hear what it is asked about takes half of the triples at most,
    and 64 for null."""
    sampler: Sampler = "neighborhood"
    """How a batch is drawn: growing along edges as in the original; uniform; shuffled, each triple once a round; or
    scattered, the same without a list of all triples kept in order, for graphs of any size."""
    objective: Objective = "sampled-bce"
    """What is minimized. sampled-bce: true triples are told from drawn ones, by binary cross-entropy. self-adversarial:
    so too, and drawn ones count by how much the model believes in them. sampled-softmax: one of them and the answer is
    the answer. softmax, bce: the answer is told from all
    nodes, other known answers left out; needs nodes x batch_edges numbers."""
    negatives: int = tuned(10, low=1, high=32, log=True, when=SAMPLED, ge=1)
    """False triples for each true one; with shared_by, for each of its sides. softmax and bce draw none."""
    shared_by: int | None = Field(None, ge=1)
    """So many true triples, such as 1000, share the nodes that make false ones of them: scores are then products of
    matrices, and a hundred negatives cost less than ten. Both sides are asked for, whatever head_probability says, and
    known triples count as false unless filtered_negatives leaves them out. null: each has its own."""
    head_probability: float = Field(0.5, ge=0, le=1)
    """Share of false triples with another subject, or of questions that ask for the subject."""
    filtered_negatives: bool = False
    """Draw again where a false triple is a known true one."""
    temperature: float = tuned(1.0, low=0.25, high=4.0, log=True, when=WEIGHTED, ge=0)
    """With objective: bce or self-adversarial, wrong answers are weighted by softmax(temperature x score): the higher,
    the more the worst mistakes count; 0: all alike."""
    penalty: float = tuned(0.01, low=1e-4, high=0.1, log=True, when=SAMPLED, ge=0)
    """Times the mean squares of subject, relation and object over the scored triples. softmax and bce know none: use
    weight_decay."""
    hidden: Literal["triple", "pair"] = tuned("triple", ["triple", "pair"], when=WALKS)
    """What an encoder that walks along edges may not hear while a triple is asked about: the triple and its inverse, or
    every triple between its two nodes. Choose on validation: pair is right on FB15k-237, where many relations say
    nearly the same of two nodes, and wrong on WN18RR."""
    edge_dropout: float = tuned(0.5, low=0.0, high=0.8, when=PASSES_MESSAGES, ge=0, lt=1)
    """Share of a step's edges that carry no message."""
    self_loop_dropout: float = tuned(0.2, low=0.0, high=0.5, when={**CONVOLVES, "model.self_loops": True}, ge=0, lt=1)
    """Share of self-loops that carry no message."""
    self_loop_dropout_on: Literal["edge", "message"] = tuned(
        "edge", ["edge", "message"], when={"model.self_loop_apart": True, "model.input": "embedding"}
    )
    """Drop whole self-loops, or numbers of their messages as the original does."""
    optimizer: Optimizer | None = None
    """How weights move. adam; lazy-adam: of node embeddings, only rows that a step touched move, with their moments and
    their own count of steps; adagrad: so too, and a row has one number beside it, not two tables; its learning rate is
    best higher, about 0.1. null: adam, and where the embeddings are 100 million numbers or more and steps take batches,
    lazy-adam, or adagrad where the moments would not fit; that is then written down here."""
    tables: Literal["memory", "disk"] | None = None
    """Where node embeddings are while they are trained; disk: in a file in the cache folder (RGCN_CACHE), mapped into
    memory, on a CPU and with an optimizer that moves rows. null: memory, or disk where they would not fit."""
    learning_rate: float = tuned(0.01, low=1e-3, high=0.1, log=True, gt=0)
    """The optimizer's learning rate."""
    schedule: Literal["constant", "cosine", "step"] = tuned("constant", ["constant", "cosine"])
    """How the learning rate falls: not, along a cosine to zero, or in steps."""
    warmup: int = Field(0, ge=0)
    """Steps over which the learning rate first rises from zero."""
    step_every: int = Field(1000, ge=1)
    """With schedule: step, steps between falls."""
    step_factor: float = Field(0.5, gt=0, le=1)
    """With schedule: step, factor of each fall."""
    weight_decay: float = Field(0.0, ge=0)
    """Added to the gradient, this times the weight, of every parameter that moves."""
    clip: float | None = Field(None, gt=0)
    """Scale gradients down to this norm."""
    objective_options: Annotated[dict[str, Any], OptionsOf(("objective", "sampler"))] = Field({})
    """Settings of an objective or sampler from outside, by name."""
    validation: float | None = Field(None, ge=0, lt=1)
    """Share of training triples held out for validation where the graph has no such split; null: 0.1 where
    data.split makes one, else none."""
    evaluate_every: int | None = Field(None, ge=0)
    """Measure on the validation triples every so many steps, and keep the best weights. null: where there are any, ten
    times in a training, on a thousand of them at most; 0: never, and the last weights are kept."""
    evaluate_at_most: int | None = Field(None, ge=1)
    """Of these triples (or labels) so many at most, drawn with the seed; null: all, or as above. Final figures are of
    all."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many measurements without a better one."""
    watch: Literal["mrr", "hits@1", "hits@3", "hits@10", "mean_rank"] = "mrr"
    """The validation figure by which the best weights are told, and which patience watches."""
    device: Device = "auto"
    """cpu, cuda, cuda:1, or auto: a GPU where there is one."""
    deterministic: bool = False
    """Use only operations whose sums have a fixed order on a GPU too: the same seed gives the same bits."""
    sharded: bool | None = None
    """Whether processes (`--processes`) each hold a part of the nodes: their rows of tables and the edges into them.
    Else each holds everything, and they divide the triples. null: where several begin a run and its nodes have
    embeddings, yes; that is then written down here. One process alone holds everything anyway."""

    @impossible("patience", "evaluate_every")
    def _patience_counts_measurements(self) -> Iterator[str]:
        if self.patience is not None and not self.evaluate_every:
            yield "`patience` counts measurements: set `evaluate_every` too, or `patience` to null"

    @impossible("tables", "optimizer")
    def _disk_for_rows(self) -> Iterator[str]:
        if self.tables == "disk" and self.optimizer == "adam":
            yield "adam moves every row of a table in every step: with tables: disk, choose lazy-adam or adagrad"


class ClassLinkTrainingConfig(LinkTrainingConfig):
    """How a link predictor learns that is asked for classes."""

    class_share: float | None = tuned(None, low=0.1, high=1.0, when=WALKS, gt=0, le=1)
    """Share of the questions that ask for a class, the rest for triples of the graph; null: labels are asked about as
    often as any triple. With 1, set head_probability to 0: then nothing is asked but for classes."""

    validation: float = Field(0.0, ge=0, lt=1)
    """Share of training labels held out for validation where the data has no such split."""
    watch: Literal["accuracy"] = "accuracy"  # type: ignore[assignment]
    """The validation figure by which the best weights are told, and which patience watches."""


class PretrainingConfig(LinkTrainingConfig):
    """How weights for any graph learn from several."""

    graphs: dict[str, Annotated[float, Field(gt=0)]] = Field({}, examples=[{"codex-s": 1.0}])
    """Data sets (or paths) whose training triples are learned from, and the share of steps each gets."""
    drawn: float = Field(1.0, ge=0)
    """The share of graphs drawn anew by rules; shares are taken relative to their sum."""
    altered: float = Field(0.5, ge=0, le=1)
    """Of the views of a graph, the share that are a part of it, with relations dropped, merged, split or turned."""
    labelled: float = Field(0.2, ge=0, le=1)
    """Of all views, the share where one relation is known of few, as labels are; half of their questions ask for it."""
    pairs_hidden_in: list[str] = Field([])
    """Graphs half of whose views hide every triple between two nodes, not only the asked one."""
    round_steps: int = Field(600, ge=1)
    """Steps until other views are drawn."""
    round_views: int = Field(6, ge=1)
    """How many graphs a round goes back and forth between."""

    @impossible("graphs", "drawn")
    def _something_to_learn_from(self) -> Iterator[str]:
        if not self.graphs and not self.drawn:
            yield "there is no graph to learn from: name some in `graphs`, or set `drawn` to 1"
        if "drawn" in self.graphs:
            yield "`drawn` is how graphs drawn by rules are called: give the whole path of a file that is called so"

    @impossible("pairs_hidden_in", "graphs")
    def _pairs_of_graphs_that_are_there(self) -> Iterator[str]:
        for name in self.pairs_hidden_in:
            if name not in self.graphs:
                yield f"{name!r} is not learned from: name it in `graphs` too, or leave it out here"
