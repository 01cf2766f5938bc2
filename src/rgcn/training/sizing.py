"""Settings of a training that follow from the size of its graph and the memory there is, where they are not set."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig
from rgcn.graph import KnowledgeGraph
from rgcn.nn.encoders import EmbeddingEncoder, RgcnEncoder, VectorEncoder
from rgcn.nn.link_network import BYTES_A_NUMBER
from rgcn.placement import current
from rgcn.plugins import ENCODERS, OBJECTIVES
from rgcn.system.memory import available_bytes
from rgcn.training.devices import choose_device
from rgcn.training.objectives import AmongAllNodes

# Where nodes have vectors and no number is set: a graph of so many triples is learned from as a whole, of a larger one
# as many a step as the original takes.
WHOLE, A_PART = 500_000, 30_000
# For classes a graph of so many triples is always heard as a whole; a larger one where the field of all training labels
# fits into memory, an edge of which takes so much, and there are not more of these.
WHOLE_TRIPLES, BYTES_AN_EDGE, WHOLE_LABELS = 2_000_000, 200, 50_000
LABELS_AT_ONCE, FAN_OUT = 10_000, 10  # where it is not
# Numbers of a node table from which on only rows that a step touches move: Adam reads and writes gigabytes for each.
LARGE_TABLE = 100_000_000
SHARDS_SINCE = 2, 9  # the PyTorch whose distributed checkpoints are safetensors


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
    if tuple(int(number) for number in torch.__version__.split(".")[:2]) < SHARDS_SINCE:
        return f"PyTorch {torch.__version__} cannot write what processes hold in parts: upgrade it to 2.9 or newer"
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
