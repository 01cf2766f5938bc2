"""A trained encoder for programs that do not have rgcn: traced over the reference kernels, saved by `torch.export`.

The program is the network itself over the whole graph, in operations every PyTorch has.
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
from rgcn.kernels.ahead import finish_compiling
from rgcn.kernels.dispatch import plain_kernels
from rgcn.models.estimator import Estimator
from rgcn.nn.decompositions import BlockWeights
from rgcn.nn.link_network import VectorNetwork
from rgcn.nn.relational_encoder import NodeNetwork
from rgcn.system.atomic_files import replace_atomically
from rgcn.version import __version__

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FORMAT_VERSION = 1
# A program with 13.5 million edges (the size of AM) took 4 GB and a minute to make, and one with 5,400 products too.
MOST_EDGES, MOST_PRODUCTS = 2**24, 6000


def export_encoder(model: Estimator) -> ExportedProgram:
    """The trained encoder as a program of plain operations: nodes int64 [n] → [n, width], for any n.

    A classifier gives the logits of its classes, a link predictor the nodes' vectors as its decoder takes them.
    ConfigError above 16.7 million edges (inverses and self-loops included), or 6,000 matrices of relations.

    >>> import rgcn, torch
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
    >>> program = export_encoder(rgcn.NodeClassifier(epochs=1).fit(kg))
    >>> program.module()(torch.tensor([2, 0, 1])).shape
    torch.Size([3, 2])
    """
    encoder, example = WholeGraphEncoder(model), torch.zeros(2, dtype=torch.int64)
    shapes = {"nodes": {0: torch.export.Dim("n")}}
    finish_compiling()  # torch.export exchanges math.pow and its like meanwhile, which numba would take for its own
    with torch.no_grad(), plain_kernels():
        encoder(example)  # what a graph remembers must be made for real, and not while it is traced
        program = torch.export.export(encoder, (example,), dynamic_shapes=shapes, strict=False)
    # A view of a larger tensor would be saved as the whole of it.
    program.constants.update({name: value.clone() for name, value in program.constants.items()})
    return program


class WholeGraphEncoder(nn.Module):
    """nodes int64 [n] → [n, width], on the CPU: every node's vector is computed, those of the nodes are picked."""

    def __init__(self, model: Estimator) -> None:
        super().__init__()
        network = model.network_
        if not isinstance(network, NodeNetwork | VectorNetwork):
            raise ConfigError(f"{model.model.title} computes every answer anew: there is no encoder to export")
        adjacency = model.adjacency_
        if adjacency.num_edges > MOST_EDGES:
            raise ConfigError(
                f"a program with {adjacency.num_edges:,} edges is too large to export (at most {MOST_EDGES:,}): train "
                "with prune=True or on a part of the graph, or hand over the vectors (`rgcn embed`) instead"
            )
        products = sum(len(module.blocks) for module in network.modules() if isinstance(module, BlockWeights))
        if products > MOST_PRODUCTS:
            raise ConfigError(
                f"a program that multiplies by {products:,} matrices, one a relation and layer, is too long to export "
                f"(at most {MOST_PRODUCTS:,}): train with decomposition=basis, whose length does not grow with them"
            )
        self.network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
        self.adjacency = adjacency.to("cpu")

    def forward(self, nodes: Tensor) -> Tensor:
        network = self.network
        every = network(self.adjacency) if isinstance(network, NodeNetwork) else network.encode(self.adjacency)
        return every.index_select(0, nodes)


def save_encoder(model: Estimator, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write what `export_encoder` gives to a .pt2 file, names beside it, and return what about.json in it says.

    Its extra files: about.json; nodes.jsonl, a name a line, in the order of node numbers; classes.jsonl, the columns of
    a classifier; relations.jsonl, of a link predictor each relation's name, vector and bias.
    """
    target = Path(path)
    if target.suffix != ".pt2":
        raise ConfigError(f"{target.name}: PyTorch reads such files only by the ending .pt2; call it {target.stem}.pt2")
    program, about = export_encoder(model), _about(model)
    extra = {"about.json": json.dumps(about, indent=1), "nodes.jsonl": _lines(model.graph_.nodes)}
    if isinstance(model.network_, VectorNetwork):
        extra["relations.jsonl"] = _lines(_relations(model))
    if classes := model.task_().kind.classes(model):
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
    vectors = table[0].detach().tolist()
    biases = [0.0] * len(vectors) if table[1] is None else table[1].detach().tolist()
    for name, vector, bias in zip(model.graph_.relations, vectors, biases, strict=True):
        yield {"name": name, "vector": vector, "bias": bias}


def _lines(values: Iterable[Any]) -> str:
    # Escaped beyond ASCII: some readers take U+2028 and its like for the end of a line.
    encode = json.JSONEncoder().encode
    return "".join(f"{encode(value)}\n" for value in values)
