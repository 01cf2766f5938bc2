"""The two sides of a comparison, our training step and the same with PyG's layers, and which network takes them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.models import NodeClassifier
from rgcn.system.lazy import import_extra

MODELS = ("rgcn", "e-rgcn")
PEERS = {"fast": "FastRGCNConv", "plain": "RGCNConv"}
NO_PEERS = "torch-geometric is not installed, so there is no peer to compare with: pip install 'rgcn[bench]'"
# A first layer of full matrices has relations · nodes rows; beyond this many other people's layers need gigabytes.
MOST_ROWS_WITHOUT_BASES = 1_000_000

Step = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """One network and how it learns. `hidden`, `bases` and `l2_penalty` are rgcn's, the other two e-rgcn's."""

    model: str
    hidden: int = 16
    bases: int | None = None
    l2_penalty: float = 0.0
    embedding: int = 32
    weight_decay: float = 0.0

    def settings(self) -> dict[str, Any]:
        """As arguments of `rgcn.NodeClassifier`."""
        if self.model == "e-rgcn":
            return {"model": self.model, "embedding": self.embedding, "weight_decay": self.weight_decay}
        decomposition = {} if self.bases is None else {"decomposition": "basis", "bases": self.bases}
        return {"model": self.model, "hidden": self.hidden, "l2_penalty": self.l2_penalty, **decomposition}


PUBLISHED = {
    "aifb": Workload("rgcn", hidden=16),
    "mutag": Workload("rgcn", hidden=16, bases=30, l2_penalty=5e-4),
    "bgs": Workload("rgcn", hidden=16, bases=40, l2_penalty=5e-4),
    "am": Workload("rgcn", hidden=10, bases=40, l2_penalty=5e-4),
}
EMBEDDED = Workload("e-rgcn", embedding=32, weight_decay=0.005)


def workload_for(
    graph: str, model: str, num_nodes: int, num_relations: int, hidden: int | None = None, bases: int | None = None
) -> Workload:
    """The settings published for a graph and model, or a guess by size; `hidden` and `bases` override (bases 0: none).

    >>> workload_for("am-shaped", "rgcn", 246_728, 122)
    Workload(model='rgcn', hidden=10, bases=40, l2_penalty=0.0005, embedding=32, weight_decay=0.0)
    """
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    if model == "e-rgcn":
        return EMBEDDED
    large = 2 * num_nodes * num_relations > MOST_ROWS_WITHOUT_BASES
    guess = Workload("rgcn", bases=40 if large else None)
    workload = PUBLISHED.get(graph.removesuffix("-shaped").removesuffix("-full"), guess)
    return replace(
        workload,
        hidden=workload.hidden if hidden is None else hidden,
        bases=workload.bases if bases is None else bases or None,
    )


def peers_installed() -> bool:
    return find_spec("torch_geometric") is not None


def our_step(graph: KnowledgeGraph, workload: Workload, device: str) -> tuple[Step, NodeClassifier]:
    """A function that takes one of our training steps, and the classifier it trains."""
    classifier = NodeClassifier(seed=0, device=device, **workload.settings()).prepare(graph)
    return classifier.training_step(), classifier


def peer_step(graph: KnowledgeGraph, workload: Workload, device: str, peer: str) -> Step:
    """The same network of two layers from PyG, as its users write it: the whole graph, inverses as relations.

    PyG's layers have a root weight, a full matrix, where ours have a self-loop among the relations.
    """
    if workload.model != "rgcn":
        raise ConfigError(f"PyG has no {workload.model}")
    layer = getattr(import_extra("torch_geometric", "bench", "torch_geometric.nn"), PEERS[peer])
    assert graph.labels is not None
    triples = torch.tensor(graph.triples, device=device)
    subject, relation, object_ = triples.unbind(1)
    index = torch.stack([torch.cat([object_, subject]), torch.cat([subject, object_])])
    kind = torch.cat([relation, relation + graph.num_relations])
    nodes, classes = (torch.from_numpy(np.array(part)).to(device) for part in graph.labels.of("train"))
    torch.manual_seed(0)
    relations = 2 * graph.num_relations
    first = layer(graph.num_nodes, workload.hidden, relations, num_bases=workload.bases).to(device)
    second = layer(workload.hidden, graph.labels.num_classes, relations, num_bases=workload.bases).to(device)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        logits = second(first(None, index, kind).relu(), index, kind)
        loss = functional.cross_entropy(logits[nodes], classes)
        if workload.l2_penalty:
            loss = loss + workload.l2_penalty * first.weight.pow(2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
