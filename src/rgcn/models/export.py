"""Export of a trained encoder for programs without rgcn: traced over the reference kernels, saved by `torch.export`.

The program is the network over the whole graph, in operations of plain PyTorch.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rgcn.errors import ConfigError
from rgcn.kernels.ahead import wait_for_compilation
from rgcn.kernels.dispatch import reference_kernels
from rgcn.models.estimator import Estimator
from rgcn.nn.decompositions import BlockWeights
from rgcn.nn.link_network import VectorNetwork
from rgcn.nn.relational_encoder import NodeNetwork
from rgcn.system.atomic_files import replace_atomically
from rgcn.version import __version__

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FORMAT_VERSION = 1
# To make a program with 13.5 million edges (the size of AM) took 4 GB and a minute; one with 5,400 products likewise.
MAX_EDGES, MAX_PRODUCTS = 2**24, 6000


def export_encoder(model: Estimator) -> ExportedProgram:
    """Return the trained encoder as a program of plain operations.

    Args:
        model: A fitted model whose network computes vectors of nodes.

    Returns:
        A program that takes node ids, int64 [num_nodes], for any number of nodes. For a classifier it returns logits
        [num_nodes, num_classes], for a link predictor the vectors [num_nodes, width] that its decoder takes.

    Raises:
        ConfigError: There are more than 16.7 million edges (inverses and self-loops included) or 6,000 matrices of
            relations, or the network has no encoder.

    Example:
        >>> import rgcn, torch
        >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
        >>> program = export_encoder(rgcn.NodeClassifier(epochs=1).fit(kg))
        >>> program.module()(torch.tensor([2, 0, 1])).shape
        torch.Size([3, 2])
    """
    encoder, example = WholeGraphEncoder(model), torch.zeros(2, dtype=torch.int64)
    shapes = {"nodes": {0: torch.export.Dim("n")}}
    wait_for_compilation()  # numba must not compile while torch.export replaces functions such as math.pow
    with torch.no_grad(), reference_kernels():
        encoder(example)  # fills the graph's caches, which must not hold traced tensors
        program = torch.export.export(encoder, (example,), dynamic_shapes=shapes, strict=False)
    # Of a view, the whole tensor that it is a part of would be saved.
    program.constants.update({name: value.clone() for name, value in program.constants.items()})
    return program


class WholeGraphEncoder(nn.Module):
    """Computes the vectors of all nodes on the CPU, and returns those of some.

    Args:
        model: A fitted model.

    Raises:
        ConfigError: The graph or the network is too large to export, or the network has no encoder.
    """

    def __init__(self, model: Estimator) -> None:
        super().__init__()
        network = model.network_
        if not isinstance(network, NodeNetwork | VectorNetwork):
            raise ConfigError(f"{model.model.title} has no encoder to export: train a model that has one, such as rgcn")
        adjacency = model.adjacency_
        if adjacency.num_edges > MAX_EDGES:
            raise ConfigError(
                f"a program with {adjacency.num_edges:,} edges is too large to export (at most {MAX_EDGES:,}): train "
                "with prune=True or on a part of the graph, or export the vectors (`rgcn embed`) instead"
            )
        products = sum(len(module.blocks) for module in network.modules() if isinstance(module, BlockWeights))
        if products > MAX_PRODUCTS:
            raise ConfigError(
                f"a program that multiplies by {products:,} matrices, one for each relation and layer, is too long to "
                f"export (at most {MAX_PRODUCTS:,}): train with decomposition=basis, which has fewer matrices"
            )
        self.network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
        self.adjacency = adjacency.to("cpu")

    def forward(self, nodes: Tensor) -> Tensor:
        """Return the vectors [num_nodes, width] of node ids int64 [num_nodes]."""
        network = self.network
        vectors = network(self.adjacency) if isinstance(network, NodeNetwork) else network.encode(self.adjacency)
        return vectors.index_select(0, nodes)


def save_encoder(model: Estimator, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the program of `export_encoder` and the names it needs to a .pt2 file.

    The file has these extra files: about.json; nodes.jsonl, node names in the order of ids; classes.jsonl, the columns
    of a classifier; relations.jsonl, name, vector and bias of each relation of a link predictor, and those of
    its reciprocal relation if there is one.

    Args:
        model: A fitted model whose network computes vectors of nodes.
        path: The file, with the suffix .pt2.

    Returns:
        The content of about.json.

    Raises:
        ConfigError: The path has another suffix, or the model cannot be exported.
    """
    target = Path(path)
    if target.suffix != ".pt2":
        raise ConfigError(f"{target.name}: PyTorch reads such files only with the suffix .pt2; use {target.stem}.pt2")
    program, about = export_encoder(model), _about(model)
    extra = {"about.json": json.dumps(about, indent=1), "nodes.jsonl": _lines(model.graph_.nodes)}
    if isinstance(model.network_, VectorNetwork):
        extra["relations.jsonl"] = _lines(_relations(model))
    if classes := model.task_info.kind.classes(model):
        extra["classes.jsonl"] = _lines(classes)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            torch.export.save(program, file, extra_files=extra)

    replace_atomically(target, write)
    return about


def _about(model: Estimator) -> dict[str, Any]:
    decoder = model.network_.decoder if isinstance(model.network_, VectorNetwork) else None
    return {
        "format": "rgcn-encoder",
        "version": FORMAT_VERSION,
        "rgcn": __version__,
        "torch": torch.__version__,
        "task": model.task,
        "model": model.model.title,
        "input": "nodes: int64 [n], numbers of nodes",
        "output": "logits [n, classes]" if decoder is None else "vectors [n, width], for the decoder",
        "decoder": None if decoder is None else type(decoder).__name__,
        "nodes": model.graph_.num_nodes,
        "graph": model.graph_.fingerprint,
    }


def _relations(model: Estimator) -> Iterable[dict[str, Any]]:
    table = model.network_.decoder.relation_table()
    if table is None:
        return
    vectors, names = table[0].detach().tolist(), model.graph_.relations
    biases = [0.0] * len(vectors) if table[1] is None else table[1].detach().tolist()
    for i, name in enumerate(names):
        row = {"name": name, "vector": vectors[i], "bias": biases[i]}
        if len(vectors) > len(names):  # reciprocal relations, for questions about subjects
            row |= {"inverse_vector": vectors[len(names) + i], "inverse_bias": biases[len(names) + i]}
        yield row


def _lines(values: Iterable[Any]) -> str:
    # Escaped beyond ASCII: some readers take characters such as U+2028 for the end of a line.
    return "".join(f"{json.dumps(value)}\n" for value in values)
