"""What one training will do, decided once before it begins: its device, its settings, the memory and disk it takes.

Memory and disk follow from counts: nothing is built. What the numbers stand for was measured (`benchmarks/planning.py`
compares).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Self

from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig, Section
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.encoders import ERGCNEncoder, RGCNEncoder, VectorEncoder
from rgcn.nn.link_network import BYTES_PER_VALUE
from rgcn.placement import Placement, current
from rgcn.plugins import ENCODERS, OBJECTIVES
from rgcn.system.formatting import format_bytes
from rgcn.system.memory import available_bytes, resident_bytes
from rgcn.training.objectives import AmongAllNodes

# Bytes of an edge that carries messages (ends, relation, origin, weight); of an edge in a receptive field, with its
# sorted copies for forward and backward; of libraries and compiled loops that the first step loads.
EDGE_BYTES, FIELD_EDGE_BYTES, LIBRARY_BYTES = 20, 85, 150 << 20
# Numbers in memory for each parameter, besides itself: gradient and Adam's two moments; gradients of rows gathered for
# a batch; gradients of rows that triples are scored with, from both ends.
ADAM_NUMBERS, GATHERED_NUMBERS, SCORED_NUMBERS = 3, 2, 3
STATE_VECTORS = 28  # of each node, in a convolution for links, forward and backward
MIN_NAMED_SHARE = 0.05  # of the memory, for a part to be named
REPLICATED_PARTS = {"programs", "triples"}
NODE_PARTS = {"edges", "weights", "optimizer state", "the best weights"}  # replicated unless nodes are sharded
CHECKPOINT_NUMBERS = 3  # for each parameter: itself and Adam's moments

# Link prediction with vectors of nodes takes all triples of a graph in a step up to this size; of a larger graph, the
# published number of triples.
MAX_WHOLE_TRIPLES, DEFAULT_BATCH_EDGES = 500_000, 30_000
# Node classification takes all labels in a step on graphs up to this size; on a larger graph, if there are not more
# labels than this and their receptive field fits into memory, with so many bytes for an edge.
MAX_FULL_TRIPLES, FULL_EDGE_BYTES, MAX_FULL_LABELS = 2_000_000, 200, 50_000
DEFAULT_BATCH_LABELS, DEFAULT_FAN_OUT = 10_000, 10  # otherwise
MIN_LARGE_TABLE = 100_000_000  # numbers of a node table from which Adam would read and write gigabytes in each step


@dataclass(frozen=True, eq=False)
class Plan:
    """A training with every default filled in and every split drawn. Nothing is decided again after it is made.

    Attributes:
        model: The network's settings.
        training: The training's settings.
        seed: Seed of every random choice.
        graph: The graph with its splits, pruned if the settings say so.
        device: Where the network is trained.
        placement: Which nodes and which share of a batch this process computes.
        chosen: The settings of `training` that were left open and follow from the graph and the machine.
    """

    model: Any
    training: Any
    seed: int
    graph: KnowledgeGraph
    device: torch.device
    placement: Placement
    chosen: Mapping[str, Any]

    def with_training(self, **changes: Any) -> Self:
        """Return the plan with other settings of the training, such as its number of steps."""
        training: Section = self.training
        return replace(self, training=training.model_copy(update=changes))


def choose_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU if there is one.

    Raises:
        ConfigError: PyTorch sees no GPU, and the name asks for one.
    """
    if name != "cpu":
        current().check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: PyTorch sees no GPU here; use cpu or auto")
    return torch.device(name)


class ResourceEstimate(NamedTuple):
    """Bytes that a training takes.

    Attributes:
        held: Memory that this process uses already, including the graph.
        parts: Further memory by purpose; empty if that is not known.
        disk: Checkpoints and the model, in the run's folder.
        num_processes: Number of processes that share the training.
    """

    held: int
    parts: Mapping[str, int]
    disk: int
    num_processes: int = 1

    @classmethod
    def of(cls, plan: Plan, parts: Mapping[str, int], keep_last: int) -> ResourceEstimate:
        """Estimate the resources of a plan.

        Args:
            plan: The plan.
            parts: Memory by purpose, in a single process.
            keep_last: Number of checkpoints that are kept.
        """
        weights, graph, placement = parts.get("weights", 0), plan.graph, plan.placement
        disk = keep_last * CHECKPOINT_NUMBERS * weights + weights + 40 * len(graph) + 60 * graph.num_nodes
        if placement.is_distributed:
            whole = REPLICATED_PARTS | (set() if placement.partition is not None else NODE_PARTS)
            parts = {name: size if name in whole else size // placement.size for name, size in parts.items()}
        return cls(resident_bytes(), parts, disk, placement.size)

    @property
    def total(self) -> int:
        """All memory of the training, at most."""
        return self.held + self.needed

    @property
    def needed(self) -> int:
        """Memory besides what is used already."""
        return sum(self.parts.values())

    @property
    def words(self) -> str:
        """The estimate in a sentence."""
        sizes = sorted(self.parts.items(), key=lambda part: -part[1])
        named = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes if size > MIN_NAMED_SHARE * self.total)
        each = " for each process" if self.num_processes > 1 else ""
        return f"Planned: {format_bytes(self.total)} of memory{each} ({named}), {format_bytes(self.disk)} of disk"


def node_classification_memory(
    model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph
) -> Mapping[str, int]:
    """Estimate the memory of node classification, in bytes by purpose."""
    assert graph.labels is not None
    nodes = graph.labels.of("train")[0]
    is_batched = training.is_batched(len(nodes))
    batch_nodes = nodes[: training.batch_labels] if is_batched else nodes
    field = field_edges(model, graph, batch_nodes)
    if is_batched:  # labels are drawn: their neighbors are as many as those of others
        degree = _message_edges(model, graph) / graph.num_nodes
        field = min(field, round(len(batch_nodes) * sum(degree**hops for hops in range(1, model.layers + 1))))
    embedded = model.encoder == "e-rgcn"
    width = model.embedding if embedded else model.hidden
    numbers = graph.num_nodes * model.embedding if embedded else _one_hot_numbers(model, graph)
    return {
        "programs": LIBRARY_BYTES,
        "edges": EDGE_BYTES * _message_edges(model, graph),
        "receptive field": FIELD_EDGE_BYTES * field,
        "weights": 4 * numbers,
        "optimizer state": 4 * numbers * (ADAM_NUMBERS + GATHERED_NUMBERS * is_batched),
        "a step": 4 * 4 * width * min(field, graph.num_nodes),
    }


def link_prediction_memory(
    model: LinkModelConfig, training: LinkTrainingConfig, graph: KnowledgeGraph
) -> Mapping[str, int]:
    """Estimate the memory of link prediction, in bytes by purpose.

    For models without vectors of nodes only programs, edges and triples are known.
    """
    triples = graph.num_triples_in("train")
    batch = min(training.batch_edges or triples, triples)
    found = {"programs": LIBRARY_BYTES, "edges": EDGE_BYTES * _message_edges(model, graph), "triples": 24 * triples}
    if model.encoder not in ("none", "rgcn", "c-rgcn"):
        return found
    numbers = (graph.num_nodes + graph.num_relations) * model.embedding
    moving = {"row-adagrad": 0, "adagrad": 1, "lazy-adam": 2}.get(
        training.optimizer or "adam", ADAM_NUMBERS + SCORED_NUMBERS
    )
    width = {"none": 0, "c-rgcn": model.bottleneck}.get(model.encoder, model.embedding)
    return {
        **found,
        "weights": 4 * numbers * (training.tables != "disk"),
        "optimizer state": 4 * numbers * moving,
        "the best weights": 4 * numbers if training.evaluate_every and training.tables != "disk" else 0,
        "a step": BYTES_PER_VALUE * model.embedding * batch + 4 * STATE_VECTORS * width * graph.num_nodes,
    }


def _message_edges(model: Any, graph: KnowledgeGraph) -> int:
    return int(len(graph) * (1 + model.inverse) + graph.num_nodes * model.self_loops)


def _one_hot_numbers(model: NodeModelConfig, graph: KnowledgeGraph) -> int:
    """Return the numbers of a one-hot first layer: a row for each (relation, node) in the graph, or B for each node."""
    if model.decomposition == "basis":
        return graph.num_nodes * (model.bases or 1) * model.hidden
    subject, relation, object_ = graph.triples.T
    ends = (subject, object_)[: 1 + model.inverse]
    pairs = sum(len(np.unique(relation * graph.num_nodes + end)) for end in ends) + graph.num_nodes * model.self_loops
    return pairs * model.hidden // (model.blocks or 1)


def chosen_at_size(model: LinkModelConfig, training: LinkTrainingConfig, kg: KnowledgeGraph) -> dict[str, Any]:
    """Return settings of link prediction that were left open and that a large graph needs.

    `batch_edges`: all triples in a step, or as many as suit graph and memory. Sampled edges carry no weights, so a
    graph with weights is never sampled. `optimizer`: with batches, only rows of a large table that a step takes are
    updated, by lazy Adam, or by row-wise Adagrad if table, Adam's moments and best weights would not fit into memory.
    `tables`: on disk if the table and the best weights would not fit either.
    """
    if not issubclass(ENCODERS.resolve(model.encoder), VectorEncoder):
        return {}
    device, batch, chosen = choose_device(training.device), training.batch_edges, dict[str, Any]()
    triples, free = kg.num_triples_in("train"), available_bytes(device)
    if batch is None and kg.edge_weights is None:
        fit = triples if free is None else max(1, free // 2 // (BYTES_PER_VALUE * model.embedding))
        if triples > min(fit, MAX_WHOLE_TRIPLES):
            chosen["batch_edges"] = batch = min(fit, DEFAULT_BATCH_EDGES)
    numbers = kg.num_nodes * model.embedding if model.input == "embedding" else 0
    tables_that_fit = 4.0 if free is None else free / max(1, 4 * numbers)
    if training.tables == "disk" or (batch is not None and numbers >= MIN_LARGE_TABLE):
        if training.optimizer is None:
            chosen["optimizer"] = "lazy-adam" if tables_that_fit >= 4 else "row-adagrad"
        by_rows = chosen.get("optimizer", training.optimizer) in ("lazy-adam", "row-adagrad")
        if training.tables is None and by_rows and tables_that_fit < 2 and device.type == "cpu":
            chosen["tables"] = "disk"
    return chosen


def why_not_sharded(model: Any, training: Any, kg: KnowledgeGraph) -> str | None:
    """Return why the nodes cannot be sharded over processes, or None if they can."""
    encoder = ENCODERS.resolve(model.encoder)
    if isinstance(training, NodeTrainingConfig):
        features = model.input != "one-hot" and kg.features is not None
        if not issubclass(encoder, ERGCNEncoder) and not (issubclass(encoder, RGCNEncoder) and features):
            return f"{model.title} has rows for pairs of relation and node: train e-rgcn, or on a graph with features"
        return None
    if not issubclass(encoder, VectorEncoder):
        return f"{model.title} has no weights of nodes, and computes each question over the whole graph"
    if model.input != "embedding":
        return f"{model.title} over one-hot nodes holds rows for pairs of relation and node: set model.input: embedding"
    if issubclass(OBJECTIVES.resolve(training.objective), AmongAllNodes):
        return f"{training.objective} compares each answer with all nodes: choose sampled-bce or sampled-softmax"
    return None


def default_sharding(model: Any, training: Any, kg: KnowledgeGraph) -> dict[str, bool]:
    """Return the setting `sharded` of a distributed training that leaves it open."""
    if not current().is_distributed or getattr(training, "sharded", False) is not None:
        return {}
    return {"sharded": why_not_sharded(model, training, kg) is None}


def default_batches(model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph) -> dict[str, int]:
    """Return `batch_labels` and `fan_out` if they are left open and the graph needs them."""
    if training.batch_labels or training.fan_out or graph.labels is None or len(graph) <= MAX_FULL_TRIPLES:
        return {}
    nodes, free = graph.labels.of("train")[0], available_bytes(choose_device(training.device))
    if len(nodes) <= MAX_FULL_LABELS and (free is None or field_edges(model, graph, nodes) * FULL_EDGE_BYTES <= free):
        return {}
    return {"batch_labels": DEFAULT_BATCH_LABELS, "fan_out": DEFAULT_FAN_OUT}


def field_edges(model: NodeModelConfig, graph: KnowledgeGraph, nodes: NDArray[np.int64]) -> int:
    """Count the edges of the receptive field of nodes over all layers, without building it."""
    wanted, total, (subject, _, object_) = np.zeros(graph.num_nodes, dtype=np.bool_), 0, graph.triples.T
    wanted[nodes] = True
    ends = [(object_, subject), (subject, object_)][: 1 + model.inverse]
    for _ in range(model.layers):
        reached = wanted.copy() if model.self_loops else np.zeros_like(wanted)
        total += int(reached.sum())
        for target, source in ends:
            is_reached = wanted[target]
            total += int(is_reached.sum())
            reached[source[is_reached]] = True
        wanted = reached
    return total
