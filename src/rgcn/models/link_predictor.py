"""Link prediction: fit on triples, rank held-out triples among all nodes, answer questions by name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from rgcn.config import LinkModelConfig, LinkTrainingConfig, Scheme
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.graph.vocabulary import renumber_relations
from rgcn.links.ranking import Ranks, Ties, rank_triples, summarize
from rgcn.links.relation_constraints import AnswerFilter
from rgcn.links.top_k import KnownMode, ScoredTriples, answer_links, rate_triples
from rgcn.models.estimator import Estimator, ModelHooks, Nodes, one_hot_message
from rgcn.models.growth import fold_in
from rgcn.nn.decoders import Decoder
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoders import Encoder, VectorEncoder
from rgcn.nn.link_network import LinkNetwork, LinkPlan
from rgcn.nn.relational_graph_conv import MessageFunction
from rgcn.nn.scorer import Questions, Scorer
from rgcn.nn.universal_network import pretrained_card
from rgcn.plugins import ENCODERS, OBJECTIVES
from rgcn.sampling.edges import EdgeSampler
from rgcn.sampling.known_triples import KnownTriples, repeated_across_splits, splits_up_to
from rgcn.system.progress import progress
from rgcn.training.link_trainer import LinkTrainer, StoredTriples
from rgcn.training.objectives import Objective, ObjectivePlan
from rgcn.training.plan import Plan, chosen_at_size

if TYPE_CHECKING:
    import polars as pl

Triples = Iterable[tuple[str | int, str | int, str | int]]

MAX_REPORTS = 100  # of a training, besides those that come with a measurement on validation triples
# Validation of a training whose settings do not say when: how often, on how many triples, and not before which step.
NUM_MEASUREMENTS, MEASURED_TRIPLES, MIN_STEPS_BETWEEN = 10, 1000, 10


class LinkHooks(ModelHooks):
    """Explanations, vectors, new nodes and other graphs of a model that learns from triples."""

    estimator: LinkEstimator

    @property
    def num_layers(self) -> int:
        """How many hops a message travels; 0 if the model passes no messages."""
        return int(self.estimator.network_.num_layers)

    @property
    def hides_query(self) -> bool:
        """True if the network walks from the queried node and must not use the edge of the queried triple itself."""
        return bool(self.estimator.network_.must_hide_triples)

    def relation_embeddings(self) -> tuple[Tensor, Tensor | None, str]:
        """Return the vector that triples of each relation are scored with."""
        vectors = self.estimator.network_.relation_vectors()
        if vectors is None:
            return super().relation_embeddings()
        return vectors.detach().float().cpu().clone(), None, "the vector of each relation that triples are scored with"

    def why_not_extensible(self) -> str | None:
        """Return why the model cannot answer for new nodes: it has one-hot inputs, or passes no messages."""
        if self.estimator.network_.is_one_hot:
            return one_hot_message("rgcn with `input: embedding`, or c-rgcn")
        if not self.num_layers:
            return (
                f"{self.estimator.model.title} passes no messages, so the triples of a new node have no effect. Train "
                "c-rgcn or rgcn (with embeddings), which compute a node from its neighbors"
            )
        return None

    def why_not_transferable(self) -> str | None:
        """Return why the model cannot answer over another graph: it has weights of single nodes."""
        if not self.estimator.network_.has_node_weights:
            return None
        return (
            f"{self.estimator.model.title} has weights for every node of the graph it was trained on, and none for "
            "those of another graph. For new nodes of the same graph use `rgcn predict RUN --with FILE`; for another "
            "graph train a model without weights of nodes, such as `rgcn train path/lp-fb237-v1` makes"
        )


class LinkEstimator(Estimator):
    """What estimators that learn from triples share: their parameters, training, and the scorer of the trained network.

    The parameter `class_share` is for `LinkClassifier` alone.
    """

    model_section, training_section = LinkModelConfig, LinkTrainingConfig
    hooks = LinkHooks
    validates_by_default: ClassVar[bool] = True  # on validation triples while it trains, if no setting says when

    model: LinkModelConfig
    training: LinkTrainingConfig
    _network: LinkNetwork | None

    def __init__(
        self,
        model: str | None = None,
        *,
        seed: int = 0,
        encoder: str | type[Encoder] | None = None,
        decoder: str | type[Decoder] | None = None,
        reciprocal: bool | None = None,
        margin: float = 9.0,
        layers: int | None = None,
        embedding: int = 200,
        bottleneck: int = 16,
        width: int | None = None,
        relation_layers: int = 4,
        start: Literal["random", "shipped"] | None = None,
        relation_vectors: Literal["own", "question"] = "own",
        messages: Literal["multiply", "add"] = "multiply",
        deviation: bool = False,
        degree_scaling: bool = True,
        surroundings: int | None = None,
        unreached: Literal["asleep", "awake"] | None = None,
        skip: bool = True,
        layer_norm: bool = True,
        dropout: float = 0.0,
        input: Literal["embedding", "one-hot"] = "embedding",
        activated_input: bool = True,
        decomposition: str | type[Decomposition] = "none",
        message_function: str | type[MessageFunction] = "linear",
        convolution_options: dict[str, Any] | None = None,
        bases: int | None = None,
        blocks: int | None = None,
        self_loop_apart: bool | None = None,
        separate_inverse_bases: bool = False,
        coefficient_init: Literal["same", "normal"] = "same",
        normalization: Literal["relation", "node", "direction", "none"] | None = None,
        aggregation: Literal["sum", "mean"] = "sum",
        inverse: bool = True,
        self_loops: bool | None = None,
        bias: bool = True,
        init: Scheme = "schlichtkrull-normal",
        gain: float = 1.0,
        node_deviation: float | None = None,
        relation_deviation: float | None = None,
        fans: Literal["matrix", "published"] = "matrix",
        decoder_biases: bool = False,
        options: dict[str, Any] | None = None,
        steps: int = 1000,
        epochs: int | None = None,
        batch_edges: int | None = None,
        sampler: str | type[EdgeSampler] | None = None,
        objective: str | type[Objective] | None = None,
        negatives: int = 10,
        shared_by: int | None = None,
        head_probability: float = 0.5,
        filtered_negatives: bool = False,
        temperature: float = 1.0,
        penalty: float = 0.01,
        regularizer: Literal["l2", "n3"] | None = None,
        message_edges: Literal["batch", "graph", "graph-without-batch"] = "batch",
        hidden: Literal["triple", "pair"] = "triple",
        edge_dropout: float | None = None,
        self_loop_dropout: float | None = None,
        self_loop_dropout_on: Literal["edge", "message"] = "edge",
        optimizer: str | type[torch.optim.Optimizer] | None = None,
        tables: Literal["memory", "disk"] | None = None,
        learning_rate: float | None = None,
        schedule: Literal["constant", "cosine", "step"] | None = None,
        warmup: int = 0,
        step_every: int = 1000,
        step_factor: float = 0.5,
        weight_decay: float = 0.0,
        clip: float | None = None,
        objective_options: dict[str, Any] | None = None,
        validation: float | None = None,
        class_share: float | None = None,
        evaluate_every: int | None = None,
        evaluate_at_most: int | None = None,
        patience: int | None = None,
        watch: Literal["mrr", "hits@1", "hits@3", "hits@10", "mean_rank", "accuracy"] | None = None,
        device: str = "auto",
        deterministic: bool = False,
        sharded: bool | None = None,
    ) -> None:
        self._configure(locals())

    @property
    def network_(self) -> LinkNetwork:
        """The PyTorch module."""
        return self._fitted(self._network)

    @classmethod
    def pretrained(cls, kg: KnowledgeGraph, device: str = "auto") -> Self:
        """Return the pretrained model over a graph, without training (zero-shot).

        Args:
            kg: The graph. Its training triples and labels are the context of every answer.
            device: "cpu", "cuda", "cuda:1", or "auto".

        Example:
            >>> import rgcn
            >>> model = rgcn.LinkPredictor.pretrained(rgcn.load("world"))
            >>> model.predict(subject="Albania", relation="borders", k=1, known="drop").tolist()
            ['North Macedonia']
        """
        model = cls("universal", **pretrained_card()["settings"], device=device, steps=0).prepare(kg)
        model.network_.eval()  # not by `fit`: its optimizer would load PyTorch's compiler, which takes two seconds
        return model

    @property
    def _hiding_note(self) -> str | None:
        if not self.scorer().can_hide_triples:
            return None
        return "" if self.is_transferred else " The model learned from these: of others it may know less."

    def _schedule_options(self, trainer: LinkTrainer) -> dict[str, Any]:
        every, steps, at_most = self.training.evaluate_every, self.training.steps, self.training.evaluate_at_most
        by_default = every is None and self.validates_by_default and steps >= 2 * MIN_STEPS_BETWEEN
        if by_default and self._can_validate(self.graph_):
            every, at_most = max(MIN_STEPS_BETWEEN, steps // NUM_MEASUREMENTS), at_most or MEASURED_TRIPLES
        measure = partial(self.validate, at_most) if every else None
        return {"report_every": max(1, steps // MAX_REPORTS), "measure": measure, "measure_every": every or 1}

    def _hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        if self.training.evaluate_every and not self._can_validate(kg):
            advice = "set validation, for example to 0.1, or evaluate_every to null"
            raise DataError(f"evaluate_every needs validation data, and the graph has none: {advice}")
        return kg

    def _derived_settings(self, graph: KnowledgeGraph) -> dict[str, Any]:
        derived = chosen_at_size(self.model, self.training, graph)
        if self.training.epochs is not None:
            batch = derived.get("batch_edges", self.training.batch_edges)
            if batch is None and not issubclass(ENCODERS.resolve(self.model.encoder), VectorEncoder):
                raise ConfigError(
                    "training.epochs: the number of steps in a pass follows from training.batch_edges: set it"
                )
            rows = graph.num_triples_in("train") * (1 + OBJECTIVES.resolve(self.training.objective).is_directed)
            derived["steps"] = self.training.epochs * math.ceil(rows / (batch or rows))
            derived["epochs"] = None  # from here on `steps` counts
        return derived

    def prepare(self, kg: KnowledgeGraph | Plan) -> Self:
        """Do everything that comes before the first step: plan, build the operator and the untrained network.

        Args:
            kg: The graph, or a plan of `plan`.
        """
        super().prepare(kg).network_.load_initial_weights(self.model)
        return self

    def _build(self, graph: KnowledgeGraph) -> Self:
        """Build the operator and the untrained network, for a graph whose splits are drawn."""
        if not graph.num_triples_in("train"):
            raise DataError("the graph has no training triples")
        if graph.num_nodes < 2:
            raise DataError("link prediction needs at least two nodes: a single one has no rank")
        encoder = ENCODERS.resolve(self.model.encoder)
        adjacency, generator = self._begin(graph, "train", encoder.has_messages)
        counts = graph.num_nodes, graph.num_relations
        plan = LinkPlan(self.model, self.training, *counts, adjacency, generator, self.placement)
        self._network = network = encoder.build_link_network(plan).to(adjacency.device)
        network.placement = self.placement
        self.is_transferred = not self.training.steps
        samples_edges = self.training.batch_edges is not None and network.num_layers and not network.must_hide_triples
        samples_edges = samples_edges and self.training.message_edges == "batch"
        if graph.edge_weights is not None and samples_edges:
            raise DataError("sampled edges carry no weights: leave batch_edges out, or drop the graph's edge weights")
        return self

    def _can_validate(self, kg: KnowledgeGraph) -> bool:
        return _has_split(kg, "valid")

    def trainer(self) -> LinkTrainer:
        """Return the `LinkTrainer` that takes the steps; after `prepare`."""
        kg, network = self.graph_, self.network_
        triples = StoredTriples(kg) if StoredTriples.suit(kg, network, self.training) else self._triples("train")
        return LinkTrainer(network, triples, self.adjacency_, self.model, self.training, self.seed)

    def scorer(self) -> Scorer:
        """Return the scorer of the trained network."""
        return self.network_.scorer(self.adjacency_)

    def _triples(self, split: str, graph: KnowledgeGraph | None = None) -> Tensor:
        """Return the triples of a split on the device, [num_triples, 3]."""
        return torch.tensor((graph or self.graph_).split_triples(split), device=self.adjacency_.device)

    def embeddings(self, nodes: Nodes | None = None, layer: int | None = None) -> NDArray[np.float32]:
        """Return the vectors of nodes that triples are scored with, [num_nodes, width].

        Args:
            nodes: Nodes by name or id; None: all nodes.
            layer: Must be None.
        """
        self.hooks(self).embedding_layer(layer)
        vectors = self.network_.node_vectors(self.adjacency_)
        if vectors is None:
            return super().embeddings(nodes, layer)
        rows = vectors.detach()[torch.from_numpy(self._node_ids(nodes)).to(vectors.device)]
        return np.ascontiguousarray(rows.cpu().numpy(), dtype=np.float32)

    def _fit_new_nodes(self, known: KnowledgeGraph, steps: int) -> None:
        if not self.network_.has_node_weights:
            return
        graph, first_new = self.graph_, len(known)
        is_train = np.ones(len(graph), dtype=bool) if graph.triple_splits is None else graph.triple_splits == 0
        positives = torch.tensor(graph.triples[first_new:][is_train[first_new:]], device=self.adjacency_.device)
        plan = ObjectivePlan(self.training, self._triples("train"), graph.num_nodes, graph.num_relations)
        objective = OBJECTIVES.resolve(self.training.objective).build(plan)
        rate = self.training.edge_dropout
        fold_in(self.network_, self.adjacency_, positives, objective, edge_dropout=rate, steps=steps, seed=self.seed)
        self.network_.train()  # discards what it had encoded with the old rows


class LinkPredictor(LinkEstimator):
    """Link prediction with RGCN, c-RGCN, DistMult, path networks, or any other encoder, decoder and objective.

    Args:
        model: Preset of encoder, decoder and what suits them: "rgcn", "c-rgcn", "distmult", "path", "universal" or
            "popularity".
        seed: Seed of every random choice.
        encoder: Name or class of the encoder. As for every argument that is None by default and whose setting is not:
            the value of the preset, else the configuration's default.

    The other arguments are described by `rgcn.config.LinkModelConfig` (network) and `rgcn.config.LinkTrainingConfig`
    (training), whose fields they are; `rgcn train --explain` shows them.

    Example:
        >>> import rgcn
        >>> kg = rgcn.load("world")
        >>> lp = rgcn.LinkPredictor(model="c-rgcn", embedding=16, bottleneck=4, steps=2, seed=0).fit(kg)
        >>> 0.0 < lp.score(kg, split="test") <= 1.0
        True
        >>> lp.predict(subject="Peru", relation="borders", k=2).shape
        (2,)
        >>> lp.predict_frame(subject="Peru", relation="borders", k=2).columns
        ['subject', 'relation', 'object', 'score', 'probability', 'known']
    """

    task = "link-prediction"

    def _hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        share = 0.0 if _has_split(kg, "valid") else self.training.validation
        graph = super()._hold_out(kg.split(share, 0.0, seed=self.seed) if share else kg)
        if repeated := repeated_across_splits(kg):
            message = f"{repeated:,} triple{'s are' if repeated > 1 else ' is'} in more than one split"
            message += ": measured on triples that were learned, a model looks better than it is"
            warnings.warn(message, stacklevel=5)
        return graph

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
        """Rank the triples of a split among all nodes, from both ends.

        The graph is encoded once. Filtered ranks leave out the other known triples of the split and of those before it
        (`splits_up_to`), so that metrics on validation triples do not depend on test triples.

        Args:
            kg: The graph, with the same nodes and relations; None: the one the model was fitted on.
            split: "train", "valid" or "test".
            ties: The rank of a triple among others with the same score.
            filtered: Leave other known triples out of the ranking.
            memory_budget: Bytes that scores may take at once; None: as fits.
            of: Also compute hits@10 among so many answers drawn at random, as `hits@10_of_50`.
            at_most: Rank so many triples, drawn with the seed; metrics then come with standard errors (`mrr_error`).
            show_progress: Draw a progress bar; None: if standard error is a terminal.

        Returns:
            `mrr`, `hits@1`, `hits@3`, `hits@10`, `mean_rank` and `count`, and the same in `by_direction` and
            `by_relation`.
        """
        num_triples = len((self.graph_ if kg is None else kg).split_triples(split))
        known, total = None if filtered else (), 2 * min(num_triples, at_most or num_triples)
        options: dict[str, Any] = {"known": known, "memory_budget": memory_budget, "at_most": at_most}
        with progress("ranking", total, "questions", show=show_progress) as meter:
            ranks = self.ranks(kg, split, **options, on_progress=lambda done: meter.advance(done - meter.done))
        report = summarize(ranks, ties=ties, filtered=filtered, num_candidates=of, population=num_triples)
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
        """Compute the rank of each triple of a split in both directions, from which `evaluate` computes metrics.

        Args:
            kg: The graph, with the same nodes and relations; None: the one the model was fitted on.
            split: "train", "valid" or "test".
            known: Splits whose triples are left out of filtered ranks; None: the split and those before it. Empty: only
                raw ranks are computed.
            memory_budget: Bytes that scores may take at once; None: as fits.
            at_most: Rank so many triples, drawn with the seed.
            on_progress: Called now and then with the number of questions answered, of two for each triple.
        """
        graph = self.graph_ if kg is None else self._check_names(kg)
        if not _has_split(graph, split):
            sizes = graph.statistics().triples_per_split.items()
            existing = ", ".join(f"{size:,} {name}" for name, size in sizes if size) or f"{len(graph):,} without split"
            raise DataError(f"the graph has no {split} triples to rank; it has {existing}")
        known = splits_up_to(split) if known is None else known
        scorer, triples = self.scorer(), self._draw_rows(self._triples(split, graph), at_most)
        known_triples = KnownTriples.of_graph(graph, *known, device=scorer.device) if known else None
        return rank_triples(scorer, triples, known_triples, memory_budget=memory_budget, on_progress=on_progress)

    def measured_splits(self) -> list[str]:
        """Return which of the validation and test splits have triples."""
        return [split for split in ("valid", "test") if _has_split(self.graph_, split)]

    def measure(self, at_most: int | None = None) -> dict[str, dict[str, Any]]:
        """Compute the task's metrics on validation and test triples; on training triples if nothing was held out.

        Args:
            at_most: Measure on so many triples of each split, drawn with the seed.
        """
        if self.measured_splits():
            return super().measure(at_most)
        metrics = self.evaluate(split="train", at_most=at_most or MEASURED_TRIPLES)
        return {"train": {name: metrics[name] for name in (*(one.name for one in self.task_info.metrics), "count")}}

    def _check_names(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        if kg is not self._graph and (kg.nodes != self.graph_.nodes or kg.relations != self.graph_.relations):
            advice = "use `over(kg)`, which returns the model over another graph if that is possible"
            raise DataError(f"the graph has other nodes or relations than the predictor's own: {advice}")
        return kg

    def over(self, kg: KnowledgeGraph) -> Self:
        """Return the same trained model over another graph, sharing its weights.

        The other graph's training triples are the context of every answer. Probabilities are calibrated on its
        validation triples, or else on training triples, each hidden in turn.

        Args:
            kg: A graph of any nodes. If the model has weights of relations, all relations must be known to it by name.

        Raises:
            DataError: The model has weights of single nodes.
        """
        if (why_not := self.hooks_.why_not_transferable()) is not None:
            raise DataError(why_not)
        graph = renumber_relations(kg, self.graph_.relations) if self.network_.has_relation_weights else kg
        other = self.from_settings(self.settings_)._build_saved(graph)
        other.network_.load_state_dict(self.network_.state_dict(), assign=True)
        other.network_.eval()
        other.is_transferred = True
        return other

    def predict(
        self,
        *,
        subject: str | int | None = None,
        relation: str | int,
        object: str | int | None = None,
        k: int = 10,
        known: KnownMode = "mark",
        answer_filter: AnswerFilter = AnswerFilter(),  # noqa: B008 - it is immutable
    ) -> NDArray[np.object_]:
        """Answer (subject, relation, ?) or (?, relation, object): return the names of the k best nodes, best first.

        Args:
            subject: The subject by name or id, to ask for objects.
            relation: The relation by name or id.
            object: The object by name or id, to ask for subjects.
            k: How many answers.
            known: "mark" includes known training triples, each with the score it has while hidden; "drop" leaves them
                out.
            answer_filter: Which answers make sense (`rgcn.links.relation_constraints`); `ALLOW_ALL` permits all.

        Returns:
            Node names, [k], or fewer if there are not so many answers.
        """
        frame = self.predict_frame(
            subject=subject, relation=relation, object=object, k=k, known=known, answer_filter=answer_filter
        )
        return np.array(frame["object" if object is None else "subject"].to_list(), dtype=np.object_)

    def predict_frame(
        self,
        *,
        subject: str | int | None = None,
        relation: str | int,
        object: str | int | None = None,
        k: int = 10,
        known: KnownMode = "mark",
        answer_filter: AnswerFilter = AnswerFilter(),  # noqa: B008 - it is immutable
    ) -> pl.DataFrame:
        """Answer (subject, relation, ?) or (?, relation, object) as a table; arguments as for `predict`.

        Returns:
            A row for each answer, best first, with the columns of `triples_frame`.
        """
        if (subject is None) == (object is None):
            raise ConfigError("give either a subject or an object; the other one is what is asked for")
        names = self.graph_.names
        node, number = names.node(subject if object is None else object), names.relation(relation)  # type: ignore[arg-type]
        question = Questions(torch.tensor([node]), torch.tensor([number]), object is None)
        answers = ScoredTriples.of_answers(question, answer_links(self, question, k, known, answer_filter))
        return self._frame(answers.triples, answers.score, answers.probability, answers.known)

    def score_triples(self, triples: Triples) -> NDArray[np.float64]:
        """Compute the raw scores of triples.

        A score is the mean of both directions. A known triple is hidden while it is scored, if the model can hide it.

        Args:
            triples: (subject, relation, object) by name or id.

        Returns:
            The scores, [num_triples]; higher is likelier.
        """
        return rate_triples(self, self._triple_ids(triples))[0].double().numpy()

    def predict_proba(self, triples: Triples) -> NDArray[np.float64]:
        """Compute the calibrated probabilities of triples.

        Args:
            triples: (subject, relation, object) by name or id.

        Returns:
            The probabilities, [num_triples]; NaN for training triples, which are known.

        Raises:
            DataError: There are too few triples to calibrate on. `score_triples` are uncalibrated numbers.
        """
        probability = rate_triples(self, self._triple_ids(triples))[1]
        if probability is None:
            raise DataError(self.calibration_.words)
        return probability.double().numpy()

    def triples_frame(self, triples: Triples) -> pl.DataFrame:
        """Score triples, as a table.

        Args:
            triples: (subject, relation, object) by name or id.

        Returns:
            A row for each triple: `subject`, `relation`, `object`, `score` (as `score_triples`), `probability`
            (calibrated; null for known triples, or if there are too few triples to calibrate on) and `known` (True for
            training triples).
        """
        return self._scored_frame(self._triple_ids(triples))

    def least_likely(self, kg: KnowledgeGraph | None = None, k: int = 20) -> pl.DataFrame:
        """Find the triples of a graph with the lowest scores: candidates for errors in it.

        Args:
            kg: The graph, with the same nodes and relations; None: the one the model was fitted on.
            k: How many triples.

        Returns:
            A row for each triple, the least likely first, with the columns of `triples_frame`.
        """
        graph = self.graph_ if kg is None else self._check_names(kg)
        if k < 1:
            raise ConfigError(f"k must be at least 1; got {k}")
        triples = self._triples("all", graph)
        worst = torch.topk(self.scorer().triple_scores(triples), min(k, len(triples)), largest=False).indices
        return self._scored_frame(triples[worst].cpu())

    def _triple_ids(self, triples: Triples) -> Tensor:
        """Return triples by name or id as ids, [num_triples, 3]."""
        names = self.graph_.names
        rows = [(names.node(s), names.relation(r), names.node(o)) for s, r, o in triples]
        if not rows:
            raise DataError("the list of triples is empty: give at least one")
        return torch.tensor(rows, dtype=torch.int64)

    def _scored_frame(self, triples: Tensor) -> pl.DataFrame:
        known = KnownTriples.of_graph(self.graph_, "train").contains(triples)
        score, probability = rate_triples(self, triples)
        columns = triples, score.double(), probability, known
        return self._frame(*(None if column is None else column.numpy() for column in columns))

    def _frame(self, triples: Any, score: Any, probability: Any, known: Any) -> pl.DataFrame:
        """Return arrays of triples [num_triples, 3] and of numbers [num_triples] as a table with names."""
        import polars as pl

        nodes, relations = self.graph_.nodes, self.graph_.relations
        columns = {
            "subject": [nodes[s] for s in triples[:, 0].tolist()],
            "relation": [relations[r] for r in triples[:, 1].tolist()],
            "object": [nodes[o] for o in triples[:, 2].tolist()],
            "score": score,
            "probability": [None] * len(triples) if probability is None else probability,
            "known": known,
        }
        names = dict.fromkeys(("subject", "relation", "object"), pl.String)
        frame = pl.DataFrame(columns, schema_overrides={**names, "probability": pl.Float64})
        return frame.with_columns(pl.col("probability").fill_nan(None))


def _has_split(kg: KnowledgeGraph, split: str) -> bool:
    has_splits = split in ("train", "all") or kg.triple_splits is not None
    return has_splits and kg.num_triples_in(split) > 0
