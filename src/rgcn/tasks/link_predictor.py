"""Link prediction: fit on triples, rank exactly, ask for missing triples by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rgcn.adjacency import RelationalAdjacency
from rgcn.config import LinkModelConfig, LinkTrainingConfig, validated
from rgcn.errors import ConfigError, DataError, NotFittedError
from rgcn.graph import KnowledgeGraph
from rgcn.known import KnownTriples, repeated_across_splits, splits_up_to
from rgcn.ranking import RankingReport, Ranks, rank_triples, summarize
from rgcn.ranking.ranks import Ties
from rgcn.tasks.devices import choose_device
from rgcn.tasks.fold_in import fold_in
from rgcn.tasks.link_fitting import LinkEpoch, LinkFitting
from rgcn.tasks.link_network import LinkNetwork, build_link_network
from rgcn.tasks.link_training import LinkTrainer
from rgcn.tasks.settings import split_settings


class ScoredTriple(NamedTuple):
    """A triple by name, its score, the score as a probability, and whether the graph already has it."""

    subject: str
    relation: str
    object: str
    score: float
    probability: float
    known: bool


class LinkPredictor:
    """RGCN, c-RGCN or plain DistMult for link prediction.

    Keyword arguments are the fields of `rgcn.config.LinkModelConfig` (with `model` for its name) and of
    `LinkTrainingConfig`.

    >>> import rgcn
    >>> kg = rgcn.load("world")
    >>> lp = rgcn.LinkPredictor(model="c-rgcn", embedding=16, bottleneck=4, epochs=2, seed=0).fit(kg)
    >>> 0.0 < lp.evaluate(kg, split="test")["mrr"] <= 1.0
    True
    >>> [triple.object for triple in lp.predict(subject="Peru", relation="borders", k=2)] != []
    True
    """

    def __init__(self, model: str = "rgcn", *, seed: int = 0, **settings: Any) -> None:
        in_model, in_training = split_settings(
            "LinkPredictor", settings, LinkModelConfig, LinkTrainingConfig, own=("model", "seed")
        )
        self.model: LinkModelConfig = validated(LinkModelConfig, {"name": model, **in_model}, "LinkPredictor")
        self.training: LinkTrainingConfig = validated(LinkTrainingConfig, in_training, "LinkPredictor")
        self.seed = seed
        self.history_: list[LinkEpoch] = []
        self._graph: KnowledgeGraph | None = None
        self._adjacency: RelationalAdjacency | None = None
        self._network: LinkNetwork | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by name, as the constructor takes them."""
        settings = {"model": self.model.name, "seed": self.seed}
        return {**settings, **self.model.model_dump(exclude={"name"}), **self.training.model_dump()}

    def set_params(self, **settings: Any) -> LinkPredictor:
        """Change settings; the predictor must then be fitted again."""
        LinkPredictor.__init__(self, **{**self.get_params(), **settings})
        return self

    @property
    def graph_(self) -> KnowledgeGraph:
        """The graph the predictor was fitted on."""
        if self._graph is None:
            raise NotFittedError("this predictor has not been fitted: call fit(kg) first")
        return self._graph

    @property
    def network_(self) -> LinkNetwork:
        """The network."""
        if self._network is None:
            raise NotFittedError("this predictor has not been fitted: call fit(kg) first")
        return self._network

    @property
    def num_parameters_(self) -> int:
        """Numbers that training may change."""
        return sum(p.numel() for p in self.network_.parameters())

    def __repr__(self) -> str:
        state = "not fitted" if self._graph is None else f"fitted on {self._graph!r}"
        return f"LinkPredictor({self.model.name!r}, {state})"

    # -- learning ----------------------------------------------------------------------------------------

    def fit(self, kg: KnowledgeGraph, on_epoch: Callable[[LinkEpoch], None] | None = None) -> LinkPredictor:
        """Learn from the training triples (all of them, where the graph has no split), never from test triples.

        on_epoch is called about a hundred times, and after each measurement on the validation triples.
        """
        with self.fitting(kg) as fitting:
            for epoch in fitting:
                if on_epoch is not None and epoch is not None:
                    on_epoch(epoch)
            fitting.finish()
        return self

    def fitting(self, kg: KnowledgeGraph) -> LinkFitting:
        """`fit` a step at a time: a training that can be stopped, written down and continued."""
        trainer = self.prepare(kg).trainer()
        if self.training.evaluate_every is None:
            return LinkFitting(trainer, self.seed, self.history_, None)
        return LinkFitting(trainer, self.seed, self.history_, self._validation_mrr)

    def prepare(self, kg: KnowledgeGraph) -> LinkPredictor:
        """Everything before the first step: check the triples, build the operator and the untrained network."""
        if not len(kg.split_triples("train")):
            raise DataError("the graph has no training triples")
        if kg.num_nodes < 2:
            raise DataError("link prediction needs at least two nodes: there is nothing to tell apart")
        if self.training.evaluate_every is not None and not _has(kg, "valid"):
            raise DataError(
                "evaluate_every needs validation triples, and the graph has none: read it with a valid split"
            )
        if kg.edge_weights is not None and self.training.batch_edges is not None and self.model.name != "distmult":
            raise DataError("sampled edges carry no weights: leave batch_edges out, or drop the graph's edge weights")
        repeated = repeated_across_splits(kg)
        if repeated:
            warnings.warn(
                f"{repeated:,} triple{'s stand' if repeated > 1 else ' stands'} in more than one split: measured on "
                "triples that were learned, a model looks better than it is",
                stacklevel=2,
            )
        device = choose_device(self.training.device)
        self._graph, self.history_ = kg, []
        self._adjacency = RelationalAdjacency.from_graph(
            kg,
            split="train",
            inverse=self.model.inverse,
            self_loops=self.model.self_loops,
            normalization=self.model.normalization,
            aggregation=self.model.aggregation,
            device=device,
        )
        sizes = kg.num_nodes, kg.num_relations
        network = build_link_network(self.model, self.training, *sizes, self._adjacency, self.seed)
        self._network = network.to(device)
        return self

    def trainer(self) -> LinkTrainer:
        """What takes the steps, for loops of one's own; after `prepare`."""
        assert self._adjacency is not None
        return LinkTrainer(self.network_, self._triples("train"), self._adjacency, self.model, self.training, self.seed)

    def fold_in(self, first_new: int, steps: int) -> None:
        """Fit the embeddings of nodes that were added after training to the triples from number `first_new` on."""
        assert self._adjacency is not None
        graph = self.graph_
        is_train = np.ones(len(graph), dtype=bool) if graph.triple_splits is None else graph.triple_splits == 0
        new = graph.triples[first_new:][is_train[first_new:]]
        positives = torch.from_numpy(np.array(new)).to(self._adjacency.device)
        fold_in(self.network_, self._adjacency, positives, self.training, steps=steps, seed=self.seed)
        self.network_.train()  # what was encoded so far is no longer so

    # -- measuring ---------------------------------------------------------------------------------------

    def evaluate(
        self,
        kg: KnowledgeGraph | None = None,
        split: str = "test",
        *,
        ties: Ties = "realistic",
        filtered: bool = True,
        memory_budget: int | None = None,
    ) -> dict[str, Any]:
        """Rank a split's triples against all nodes: mrr, hits@1/3/10, mean_rank; `by_direction`, `by_relation`.

        The graph is encoded once. Filtered ranks leave out every other known triple of the split itself and of those
        before it (`splits_up_to`): figures on validation triples do not depend on test triples.
        """
        report = self.rank(kg, split, ties=ties, filtered=filtered, memory_budget=memory_budget)
        names = self.graph_.relations
        return {
            **report.both.as_dict(),
            "by_direction": {"object": report.object.as_dict(), "subject": report.subject.as_dict()},
            "by_relation": {names[r]: metrics.as_dict() for r, metrics in report.by_relation.items()},
        }

    def rank(
        self,
        kg: KnowledgeGraph | None = None,
        split: str = "test",
        *,
        ties: Ties = "realistic",
        filtered: bool = True,
        memory_budget: int | None = None,
    ) -> RankingReport:
        """The metrics behind `evaluate`, by relation number."""
        ranks = self.ranks(kg, split, known=None if filtered else (), memory_budget=memory_budget)
        return summarize(ranks, ties=ties, filtered=filtered)

    def ranks(
        self,
        kg: KnowledgeGraph | None = None,
        split: str = "test",
        *,
        known: Sequence[str] | None = None,
        memory_budget: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Ranks:
        """The rank of each triple of a split in both directions: what `rank` and `evaluate` sum up.

        known        splits whose triples are left out of filtered ranks; by default the split itself and those before
                     it. Without any there are raw ranks only
        on_progress  called now and then with how many questions are answered, of two for each triple
        """
        graph = self.graph_ if kg is None else self._same_names(kg)
        if not _has(graph, split):
            raise DataError(f"the graph has no {split} triples to rank")
        known = splits_up_to(split) if known is None else known
        nodes, decoder = self.encoded(), self.network_.decoder
        return rank_triples(
            lambda s, r: decoder.score_objects(nodes.index_select(0, s), r, nodes),
            lambda r, o: decoder.score_subjects(r, nodes.index_select(0, o), nodes),
            self._triples(split, graph),
            graph.num_nodes,
            KnownTriples.of_graph(graph, *known, device=nodes.device) if known else None,
            memory_budget=memory_budget,
            on_progress=on_progress,
        )

    def _validation_mrr(self) -> float:
        return self.rank(split="valid").both.mrr

    def encoded(self) -> Tensor:
        """[N, d']: every node's vector from the whole training graph, nothing dropped; computed once after training."""
        return self.network_.encoded(self._adjacency)

    def _triples(self, split: str, graph: KnowledgeGraph | None = None) -> Tensor:
        assert self._adjacency is not None
        rows = (graph or self.graph_).split_triples(split)
        return torch.from_numpy(np.array(rows)).to(self._adjacency.device)

    def _same_names(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        if kg is self._graph:
            return kg
        if kg.nodes != self.graph_.nodes or kg.relations != self.graph_.relations:
            raise DataError("the graph has other nodes or relations than the one the predictor was fitted on")
        return kg

    # -- asking ------------------------------------------------------------------------------------------

    def predict(
        self,
        *,
        subject: str | int | None = None,
        relation: str | int,
        object: str | int | None = None,
        k: int = 10,
        known: str = "mark",
    ) -> list[ScoredTriple]:
        """The k best objects of (subject, relation, ?) or subjects of (?, relation, object), best first.

        known: "mark" shows triples the graph already has as such, "drop" leaves them out.
        """
        if (subject is None) == (object is None):
            raise ConfigError("give either a subject or an object; the other is what is asked for")
        if k < 1 or known not in ("mark", "drop"):
            raise ConfigError(f'k is at least 1 and known is "mark" or "drop"; got k = {k}, known = {known!r}')
        graph, nodes, decoder = self.graph_, self.encoded(), self.network_.decoder
        r = torch.tensor([graph.relations.id(relation)], device=nodes.device)
        given = torch.tensor([graph.nodes.id(subject if object is None else object)], device=nodes.device)  # type: ignore[arg-type]
        with torch.no_grad():
            row = nodes.index_select(0, given)
            for_objects = object is None
            scores = decoder.score_objects(row, r, nodes) if for_objects else decoder.score_subjects(r, row, nodes)
        index = KnownTriples.of_graph(graph, device=nodes.device)
        answers = index.objects_of(given, r)[1] if for_objects else index.subjects_of(r, given)[1]
        if known == "drop":
            scores[0, answers] = -torch.inf
        best = torch.topk(scores[0], min(k, graph.num_nodes))
        already = set(answers.tolist())
        fixed, name = graph.nodes[int(given)], graph.relations[int(r)]
        return [
            ScoredTriple(
                fixed if for_objects else graph.nodes[node],
                name,
                graph.nodes[node] if for_objects else fixed,
                score,
                _sigmoid(score),
                node in already,
            )
            for score, node in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if score > -np.inf
        ]

    def score(self, triples: Iterable[tuple[str | int, str | int, str | int]]) -> list[ScoredTriple]:
        """Scores of given triples, by name or id."""
        graph = self.graph_
        rows = [(graph.nodes.id(s), graph.relations.id(r), graph.nodes.id(o)) for s, r, o in triples]
        if not rows:
            raise DataError("no triples were given")
        ids = torch.tensor(rows, dtype=torch.int64)
        return self._scored(ids, known=None)

    def doubtful(self, kg: KnowledgeGraph | None = None, k: int = 20) -> list[ScoredTriple]:
        """The known triples the model finds least likely, least likely first: candidates for mistakes in the data."""
        graph = self.graph_ if kg is None else self._same_names(kg)
        if k < 1:
            raise ConfigError(f"k is at least 1, not {k}")
        triples = self._triples("all", graph)
        worst = torch.topk(self._scores(triples), min(k, len(triples)), largest=False).indices
        return self._scored(triples[worst].cpu(), known=True)

    def _scores(self, triples: Tensor) -> Tensor:
        nodes, decoder = self.encoded(), self.network_.decoder
        with torch.no_grad():
            parts = [
                decoder.score(nodes.index_select(0, s), r, nodes.index_select(0, o))
                for s, r, o in (part.unbind(1) for part in torch.split(triples.to(nodes.device), 2**17))
            ]
        return torch.cat(parts)

    def _scored(self, triples: Tensor, known: bool | None) -> list[ScoredTriple]:
        scores = self._scores(triples).tolist()
        if known is None:
            already = KnownTriples.of_graph(self.graph_).contains(triples).tolist()
        else:
            already = [known] * len(triples)
        return [
            ScoredTriple(s, r, o, score, _sigmoid(score), is_known)
            for (s, r, o), score, is_known in zip(self.graph_.named(triples.numpy()), scores, already, strict=True)
        ]

    # -- keeping -----------------------------------------------------------------------------------------

    def save(self, folder: str) -> None:
        """Write the model and its graph into a folder: safetensors and JSON, never pickle."""
        from rgcn.tasks.storage import save_model

        save_model(self, folder)

    @classmethod
    def load(cls, folder: str) -> LinkPredictor:
        """Read what `save` wrote."""
        from rgcn.tasks.storage import load_as

        return load_as(folder, cls)


def _has(kg: KnowledgeGraph, split: str) -> bool:
    if split in ("train", "all"):
        return len(kg.split_triples(split)) > 0
    return kg.triple_splits is not None and len(kg.split_triples(split)) > 0


def _sigmoid(score: float) -> float:
    return float(1.0 / (1.0 + np.exp(-np.clip(score, -60.0, 60.0))))
