"""What a report says of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.config import LinkModelConfig, NodeModelConfig, RunConfig
from rgcn.runs.report.markup import definitions, details, join, table, tag
from rgcn.runs.report.page import Section
from rgcn.runs.report.record import RunRecord
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.tasks import LinkPredictor, NodeClassifier


def model_card(run: RunRecord, model: NodeClassifier | LinkPredictor | None) -> Section:
    """What the network is made of, and how many numbers it holds."""
    rows: list[tuple[object, object]] = [
        ("Architecture", architecture(run.config, model is not None and model.graph_.features is not None)),
        ("Weight matrices", decomposition(run.config.model)),
        ("Messages", messages(run.config.model)),
    ]
    result = run.result or {}
    stored = result.get("stored_parameters") or (None if model is None else model.num_parameters_)
    counted = result.get("parameters")
    if stored is not None:
        rows.append(("Parameters held and trained", f"{stored:,}"))
    if counted is not None:
        words = "" if counted == stored else " (a row for every relation and node; those never reached are not stored)"
        rows.append(("Parameters as the paper counts", f"{counted:,}{words}"))
    body = [definitions(rows)]
    if model is not None:
        tensors = [
            [tag("code", name), " × ".join(map(str, tensor.shape)), f"{tensor.numel():,}"]
            for name, tensor in model.network_.named_parameters()
        ]
        body.append(details(count(len(tensors), "tensor"), table(["tensor", "shape", "numbers"], tensors, numeric=[2])))
    return Section("Model", "The network that was trained.", join(body))


def architecture(config: RunConfig, features: bool = False) -> str:
    """The network in a sentence; `features`: whether the graph's nodes have any.

    >>> from rgcn.runs import load_configuration
    >>> architecture(load_configuration("rgcn/nc-aifb"))
    'rgcn: 2 relational convolutions of hidden width 16 over one-hot nodes'
    """
    model = config.model
    layers = count(model.layers, "relational convolution")
    if isinstance(model, NodeModelConfig):
        if model.name == "e-rgcn":
            return f"e-rgcn: learned node embeddings of width {model.embedding}, then {layers}, the first one diagonal"
        given = model.input == "features" or (model.input == "auto" and features)
        nodes = "the nodes' features" if given else "one-hot nodes"
        return f"rgcn: {layers} of hidden width {model.hidden} over {nodes}"
    if model.name == "distmult":
        return f"distmult: node embeddings of width {model.embedding} scored by DistMult, without message passing"
    if model.name == "c-rgcn":
        return (
            f"c-rgcn: {layers} through a bottleneck of width {model.bottleneck}, the embedding of width "
            f"{model.embedding} goes around it; scored by DistMult"
        )
    brings = "one-hot nodes" if model.input == "one-hot" else f"node embeddings of width {model.embedding}"
    return f"rgcn: {layers} over {brings}; scored by DistMult"


def decomposition(model: NodeModelConfig | LinkModelConfig) -> str:
    """How a relation's weight matrix is written."""
    if model.name == "distmult":
        return "none: a vector for each relation"
    if model.decomposition == "basis":
        bases = "one basis" if model.bases == 1 else f"{model.bases} bases"
        return f"each relation's matrix is a mixture of {bases} that all relations share"
    if model.decomposition == "block":
        return f"each relation's matrix has {count(model.blocks or 0, 'block')} along its diagonal, and zeros elsewhere"
    if model.decomposition == "diagonal":
        return "each relation's matrix is a diagonal"
    return "a full matrix for each relation (no decomposition)"


def messages(model: NodeModelConfig | LinkModelConfig) -> str:
    """Which way messages pass, and how they are added up."""
    if model.name == "distmult":
        return "none"
    ways = "along triples and against them" if model.inverse else "along triples only"
    loops = ", and each node hears itself" if model.self_loops else ""
    shared = {
        "relation": "averaged over the neighbors of each relation",
        "node": "averaged over all neighbors",
        "direction": "averaged over the neighbors of each direction",
        "none": "not normalized",
    }[model.normalization]
    return f"{ways}{loops}; {shared}, then the {model.aggregation} over relations"
