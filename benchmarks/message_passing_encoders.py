"""Encoders that `message_passing.py` compares with RGCN: an MLP, and RGCN whose messages follow a random graph.

Both are chosen by their dotted names, like components of any other package.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import Section
from rgcn.errors import ConfigError
from rgcn.nn.encoders import RGCNEncoder, VectorEncoder, build_embedding
from rgcn.nn.initialization import Initializer
from rgcn.nn.link_network import LinkPlan
from rgcn.nn.relational_encoder import EncoderInput, RelationalEncoder
from rgcn.nn.row_tables import NodeEmbedding


class MLPEncoder(VectorEncoder):
    """RGCN of the same depth and width without messages: only the self-loops' matrices and the biases are left."""

    has_messages = False

    @classmethod
    def build_encoder(cls, plan: LinkPlan) -> MLP:
        """Build embeddings and a matrix for each layer, initialized like RGCN's matrices of self-loops."""
        model = plan.model
        source = build_embedding(plan, model.activated_input)
        return MLP(source, model.layers, Initializer(model.init, model.gain), plan.generator)


class MLP(RelationalEncoder):
    """E → E W + b → ReLU → …, for each node alone; no activation after the last layer.

    Args:
        source: The embedding E, with an activation of its own if `model.activated_input` is set.
        depth: Number of layers.
        init: How the matrices are initialized.
        generator: Source of the initial weights.
    """

    def __init__(self, source: NodeEmbedding, depth: int, init: Initializer, generator: torch.Generator) -> None:
        super().__init__(source, [])
        shape = source.dim, source.dim
        self.weights = nn.ParameterList([nn.Parameter(init.draw(shape, generator)) for _ in range(depth)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(source.dim)) for _ in range(depth)])

    def forward(self, over: EncoderInput) -> Tensor:
        """Compute node vectors `[num_nodes, dim]`. Edges of `over` are not read."""
        x = self._input(over)
        assert x is not None
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = (torch.relu(x) if number else x) @ weight + bias
        return x


class RandomGraphOptions(Section):
    """Options of `RandomGraphEncoder`."""

    graph_seed: int = 0
    """Seed of the random graph."""


class RandomGraphEncoder(RGCNEncoder):
    """RGCN on a degree-preserving random graph: the objects of each relation are permuted among its triples.

    Each node keeps its number of outgoing and of incoming edges of each relation. Only messages follow the random
    graph; training positives and questions are those of the real one. The same seed draws the same initial weights as
    for `rgcn`.
    """

    Options = RandomGraphOptions

    @classmethod
    def build_encoder(cls, plan: LinkPlan) -> RandomGraphRGCN:
        """Build the layers of RGCN, and permute the triples of the operator."""
        if plan.model.input == "one-hot":
            raise ConfigError(
                "the random graph has other edges than one-hot layers have rows for: set input: embedding"
            )
        encoder, seed = super().build_encoder(plan), cls.read_options(plan.model.options).graph_seed
        return RandomGraphRGCN(encoder, plan.adjacency, seed)


class RandomGraphRGCN(RelationalEncoder):
    """An encoder that passes its messages over a random graph, whatever edges it is given.

    Row i of the random triples takes the place of row i of the real ones. So a step has as many edges as it would have
    in the real graph: dropped edges and edges of a batch are those of the same rows. If a random triple happens to be
    a real one, it is hidden when that one is hidden (`message_edges: graph-without-batch`).

    Args:
        encoder: The encoder whose input and layers are used.
        adjacency: The operator of the real training triples.
        seed: Seed of the random graph.
    """

    def __init__(self, encoder: RelationalEncoder, adjacency: RelationalAdjacency, seed: int) -> None:
        super().__init__(encoder.source, [], encoder.dropout.p, encoder.activated)
        self.layers, self.num_layers, self.dim = encoder.layers, encoder.num_layers, encoder.dim
        self.real = triples_of(adjacency)
        self.triples = permuted_objects(self.real, seed)
        self.operator = self._operator_of(self.triples, adjacency)
        self._keys, self._order = torch.sort(self._key(self.real, adjacency))
        found = self._real_rows(self.triples, adjacency)
        # The row of the real graph whose mask a random triple shares.
        self.mask_row = torch.where(found >= 0, found, torch.arange(len(found), device=found.device))

    def convolve(self, x: Tensor | None, over: EncoderInput, depth: int | None = None) -> list[Tensor]:
        """Compute the output of each layer, with messages over the random graph."""
        return super().convolve(x, self.randomized(over), depth)

    def randomized(self, over: EncoderInput) -> RelationalAdjacency:
        """Return the operator of the random graph in place of one of the real graph.

        Args:
            over: The operator of all training triples, of which some may be dropped, or of a batch of them.
        """
        if not isinstance(over, RelationalAdjacency):
            raise ConfigError(
                "a receptive field follows edges of the real graph, and this encoder uses a random one: compute all "
                "nodes (objective: softmax-unfiltered does), and ask for no explanations"
            )
        edges = over.structure
        kept = over.raw.new_zeros(edges.num_triples + edges.num_nodes)  # of triples, then of self-loops
        kept[edges.origin.long()] = over.raw
        if edges.transient:
            rows = self._real_rows(triples_of(over), over)
            if bool((rows < 0).any()):
                raise ConfigError("a batch has a triple that is not among the training triples of this encoder")
            return self._operator_of(self.triples[rows], over, transient=True).masked(kept)
        if edges.num_triples != len(self.triples):
            raise ConfigError(
                f"the random graph has {len(self.triples):,} triples, and the operator {edges.num_triples:,}: "
                "build the encoder for this graph"
            )
        shared = torch.cat([kept[: len(self.triples)][self.mask_row], kept[len(self.triples) :]])
        return self.operator.with_raw_weights(shared[self.operator.structure.origin.long()])

    def _real_rows(self, triples: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Return the row of each triple among the real ones, int64 [n]; -1 if it is none of them."""
        key = self._key(triples, adjacency)
        place = torch.searchsorted(self._keys, key).clamp(max=len(self._keys) - 1)
        return torch.where(self._keys[place] == key, self._order[place], -1)

    @staticmethod
    def _key(triples: Tensor, adjacency: RelationalAdjacency) -> Tensor:
        """Return a number for each triple, int64 [n]."""
        subject, relation, object_ = triples.unbind(1)
        structure = adjacency.structure
        return (subject * structure.num_data_relations + relation) * structure.num_nodes + object_

    @staticmethod
    def _operator_of(triples: Tensor, like: RelationalAdjacency, transient: bool = False) -> RelationalAdjacency:
        """Build the operator of triples with the options of another one."""
        edges = like.structure
        return RelationalAdjacency.from_triples(
            triples,
            edges.num_nodes,
            edges.num_data_relations,
            transient=transient,
            inverse=edges.has_inverse,
            self_loops=edges.has_self_loops,
            normalization=like.normalization,
            aggregation=like.aggregation,
        )


def triples_of(adjacency: RelationalAdjacency) -> Tensor:
    """Return the triples that an operator was built from, int64 [num_triples, 3], in their order."""
    edges = adjacency.structure
    forward = edges.direction == 0
    columns = (each[forward].long() for each in (edges.source, edges.relation, edges.target))
    triples = torch.empty(edges.num_triples, 3, dtype=torch.int64, device=adjacency.device)
    triples[edges.origin[forward].long()] = torch.stack(list(columns), dim=1)
    return triples


def permuted_objects(triples: Tensor, seed: int) -> Tensor:
    """Permute the objects of each relation among its triples.

    Args:
        triples: int64 [num_triples, 3].
        seed: Seed of the permutation.

    Returns:
        Triples int64 [num_triples, 3] with the same subject and relation in each row.
    """
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randperm(len(triples), generator=generator).to(triples.device)
    rows = torch.argsort(triples[:, 1], stable=True)  # by relation
    shuffled = draw[torch.argsort(triples[draw, 1], stable=True)]  # by relation, in random order
    permuted = triples.clone()
    permuted[rows, 2] = triples[shuffled, 2]
    return permuted
