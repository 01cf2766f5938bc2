"""`PathNetwork`: a convolution for each question, from the question's node, without weights for nodes."""

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
from rgcn.nn.link_network import ExplainedTriple, LinkNetwork, LinkPlan, MessageAdjacency
from rgcn.nn.path_layers import RELATION_TABLES, AnswerHead, HiddenEdges, LayerEdges, PathLayer, RelationStates
from rgcn.nn.scorer import Questions, Scorer, not_finite
from rgcn.sampling.negatives import Negatives
from rgcn.system.formatting import format_bytes, format_count
from rgcn.system.memory import available_bytes

MAX_QUESTIONS_AT_ONCE = 64
MAX_STATE_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}  # of the questions scored at once; small on a CPU for its caches


class PathEncoder(Encoder):
    """`path`: a convolution for each question, from the question's node; no node has a vector of its own."""

    @classmethod
    def build_link_network(cls, plan: LinkPlan) -> PathNetwork:
        """Build the network."""
        return PathNetwork(plan)

    @classmethod
    def describe_links(cls, model: LinkModelConfig) -> Description:
        """Describe the network for reports."""
        vectors = {"own": "a vector for each relation", "question": "relation vectors that depend on the question"}
        verb = {"multiply": "multiplied by", "add": "added to"}[model.messages]
        architecture = (
            f"{model.title}: {format_count(model.layers, 'convolution')} of dimension {model.width} for every "
            "question, from the question's node; no node has a vector of its own"
        )
        aggregate = "mean and deviation" if model.deviation else "sum"
        messages = f"states {verb} {vectors[model.relation_vectors]}; {aggregate}, normalized by {model.normalization}"
        hops = format_count(model.layers, "hop")
        limit = f"Nodes more than {hops} away from the question's node are "
        limit += "distinguished only by their neighborhoods." if model.surroundings else "not distinguished."
        return Description({"Architecture": architecture, "Messages": messages}, (limit,))


class PathNetwork(LinkNetwork):
    """A network that scores answers by the paths that lead to them from the question's node h.

        x⁰_v = [v = h] q_r
        x_v ← x_v + ReLU(LayerNorm(W [x_v, a_v, s_v a_v])) where a message arrived, in each of L layers
        a_v = Σ over edges (u, s, v) and the self-loop of A_s[v, u] · x_u ⊙ w_s
        f(v) = MLP([x_v, q_r, n_v]) + ⟨T q_r, n_v⟩, with n_v from `NeighborhoodEncoder`

    The question (?, r, t) is asked as (t, inverse of r, ?). Zhu et al., "Neural Bellman-Ford networks", 2021, with the
    self-loop of RGCN in place of their boundary condition. It has no weights for nodes, so it answers over any graph
    with the same relations. States are bfloat16 on a GPU, sums float32.

    Args:
        plan: The configuration, the adjacency and the random generator.
    """

    must_hide_triples = True
    mean_log_degree: Tensor
    # What has been computed of relations, by relation. Set only on copies whose weights never change
    # (`rgcn.explain`), since they ask for the same relations many times.
    cached_tables: dict[tuple[int, ...], tuple[RelationStates, list[Tensor]]] | None = None

    def __init__(self, plan: LinkPlan) -> None:
        """Draw the initial weights."""
        super().__init__()
        model, generator, edges = plan.model, plan.generator, plan.adjacency.structure
        if not (edges.has_inverse and edges.has_self_loops):
            raise ConfigError("the encoder path needs inverse edges and self-loops: set inverse and self_loops to true")
        self.dim, self.num_layers, self.num_relations = model.width, model.layers, plan.num_relations
        self.updates_unreached, is_sum = model.unreached == "awake", model.messages == "add"
        options = (model.degree_scaling, model.layer_norm, model.skip, model.dropout, self.updates_unreached)
        self.init_relations(plan)
        self.layers = nn.ModuleList(
            PathLayer(self.relation_table(plan), is_sum, self.dim, generator, UpdateSettings(*options), model.deviation)
            for _ in range(model.layers)
        )
        self.ignores_unreached_nodes = not (model.surroundings or self.updates_unreached)
        self.head = AnswerHead(edges.num_relations, self.dim, min(model.surroundings, model.layers), generator)
        mean_log_degree = torch.log(plan.adjacency.total().clamp(min=1.0)).mean().clamp(min=1e-3).cpu()
        self.register_buffer("mean_log_degree", mean_log_degree, persistent=self.has_relation_weights)

    def init_relations(self, plan: LinkPlan) -> None:
        """Create what relation vectors are computed from, before the layers."""
        self.query = nn.Parameter(torch.randn(2 * plan.num_relations, self.dim, generator=plan.generator))

    def relation_table(self, plan: LinkPlan) -> nn.Module:
        """Create the module that computes one layer's relation vectors from `RelationStates`."""
        kind = RELATION_TABLES[plan.model.relation_vectors]
        return kind(plan.adjacency.structure.num_relations, self.dim, plan.generator)

    def relation_states(self, relations: Tensor) -> RelationStates:
        """Compute the relation vectors of questions for edge relations int64 `[num_questions]`."""
        return RelationStates(take_rows(self.query, relations))

    @property
    def reference_weight(self) -> Tensor:
        """A weight that has the network's device and type."""
        weight: Tensor = self.layers[0].weight  # type: ignore[assignment]
        return weight

    def step_bytes(self, num_nodes: int, questions: int) -> int:
        """Estimate the memory of a training step from the states that are kept for the gradient."""
        bytes_per_value = 2 if self.reference_weight.is_cuda else 4
        num_kept = sum(3 if layer.deviation else 2 for layer in self.layers) + 10  # in the layers, and in the head
        return self.num_states(num_nodes) * questions * self.dim * bytes_per_value * num_kept

    def explained_work(self, nodes: int, edges: int) -> int:
        """Estimate the multiply-adds of a question whose relation vectors are cached."""
        work_per_node = sum(layer.weight.numel() for layer in self.layers if isinstance(layer, PathLayer))
        return nodes * (work_per_node + self.head.of_state.numel()) + edges * self.dim * self.num_layers

    def num_states(self, num_nodes: int) -> int:
        """Return how many states a question has in memory."""
        return num_nodes

    def initial_states(self, node: Tensor, query: Tensor, size: int) -> Tensor:
        """Return `[size, num_questions, dim]`: each question's query at its node int64 `[num_questions]`, else zero."""
        dtype = torch.bfloat16 if query.is_cuda else query.dtype
        index = torch.arange(len(node), device=node.device)
        states = query.new_zeros(size, len(node), self.dim, dtype=dtype)
        return states.index_put((node, index), query.to(dtype))

    def score_nodes(
        self, adjacency: MessageAdjacency, questions: Questions, hidden: HiddenEdges | None = None
    ) -> Tensor:
        """Score all nodes as answers, with gradients; `hidden` are edges hidden from some of the questions."""
        assert adjacency is not None
        states = self.relation_states(questions.edge_relation(self.num_relations))
        x = self.initial_states(questions.node, states.query, adjacency.num_sources)
        edges = LayerEdges.along(adjacency, self.mean_log_degree, hidden)
        for layer in self.layers:
            x = layer(x, states, edges)
        neighborhoods = self.head.neighborhoods([edges] * self.num_layers)
        return self.head(x, states.query, neighborhoods)  # type: ignore[no-any-return]

    def score_batch(self, adjacency: MessageAdjacency, positives: Tensor, negatives: Negatives) -> BatchScores:
        """Score a batch by one question for each positive, or two if negatives replace both of its ends."""
        subject, relation, object_ = positives.unbind(1)
        if negatives.is_one_sided:
            is_subject = negatives.is_subject.view(len(positives), -1)[:, 0]
            node, answer = torch.where(is_subject, object_, subject), torch.where(is_subject, subject, object_)
            scores = self.score_nodes(adjacency, Questions(node, relation, ~is_subject))
            negative = scores.gather(1, negatives.node.view(len(positives), -1)).flatten()
            return BatchScores(scores.gather(1, answer[:, None]).squeeze(1), negative, scores.new_zeros(()))
        objects = self.score_nodes(adjacency, Questions(subject, relation))
        subjects = self.score_nodes(adjacency, Questions(object_, relation, False))
        both = torch.stack([objects, subjects])
        negative = both[negatives.is_subject.long(), negatives.positive, negatives.node]
        return BatchScores(objects.gather(1, object_[:, None]).squeeze(1), negative, objects.new_zeros(()))

    def score_explained(self, triple: ExplainedTriple) -> Tensor:
        """Score a triple over a receptive field, with gradients for its edge weights: a score for each direction."""
        inputs, outputs = triple.field.inputs, triple.nodes.tolist()
        nodes, relations, answers = zip(*triple.questions(self.num_relations), strict=True)
        cache = {} if self.cached_tables is None else self.cached_tables
        if relations not in cache:
            states = self.relation_states(torch.tensor(relations, device=self.reference_weight.device))
            cache[relations] = states, [layer.relations(states) for layer in self.layers]  # type: ignore[operator]
        states, tables = cache[relations]
        start = torch.cat([torch.nonzero(inputs == node)[0] for node in nodes])
        x = self.initial_states(start, states.query, len(inputs))
        edges = [LayerEdges.along(operator, self.mean_log_degree) for operator in triple.field.layers]
        for layer, layer_edges, table in zip(self.layers, edges, tables, strict=True):
            x = layer(x, states, layer_edges, table)
        row = torch.tensor([outputs.index(answer) for answer in answers], device=x.device)
        around = self.head.neighborhoods(edges)
        x = x[row].to(self.reference_weight.device)
        scores: Tensor = self.head(x, states.query, None if around is None else around[row])
        return scores.diagonal()

    def make_scorer(self, adjacency: RelationalAdjacency) -> PathScorer:
        """Make a scorer over the whole graph."""
        return PathScorer(self, adjacency)

    def relation_vectors(self) -> Tensor | None:
        """Return the query vectors of the relations without inverses."""
        return self.query[: self.num_relations]


class PathScorer(Scorer):
    """Scores answers by a convolution for each question, over the nodes that the questions of a batch reach.

    A score is the log-probability of a node among all nodes. The network is trained to distinguish the answers to one
    question; only probabilities are comparable between questions.

    Args:
        network: The network.
        adjacency: The whole graph.

    Raises:
        DataError: If one question needs more memory than is free.
    """

    questions_per_batch: int
    can_hide_triples = True
    rounding = 4e-6  # about thirty times the precision of float32

    def __init__(self, network: PathNetwork, adjacency: RelationalAdjacency) -> None:
        """Compute what all questions share."""
        self.network, self.adjacency = network, adjacency
        self.num_nodes, self.device = adjacency.structure.num_sources, adjacency.device
        bytes_per_value = 2 if adjacency.device.type == "cuda" else 4
        question_bytes = 16 * network.dim * network.num_states(self.num_nodes) * bytes_per_value
        available = available_bytes(adjacency.device)
        if available is not None and question_bytes > available:
            raise DataError(
                f"a question about {self.num_nodes:,} nodes needs about {format_bytes(question_bytes)}, and "
                f"{format_bytes(available)} are free: use a machine with more, or train with a smaller model.width"
            )
        self.work = network.question_work(self.num_nodes, adjacency.structure.num_edges)
        max_bytes = MAX_STATE_BYTES.get(adjacency.device.type, MAX_STATE_BYTES["cpu"])
        self.questions_per_batch = max(1, min(MAX_QUESTIONS_AT_ONCE, max_bytes // question_bytes))
        self.edges = LayerEdges.along(adjacency, network.mean_log_degree)
        self.neighborhoods = network.head.neighborhoods([self.edges] * network.num_layers)

    @torch.no_grad()
    def scores(self, questions: Questions, candidates: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Score in batches of questions; see `Scorer.scores`."""
        scores = self._allocate(questions, candidates) if out is None else out
        parts = questions.to(self.device).parts(self.questions_per_batch)
        for rows, batch in zip(torch.split(scores, self.questions_per_batch), parts, strict=False):
            rows.copy_(self._score_batch(batch, candidates))
        return scores

    def _allocate(self, questions: Questions, candidates: Tensor | None) -> Tensor:
        columns = self.num_nodes if candidates is None else len(candidates)
        return torch.empty(questions.size, columns, dtype=self.network.reference_weight.dtype, device=self.device)

    def _score_batch(self, questions: Questions, candidates: Tensor | None) -> Tensor:
        network = self.network
        states = network.relation_states(questions.edge_relation(network.num_relations))
        start = None if network.updates_unreached else questions.node
        edges, nodes = self.edges.reached(start, network.num_layers)
        start = questions.node if nodes[0] is None else torch.searchsorted(nodes[0], questions.node.contiguous())
        x = network.initial_states(start, states.query, self.num_nodes if nodes[0] is None else len(nodes[0]))
        for layer, layer_edges, sources, targets in zip(network.layers, edges, nodes[:-1], nodes[1:], strict=True):
            if sources is not None:
                place = sources if targets is None else torch.searchsorted(targets, sources)
                x = x.new_zeros(layer_edges.operator.num_sources, *x.shape[1:]).index_copy(0, place, x)
            x = layer(x, states, layer_edges)
        if nodes[-1] is not None:  # the states of other nodes are zero
            x = x.new_zeros(self.num_nodes, *x.shape[1:]).index_copy(0, nodes[-1], x)
        scores = torch.log_softmax(network.head(x, states.query, self.neighborhoods), dim=1)
        return scores if candidates is None else scores.index_select(1, candidates)

    @torch.no_grad()
    def scores_hiding_answers(self, questions: Questions, answers: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Score with known triples hidden; questions whose triple is not known are scored like others."""
        scores = self._allocate(questions, candidates)
        questions, answers = questions.to(self.device), answers.to(self.device)
        is_known = torch.zeros(questions.size, dtype=torch.bool)
        is_known[self._edges_of(questions, answers)[1].cpu()] = True
        unknown, known = torch.nonzero(~is_known).squeeze(1), torch.nonzero(is_known).squeeze(1)
        scores[unknown] = self.scores(questions.take(unknown), candidates)
        for batch in torch.split(known, self.questions_per_batch) if len(known) else ():
            hidden_scores = self._score_hiding(questions.take(batch), answers[batch])
            scores[batch] = hidden_scores if candidates is None else hidden_scores.index_select(1, candidates)
        return scores

    def _score_hiding(self, questions: Questions, answers: Tensor) -> Tensor:
        """Score all nodes for a batch of known triples, `[num_questions, num_nodes]`."""
        (edge, question), operator = self._edges_of(questions, answers), self.adjacency
        if operator.normalization in ("node", "none") and operator.aggregation == "sum":
            share = operator.raw[edge] / operator.total()[operator.structure.target[edge]]
            hidden = HiddenEdges(edge, question, share, questions.size)
            return torch.log_softmax(self.network.score_nodes(operator, questions, hidden), dim=1)
        # Other normalizations have groups of edges that share a weight: each question gets its own graph.
        raw = (operator.raw.index_fill(0, edge[question == index], 0.0) for index in range(questions.size))
        pairs = zip(map(operator.with_raw_weights, raw), questions.parts(1), strict=True)
        return torch.log_softmax(torch.cat([self.network.score_nodes(*pair) for pair in pairs]), dim=1)

    def _edges_of(self, questions: Questions, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Return (edge, index of its question) of every edge from a question's node to its answer, and its inverse."""
        edges, node, num_relations = self.adjacency.structure, questions.node, self.network.num_relations
        size, num_kinds, relation = edges.num_sources, edges.num_relations, questions.edge_relation(num_relations)
        keys = (edges.target.long() * num_kinds + edges.relation) * size + edges.source  # ascending, like the edges
        forward = (answers * num_kinds + relation) * size + node
        inverse = (node * num_kinds + (relation + num_relations) % (2 * num_relations)) * size + answers
        key = torch.cat([forward, inverse])
        begin, end = torch.searchsorted(keys, key), torch.searchsorted(keys, key, right=True)
        row, edge = expanded_ranges(begin, end)
        return edge, row % questions.size

    def problem(self) -> str | None:
        """Check the network's weights for NaN and infinity."""
        return not_finite(*self.network.parameters())
