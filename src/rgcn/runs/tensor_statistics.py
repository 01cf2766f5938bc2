"""The paper's table of intermediate tensors of the link predictor on FB-Toy, beside ours.

The same seven points of the first forward pass: a check of an implementation that needs no training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.runs.configuration import load_configuration
from rgcn.runs.training import make_model
from rgcn.sampling import corrupt
from rgcn.tasks import LinkPredictor
from rgcn.tasks.link_training import score_batch

STATISTICS = ("min", "max", "mean", "std")
# What the published code does where our shipped configuration, chosen on validation triples, differs.
AS_PUBLISHED = ("model.activated_input=true", "training.self_loop_dropout_on=message", "training.schedule=constant")


@dataclass(frozen=True)
class PublishedTensor:
    """A row of the paper's table: (min, max, mean, std) of Torch-RGCN, and of TF-RGCN."""

    name: str
    shape: str
    torch_rgcn: tuple[float, float, float, float]
    tf_rgcn: tuple[float, float, float, float]
    is_output: bool = False


PUBLISHED = (
    PublishedTensor(
        "node embeddings, initial",
        "280 × 500",
        (-0.48939, 0.48641, 0.00029, 0.10765),
        (-0.45209, 0.45702, -0.00004, 0.10697),
    ),
    PublishedTensor(
        "node embeddings, output",
        "280 × 500",
        (0.0, 0.51221, 0.04290, 0.06273),
        (0.0, 0.47124, 0.04318, 0.06301),
        is_output=True,
    ),
    PublishedTensor(
        "blocks, initial",
        "224 × 100 × 5 × 5",
        (-1.28504, 1.26404, 0.00001, 0.27715),
        (-1.38892, 1.47686, 0.00007, 0.27726),
    ),
    PublishedTensor(
        "self-loop, initial",
        "500 × 500",
        (-1.20324, 1.16375, -0.00095, 0.27755),
        (-1.23380, 1.30949, -0.00049, 0.27716),
    ),
    PublishedTensor(
        "convolution, output",
        "280 × 500",
        (-2.75152, 2.63124, 0.00799, 0.53759),
        (-2.58617, 2.43774, 0.02317, 0.51760),
        is_output=True,
    ),
    PublishedTensor(
        "DistMult relations, initial",
        "112 × 500",
        (-3.97444, 3.95794, -0.00186, 0.99851),
        (-4.12359, 4.89700, -0.00947, 0.99675),
    ),
    PublishedTensor(
        "DistMult, output",
        "3300",
        (-30.75097, 25.89389, 0.78507, 7.27595),
        (-27.21030, 27.08858, 0.03524, 7.75823),
        is_output=True,
    ),
)


def measured_tensors(graph: KnowledgeGraph, seed: int) -> list[Tensor]:
    """The seven tensors of a first forward pass, in the order of PUBLISHED."""
    config = load_configuration("rgcn/lp-fb-toy", AS_PUBLISHED, {"seed": seed, "training.device": "cpu"})
    predictor = make_model(config)
    assert isinstance(predictor, LinkPredictor)
    trainer = predictor.prepare(graph).trainer()
    network: Any = predictor.network_.train()
    batch = next(trainer.batches())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nodes = network.encode(trainer.message_graph(batch))
        scores = score_batch(network.decoder, nodes, batch, corrupt(batch, len(nodes), generator=trainer.generator))
    layer = network.encoder.layers[0]
    return [
        network.encoder.source.rows.trained.detach(),
        network.encoder.source.all_nodes().detach(),
        layer.weights.blocks.detach(),
        layer.self_loop.detach(),
        nodes,
        network.decoder.relation.detach(),
        torch.cat([scores.positive, scores.negative]),
    ]


def tensor_statistics(graph: KnowledgeGraph, seeds: int = 10) -> list[dict[str, Any]]:
    """A row for each tensor: the published figures, ours as the mean over seeds, and how far the std is off."""
    per_seed = [[_statistics(tensor) for tensor in measured_tensors(graph, seed)] for seed in range(seeds)]
    rows = []
    for number, published in enumerate(PUBLISHED):
        ours = torch.tensor([run[number] for run in per_seed], dtype=torch.float64).mean(0).tolist()
        deviation = ours[3] / published.torch_rgcn[3] - 1.0
        rows.append(
            {
                "tensor": published.name,
                "shape": published.shape,
                "tf_rgcn": dict(zip(STATISTICS, published.tf_rgcn, strict=True)),
                "torch_rgcn": dict(zip(STATISTICS, published.torch_rgcn, strict=True)),
                "ours": dict(zip(STATISTICS, ours, strict=True)),
                "std_deviation": deviation,
                "allowed": 0.10 if published.is_output else 0.02,
                "within": abs(deviation) <= (0.10 if published.is_output else 0.02),
            }
        )
    return rows


def _statistics(tensor: Tensor) -> list[float]:
    return [float(value) for value in (tensor.min(), tensor.max(), tensor.mean(), tensor.std())]
