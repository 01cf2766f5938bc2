"""A link model asked among the classes."""

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
from rgcn.graph.splitting import drawn, label_keys
from rgcn.links.calibration import ClassLevel
from rgcn.models.estimator import Nodes
from rgcn.models.growth import grown_graph
from rgcn.models.link_predictor import LinkEstimator
from rgcn.models.node_classifier import ClassEstimator, trainable_labels, with_validation
from rgcn.nn.link_network import Heard, LinkNetwork
from rgcn.nn.scorer import Questions
from rgcn.system.progress import Budget
from rgcn.training.link_trainer import LinkTrainer

HAS_CLASS = "has class"
# Labels at most: each is a question. Fewer where so many cost more work than this (`Scorer.work`), FEWEST at least.
LEVELED_BY, FEWEST, LEVELING_WORK = 128, 20, 3e11
AT_ONCE = 1 << 14  # questions


class LinkClassifier(LinkEstimator, ClassEstimator):
    """Classes by links: training labels become triples (node, its class is, class), and the class of another node is
    the best object of (node, its class is, ?) among the classes.

    Any link model serves, also one that computes each question anew and has no vectors of nodes. The settings are those
    of a `LinkPredictor`, and `validation`, a share of training labels to hold out.

    >>> import rgcn
    >>> kg = rgcn.load("world")
    >>> clf = LinkClassifier("c-rgcn", embedding=16, bottleneck=4, epochs=2).fit(kg)
    >>> clf.predict(["Switzerland"])[0].label in clf.classes_
    True
    """

    task = "classification-by-links"
    training_section = ClassLinkTrainingConfig

    training: ClassLinkTrainingConfig
    _level: ClassLevel | None = None

    @property
    def level_(self) -> ClassLevel | None:
        """What makes the scores of classes level, where weights came from elsewhere."""
        if self._level is None and self.learned_elsewhere and self.hides_asked_:
            self.leveled()
        return self._level

    def hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        labels = trainable_labels(kg)
        if self.training.evaluate_every or self.training.validation:
            labels = with_validation(labels, self.training.validation, self.seed)
        return super().hold_out(with_labels_as_triples(replace(kg, labels=labels)))

    def build(self, graph: KnowledgeGraph) -> Self:
        self._level = None
        return super().build(graph)

    def _can_validate(self, kg: KnowledgeGraph) -> bool:
        return kg.labels is not None and len(kg.labels.of("valid")[0]) > 0

    @property
    def class_nodes_(self) -> NDArray[np.int64]:
        """[classes]: the node that stands for each class."""
        return self.graph_.nodes.ids(self.classes_)

    @property
    def class_relation_(self) -> int:
        """The last one: it was added."""
        return self.graph_.num_relations - 1

    def trainer(self) -> LinkTrainer:
        share, network = self.training.class_share, self.network_
        if share is None:
            return super().trainer()
        if self.training.batch_edges is not None and network.num_layers and not network.hides_asked:
            raise ConfigError(
                f"with batch_edges {self.model.title} hears no triples but those it is asked about, and class_share "
                "leaves few: set batch_edges or class_share to null, or train path"
            )
        triples = self._triples("train")
        is_label = triples[:, 1] == self.class_relation_
        labels, others = triples[is_label], triples[~is_label]
        if share < 1:
            times = max(1, round(share / (1 - share) * len(others) / len(labels)))
            labels = torch.cat([others, labels.repeat(times, 1)])
        return LinkTrainer(network, triples, self.adjacency_, self.model, self.training, self.seed, asked=labels)

    def logits(self, nodes: Nodes) -> Tensor:
        """[n, classes]: a node's own training label is not heard, where the network would walk along it."""
        return self._made_level(self._scores(nodes))

    def _scores(self, nodes: Nodes) -> Tensor:
        ids = torch.from_numpy(self.graph_.names.node_ids(nodes))
        scorer, among = self.scorer(), torch.from_numpy(self.class_nodes_)
        order = torch.argsort(among)
        candidates = among[order].to(scorer.device)
        label = torch.full((self.graph_.num_nodes,), -1)
        if scorer.hides:
            labelled, classes = self._labels.of("train")
            label[torch.from_numpy(labelled.copy())] = among[torch.from_numpy(classes.copy())]
        by_label = torch.argsort(label[ids], stable=True)  # those without any first
        asked = Questions(ids[by_label], torch.full_like(ids, self.class_relation_)).to(scorer.device)
        labels, free = label[ids[by_label]].to(scorer.device), int((label[ids] < 0).sum())
        found = [scorer.scores(part, candidates).cpu() for part in asked.take(slice(free)).parts(AT_ONCE)]
        for first in range(free, len(ids), AT_ONCE):
            here = slice(first, first + AT_ONCE)
            found.append(scorer.scores_hiding(asked.take(here), labels[here], candidates).cpu())
        scores = torch.cat(found) if found else torch.empty(0, len(among))
        return self._among_classes(scores[torch.argsort(by_label)][:, torch.argsort(order)])

    def leveled(self) -> Self:
        """The same, its classes' scores made level by the training labels, some of them, each hidden meanwhile.

        For weights that never met these classes; those that learned them need no such thing. They are drawn by a hash
        of their names, so that the order in which labels were read changes nothing.
        """
        nodes, classes = self._labels.of("train")
        most = max(FEWEST, Budget(LEVELING_WORK).times(self.scorer().work, LEVELED_BY))
        some = drawn(label_keys(self.graph_, nodes, classes), most)
        self._level = ClassLevel.fitted(self._scores(nodes[some]), torch.from_numpy(classes[some].astype(np.int64)))
        return self

    def beside(self) -> dict[str, Any]:
        level = None if self.level_ is None else [part.tolist() for part in self.level_]
        return {**super().beside(), "level": level}

    def restore_beside(self, values: dict[str, Any]) -> None:
        super().restore_beside(values)
        if (level := values.get("level")) is not None:
            scale, offset = (torch.tensor(part, dtype=torch.float64) for part in level)
            if scale.shape or offset.shape != (len(self.classes_),):
                raise ValueError(f"the level of {len(self.classes_)} classes has the shape {tuple(offset.shape)}")
            self._level = ClassLevel(scale, offset)

    def class_links(self, node: int) -> list[tuple[int, int, int]]:
        return [(node, self.class_relation_, class_node) for class_node in self.class_nodes_.tolist()]

    def class_asked(self, node: int) -> list[int]:
        return list(dict.fromkeys([node, *self.class_nodes_.tolist()]))

    def class_heard(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        assert isinstance(network, LinkNetwork)
        score = network.score_heard if own else network.score_unheard
        found = torch.stack(
            [score(Heard(field, field.outputs, *link, both=False)) for link in self.class_links(node)], dim=1
        )
        return self._made_level(self._among_classes(found))

    def _among_classes(self, scores: Tensor) -> Tensor:
        """Of a network that walks, as shares among the classes: what it gives other nodes says nothing here."""
        return torch.log_softmax(scores, dim=1) if self.network_.hides_asked else scores

    def _made_level(self, scores: Tensor) -> Tensor:
        return scores if self.level_ is None else self.level_.of(scores)


def with_labels_as_triples(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph with a node for each class, and its training labels as triples; all triples are there to learn from.

    A class that is a node already, a research group say, is that node.

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
    numbers = np.array([nodes[name] for name in labels.names], dtype=np.int64)
    labelled, classes = labels.of("train")
    told = np.stack([labelled, np.full(len(labelled), graph.num_relations), numbers[classes]], axis=1)
    relations = Vocabulary([*graph.relations, relation], kind="relation")
    return grown_graph(graph, nodes, told, relations=relations, triple_splits=None)
