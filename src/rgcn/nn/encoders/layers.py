"""The convolutions of an encoder, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.nn.decompositions import Basis, BlockDiagonal, Decomposition, Diagonal, Full
from rgcn.nn.initialization import Initializer
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig, NodeModelConfig
    from rgcn.nn.link_network import LinkPlan


def link_layer(plan: LinkPlan, width: int) -> RelationalGraphConv:
    """A convolution of a link encoder, as wide as what goes in."""
    model, training = plan.model, plan.training
    on_message = training.self_loop_dropout_on == "message"
    return RelationalGraphConv(
        width,
        width,
        plan.num_relations,
        decomposition=link_decomposition(model),
        inverse=model.inverse,
        self_loops=model.self_loops,
        bias=model.bias,
        init=link_init(plan, width),
        self_loop_dropout=training.self_loop_dropout if on_message else 0.0,
        generator=plan.generator,
    )


def link_init(plan: LinkPlan, width: int) -> Initializer:
    model = plan.model
    if model.fans == "published" and model.blocks is not None:
        return Initializer(model.init, model.gain, fans=(plan.num_relations, width // model.blocks))
    return Initializer(model.init, model.gain)


def link_decomposition(model: LinkModelConfig) -> Decomposition:
    if model.decomposition == "basis":
        assert model.bases is not None
        coefficient_init = Initializer("normal") if model.coefficient_init == "normal" else None
        apart = bool(model.self_loop_apart)
        return Basis(model.bases, apart, model.separate_inverse_bases, coefficient_init)
    if model.decomposition == "block":
        assert model.blocks is not None
        return BlockDiagonal(model.blocks, model.self_loop_apart is not False)
    return Full()


def node_decomposition(model: NodeModelConfig, is_output: bool, out: int) -> Decomposition:
    """is_output: the convolution gives a number for each class."""
    if model.decomposition == "basis":
        assert model.bases is not None
        return Basis(model.bases)
    if model.decomposition == "block":
        assert model.blocks is not None
        # Classes rarely divide into blocks: the last layer then keeps full matrices.
        return BlockDiagonal(model.blocks) if not (is_output and out % model.blocks) else Full()
    if model.decomposition == "diagonal" and not is_output:
        return Diagonal()
    return Full()


def convolutions_in_words(model: NodeModelConfig | LinkModelConfig) -> dict[str, str]:
    """How a relation's weight matrix is written; which way messages pass, and how they are added up."""
    bases = "one basis" if model.bases == 1 else f"{model.bases} bases"
    weights = {
        "none": "a full matrix for each relation (no decomposition)",
        "basis": f"each relation's matrix is a mixture of {bases} that all relations share",
        "block": f"each relation's matrix has {count(model.blocks or 0, 'block')} along its diagonal, and zeros "
        "elsewhere",
        "diagonal": "each relation's matrix is a diagonal",
    }[model.decomposition]
    ways = "along triples and against them" if model.inverse else "along triples only"
    loops = ", and each node hears itself" if model.self_loops else ""
    shared = {
        "relation": "averaged over the neighbors of each relation",
        "node": "averaged over all neighbors",
        "direction": "averaged over the neighbors of each direction",
        "none": "not normalized",
    }[model.normalization]
    messages = f"{ways}{loops}; {shared}, then the {model.aggregation} over relations"
    return {"Weight matrices": weights, "Messages": messages}
