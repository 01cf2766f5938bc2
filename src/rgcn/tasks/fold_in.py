"""Embeddings of new nodes fitted to their own triples, while everything that was trained stays as it is.

An estimate from a new node's company (`extending.estimated_rows`) knows what kind of node it is, and no more: two new
nodes with the same relations get the same vector. A few steps of the training's own loss over the new triples tell them
apart. Only the new rows move.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.nn.link_network import LinkNetwork, VectorNetwork
from rgcn.objectives import Objective

# Chosen on the validation triples of the inductive sets: docs/results.md.
STEPS, LEARNING_RATE = 100, 0.02


def fold_in(
    network: LinkNetwork,
    adjacency: RelationalAdjacency,
    positives: Tensor,
    objective: Objective,
    *,
    edge_dropout: float = 0.0,
    steps: int = STEPS,
    seed: int = 0,
) -> None:
    """Fit the rows that the network's embedding table holds as trained, and nothing else, to positives int64 [n, 3].

    Edges are dropped as in training, so that a triple is not only recognized by its own edge. Where nothing belongs to
    a node there is nothing to fit.
    """
    if network.source is None or not len(positives) or not network.source.rows.trained.numel():
        return
    rows = network.source.rows.trained
    for parameter in network.parameters():
        parameter.requires_grad_(parameter is rows)
    generator = torch.Generator(device=positives.device).manual_seed(seed)
    optimizer = torch.optim.Adam([rows], lr=LEARNING_RATE)
    network.eval()  # the messages' own dropout would only blur so few steps
    if isinstance(network, VectorNetwork):
        network.only_asked = True
    for _ in range(steps):
        drawn = objective.draw(positives, generator)
        dropped = adjacency.masked(adjacency.draw_mask(edge_dropout, generator=generator))
        optimizer.zero_grad(set_to_none=True)
        objective.loss(network, dropped, positives, drawn).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    if isinstance(network, VectorNetwork):
        network.only_asked = False
    for parameter in network.parameters():
        parameter.requires_grad_(True)
