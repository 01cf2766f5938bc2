"""How much memory a training takes, from counts: nothing is built.

What the numbers stand for was measured (`benchmarks/planning.py` compares).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rgcn.config import LinkModelConfig, LinkTrainingConfig, NodeModelConfig, NodeTrainingConfig
from rgcn.graph import KnowledgeGraph
from rgcn.nn.link_network import BYTES_A_NUMBER

# Bytes: of an edge that carries messages (its ends, relation, origin and weight); of one in a receptive field, with
# what is sorted out once for its layer, forward and backward; of libraries and loops that the first step loads.
AN_EDGE, OF_A_FIELD, LOADED = 20, 85, 150 << 20
# Numbers held for each that is learned, beside itself: its gradient and Adam's two moments; where it is picked from a
# table for a batch, its gradient once more; where triples are scored by it, from each of their ends.
WITH_ADAM, PICKED, SCORED = 3, 2, 3
STATES = 28  # vectors of each node that a convolution for links holds, forward and backward


def of_classes(model: NodeModelConfig, training: NodeTrainingConfig, graph: KnowledgeGraph) -> Mapping[str, int]:
    """{what it is for: bytes} of node classification."""
    from rgcn.training.sizing import field_edges

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
        "what moves them": 4 * numbers * (WITH_ADAM + PICKED * in_batches),
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
        "what moves them": 4 * numbers * moving,
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
