"""From settings to convolutions: the one builder of what every encoder stacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from rgcn.nn.decompositions import Basis, BlockDiagonal, Decomposition, Diagonal, Full
from rgcn.nn.heads import NodePlan
from rgcn.nn.initialization import Initializer
from rgcn.nn.relational_graph_conv import RelationalGraphConv
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import LinkModelConfig, NodeModelConfig
    from rgcn.nn.link_network import LinkPlan


class Layer(NamedTuple):
    """A convolution to be built: the width it gives, how its weights are written, and whether it has a bias."""

    out: int
    decomposition: Decomposition
    bias: bool

    def published(self, width: int, num_relations: int, self_loops: bool) -> int:
        """Numbers it has with a row for every input, of `width`; num_relations: inverses and self-loop included."""
        apart = int(self.decomposition.self_loop_apart and self_loops)
        inside = self.decomposition.numbers(num_relations - apart, width, self.out)
        return inside + apart * width * self.out + self.bias * self.out


def stacked(
    plan: LinkPlan | NodePlan,
    width: int | None,
    layers: Iterable[Layer],
    init: Initializer,
    self_loop_dropout: float = 0.0,
) -> list[RelationalGraphConv]:
    """Convolutions one on another, with fresh weights; width: what nodes bring, None for one-hot nodes."""
    built: list[RelationalGraphConv] = []
    for out, decomposition, bias in layers:
        how: dict[str, Any] = {"decomposition": decomposition, "bias": bias, "init": init, "generator": plan.generator}
        if width is None:
            reach = plan.training if isinstance(plan, NodePlan) else None
            training = None if reach is None else (reach.layers[0], reach.inputs)
            layer = RelationalGraphConv.one_hot(plan.adjacency, out, training=training, **how)
        else:
            how |= {"inverse": plan.model.inverse, "self_loops": plan.model.self_loops}
            layer = RelationalGraphConv(width, out, plan.num_relations, self_loop_dropout=self_loop_dropout, **how)
        built.append(layer)
        width = out
    return built


def link_stack(plan: LinkPlan, width: int, one_hot: bool = False) -> list[RelationalGraphConv]:
    """The convolutions of a link encoder, each as wide as what goes in."""
    model, training = plan.model, plan.training
    init = Initializer(model.init, model.gain)
    if model.fans == "published" and model.blocks is not None:
        init = Initializer(model.init, model.gain, fans=(plan.num_relations, width // model.blocks))
    dropout = training.self_loop_dropout if training.self_loop_dropout_on == "message" else 0.0
    layer = Layer(width, link_decomposition(model), model.bias)
    return stacked(plan, None if one_hot else width, [layer] * model.layers, init, dropout)


def link_decomposition(model: LinkModelConfig) -> Decomposition:
    if model.bases is not None:
        coefficient_init = Initializer("normal") if model.coefficient_init == "normal" else None
        return Basis(model.bases, bool(model.self_loop_apart), model.separate_inverse_bases, coefficient_init)
    return Full() if model.blocks is None else BlockDiagonal(model.blocks, model.self_loop_apart is not False)


def node_decomposition(model: NodeModelConfig, is_output: bool, out: int) -> Decomposition:
    """is_output: the convolution gives a number for each class."""
    if model.bases is not None:
        return Basis(model.bases)
    if model.blocks is not None and not (is_output and out % model.blocks):
        return BlockDiagonal(model.blocks)  # but classes rarely divide into blocks
    return Diagonal() if model.decomposition == "diagonal" and not is_output else Full()


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
