"""How much memory and disk a training takes, from counts: nothing is built.

What the numbers stand for was measured (`benchmarks/planning.py` compares).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig
from rgcn.graph import KnowledgeGraph
from rgcn.nn.link_network import BYTES_A_NUMBER
from rgcn.placement import Placement
from rgcn.system.formatting import memory
from rgcn.system.memory import held_bytes
from rgcn.training.plan import Plan
from rgcn.training.sizing import field_edges

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
    def of(cls, plan: Plan, parts: Mapping[str, int], keep_last: int) -> "ResourceEstimate":
        """From the parts for a single process; keep_last: how many checkpoints are kept."""
        weights, graph, placement = parts.get("weights", 0), plan.graph, plan.placement
        disk = keep_last * KEPT_BESIDE * weights + weights + 40 * len(graph) + 60 * graph.num_nodes
        return cls(held_bytes(), _divided(parts, placement), disk, placement.size)

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


def _divided(parts: Mapping[str, int], placement: Placement) -> Mapping[str, int]:
    """The parts for this process: its share of every batch, and where nodes are divided of all that belongs to them."""
    if not placement.is_distributed:
        return parts
    whole = PROGRAMS_AND_TRIPLES if placement.partition is not None else PROGRAMS_AND_TRIPLES | OF_NODES
    return {name: size if name in whole else size // placement.size for name, size in parts.items()}


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
