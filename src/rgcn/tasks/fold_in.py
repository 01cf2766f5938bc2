"""Embeddings of new nodes fitted to their own triples, while everything that was trained stays as it is.

An estimate from a new node's company (`extending.estimated_rows`) knows what kind of node it is, and no more: two new
nodes with the same relations get the same vector. A few steps of the training's own loss over the new triples tell them
apart. Only the new rows move.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.config import LinkTrainingConfig
from rgcn.nn.encoder import EmbeddingInput
from rgcn.nn.link_encoders import CompressionEncoder, ConvolutionalEncoder
from rgcn.sampling import Negatives, corrupt
from rgcn.tasks.link_network import LinkNetwork
from rgcn.tasks.link_training import batch_loss, score_batch

# Chosen on the validation triples of the inductive sets: docs/results.md.
STEPS, LEARNING_RATE = 100, 0.02


def fold_in(
    network: LinkNetwork,
    adjacency: RelationalAdjacency,
    positives: Tensor,
    training: LinkTrainingConfig,
    *,
    steps: int = STEPS,
    seed: int = 0,
) -> None:
    """Fit the rows that the network's embedding table holds as trained, and nothing else, to positives int64 [n, 3].

    Edges are dropped as in training, so that a triple is not only recognized by its own edge.
    """
    encoder = network.encoder
    assert isinstance(encoder, (ConvolutionalEncoder, CompressionEncoder))
    assert isinstance(encoder.source, EmbeddingInput)
    rows = encoder.source.rows.trained
    if not len(positives) or not rows.numel():
        return
    for parameter in network.parameters():
        parameter.requires_grad_(parameter is rows)
    generator = torch.Generator(device=positives.device).manual_seed(seed)
    optimizer = torch.optim.Adam([rows], lr=LEARNING_RATE)
    network.eval()  # the messages' own dropout would only blur so few steps
    for _ in range(steps):
        negatives = corrupt(positives, adjacency.num_sources, rate=training.negatives, generator=generator)
        dropped = adjacency.masked(adjacency.draw_mask(training.edge_dropout, generator=generator))
        nodes, inside, put_in = _renumbered(positives, negatives)
        field = ReceptiveField.of(dropped, nodes, len(encoder.layers))
        vectors = network.decoder.prepare(encoder.at(field, nodes), nodes)
        scores = score_batch(network.decoder, vectors, inside, put_in)
        loss = batch_loss(scores) + training.penalty * scores.squares
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for parameter in network.parameters():
        parameter.requires_grad_(True)


def _renumbered(positives: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor, Negatives]:
    """(the nodes of a step, its triples and its negatives with nodes numbered among these)."""
    subject, relation, object_ = positives.unbind(1)
    nodes, number = torch.unique(torch.cat([subject, object_, negatives.node]), return_inverse=True)
    subject, object_, node = torch.split(number, [len(subject), len(object_), len(negatives)])
    inside = torch.stack([subject, relation, object_], dim=1)
    return nodes, inside, Negatives(negatives.positive, node, negatives.is_head)
