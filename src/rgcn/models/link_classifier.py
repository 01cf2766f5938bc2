"""Classification by links: a link model that is asked for the class of a node among all classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField
from rgcn.config import ClassLinkTrainingConfig
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.graph.splitting import label_hashes, smallest_hashes
from rgcn.links.calibration import ClassCorrection
from rgcn.models.estimator import ModelHooks, Nodes
from rgcn.models.growth import grown_graph
from rgcn.models.link_predictor import LinkEstimator, LinkHooks
from rgcn.models.node_classifier import ClassEstimator, trainable_labels, with_validation
from rgcn.nn.link_network import ExplainedTriple, LinkNetwork
from rgcn.nn.scorer import Questions
from rgcn.system.progress import Budget
from rgcn.training.link_trainer import LinkTrainer

HAS_CLASS = "has class"
# The normalizer is fitted on so many labels; on fewer, at least MIN_LABELS, if that takes more multiply-adds than this.
NORMALIZER_LABELS, MIN_LABELS, NORMALIZER_WORK = 128, 20, 3e11
QUESTIONS_PER_BATCH = 1 << 14


class LinkClassHooks(LinkHooks):
    """The hooks of `LinkClassifier`, which scores classes as links (node, has class, class)."""

    estimator: LinkClassifier
    why_not_transferable = ModelHooks.why_not_transferable

    def class_links(self, node: int) -> list[tuple[int, int, int]]:
        """Return the triple (node, has class, class) for each class."""
        return [(node, self.estimator.class_relation_, other) for other in self.estimator.class_nodes_.tolist()]

    def class_inputs(self, node: int) -> list[int]:
        """Return the nodes whose states decide the class of a node: itself, and the node of each class."""
        return list(dict.fromkeys([node, *self.estimator.class_nodes_.tolist()]))

    def class_logits(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        """Compute the logits of a node, [1, num_classes], with gradients of the field's edges; see `ModelHooks`."""
        assert isinstance(network, LinkNetwork)
        score = network.score_explained if own else network.score_baseline
        links = self.class_links(node)
        scores = [score(ExplainedTriple(field, field.outputs, *link, both=False)) for link in links]
        return self.estimator._normalized(self.estimator._among_classes(torch.stack(scores, dim=1)))


class LinkClassifier(LinkEstimator, ClassEstimator):
    """Node classification by link prediction, with any encoder, decoder and objective.

    Training labels become triples (node, "has class", class), and the class of another node is the best object of
    (node, "has class", ?) among the classes.

    Args:
        model: Preset of encoder, decoder and what suits them: "rgcn", "c-rgcn", "distmult", "path", "universal" or
            "popularity".
        seed: Seed of every random choice.
        class_share: Share of the training questions that ask for a class.
        validation: Share of training labels held out for validation.

    The other arguments are those of `LinkPredictor`, described by `rgcn.config.LinkModelConfig` and
    `rgcn.config.ClassLinkTrainingConfig`.

    Example:
        >>> import rgcn
        >>> kg = rgcn.load("world")
        >>> clf = LinkClassifier("c-rgcn", embedding=16, bottleneck=4, steps=2).fit(kg)
        >>> clf.predict(["Switzerland", "Peru"]).shape
        (2,)
    """

    task = "classification-by-links"
    training_section = ClassLinkTrainingConfig
    hooks = LinkClassHooks

    training: ClassLinkTrainingConfig
    _normalizer: ClassCorrection | None = None

    @property
    def class_normalizer_(self) -> ClassCorrection | None:
        """The correction that makes classes comparable, for weights learned on other graphs; else None."""
        if self._normalizer is None and self.is_transferred and self.network_.must_hide_triples:
            self.fit_normalizer()
        return self._normalizer

    def fit_normalizer(self) -> Self:
        """Fit `class_normalizer_` to the scores of some training labels, each hidden while it is scored.

        The labels are drawn by a hash of their names, so that the order in which they were read has no effect.
        """
        nodes, classes = self._labels.of("train")
        count = max(MIN_LABELS, Budget(NORMALIZER_WORK).max_repetitions(self.scorer().work, NORMALIZER_LABELS))
        some = smallest_hashes(label_hashes(self.graph_, nodes, classes), count)
        scores, labels = self._scores(nodes[some]), torch.from_numpy(classes[some].astype(np.int64))
        self._normalizer = ClassCorrection.fit(scores, labels)
        return self

    def _hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        labels = trainable_labels(kg)
        if self.training.evaluate_every or self.training.validation:
            labels = with_validation(labels, self.training.validation, self.seed)
        return super()._hold_out(with_labels_as_triples(replace(kg, labels=labels)))

    def _build(self, graph: KnowledgeGraph) -> Self:
        """Build the operator and the untrained network, for a graph whose splits are drawn."""
        self._normalizer = None
        return super()._build(graph)

    def _can_validate(self, kg: KnowledgeGraph) -> bool:
        return kg.labels is not None and len(kg.labels.of("valid")[0]) > 0

    @property
    def class_nodes_(self) -> NDArray[np.int64]:
        """The node of each class, [num_classes]."""
        return self.graph_.nodes.ids(self.classes_)

    @property
    def class_relation_(self) -> int:
        """The relation "has class": the last one, since it was added."""
        return self.graph_.num_relations - 1

    def trainer(self) -> LinkTrainer:
        """Return the `LinkTrainer` that takes the steps. `prepare` must have been called."""
        share, network = self.training.class_share, self.network_
        if share is None:
            return super().trainer()
        if self.training.batch_edges is not None and network.num_layers and not network.must_hide_triples:
            raise ConfigError(
                f"with batch_edges {self.model.title} passes messages along the batch alone, and class_share leaves "
                "few triples in it: set batch_edges or class_share to null, or train path"
            )
        triples = self._triples("train")
        is_label = triples[:, 1] == self.class_relation_
        labels, others = triples[is_label], triples[~is_label]
        if share < 1:
            times = max(1, round(share / (1 - share) * len(others) / len(labels)))
            labels = torch.cat([others, labels.repeat(times, 1)])
        return LinkTrainer(network, triples, self.adjacency_, self.model, self.training, self.seed, queries=labels)

    def logits(self, nodes: Nodes) -> Tensor:
        """Compute the logits of nodes, [num_nodes, num_classes].

        A node's own training label is hidden if the network would walk along its edge.
        """
        return self._normalized(self._scores(self._node_ids(nodes)))

    def _scores(self, nodes: NDArray[np.int64]) -> Tensor:
        ids, scorer, among = torch.from_numpy(nodes), self.scorer(), torch.from_numpy(self.class_nodes_)
        order = torch.argsort(among)
        candidates = among[order].to(scorer.device)
        label = torch.full((self.graph_.num_nodes,), -1)
        if scorer.can_hide_triples:
            labeled, classes = self._labels.of("train")
            label[torch.from_numpy(labeled.copy())] = among[torch.from_numpy(classes.copy())]
        by_label = torch.argsort(label[ids], stable=True)  # unlabeled nodes first
        questions = Questions(ids[by_label], torch.full_like(ids, self.class_relation_)).to(scorer.device)
        labels, num_unlabeled = label[ids[by_label]].to(scorer.device), int((label[ids] < 0).sum())
        unlabeled = questions.take(slice(num_unlabeled)).parts(QUESTIONS_PER_BATCH)
        parts = [scorer.scores(part, candidates).cpu() for part in unlabeled]
        for first in range(num_unlabeled, len(ids), QUESTIONS_PER_BATCH):
            part = slice(first, first + QUESTIONS_PER_BATCH)
            parts.append(scorer.scores_hiding_answers(questions.take(part), labels[part], candidates).cpu())
        scores = torch.cat(parts) if parts else torch.empty(0, len(among))
        return self._among_classes(scores[torch.argsort(by_label)][:, torch.argsort(order)])

    def extra_state(self) -> dict[str, Any]:
        """Return state to save besides settings, weights and graph: plain values, ready for JSON."""
        normalizer = self.class_normalizer_
        return {**super().extra_state(), "level": normalizer and [part.tolist() for part in normalizer]}

    def restore_extra_state(self, values: dict[str, Any]) -> None:
        """Restore what `extra_state` returned."""
        super().restore_extra_state(values)
        if (normalizer := values.get("level")) is not None:
            scale, offset = (torch.tensor(part, dtype=torch.float64) for part in normalizer)
            if scale.shape or offset.shape != (len(self.classes_),):
                raise ValueError(f"the normalizer of {len(self.classes_)} classes has the shape {tuple(offset.shape)}")
            self._normalizer = ClassCorrection(scale, offset)

    def _among_classes(self, scores: Tensor) -> Tensor:
        """Return log probabilities among the classes, for a network that follows paths; else the scores as they are."""
        return torch.log_softmax(scores, dim=1) if self.network_.must_hide_triples else scores

    def _normalized(self, scores: Tensor) -> Tensor:
        return scores if self.class_normalizer_ is None else self.class_normalizer_.apply(scores)


def with_labels_as_triples(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Return the graph with a node for each class, and its training labels as triples.

    All triples are training triples. A class whose name is that of a node, such as a research group, is that node.

    >>> kg = KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "red"}, test_labels={"b": "blue"})
    >>> with_labels_as_triples(kg).named()
    [('a', 'r', 'b'), ('a', 'has class', 'red')]
    """
    labels = graph.labels
    assert labels is not None
    relation = HAS_CLASS
    while relation in graph.relations:
        relation += "'"
    nodes = dict(zip(graph.nodes, range(graph.num_nodes), strict=True))
    for name in labels.names:
        nodes.setdefault(name, len(nodes))
    class_nodes = np.array([nodes[name] for name in labels.names], dtype=np.int64)
    labeled, classes = labels.of("train")
    triples = np.stack([labeled, np.full(len(labeled), graph.num_relations), class_nodes[classes]], axis=1)
    relations = Vocabulary([*graph.relations, relation], kind="relation")
    return grown_graph(graph, nodes, triples, relations=relations, triple_splits=None)
