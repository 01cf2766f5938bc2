"""The floor: the least time that a training step needs on a machine, whatever the implementation (a lower bound).

A step must move some bytes and do some multiply-adds. Divided by the bytes and multiply-adds that the machine does per
second, the larger quotient is the floor; `reached` is the floor divided by the measured time. What is counted:

bytes, 4 for each number or index
  a layer, forward   reading its edges (an index and a weight each), a pointer per target, the pairs (an index each, if
                     weights are shared by relation), its weights and input rows; writing its output rows
  a layer, backward  reading edges, pointers and pairs, weights and input rows again, and the gradient of the output;
                     writing the gradient of the input, if something before the layer is trained
  optimizer          6 numbers for each trained parameter: Adam reads and writes the parameter and its two moments; a
                     gradient can be used where it is computed, and need not be written
multiply-adds
  the cheapest order of evaluation forward; backward the products count twice (for the input and for the weights) and
  the aggregation once. One-hot nodes have no input that needs a gradient.

Data in a cache need not come from memory, so a step on a small graph can be faster than its floor. The floor says how
much can be gained on large graphs; on small ones the time to start each operation dominates.
"""

import timeit
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.errors import ConfigError
from rgcn.models import Estimator
from rgcn.nn import RelationalGraphConv
from rgcn.nn.decompositions.basis import BasisWeights, OneHotBasisWeights
from rgcn.nn.decompositions.matrices import BlockWeights, DiagonalWeights, OneHotBlockWeights

NUMBER = 4  # bytes of a float32, and of an index
OPTIMIZER_NUMBERS = 6


class Work(NamedTuple):
    """The work of a step: bytes moved, and multiply-adds."""

    bytes: int
    operations: int


class Speeds(NamedTuple):
    """The speed of a device: bytes per second of a large copy (read and written), multiply-adds of a large product."""

    bandwidth: float
    rate: float


def floor_seconds(work: Work, speeds: Speeds) -> tuple[float, str]:
    """Return the floor in seconds, and whether "bytes" or "operations" determine it.

    >>> floor_seconds(Work(bytes=100, operations=10), Speeds(bandwidth=50.0, rate=50.0))
    (2.0, 'bytes')
    """
    moving, computing = work.bytes / speeds.bandwidth, work.operations / speeds.rate
    return max(moving, computing), "bytes" if moving >= computing else "operations"


def step_work(classifier: Estimator) -> Work:
    """Return the least work of one training step of a prepared classifier."""
    labels = classifier.graph_.labels
    assert labels is not None
    nodes = torch.from_numpy(labels.of("train")[0].copy()).to(classifier.adjacency_.device)
    field = ReceptiveField.of(classifier.adjacency_, nodes, classifier.hooks_.num_layers)
    network = classifier.network_
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    layers = [
        layer_work(cast(RelationalGraphConv, layer), adjacency, first=depth == 0)
        for depth, (layer, adjacency) in enumerate(zip(network.layers, field.layers, strict=True))
    ]
    moved = NUMBER * OPTIMIZER_NUMBERS * trained + sum(work.bytes for work in layers)
    return Work(moved, sum(work.operations for work in layers))


def layer_work(layer: RelationalGraphConv, adjacency: RelationalAdjacency, first: bool) -> Work:
    """Return the work of the forward and backward pass of one layer.

    Gradients of parameters are counted with the optimizer, as is that of the table of rows before the `first` layer.

    Raises:
        ConfigError: The layer's decomposition has no known floor.
    """
    if layer.self_loop is not None or layer.self_loop_rows is not None:
        raise ConfigError("no floor is known for a layer with separate weights for self-loops")
    edges, width, weights = adjacency.num_edges, layer.out_features, layer.weights
    structure = adjacency.structure
    source_pairs = torch.unique(structure.relation * adjacency.num_sources + structure.source).numel()
    target_pairs = torch.unique(structure.relation * adjacency.num_targets + structure.target).numel()
    # Project (relation, source) pairs and aggregate the result, or aggregate into (relation, target) pairs and project.
    shapes = ((source_pairs, width, adjacency.num_sources), (target_pairs, layer.in_features, adjacency.num_targets))
    matrix = layer.in_features * width
    # Numbers read: indices of pairs, weights forward and weights backward. orders: the multiply-adds of the product and
    # of the aggregation in one forward pass, for each order of evaluation.
    pairs = min(source_pairs, target_pairs)
    if isinstance(weights, OneHotBlockWeights):  # each edge has its own row
        pairs, read, orders = 0, source_pairs * width, [(0, edges * width)]
    elif isinstance(weights, OneHotBasisWeights):
        pairs, num_bases = source_pairs, weights.coefficients.shape[1]
        read = adjacency.num_sources * num_bases * width + weights.coefficients.numel()
        # Backward, the product gives the gradients of rows and of coefficients: twice, as in any other layer.
        orders = [(pairs * num_bases * width, edges * width)]
    elif isinstance(weights, DiagonalWeights):
        read = weights.scale.numel()
        orders = [(pairs * width, edges * width) for pairs, _, _ in shapes]
    elif isinstance(weights, BlockWeights):
        read, nonzero = weights.blocks.numel(), weights.blocks[0].numel()
        orders = [(pairs * nonzero, edges * mixed) for pairs, mixed, _ in shapes]
    elif isinstance(weights, BasisWeights):
        num_bases, read = weights.bases.shape[0], weights.bases.numel() + weights.coefficients.numel()
        written_out = adjacency.num_relations * num_bases * matrix  # every W_r, made once
        orders = [
            (min(nodes * num_bases * matrix + pairs * num_bases * mixed, written_out + pairs * matrix), edges * mixed)
            for pairs, mixed, nodes in shapes
        ]
    else:
        raise ConfigError(f"no floor is known for weights of type {type(weights).__name__}")
    read_backward = 0 if isinstance(weights, OneHotBlockWeights) else read
    bias = 0 if layer.bias is None else layer.bias.numel()
    indices = 2 * edges + adjacency.num_targets + 1 + pairs
    inputs = 0 if layer.is_one_hot else adjacency.num_sources * layer.in_features
    outputs = adjacency.num_targets * width
    forward = indices + read + bias + inputs + outputs
    backward = indices + read_backward + inputs + outputs + (0 if first else inputs)
    return Work(NUMBER * (forward + backward), min(3 * product + 2 * mixing for product, mixing in orders))


def measure_speeds(device: str, copied_bytes: int | None = None, size: int | None = None) -> Speeds:
    """Measure the best of a few large copies and float32 products on a device, with PyTorch's own settings."""
    gpu = torch.device(device).type == "cuda"
    copied_bytes = copied_bytes or (2**30 if gpu else 2**28)
    size = size or (8192 if gpu else 1536)
    wait = synchronizer(device)
    source = torch.ones(copied_bytes // NUMBER, device=device)
    target = torch.empty_like(source)
    copying = _best(lambda: target.copy_(source), wait)
    matrix = torch.rand(size, size, device=device)
    product = torch.empty_like(matrix)
    multiplying = _best(lambda: torch.mm(matrix, matrix, out=product), wait)
    return Speeds(2 * copied_bytes / copying, size**3 / multiplying)


def synchronizer(device: str) -> Callable[[], Any]:
    """Return a function that waits until a device has finished its work."""
    return partial(torch.cuda.synchronize, device) if torch.device(device).type == "cuda" else lambda: None


def _best(action: Callable[[], Any], wait: Callable[[], Any], times: int = 7) -> float:
    """Return the shortest time of an action in seconds."""

    def run() -> None:
        action()
        wait()

    return min(timeit.repeat(run, setup=wait, number=1, repeat=times))
