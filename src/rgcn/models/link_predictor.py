"""Link prediction: fit on triples, rank exactly, ask for missing triples by name."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self, Unpack

from rgcn.config import LinkModelConfig, LinkTrainingConfig
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.graph.vocabulary import with_relations
from rgcn.links.ranking import Ranks, Ties, rank_triples, summarize
from rgcn.links.relation_constraints import Permitted
from rgcn.links.top_k import Known, ScoredTriples, answer_links, rate_triples
from rgcn.models.estimator import Estimator, SharedSettings
from rgcn.models.growth import fold_in
from rgcn.models.hooks import one_hot_words
from rgcn.nn.decoders import Decoder
from rgcn.nn.link_network import LinkNetwork, LinkPlan
from rgcn.nn.scorer import Questions, Scorer
from rgcn.nn.universal_network import shipped_card
from rgcn.plugins import ENCODERS, OBJECTIVES
from rgcn.sampling.edges import EdgeSampler
from rgcn.sampling.known_triples import KnownTriples, repeated_across_splits, splits_up_to
from rgcn.system.formatting import Rows
from rgcn.system.progress import progress
from rgcn.training.link_trainer import LinkTrainer, StoredTriples
from rgcn.training.objectives import Objective, ObjectivePlan
from rgcn.training.plan import Plan, chosen_at_size, on_device

# How many reports a training makes, besides those that come with a measurement on validation triples.
REPORTS = 100
# Where nobody says how often to measure on validation data: so often, on so many triples, and not after so few steps.
MEASUREMENTS, SOME, SOONEST = 10, 1000, 10


class ScoredTriple(NamedTuple):
    """A triple by name, and what the model says of it.

    score        the model's own number, higher is likelier; of a known triple as if it were not known
    probability  calibrated on validation triples; None where there were too few to calibrate on
    known        whether it is a training triple
    """

    subject: str
    relation: str
    object: str
    score: float
    probability: float | None
    known: bool


class LinkSettings(SharedSettings, total=False):
    """Settings of a `LinkPredictor`: those of `LinkModelConfig` and of `LinkTrainingConfig`."""

    decoder: str | type[Decoder]
    bottleneck: int
    width: int
    relation_layers: int
    start: Literal["random", "shipped"]
    relation_vectors: Literal["own", "question"]
    messages: Literal["multiply", "add"]
    deviation: bool
    degree_scaling: bool
    surroundings: int
    unreached: Literal["asleep", "awake"]
    skip: bool
    layer_norm: bool
    dropout: float
    input: Literal["embedding", "one-hot"]
    activated_input: bool
    self_loop_apart: bool | None
    separate_inverse_bases: bool
    coefficient_init: Literal["same", "normal"]
    fans: Literal["matrix", "published"]
    decoder_biases: bool
    batch_edges: int | None
    sampler: str | type[EdgeSampler]
    objective: str | type[Objective]
    negatives: int
    shared_by: int | None
    head_probability: float
    filtered_negatives: bool
    temperature: float
    penalty: float
    hidden: Literal["triple", "pair"]
    optimizer: str | type[torch.optim.Optimizer] | None
    tables: Literal["memory", "disk"] | None
    self_loop_dropout_on: Literal["edge", "message"]
    schedule: Literal["constant", "cosine", "step"]
    warmup: int
    step_every: int
    step_factor: float
    clip: float | None
    objective_options: dict[str, Any]
    validation: float | None
    evaluate_every: int | None
    evaluate_at_most: int | None
    watch: Literal["mrr", "hits@1", "hits@3", "hits@10", "mean_rank"]


class LinkEstimator(Estimator):
    """What estimators that learn from triples share: training steps, and the scorer they end with."""

    model_section, training_section = LinkModelConfig, LinkTrainingConfig

    model: LinkModelConfig
    training: LinkTrainingConfig

    def __init__(self, model: str | None = None, *, seed: int = 0, **settings: Unpack[LinkSettings]) -> None:
        self._configure({"model": model, "seed": seed, **settings}, trusted=True)

    @classmethod
    def pretrained(cls, kg: KnowledgeGraph, device: str = "auto") -> Self:
        """The pretrained model over any graph, whose training triples and labels are what is heard: zero-shot.

        >>> import rgcn
        >>> model = rgcn.LinkPredictor.pretrained(rgcn.load("world"))
        >>> [found.object for found in model.predict(subject="Albania", relation="borders", k=1, known="drop")]
        ['North Macedonia']
        """
        model = cls("universal", **shipped_card()["settings"], device=device, epochs=0).prepare(kg)
        model.network_.eval()  # no `fit`: an optimizer that nobody needs would load PyTorch's compiler, two seconds
        return model

    _network: LinkNetwork | None

    @property
    def network_(self) -> LinkNetwork:
        return self._fitted(self._network)

    @property
    def num_layers_(self) -> int:
        return self.network_.num_layers

    @property
    def hides_asked_(self) -> bool:
        return self.network_.hides_asked

    @property
    def hiding_(self) -> str | None:
        if not self.scorer().hides:
            return None
        return "" if self.learned_elsewhere else " The model learned from these: of others it may know less."

    def _measuring(self, trainer: LinkTrainer) -> dict[str, Any]:
        every, epochs, at_most = self.training.evaluate_every, self.training.epochs, self.training.evaluate_at_most
        if every is None and self.measures_by_itself and self._can_validate(self.graph_) and epochs >= 2 * SOONEST:
            every, at_most = max(SOONEST, epochs // MEASUREMENTS), at_most or SOME
        measure = partial(self.validated, at_most) if every else None
        return {"report_every": max(1, epochs // REPORTS), "measure": measure, "measure_every": every or 1}

    measures_by_itself: ClassVar[bool] = True
    """Whether it is measured on validation data while it learns where nobody says so."""

    def hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        if self.training.evaluate_every and not self._can_validate(kg):
            raise DataError(
                "evaluate_every needs something to validate on, and the graph has nothing: set validation, for example "
                "to 0.1, or evaluate_every to null"
            )
        return kg

    def open_settings(self, graph: KnowledgeGraph) -> dict[str, Any]:
        return chosen_at_size(self.model, self.training, graph)

    def prepare(self, kg: KnowledgeGraph | Plan) -> Self:
        super().prepare(kg).network_.begin(self.model)
        return self

    def build(self, kg: KnowledgeGraph) -> Self:
        if not kg.num_of("train"):
            raise DataError("the graph has no training triples")
        if kg.num_nodes < 2:
            raise DataError("link prediction needs at least two nodes: there is nothing to tell apart")
        encoder = ENCODERS.find(self.model.encoder)
        adjacency, generator = self._begin(kg, "train", encoder.hears)
        counts = kg.num_nodes, kg.num_relations
        plan = LinkPlan(self.model, self.training, *counts, adjacency, generator, self.placement)
        self._network = encoder.for_links(plan).to(adjacency.device)
        self._network.placement = self.placement
        self.learned_elsewhere = not self.training.epochs
        heard_in_part = self._network.num_layers and not self._network.hides_asked
        if kg.edge_weights is not None and self.training.batch_edges is not None and heard_in_part:
            raise DataError("sampled edges carry no weights: leave batch_edges out, or drop the graph's edge weights")
        return self

    def _can_validate(self, kg: KnowledgeGraph) -> bool:
        return _has(kg, "valid")

    def trainer(self) -> LinkTrainer:
        kg, network = self.graph_, self.network_
        triples = StoredTriples(kg) if StoredTriples.suit(kg, network, self.training) else self._triples("train")
        return LinkTrainer(network, triples, self.adjacency_, self.model, self.training, self.seed)

    def scorer(self) -> Scorer:
        return self.network_.scorer(self.adjacency_)

    def _triples(self, split: str, graph: KnowledgeGraph | None = None) -> Tensor:
        return on_device((graph or self.graph_).split_triples(split), self.adjacency_.device)

    def vectors(self, nodes: NDArray[np.int64], layer: int | None = None) -> NDArray[np.float32]:
        self.vector_layer(layer)
        found = self.network_.node_vectors(self.adjacency_)
        if found is None:
            return super().vectors(nodes, layer)
        rows = found.detach()[torch.from_numpy(nodes).to(found.device)]
        return np.ascontiguousarray(rows.cpu().numpy(), dtype=np.float32)

    def relation_vectors(self) -> tuple[Tensor, Tensor | None, str]:
        found = self.network_.relation_vectors()
        if found is None:
            return super().relation_vectors()
        return found.detach().float().cpu().clone(), None, "the vector of each relation that triples are scored with"

    def cannot_extend(self) -> str | None:
        network = self.network_
        if network.one_hot:
            return one_hot_words("rgcn with `input: embedding`, or c-rgcn")
        if not network.num_layers:
            return (
                f"{self.model.title} passes no messages: a new node's triples tell it nothing. Train c-rgcn or rgcn "
                "(with embeddings), which compute a node from its neighbors"
            )
        return None

    def settle(self, known: KnowledgeGraph, steps: int) -> None:
        """Fit the embeddings of new nodes to the triples that are new; nothing where nodes have none."""
        if not self.network_.knows_nodes:
            return
        graph, first_new = self.graph_, len(known)
        is_train = np.ones(len(graph), dtype=bool) if graph.triple_splits is None else graph.triple_splits == 0
        positives = on_device(graph.triples[first_new:][is_train[first_new:]], self.adjacency_.device)
        plan = ObjectivePlan(self.training, self._triples("train"), graph.num_nodes, graph.num_relations)
        objective = OBJECTIVES.find(self.training.objective).build(plan)
        rate = self.training.edge_dropout
        fold_in(self.network_, self.adjacency_, positives, objective, edge_dropout=rate, steps=steps, seed=self.seed)
        self.network_.train()  # what was computed so far is no longer so


class LinkPredictor(LinkEstimator):
    """RGCN, c-RGCN, plain DistMult, or any other encoder, decoder, objective and sampler, for link prediction.

    model     shorthand for encoder and decoder: rgcn, c-rgcn or distmult
    settings  the fields of `rgcn.config.LinkModelConfig` and of `LinkTrainingConfig`

    >>> import rgcn
    >>> kg = rgcn.load("world")
    >>> lp = rgcn.LinkPredictor(model="c-rgcn", embedding=16, bottleneck=4, epochs=2, seed=0).fit(kg)
    >>> 0.0 < lp.evaluate(kg, split="test")["mrr"] <= 1.0
    True
    >>> [triple.object for triple in lp.predict(subject="Peru", relation="borders", k=2)] != []
    True
    """

    task = "link-prediction"

    def hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        repeated = repeated_across_splits(kg)
        if repeated:
            warnings.warn(
                f"{repeated:,} triple{'s stand' if repeated > 1 else ' stands'} in more than one split: measured on "
                "triples that were learned, a model looks better than it is",
                stacklevel=5,
            )
        if self.training.validation and not _has(kg, "valid"):
            kg = kg.split(self.training.validation, 0.0, seed=self.seed)
        return super().hold_out(kg)

    def evaluate(
        self,
        kg: KnowledgeGraph | None = None,
        split: str = "test",
        *,
        ties: Ties = "realistic",
        filtered: bool = True,
        memory_budget: int | None = None,
        of: int | None = None,
        at_most: int | None = None,
        show_progress: bool | None = False,
    ) -> dict[str, Any]:
        """Rank a split's triples against all nodes: mrr, hits@1/3/10, mean_rank; `by_direction`, `by_relation`.

        at_most        rank so many of them, drawn with the seed; figures then come with standard errors, mrr_error
        of             also hits@10 among so many answers drawn at random (`RankCounts.hits_of`): hits@10_of_50
        show_progress  draw a bar; None: where stderr is a terminal

        The graph is encoded once. Filtered ranks leave out every other known triple of the split itself and of those
        before it (`splits_up_to`): figures on validation triples do not depend on test triples.
        """
        there = len((self.graph_ if kg is None else kg).split_triples(split))
        known, asked = None if filtered else (), 2 * min(there, at_most or there)
        with progress("ranking", asked, "questions", show=show_progress) as meter:

            def tell(answered: int) -> None:
                meter.advance(answered - meter.done)

            ranks = self.ranks(kg, split, known=known, memory_budget=memory_budget, at_most=at_most, on_progress=tell)
        report = summarize(ranks, ties=ties, filtered=filtered, of=of, drawn_from=there)
        return report.as_dict(self.graph_.relations)

    def ranks(
        self,
        kg: KnowledgeGraph | None = None,
        split: str = "test",
        *,
        known: Sequence[str] | None = None,
        memory_budget: int | None = None,
        at_most: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Ranks:
        """The rank of each triple of a split in both directions: what `evaluate` sums up.

        at_most      of so many triples, drawn with the seed
        known        splits whose triples are left out of filtered ranks; by default the split itself and those before
                     it. Without any there are raw ranks only
        on_progress  called now and then with how many questions are answered, of two for each triple
        """
        graph = self.graph_ if kg is None else self._same_names(kg)
        if not _has(graph, split):
            splits = graph.statistics().triples_per_split
            there = ", ".join(f"{number:,} {name}" for name, number in splits.items() if number)
            raise DataError(
                f"the graph has no {split} triples to rank; it has {there or f'{len(graph):,} without split'}"
            )
        known = splits_up_to(split) if known is None else known
        scorer, asked = self.scorer(), self._some(self._triples(split, graph), at_most)
        left_out = KnownTriples.of_graph(graph, *known, device=scorer.device) if known else None
        return rank_triples(scorer, asked, left_out, memory_budget=memory_budget, on_progress=on_progress)

    def measured_splits(self) -> list[str]:
        return [split for split in ("valid", "test") if _has(self.graph_, split)]

    def measure(self, at_most: int | None = None) -> dict[str, dict[str, Any]]:
        if self.measured_splits():
            return super().measure(at_most)
        figures = self.evaluate(split="train", at_most=at_most or SOME)  # nothing was held out
        return {"train": {name: figures[name] for name in (*(one.name for one in self.task_().metrics), "count")}}

    def _same_names(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        if kg is not self._graph and (kg.nodes != self.graph_.nodes or kg.relations != self.graph_.relations):
            raise DataError(
                "the graph has other nodes or relations than the one the predictor was fitted on: `over(kg)` is the "
                "model over another graph, where it can be"
            )
        return kg

    def cannot_move(self) -> str | None:
        if not self.network_.knows_nodes:
            return None
        return (
            f"{self.model.title} holds numbers for every node of the graph it was trained on, and none for those of "
            "another. For new nodes beside the known ones there is `rgcn predict RUN --with FILE`; for another graph "
            "train a model that holds nothing of nodes, such as `rgcn train path/lp-fb237-v1` makes"
        )

    def over(self, kg: KnowledgeGraph) -> Self:
        """The same trained model, its weights shared, over another graph: its training triples are what is heard.

        Relations are told by their names, and all must be known to a model that has weights for them; nodes may be any.
        Probabilities are calibrated on the other graph's validation triples, or on its own ones, hidden in turn.
        DataError for a model that holds something of its nodes.
        """
        why_not = self.cannot_move()
        if why_not is not None:
            raise DataError(why_not)
        graph = with_relations(kg, self.graph_.relations) if self.network_.knows_relations else kg
        other = self.from_settings(self.get_params()).restore_saved(graph)
        other.network_.load_state_dict(self.network_.state_dict(), assign=True)
        other.network_.eval()
        other.learned_elsewhere = True
        return other

    def predict(
        self,
        *,
        subject: str | int | None = None,
        relation: str | int,
        object: str | int | None = None,
        k: int = 10,
        known: Known = "mark",
        permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
    ) -> list[ScoredTriple]:
        """The k best objects of (subject, relation, ?) or subjects of (?, relation, object), best first.

        known      "mark" shows training triples as such, with the score they have while they are hidden; "drop" leaves
                   them out (`answer_links`)
        permitted  which answers make sense (`rgcn.links.relation_constraints`); `EVERYTHING` permits all
        """
        if (subject is None) == (object is None):
            raise ConfigError("give either a subject or an object; the other is what is asked for")
        names = self.graph_.names
        given, number = names.node(subject if object is None else object), names.relation(relation)  # type: ignore[arg-type]
        asked = Questions(torch.tensor([given]), torch.tensor([number]), object is None)
        found = ScoredTriples.of_answers(asked, answer_links(self, asked, k, known, permitted))
        return self._named(found.triples, found.score, found.probability, found.known)

    def score(self, triples: Iterable[tuple[str | int, str | int, str | int]]) -> list[ScoredTriple]:
        """Scores of given triples, by name or id: the mean of both directions, a known triple hidden meanwhile.

        `predict` has the two scores of which it is the mean: that of the object among all objects, and of the subject.
        """
        names = self.graph_.names
        rows = [(names.node(s), names.relation(r), names.node(o)) for s, r, o in triples]
        if not rows:
            raise DataError("no triples were given")
        return self._scored(torch.tensor(rows, dtype=torch.int64))

    def doubtful(self, kg: KnowledgeGraph | None = None, k: int = 20) -> list[ScoredTriple]:
        """The triples of a graph that `score` finds least likely, least likely first: candidates for mistakes in it."""
        graph = self.graph_ if kg is None else self._same_names(kg)
        if k < 1:
            raise ConfigError(f"k is at least 1, not {k}")
        triples = self._triples("all", graph)
        worst = torch.topk(self.scorer().triple_scores(triples), min(k, len(triples)), largest=False).indices
        return self._scored(triples[worst].cpu())

    def _scored(self, triples: Tensor) -> list[ScoredTriple]:
        known = KnownTriples.of_graph(self.graph_, "train").contains(triples)
        return self._named(triples, *rate_triples(self, triples), known)

    def _named(self, triples: Any, scores: Any, shares: Any, known: Any) -> list[ScoredTriple]:
        """Arrays or tensors of triples [n, 3] and of what is known of each; shares may be None."""
        nodes, relations = self.graph_.nodes, self.graph_.relations
        probabilities = [None] * len(scores) if shares is None else [None if p != p else p for p in shares.tolist()]
        return Rows(
            ScoredTriple(nodes[s], relations[r], nodes[o], *rest)
            for (s, r, o), *rest in zip(triples.tolist(), scores.tolist(), probabilities, known.tolist(), strict=True)
        )


def _has(kg: KnowledgeGraph, split: str) -> bool:
    split_at_all = split in ("train", "all") or kg.triple_splits is not None
    return split_at_all and kg.num_of(split) > 0
