"""The two sides of a comparison: our training step, and the same step written with PyG's layers."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rgcn.bench.workloads import Workload
from rgcn.errors import ConfigError

if TYPE_CHECKING:
    from rgcn.graph import KnowledgeGraph
    from rgcn.tasks import NodeClassifier

PEERS = {"fast": "FastRGCNConv", "plain": "RGCNConv"}
NO_PEERS = "torch-geometric is not installed, so there is no peer to compare with: pip install 'rgcn[bench]'"

Step = Callable[[], object]


def peers_installed() -> bool:
    """Whether PyG can be measured here."""
    return find_spec("torch_geometric") is not None


def our_step(graph: KnowledgeGraph, workload: Workload, device: str) -> tuple[Step, NodeClassifier]:
    """A function that takes one of our training steps, and the classifier it trains."""
    from rgcn.tasks import NodeClassifier

    classifier = NodeClassifier(seed=0, device=device, **workload.settings()).prepare(graph)
    return classifier.training_step(), classifier


def peer_step(graph: KnowledgeGraph, workload: Workload, device: str, peer: str) -> Step:
    """The same network of two layers from PyG, as its users write it: the whole graph, inverses as relations.

    PyG's layers have a root weight, a full matrix, where ours have a self-loop among the relations.
    """
    if workload.model != "rgcn":
        raise ConfigError(f"PyG has no {workload.model}")
    import numpy as np
    import torch
    import torch.nn.functional as F
    import torch_geometric.nn

    layer = getattr(torch_geometric.nn, PEERS[peer])
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
        loss = F.cross_entropy(logits[nodes], classes)
        if workload.l2_penalty:
            loss = loss + workload.l2_penalty * first.weight.pow(2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
