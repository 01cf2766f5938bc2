"""A network without a node table: every question starts a convolution of its own, and answers are what it reaches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig
from rgcn.config.fields import Description
from rgcn.errors import ConfigError, DataError
from rgcn.kernels import take_rows
from rgcn.kernels.layer_update import UpdateSettings
from rgcn.kernels.sparse import expanded_ranges
from rgcn.nn.decoders import BatchScores
from rgcn.nn.encoders import Encoder
from rgcn.nn.link_network import Heard, HeardEdges, LinkNetwork, LinkPlan
from rgcn.nn.path_layers import (
    AnswerHead,
    AskedRelationTable,
    Hidden,
    Hop,
    Messages,
    PathLayer,
    RelationTable,
    Told,
    reached_hops,
)
from rgcn.nn.scorer import Questions, Scorer, not_finite
from rgcn.sampling.negatives import Negatives
from rgcn.system.formatting import count, memory
from rgcn.system.memory import available_bytes

# Questions of one convolution when answering, and the bytes that its states may take; fewer where caches matter.
MOST_AT_ONCE, STATES = 64, {"cpu": 1 << 28, "cuda": 1 << 31}


class PathEncoder(Encoder):
    """Convolutions that start anew for every question, from the node it is about: no vector belongs to a node."""

    @classmethod
    def for_links(cls, plan: LinkPlan) -> PathNetwork:
        return PathNetwork(plan)

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        kinds = {"own": "a vector for each relation", "question": "relation vectors that depend on the question"}
        says = {"multiply": "multiplied by", "add": "added to"}[model.messages]
        architecture = (
            f"{model.title}: {count(model.layers, 'convolution')} of width {model.width} for every question, from the "
            "node it is about; no node has a vector of its own"
        )
        summed = "mean and deviation" if model.deviation else "sum"
        messages = f"states {says} {kinds[model.relation_vectors]}; their {summed}, normalized by {model.normalization}"
        far = f"A node more than {count(model.layers, 'hop')} away from the asked one is told from other such nodes"
        limits = (f"{far} {'by what stands around it alone' if model.surroundings else 'by nothing'}.",)
        return Description({"Architecture": architecture, "Messages": messages}, limits)


class PathNetwork(LinkNetwork):
    """x⁰_v = [v = h] q_r,  x_v ← x_v + ReLU(LayerNorm(W [x_v, a_v, s_v a_v])) where anything was heard,  L times

        a_v = Σ over edges (u, s, v) and the self-loop of  A_s[v, u] · x_u ⊙ w_s
        f(v) = MLP([x_v, q_r, n_v]) + ⟨T q_r, n_v⟩,  n_v: what stands around v, whatever is asked (`Surroundings`)

    (?, r, t) is asked as (t, inverse of r, ?). Zhu et al., "Neural Bellman-Ford networks", 2021, with the self-loop of
    RGCN in place of their boundary condition.

    States are bfloat16 on a GPU, sums float32.
    """

    hides_asked = True
    mean_log_degree: Tensor
    # By relations asked for, what is known of relations and each layer's table of them. Only copies whose weights never
    # change keep it (`rgcn.explain`), which ask the same again and again.
    kept_tables: dict[tuple[int, ...], tuple[Told, list[Tensor]]] | None = None

    def __init__(self, plan: LinkPlan) -> None:
        super().__init__()
        model, generator, edges = plan.model, plan.generator, plan.adjacency.structure
        if not (edges.has_inverse and edges.has_self_loops):
            raise ConfigError("the encoder path walks edges both ways, or stays: set inverse and self_loops to true")
        self.width, self.num_layers, self.num_relations = model.width, model.layers, plan.num_relations
        self.wakes, messages = model.unreached == "awake", Messages(model.messages == "add")
        settings = UpdateSettings(model.degree_scaling, model.layer_norm, model.skip, model.dropout, self.wakes)
        self.learn_relations(plan)
        self.layers = nn.ModuleList(
            PathLayer(self.relation_table(plan), messages, model.width, generator, settings, model.deviation)
            for _ in range(model.layers)
        )
        # Nodes that no walk reaches say nothing, but for what they say of those they stand around.
        self.only_reached = not (model.surroundings or self.wakes)
        self.head = AnswerHead(edges.num_relations, model.width, min(model.surroundings, model.layers), generator)
        unit = torch.log(plan.adjacency.total().clamp(min=1.0)).mean().clamp(min=1e-3).cpu()
        self.register_buffer("mean_log_degree", unit, persistent=self.knows_relations)

    def learn_relations(self, plan: LinkPlan) -> None:
        """Make what relations are known by; before the layers."""
        width = plan.model.width
        self.query = nn.Parameter(torch.randn(2 * plan.num_relations, width, generator=plan.generator))

    def relation_table(self, plan: LinkPlan) -> nn.Module:
        """What gives one layer its table of relations, from `told`."""
        kind = AskedRelationTable if plan.model.relation_vectors == "question" else RelationTable
        return kind(plan.adjacency.structure.num_relations, plan.model.width, plan.generator)

    def told(self, asked: Tensor) -> Told:
        """What questions know of relations that ask for these int64 [B]; inverses after the relations."""
        return Told(take_rows(self.query, asked))

    @property
    def like(self) -> Tensor:
        """A weight, for its device and precision."""
        weight: Tensor = self.layers[0].weight  # type: ignore[assignment]
        return weight

    def step_bytes(self, num_nodes: int, questions: int) -> int:
        each = 2 if self.like.is_cuda else 4
        kept = sum(3 if layer.deviation else 2 for layer in self.layers) + 10  # for the gradients; and the head's
        return self.states(num_nodes) * questions * self.width * each * kept

    def heard_work(self, nodes: int, edges: int) -> int:
        of_a_node = sum(layer.weight.numel() for layer in self.layers if isinstance(layer, PathLayer))
        return nodes * (of_a_node + self.head.of_state.numel()) + edges * self.width * self.num_layers

    def states(self, num_nodes: int) -> int:
        """How many states a question has."""
        return num_nodes

    def begun(self, node: Tensor, query: Tensor, size: int) -> Tensor:
        """[size, B, width]: zero but for each question's own node int64 [B], which holds its query [B, width]."""
        kind = torch.bfloat16 if query.is_cuda else query.dtype
        number = torch.arange(len(node), device=node.device)
        return query.new_zeros(size, len(node), self.width, dtype=kind).index_put((node, number), query.to(kind))

    def score_nodes(self, adjacency: HeardEdges, questions: Questions, hidden: Hidden | None = None) -> Tensor:
        assert adjacency is not None
        told = self.told(questions.edge_kind(self.num_relations))
        x = self.begun(questions.node, told.query, adjacency.num_sources)
        hop = Hop.along(adjacency, self.mean_log_degree, hidden)
        for layer in self.layers:
            x = layer(x, told, hop)
        around = self.head.around([hop] * self.num_layers)
        return self.head(x, told.query, around)  # type: ignore[no-any-return]

    def score_batch(self, adjacency: HeardEdges, positives: Tensor, negatives: Negatives) -> BatchScores:
        subject, relation, object_ = positives.unbind(1)
        if negatives.one_sided:  # then one question a triple is enough
            heads = negatives.is_head.view(len(positives), -1)[:, 0]
            node, answer = torch.where(heads, object_, subject), torch.where(heads, subject, object_)
            scores = self.score_nodes(adjacency, Questions(node, relation, ~heads))
            drawn = scores.gather(1, negatives.node.view(len(positives), -1)).flatten()
            return BatchScores(scores.gather(1, answer[:, None]).squeeze(1), drawn, scores.new_zeros(()))
        objects = self.score_nodes(adjacency, Questions(subject, relation))
        subjects = self.score_nodes(adjacency, Questions(object_, relation, False))
        both = torch.stack([objects, subjects])
        negative = both[negatives.is_head.long(), negatives.positive, negatives.node]
        return BatchScores(objects.gather(1, object_[:, None]).squeeze(1), negative, objects.new_zeros(()))

    def score_heard(self, heard: Heard) -> Tensor:
        inputs, asked = heard.field.inputs, heard.asked.tolist()
        nodes, kinds, answers = zip(*heard.questions(self.num_relations), strict=True)
        kept = {} if self.kept_tables is None else self.kept_tables
        if kinds not in kept:
            told = self.told(torch.tensor(kinds, device=self.like.device))
            kept[kinds] = told, [layer.relations(told) for layer in self.layers if isinstance(layer, PathLayer)]
        told, tables = kept[kinds]
        x = self.begun(torch.cat([torch.nonzero(inputs == node)[0] for node in nodes]), told.query, len(inputs))
        hops = [Hop.along(operator, self.mean_log_degree) for operator in heard.field.layers]
        for layer, hop, table in zip(self.layers, hops, tables, strict=True):
            x = layer(x, told, hop, table)
        place = torch.tensor([asked.index(answer) for answer in answers], device=x.device)
        around = self.head.around(hops)
        scores: Tensor = self.head(x[place].to(self.like.device), told.query, None if around is None else around[place])
        return scores.diagonal()

    def make_scorer(self, adjacency: RelationalAdjacency) -> PathScorer:
        return PathScorer(self, adjacency)

    def relation_vectors(self) -> Tensor | None:
        return self.query[: self.num_relations]


class PathScorer(Scorer):
    """Runs a convolution for each question, those of a batch side by side, over the nodes that they reach.

    A score is the logarithm of the share that the network gives a node among all: what it learned to tell apart are
    the answers to one question, and only as shares are those to several comparable.
    """

    questions_at_once: int
    hides = True
    rounding = 4e-6  # about thirty times the precision of float32

    def __init__(self, network: PathNetwork, adjacency: RelationalAdjacency) -> None:
        self.network, self.adjacency = network, adjacency
        self.num_nodes, self.device = adjacency.num_sources, adjacency.device
        bytes_each = 16 * network.width * network.states(self.num_nodes) * (2 if adjacency.device.type == "cuda" else 4)
        available, states = available_bytes(adjacency.device), STATES.get(adjacency.device.type, STATES["cpu"])
        if available is not None and bytes_each > available:
            raise DataError(
                f"a question about {self.num_nodes:,} nodes needs about {memory(bytes_each)}, and {memory(available)} "
                "are free: ask on a machine with more, or train with a smaller model.width"
            )
        self.work = network.question_work(self.num_nodes, adjacency.structure.num_edges)
        self.questions_at_once = self.at_once = max(1, min(MOST_AT_ONCE, states // bytes_each))
        self.whole = Hop.along(adjacency, network.mean_log_degree)
        self.around = network.head.around([self.whole] * network.num_layers)

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        found = self._room(questions, candidates) if out is None else out
        for first in range(0, questions.size, self.at_once):
            part = questions.take(slice(first, first + self.at_once)).to(self.device)
            found[first : first + part.size] = self._asked(part, candidates)
        return found

    def _room(self, questions: Questions, candidates: Tensor | None) -> Tensor:
        """[q, n], empty."""
        columns = self.num_nodes if candidates is None else len(candidates)
        return torch.empty(questions.size, columns, dtype=self.network.like.dtype, device=self.device)

    def _asked(self, questions: Questions, candidates: Tensor | None) -> Tensor:
        """[q, n] of one batch."""
        network = self.network
        told = network.told(questions.edge_kind(network.num_relations))
        hops, nodes = reached_hops(self.whole, None if network.wakes else questions.node, network.num_layers)
        begins = questions.node if nodes[0] is None else torch.searchsorted(nodes[0], questions.node.contiguous())
        x = network.begun(begins, told.query, self.num_nodes if nodes[0] is None else len(nodes[0]))
        for layer, hop, given, reached in zip(network.layers, hops, nodes[:-1], nodes[1:], strict=True):
            if given is not None:
                place = given if reached is None else torch.searchsorted(reached, given)
                x = x.new_zeros(hop.operator.num_sources, *x.shape[1:]).index_copy(0, place, x)
            x = layer(x, told, hop)
        last, around = nodes[-1], self.around
        if last is not None:  # what no walk reaches is zero
            x = x.new_zeros(self.num_nodes, *x.shape[1:]).index_copy(0, last, x)
        scores = torch.log_softmax(network.head(x, told.query, around), dim=1)
        return scores if candidates is None else scores.index_select(1, candidates)

    @torch.no_grad()
    def scores_hiding(self, questions: Questions, answers: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Triples that are not known have nothing to hide: their questions are asked as ever."""
        found = self._room(questions, candidates)
        questions, answers = questions.to(self.device), answers.to(self.device)
        known = torch.zeros(questions.size, dtype=torch.bool)
        known[self._edges_of(questions, answers)[1].cpu()] = True
        free, hidden = (torch.nonzero(which).squeeze(1) for which in (~known, known))
        found[free] = self.scores(questions.take(free), candidates)
        for first in range(0, len(hidden), self.at_once):
            part = hidden[first : first + self.at_once]
            scores = self._hiding(questions.take(part), answers[part])
            found[part] = scores if candidates is None else scores.index_select(1, candidates)
        return found

    def _hiding(self, questions: Questions, answers: Tensor) -> Tensor:
        """[q, N] of one batch of known triples."""
        (edge, question), operator = self._edges_of(questions, answers), self.adjacency
        if operator.normalization in ("node", "none") and operator.aggregation == "sum":
            share = operator.raw[edge] / operator.total()[operator.structure.target[edge]]
            hidden = Hidden(edge, question, share, self.network.mean_log_degree, questions.size)
            return torch.log_softmax(self.network.score_nodes(operator, questions, hidden), dim=1)
        found = []  # Groups of edges share a weight here: each question has a graph of its own.
        for number in range(questions.size):
            raw = operator.raw.index_fill(0, edge[question == number], 0.0)
            one = questions.take(slice(number, number + 1))
            found.append(self.network.score_nodes(operator.reweighted(raw), one))
        return torch.log_softmax(torch.cat(found), dim=1)

    def _edges_of(self, questions: Questions, answers: Tensor) -> tuple[Tensor, Tensor]:
        """(edge, number of the question): every edge from a question's node to its answer, and its inverse."""
        edges, node, relations = self.adjacency.structure, questions.node, self.network.num_relations
        size, kinds, kind = edges.num_sources, edges.num_relations, questions.edge_kind(relations)
        keys = (edges.target.long() * kinds + edges.relation) * size + edges.source  # ascending, as edges are sorted
        along = (answers * kinds + kind) * size + node
        against = (node * kinds + (kind + relations) % (2 * relations)) * size + answers
        wanted = torch.cat([along, against])
        begin, end = torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)
        row, edge = expanded_ranges(begin, end)
        return edge, row % questions.size

    def problem(self) -> str | None:
        return not_finite(*self.network.parameters())
