"""The least time a training step can take on a machine, whoever wrote it.

A step must move certain bytes and do certain multiply-adds. Divided by what the machine moves and does in a second, the
larger of the two quotients is the floor; `reached` is the floor over the measured time. What is counted:

bytes, each number or index 4 of them
  a layer, forward   its edges (an index and a weight each), a pointer for each target, the pairs (an index each, where
                     weights are shared by relation), its weights and input rows read; its output rows written
  a layer, backward  edges, pointers and pairs, weights and input rows read again, the gradient of the output read; the
                     gradient of the input written, where something before the layer learns
  optimizer          6 numbers for each trained parameter: Adam reads and writes the parameter and its two moments; a
                     gradient can be used where it is made, and need not be written
multiply-adds
  the cheapest order of evaluation forward; backward the products count twice (for the input and for the weights) and
  the mixing once. One-hot nodes have no input to give a gradient to.

What fits into a cache need not come from memory, so a step on a small graph can be faster than this floor. A floor says
how much is left to gain on large graphs; on small ones the cost of starting each operation rules.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.models import Estimator
from rgcn.nn import RelationalGraphConv
from rgcn.nn.decompositions.basis import BasisRows, BasisWeights
from rgcn.nn.decompositions.matrices import BlockWeights, DiagonalWeights, PairRows

NUMBER = 4  # bytes of a float32, and of an index
OPTIMIZER_NUMBERS = 6


class Work(NamedTuple):
    """What must be done: bytes moved and multiply-adds."""

    bytes: int
    operations: int


class Speeds(NamedTuple):
    """What a device does in a second: bytes of a large copy (read and written), multiply-adds of a large product."""

    bandwidth: float
    rate: float


def floor_seconds(work: Work, speeds: Speeds) -> tuple[float, str]:
    """The floor, and which of the two makes it.

    >>> floor_seconds(Work(bytes=100, operations=10), Speeds(bandwidth=50.0, rate=50.0))
    (2.0, 'bytes')
    """
    moving, computing = work.bytes / speeds.bandwidth, work.operations / speeds.rate
    return max(moving, computing), "bytes" if moving >= computing else "operations"


def step_work(classifier: Estimator) -> Work:
    """The least that one training step of a prepared classifier must do."""
    labels = classifier.graph_.labels
    assert labels is not None
    nodes = torch.from_numpy(labels.of("train")[0].copy()).to(classifier.adjacency_.device)
    field = ReceptiveField.of(classifier.adjacency_, nodes, classifier.num_layers_)
    network = classifier.network_
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    layers = [
        layer_work(cast(RelationalGraphConv, layer), adjacency, first=depth == 0)
        for depth, (layer, adjacency) in enumerate(zip(network.layers, field.layers, strict=True))
    ]
    moved = NUMBER * OPTIMIZER_NUMBERS * trained + sum(work.bytes for work in layers)
    return Work(moved, sum(work.operations for work in layers))


def layer_work(layer: RelationalGraphConv, adjacency: RelationalAdjacency, first: bool) -> Work:
    """Forward and backward of one layer, without gradients that the optimizer's count holds: of parameters, and of the
    table of rows that is all there is before the `first` one."""
    if layer.self_loop is not None or layer.self_loop_rows is not None:
        raise ConfigError("no floor is known for a layer that holds its self-loop apart")
    edges, width, weights = adjacency.num_edges, layer.out_features, layer.weights
    occurring = adjacency.structure  # how many (relation, source) and (relation, target) pairs occur among the edges:
    source_pairs = torch.unique(occurring.relation * adjacency.num_sources + occurring.source).numel()
    target_pairs = torch.unique(occurring.relation * adjacency.num_targets + occurring.target).numel()
    # Project the (relation, source) pairs and mix what comes out, or mix into (relation, target) pairs, then project.
    ways = ((source_pairs, width, adjacency.num_sources), (target_pairs, layer.in_features, adjacency.num_targets))
    matrix = layer.in_features * width
    # pairs, read and again: indices, and weights read forward and backward; orders: multiply-adds of the product and
    # of the mixing in one forward pass, for each order of evaluation.
    pairs = min(source_pairs, target_pairs)
    if isinstance(weights, PairRows):  # each edge has its row
        pairs, read, orders = 0, source_pairs * width, [(0, edges * width)]
    elif isinstance(weights, BasisRows):
        pairs, num_bases = source_pairs, weights.coefficients.shape[1]
        read = adjacency.num_sources * num_bases * width + weights.coefficients.numel()
        # The product gives both the rows' and the coefficients' gradient backward: twice, as in any other layer.
        orders = [(pairs * num_bases * width, edges * width)]
    elif isinstance(weights, DiagonalWeights):
        read = weights.scale.numel()
        orders = [(pairs * width, edges * width) for pairs, _, _ in ways]
    elif isinstance(weights, BlockWeights):
        read, nonzero = weights.blocks.numel(), weights.blocks[0].numel()
        orders = [(pairs * nonzero, edges * mixed) for pairs, mixed, _ in ways]
    elif isinstance(weights, BasisWeights):
        num_bases, read = weights.bases.shape[0], weights.bases.numel() + weights.coefficients.numel()
        written_out = adjacency.num_relations * num_bases * matrix  # every W_r, made once
        orders = [
            (min(nodes * num_bases * matrix + pairs * num_bases * mixed, written_out + pairs * matrix), edges * mixed)
            for pairs, mixed, nodes in ways
        ]
    else:
        raise ConfigError(f"no floor is known for weights of the kind {type(weights).__name__}")
    again = 0 if isinstance(weights, PairRows) else read
    bias = 0 if layer.bias is None else layer.bias.numel()
    structure = 2 * edges + adjacency.num_targets + 1 + pairs
    inputs = 0 if layer.is_one_hot else adjacency.num_sources * layer.in_features
    outputs = adjacency.num_targets * width
    forward = structure + read + bias + inputs + outputs
    backward = structure + again + inputs + outputs + (0 if first else inputs)
    return Work(NUMBER * (forward + backward), min(3 * product + 2 * mixing for product, mixing in orders))


def measure_speeds(device: str, copied_bytes: int | None = None, size: int | None = None) -> Speeds:
    """The best of a few large copies and float32 products on a device, with PyTorch's own settings."""
    gpu = torch.device(device).type == "cuda"
    copied_bytes = copied_bytes or (2**30 if gpu else 2**28)
    size = size or (8192 if gpu else 1536)
    wait = waiting_for(device)
    source = torch.ones(copied_bytes // NUMBER, device=device)
    target = torch.empty_like(source)
    copying = _best(lambda: target.copy_(source), wait)
    matrix = torch.rand(size, size, device=device)
    product = torch.empty_like(matrix)
    multiplying = _best(lambda: torch.mm(matrix, matrix, out=product), wait)
    return Speeds(2 * copied_bytes / copying, size**3 / multiplying)


def waiting_for(device: str) -> Callable[[], Any]:
    """A function that returns once a device has done all it was told."""
    return partial(torch.cuda.synchronize, device) if torch.device(device).type == "cuda" else lambda: None


def _best(action: Callable[[], Any], wait: Callable[[], Any], times: int = 7) -> float:
    best = float("inf")
    for _ in range(times):
        wait()
        start = time.perf_counter()
        action()
        wait()
        best = min(best, time.perf_counter() - start)
    return best
