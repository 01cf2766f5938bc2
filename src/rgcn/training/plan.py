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
from torch import Tensor
from typing_extensions import Self

from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig, Section
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.nn.encoders import EmbeddingEncoder, RgcnEncoder, VectorEncoder
from rgcn.nn.link_network import BYTES_A_NUMBER
from rgcn.placement import Placement, current
from rgcn.plugins import ENCODERS, OBJECTIVES
from rgcn.system.formatting import memory
from rgcn.system.memory import available_bytes, held_bytes
from rgcn.training.objectives import AmongAllNodes

# Bytes: of an edge that carries messages (its ends, relation, origin and weight); of one in a receptive field, with
# what is sorted out once for its layer, forward and backward; of libraries and loops that the first step loads.
AN_EDGE, OF_A_FIELD, LOADED = 20, 85, 150 << 20
# Numbers held for each that is learned, beside itself: its gradient and Adam's two moments; where it is picked from a
# table for a batch, its gradient once more; where triples are scored by it, from each of their ends.
WITH_ADAM, PICKED, SCORED = 3, 2, 3
STATES = 28  # vectors of each node that a convolution for links holds, forward and backward
WORTH_NAMING = 0.05  # of the memory: parts that are named
PROGRAMS_AND_TRIPLES = {"programs", "triples"}
OF_NODES = {"edges", "weights", "optimizer state", "the best weights"}
KEPT_BESIDE = 3  # numbers in a checkpoint for each that is learned: itself and Adam's moments

# Where nodes have vectors and no number is set: a graph of so many triples is learned from as a whole, of a larger one
# as many a step as the original takes.
WHOLE, A_PART = 500_000, 30_000
# For classes a graph of so many triples is always heard as a whole; a larger one where the field of all training labels
# fits into memory, an edge of which takes so much, and there are not more of these.
WHOLE_TRIPLES, BYTES_AN_EDGE, WHOLE_LABELS = 2_000_000, 200, 50_000
LABELS_AT_ONCE, FAN_OUT = 10_000, 10  # where it is not
# Numbers of a node table from which on only rows that a step touches move: Adam reads and writes gigabytes for each.
LARGE_TABLE = 100_000_000


@dataclass(frozen=True, eq=False)
class Plan:
    """A training with every default filled in and every split drawn. Nothing downstream decides any of this again.

    model     the model's settings
    training  the training's settings; `chosen` are those that were left open and follow from the graph and the machine
    seed      every random choice follows from it
    graph     what is learned from and measured on: everything that is held out is marked, what is pruned is gone
    device    where the network is trained
    placement which nodes and which share of a batch this process computes
    """

    model: Any
    training: Any
    seed: int
    graph: KnowledgeGraph
    device: torch.device
    placement: Placement
    chosen: Mapping[str, Any]

    def with_training(self, **changes: Any) -> Self:
        """The same plan with other settings of the training, such as its number of steps."""
        training: Section = self.training
        return replace(self, training=training.model_copy(update=changes))


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name != "cpu":
        current().check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but PyTorch sees no GPU here; use cpu or auto")
    return torch.device(name)


def on_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array)).to(device)


class ResourceEstimate(NamedTuple):
    """Bytes that a training takes.

    held         in the memory of this process already, the graph included
    parts        further memory, by what it is for; empty where it is not known
    disk         in its folder: checkpoints and the model
    num_processes  among which the training is divided
    """

    held: int
    parts: Mapping[str, int]
    disk: int
    num_processes: int = 1

    @classmethod
    def of(cls, plan: Plan, parts: Mapping[str, int], keep_last: int) -> ResourceEstimate:
        """From the parts for a single process; keep_last: how many checkpoints are kept."""
        weights, graph, placement = parts.get("weights", 0), plan.graph, plan.placement
        disk = keep_last * KEPT_BESIDE * weights + weights + 40 * len(graph) + 60 * graph.num_nodes
        if placement.is_distributed:  # its share of every batch; where nodes are divided, of all that belongs to them
            whole = PROGRAMS_AND_TRIPLES | (set() if placement.partition is not None else OF_NODES)
            parts = {name: size if name in whole else size // placement.size for name, size in parts.items()}
        return cls(held_bytes(), parts, disk, placement.size)

    @property
    def total(self) -> int:
        """Of memory, at most."""
        return self.held + self.needed

    @property
    def needed(self) -> int:
        """Of memory, beside what is held already."""
        return sum(self.parts.values())

    @property
    def words(self) -> str:
        sizes = sorted(self.parts.items(), key=lambda part: -part[1])
        named = ", ".join(f"{name} {memory(size)}" for name, size in sizes if size > WORTH_NAMING * self.total)
        each = " for each process" if self.num_processes > 1 else ""
        return f"Planned: {memory(self.total)} of memory{each} ({named}), {memory(self.disk)} of disk"


def of_classes(model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph) -> Mapping[str, int]:
    """{what it is for: bytes} of node classification."""
    assert graph.labels is not None
    nodes = graph.labels.of("train")[0]
    in_batches = training.in_batches(len(nodes))
    asked = nodes[: training.batch_labels] if in_batches else nodes
    field = field_edges(model, graph, asked)
    if in_batches:  # labels are drawn: their neighbors are as many as those of others
        degree = _message_edges(model, graph) / graph.num_nodes
        field = min(field, round(len(asked) * sum(degree**hops for hops in range(1, model.layers + 1))))
    embedded = model.encoder == "e-rgcn"
    width = model.embedding if embedded else model.hidden
    numbers = graph.num_nodes * model.embedding if embedded else _one_hot_numbers(model, graph)
    return {
        "programs": LOADED,
        "edges": AN_EDGE * _message_edges(model, graph),
        "receptive field": OF_A_FIELD * field,
        "weights": 4 * numbers,
        "optimizer state": 4 * numbers * (WITH_ADAM + PICKED * in_batches),
        "a step": 4 * 4 * width * min(field, graph.num_nodes),
    }


def of_links(model: LinkModelConfig, training: LinkTrainingConfig, graph: KnowledgeGraph) -> Mapping[str, int]:
    """{what it is for: bytes} of link prediction, for models with a vector for each node; of others only the step."""
    triples = graph.num_of("train")
    batch = min(training.batch_edges or triples, triples)
    found = {"programs": LOADED, "edges": AN_EDGE * _message_edges(model, graph), "triples": 24 * triples}
    if model.encoder not in ("none", "rgcn", "c-rgcn"):
        return found
    numbers = (graph.num_nodes + graph.num_relations) * model.embedding
    moving = {"adagrad": 0, "lazy-adam": 2}.get(training.optimizer or "adam", WITH_ADAM + SCORED)
    width = {"none": 0, "c-rgcn": model.bottleneck}.get(model.encoder, model.embedding)
    return {
        **found,
        "weights": 4 * numbers * (training.tables != "disk"),
        "optimizer state": 4 * numbers * moving,
        "the best weights": 4 * numbers if training.evaluate_every and training.tables != "disk" else 0,
        "a step": BYTES_A_NUMBER * model.embedding * batch + 4 * STATES * width * graph.num_nodes,
    }


def _message_edges(model: Any, graph: KnowledgeGraph) -> int:
    return int(len(graph) * (1 + model.inverse) + graph.num_nodes * model.self_loops)


def _one_hot_numbers(model: NodeModelConfig, graph: KnowledgeGraph) -> int:
    """Of the first layer: a row for each relation and node that occur together, or B for each node."""
    if model.decomposition == "basis":
        return graph.num_nodes * (model.bases or 1) * model.hidden
    subject, relation, object_ = graph.triples.T
    pairs = len(np.unique(relation * graph.num_nodes + subject)) + graph.num_nodes * model.self_loops
    if model.inverse:
        pairs += len(np.unique(relation * graph.num_nodes + object_))
    return pairs * model.hidden // (model.blocks or 1)


def chosen_at_size(model: LinkModelConfig, training: LinkTrainingConfig, kg: KnowledgeGraph) -> dict[str, Any]:
    """Settings of `training` that nobody has set and a large graph wants: batch_edges, optimizer, tables.

    Edges a step: all, or as many as suit the graph and the memory there is. Sampled edges carry no weights, so that a
    graph with weights is heard as a whole; and a network that hides what it is asked about has a number of its own.
    Where a step sees a part of the edges, of a large table only the rows it touches move: by lazy Adam, or by row-wise
    Adagrad where the table, Adam's moments and the best weights so far would not fit; and where a table and its best
    weights do not, they are on disk.
    """
    if not issubclass(ENCODERS.find(model.encoder), VectorEncoder):
        return {}
    device, batch, chosen = choose_device(training.device), training.batch_edges, dict[str, Any]()
    triples, free = kg.num_of("train"), available_bytes(device)
    if batch is None and kg.edge_weights is None:
        fit = triples if free is None else max(1, free // 2 // (BYTES_A_NUMBER * model.embedding))
        if triples > min(fit, WHOLE):
            chosen["batch_edges"] = batch = min(fit, A_PART)
    numbers = kg.num_nodes * model.embedding if model.input == "embedding" else 0
    tables_that_fit = 4.0 if free is None else free / max(1, 4 * numbers)
    if training.tables == "disk" or (batch is not None and numbers >= LARGE_TABLE):
        if training.optimizer is None:
            chosen["optimizer"] = "lazy-adam" if tables_that_fit >= 4 else "adagrad"
        by_rows = chosen.get("optimizer", training.optimizer) in ("lazy-adam", "adagrad")
        if training.tables is None and by_rows and tables_that_fit < 2 and device.type == "cpu":
            chosen["tables"] = "disk"
    return chosen


def why_not_sharded(model: Any, training: Any, kg: KnowledgeGraph) -> str | None:
    """Why processes cannot each hold a part of the nodes; None where they can."""
    encoder = ENCODERS.find(model.encoder)
    if isinstance(training, NodeTrainingConfig):
        features = model.input != "one-hot" and kg.features is not None
        if not issubclass(encoder, EmbeddingEncoder) and not (issubclass(encoder, RgcnEncoder) and features):
            return f"{model.title} holds rows for pairs of relation and node: train e-rgcn, or on a graph with features"
        return None
    if not issubclass(encoder, VectorEncoder):
        return f"{model.title} holds nothing of nodes, and computes each question over the whole graph"
    if model.input != "embedding":
        return f"{model.title} over one-hot nodes holds rows for pairs of relation and node: set model.input: embedding"
    if issubclass(OBJECTIVES.find(training.objective), AmongAllNodes):
        return f"{training.objective} compares each answer with all nodes: choose sampled-bce or sampled-softmax"
    return None


def default_sharding(model: Any, training: Any, kg: KnowledgeGraph) -> dict[str, bool]:
    """`sharded` where it is not set and several processes begin a training."""
    if not current().is_distributed or getattr(training, "sharded", False) is not None:
        return {}
    return {"sharded": why_not_sharded(model, training, kg) is None}


def default_batches(model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph) -> dict[str, int]:
    """`batch_labels` and `fan_out` where nobody has set them and the graph wants them; none: a step on all labels."""
    if training.batch_labels or training.fan_out or graph.labels is None or len(graph) <= WHOLE_TRIPLES:
        return {}
    nodes, free = graph.labels.of("train")[0], available_bytes(choose_device(training.device))
    if len(nodes) <= WHOLE_LABELS and (free is None or field_edges(model, graph, nodes) * BYTES_AN_EDGE <= free):
        return {}
    return {"batch_labels": LABELS_AT_ONCE, "fan_out": FAN_OUT}


def field_edges(model: NodeModelConfig, graph: KnowledgeGraph, nodes: NDArray[np.int64]) -> int:
    """How many edges the receptive field of the nodes has in all its layers: counted, nothing is built."""
    wanted, total, (subject, _, object_) = np.zeros(graph.num_nodes, dtype=np.bool_), 0, graph.triples.T
    wanted[nodes] = True
    ends = [(object_, subject), (subject, object_)][: 1 + model.inverse]
    for _ in range(model.layers):
        heard = wanted.copy() if model.self_loops else np.zeros_like(wanted)
        total += int(heard.sum())
        for target, source in ends:
            reaching = wanted[target]
            total += int(reaching.sum())
            heard[source[reaching]] = True
        wanted = heard
    return total
