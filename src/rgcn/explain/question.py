"""Questions to explain: the answer of a network as a function of edge weights, and the triples that it depends on."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.receptive_field import RowSource
from rgcn.errors import DataError
from rgcn.links.calibration import Calibration
from rgcn.links.top_k import DirectionScores, score_both_directions
from rgcn.models.estimator import Estimator
from rgcn.nn.link_network import ExplainedTriple, LinkNetwork
from rgcn.nn.path_network import PathNetwork
from rgcn.predict import OpenModel

Ids = NDArray[np.int64]
Network = TypeVar("Network", bound=nn.Module)
MAX_COMPUTATION_EDGES = 1 << 23  # in all layers, of a graph that stays on disk
LOG_ODDS = "the log-odds"
SELF_LOOP = 2  # value of `EdgeStructure.direction`


@dataclass(frozen=True, eq=False)
class ComputationGraph:
    """The edges that a network reads to answer a question, seen as triples.

    A triple and its inverse, in all layers, are kept or removed together.

    Attributes:
        query_nodes: The nodes that the question is about.
        field: The edges of each layer.
        triples: Subject, relation and object of each triple, `[num_triples, 3]`.
        triple_ids: Positions of the triples in the operator, `[num_triples]`.
        edge_triples: For each layer, the index of each edge's triple, int64 `[num_edges]`; num_triples for self-loops.
        path_ends: The question's node and the answer, for networks that follow paths between them; else None.
        is_hidden: True if the triple asked about is known and was removed.
    """

    query_nodes: tuple[int, ...]
    field: ReceptiveField
    triples: Ids
    triple_ids: Ids
    edge_triples: tuple[Tensor, ...]
    path_ends: tuple[int, int] | None = None
    is_hidden: bool = False

    @classmethod
    def of_model(
        cls, model: Estimator, nodes: list[int], links: Sequence[tuple[int, int, int]] = (), both: bool = False
    ) -> ComputationGraph:
        """Find what a model reads to answer a question.

        Args:
            model: The model.
            nodes: The nodes that the question is about.
            links: The triples of one subject that are asked about. Path networks must not read them.
            both: True to include the paths of both directions, for a path network.

        Raises:
            DataError: If a graph on disk has too many edges within reach.
        """
        if model.hooks_.hides_query:
            return cls.of_paths(model, links, both)
        return cls.of_nodes(model.rows_, model.hooks_.message_triples, nodes, model.hooks_.num_layers)

    @classmethod
    def of_nodes(cls, rows: RowSource, triples: Ids, nodes: Sequence[int], num_layers: int) -> ComputationGraph:
        """Find the receptive field of some nodes; triples `[n, 3]` are those of `rows`, in the same order."""
        distinct = tuple(dict.fromkeys(nodes))
        device = rows.device if isinstance(rows, RelationalAdjacency) else "cpu"
        max_edges = None if isinstance(rows, RelationalAdjacency) else MAX_COMPUTATION_EDGES
        field = ReceptiveField.within(rows, torch.tensor(distinct, device=device), num_layers, max_edges)
        if field is None:
            raise DataError(
                f"more than {MAX_COMPUTATION_EDGES:,} edges of this large graph decide the answer, which are too many "
                "to explain: ask about a node with fewer neighbors"
            )
        return cls.of_field(field, triples, distinct)

    @classmethod
    def of_paths(cls, model: Estimator, links: Sequence[tuple[int, int, int]], both: bool = False) -> ComputationGraph:
        """Find the edges on paths from a subject to the objects of `links`, without these triples themselves.

        Args:
            model: A model with a path network.
            links: Triples of one subject.
            both: True to include paths from the objects to the subject.
        """
        adjacency, triples = model.adjacency_, model.hooks_.message_triples
        is_known = np.any([(triples == link).all(axis=1) for link in links], axis=0)
        if is_known.any():
            keep = torch.from_numpy(np.pad(~is_known, (0, adjacency.structure.num_nodes), constant_values=True))
            adjacency = adjacency.masked(keep.to(adjacency.device))
        start, ends = links[0][0], torch.tensor([link[2] for link in links], device=adjacency.device)
        ignores_unreached = model.network_.ignores_unreached_nodes
        field = ReceptiveField.of_walks(adjacency, start, ends, model.hooks_.num_layers, ignores_unreached, both)
        found = cls.of_field(field, triples, tuple(dict.fromkeys([start, *ends.tolist()])))
        return replace(found, path_ends=(start, links[0][2]), is_hidden=bool(is_known.any()))

    @classmethod
    def of_field(cls, field: ReceptiveField, triples: Ids, nodes: tuple[int, ...]) -> ComputationGraph:
        """Group the edges of a receptive field by their triples."""
        structures = [layer.structure for layer in field.layers]
        origin = torch.cat([edges.origin for edges in structures])
        ids = torch.unique(origin[origin < structures[0].num_triples])
        # The origin of a self-loop exceeds all ids, so that its index is the number of triples.
        edge_triples = tuple(torch.searchsorted(ids, edges.origin) for edges in structures)
        triple_ids = ids.cpu().numpy()
        return cls(nodes, field, np.asarray(triples[triple_ids], dtype=np.int64), triple_ids, edge_triples)

    def __len__(self) -> int:
        """Return the number of triples."""
        return len(self.triples)

    def question_work(self, network: nn.Module) -> int:
        """Estimate the multiply-adds of one evaluation of the network over this graph."""
        edges = self.field.layers[0].structure
        return network.explained_work(edges.num_targets, edges.num_edges) if isinstance(network, LinkNetwork) else 0

    def scale_messages(self, factor: Tensor, loops: float = 1.0) -> ReceptiveField:
        """Multiply the messages of each triple by its factor `[num_triples]`, without normalizing again.

        Args:
            factor: The factors; the result is differentiable in them.
            loops: The factor of self-loops.
        """
        factors = torch.cat([factor, factor.new_full((1,), loops)])
        return self._with_layers(replace(layer, weight=layer.weight * factors[ids]) for layer, ids in self._layers())

    def without_messages(self, loops: float = 1.0) -> ReceptiveField:
        """Remove the messages of all triples; self-loops are multiplied by `loops`."""
        return self.scale_messages(self.field.layers[0].weight.new_zeros(len(self)), loops)

    def keep_triples(self, keep: NDArray[np.bool_]) -> ReceptiveField:
        """Remove all other triples, and normalize as if they had never existed; self-loops stay."""
        mask = torch.from_numpy(np.append(keep, True)).to(self.field.inputs.device)
        return self._with_layers(
            layer.with_raw_weights(layer.raw * mask[ids].to(layer.raw.dtype)) for layer, ids in self._layers()
        )

    def _layers(self) -> Iterable[tuple[RelationalAdjacency, Tensor]]:
        return zip(self.field.layers, self.edge_triples, strict=True)

    def _with_layers(self, layers: Iterable[RelationalAdjacency]) -> ReceptiveField:
        return replace(self.field, layers=tuple(layers))

    @cached_property
    def edge_ends(self) -> tuple[tuple[Ids, Ids], ...]:
        """For each layer, the source and the target node of each edge, `[num_edges]` each."""
        triples, ends = np.concatenate([self.triples, np.zeros((1, 3), dtype=np.int64)]), []
        for layer, ids in self._layers():
            direction, origin = (values.cpu().numpy() for values in (layer.structure.direction, layer.structure.origin))
            subject, _, object_ = triples[ids.cpu().numpy()].T
            node, kinds = origin - layer.structure.num_triples, [direction == SELF_LOOP, direction == 0]
            ends.append((np.select(kinds, [node, subject], object_), np.select(kinds, [node, object_], subject)))
        return tuple(ends)

    @cached_property
    def hop(self) -> Ids:
        """Distance of each triple from the query nodes, `[num_triples]`: 1 if it touches one of them."""
        subject, object_ = self.triples[:, 0], self.triples[:, 2]
        hop = np.zeros(len(self), dtype=np.int64)
        near = np.array(self.query_nodes, dtype=np.int64)
        for distance in range(1, len(self.field.layers) + 1):
            is_touching = (hop == 0) & (np.isin(subject, near) | np.isin(object_, near))
            hop[is_touching] = distance
            near = np.unique(np.concatenate([near, subject[is_touching], object_[is_touching]]))
        return hop


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """An answer to explain, and the triples it depends on. Each kind of answer has a subclass.

    Attributes:
        subgraph: The edges that the network reads.
        calibration: The model's calibration.
        full_output: The network's output over the whole subgraph.
        nodes: The nodes that the question is about.
        ends: Subject and object, if the network compares two nodes.
        own_triple: Index in the subgraph of the triple that is asked about; None if it is not there.
        known: Whether the answer is in the data.
        ruled_out: Whether the data rule the answer out.
        argument_kinds: The kinds of the arguments, in order: "node", "relation" or "class".
        strength_name: What `strength` is called in texts.
    """

    subgraph: ComputationGraph
    calibration: Calibration
    full_output: Tensor = field(kw_only=True, default=torch.empty(0))
    nodes: tuple[int, ...] = field(kw_only=True, default=())
    ends: tuple[int, int] | None = field(kw_only=True, default=None)
    own_triple: int | None = field(kw_only=True, default=None)
    known: bool = field(kw_only=True, default=False)
    ruled_out: bool = field(kw_only=True, default=False)

    argument_kinds: ClassVar[tuple[str, ...]]
    strength_name: ClassVar[str] = "the score"

    @property
    def by_score(self) -> bool:
        """True if explanations use the probability by the score alone, because the answer is ruled out.

        The calibration gives all triples that are ruled out one probability, which removing triples does not change.
        """
        return self.ruled_out and self.calibration.fitted and self.calibration.ruled_out_share is not None

    @classmethod
    def find_ids(cls, opened: OpenModel, *names: str | None) -> tuple[int | None, ...]:
        """Return the ids of the question's arguments, given by name."""
        find = {"node": opened.node, "relation": opened.relation, "class": opened.class_}
        pairs = zip(cls.argument_kinds, names, strict=False)
        return tuple(None if name is None else find[kind](name) for kind, name in pairs)

    @classmethod
    @abstractmethod
    def of(cls, opened: OpenModel, *arguments: Any) -> Self:
        """Create the question from the ids of its arguments, which must exist."""

    @abstractmethod
    def about(self, opened: OpenModel) -> dict[str, Any]:
        """Return the question as a dictionary for JSON."""

    @abstractmethod
    def title(self, opened: OpenModel) -> str:
        """Return the question as text: "Why Europe for Switzerland?"."""

    def notes(self, opened: OpenModel) -> tuple[str, ...]:
        """Return sentences on what the answer depends on besides triples."""
        return ()

    @property
    def work(self) -> int:
        """Estimated multiply-adds of one `output`; 0 if they are few."""
        return 0

    @abstractmethod
    def output(self, field: ReceptiveField) -> Tensor:
        """Compute the network's output over these edges."""

    @abstractmethod
    def baseline_output(self) -> Tensor:
        """Compute the network's output for nodes without triples, embeddings or features."""

    def strength(self, output: Tensor) -> Tensor:
        """Return how strongly an output supports the answer, an unbounded scalar: what is explained.

        A probability is not suitable: close to 1 it does not change if an edge is removed.
        """
        return self.score(output)

    @abstractmethod
    def log_probability(self, output: Tensor) -> Tensor:
        """Return the logarithm of the answer's uncalibrated probability, a scalar."""

    @abstractmethod
    def score(self, output: Tensor) -> Tensor:
        """Return the raw score of the answer, a scalar: the logit of a class or the score of a triple."""

    def probability(self, output: Tensor) -> float | None:
        """Return the calibrated probability by the score alone; None without a calibration."""
        return None

    def predicted_probability(self, output: Tensor) -> float | None:
        """Return the probability that `predict` shows, which may follow from known triples and constraints."""
        return self.probability(output)

    def strength_with(self, field: ReceptiveField) -> Tensor:
        """Return the strength of the output over these edges."""
        return self.strength(self.output(field))


@dataclass(frozen=True, eq=False)
class ClassQuestion(Question):
    """Why does a node have a class? The strength is its log-odds, log (p / (1 - p)), against all other classes."""

    model: Estimator
    network: nn.Module
    node: int
    class_: int

    argument_kinds = ("node", "class")
    strength_name = LOG_ODDS

    @classmethod
    def of(cls, opened: OpenModel, *arguments: Any) -> Self:
        """Create the question for a node and a class; None for the predicted class."""
        node, class_ = arguments
        model, network = opened.model, frozen_copy(opened.model.network_)
        links = model.hooks_.class_links(node)
        subgraph = ComputationGraph.of_model(model, model.hooks_.class_inputs(node), links)
        with torch.no_grad():
            output = model.hooks_.class_logits(network, subgraph.field, node)
        class_ = int(output[0].argmax()) if class_ is None else class_
        if subgraph.path_ends is not None:
            subgraph = replace(subgraph, path_ends=(node, links[class_][2]))
        return cls(subgraph, opened.calibration, model, network, node, class_, full_output=output, nodes=(node,))

    @property
    def predicted_class(self) -> int:
        """The class with the highest logit."""
        return int(self.full_output[0].argmax())

    def about(self, opened: OpenModel) -> dict[str, Any]:
        """Return the question as a dictionary for JSON."""
        classes = {"class": self.class_, "predicted": self.predicted_class}
        described = {key: opened.describe_class(class_) for key, class_ in classes.items()}
        return {"kind": "class", "node": opened.describe(self.node), **described}

    def title(self, opened: OpenModel) -> str:
        """Return the question as text."""
        return f"Why {opened.titles.class_(self.class_)} for {opened.titles.of(self.node)}?"

    def notes(self, opened: OpenModel) -> tuple[str, ...]:
        """Name the predicted class, if it is another one."""
        is_other = self.predicted_class != self.class_
        return (f"The model predicts {opened.titles.class_(self.predicted_class)}.",) if is_other else ()

    @property
    def work(self) -> int:
        """Estimated multiply-adds of one `output`."""
        return len(self.model.hooks_.class_links(self.node)) * self.subgraph.question_work(self.network)

    def output(self, field: ReceptiveField) -> Tensor:
        """Compute the node's logits `[1, num_classes]`."""
        return self.model.hooks_.class_logits(self.network, field, self.node)

    def baseline_output(self) -> Tensor:
        """Compute the logits of a node without triples, embeddings or features."""
        field = self.subgraph.without_messages(loops=0.0)
        return self.model.hooks_.class_logits(self.network, field, self.node, own=False)

    def strength(self, output: Tensor) -> Tensor:
        """Return the log-odds of the class."""
        others = torch.cat([output[0, : self.class_], output[0, self.class_ + 1 :]])
        return output[0, self.class_] - torch.logsumexp(others, dim=0)

    def log_probability(self, output: Tensor) -> Tensor:
        """Return the logarithm of the class's share in the softmax."""
        return torch.log_softmax(output[0], dim=0)[self.class_]

    def score(self, output: Tensor) -> Tensor:
        """Return the logit of the class."""
        return output[0, self.class_]

    def probability(self, output: Tensor) -> float | None:
        """Return the calibrated probability of the class."""
        calibration = self.calibration
        return float(calibration.class_probabilities(output)[0, self.class_]) if calibration.fitted else None


@dataclass(frozen=True, eq=False)
class LinkQuestion(Question):
    """Why is a triple likely? The strength is its score, the mean of both directions (`score_both_directions`).

    The output has a score for each direction, or one if the network gives both the same.

    Attributes:
        scores: The triple among the other answers, as predictions see it.
        shift: How much the network's scores exceed the scorer's, which are normalized over all answers.
    """

    network: LinkNetwork
    subject: int
    relation: int
    object: int
    scores: DirectionScores
    shift: Tensor | float = 0.0

    argument_kinds = ("node", "relation", "node")

    @classmethod
    def of(cls, opened: OpenModel, *arguments: Any) -> Self:
        """Create the question for a subject, a relation and an object."""
        subject, relation, object_ = arguments
        ends, network = (subject, object_), frozen_copy(opened.model.network_)
        subgraph = ComputationGraph.of_model(opened.model, [subject, object_], [arguments], both=True)
        scores = score_both_directions(opened, torch.tensor([arguments]))
        equal = np.flatnonzero((subgraph.triples == arguments).all(axis=1))
        options: dict[str, Any] = {"nodes": ends, "ends": ends, "own_triple": int(equal[0]) if len(equal) else None}
        options |= {"known": bool(scores.known[0]), "ruled_out": bool(scores.ruled_out[0])}
        question = cls(subgraph, opened.calibration, network, subject, relation, object_, scores, **options)
        with torch.no_grad():
            output = question.output(subgraph.field)
        # The difference is exact, because float64 has twice the digits of float32.
        shift = output.double() - scores.scores[:, 0].to(output.device)
        return replace(question, shift=shift, full_output=output - shift)

    def about(self, opened: OpenModel) -> dict[str, Any]:
        """Return the question as a dictionary for JSON."""
        relation = {"relation": opened.describe_relation(self.relation)}
        ends = {"subject": opened.describe(self.subject), **relation, "object": opened.describe(self.object)}
        return {"kind": "link", **ends, "known": self.known}

    def title(self, opened: OpenModel) -> str:
        """Return the question as text."""
        subject, object_ = opened.titles.of(self.subject), opened.titles.of(self.object)
        return f"Why {subject} —{opened.titles.relation(self.relation)}→ {object_}?"

    def notes(self, opened: OpenModel) -> tuple[str, ...]:
        """Say that the data rule the triple out, if they do."""
        if not self.ruled_out:
            return ()
        relation = opened.titles.relation(self.relation)
        return (
            f"It contradicts the constraints on {relation}: `rgcn data stats --relations` shows them.",
            "All such triples have the same probability, whatever their score."
            if self.by_score
            else "Predictions omit it.",
        )

    @property
    def work(self) -> int:
        """Estimated multiply-adds of one `output`: a question in each direction."""
        return 2 * self.subgraph.question_work(self.network)

    def output(self, field: ReceptiveField) -> Tensor:
        """Compute the triple's scores `[1]` or `[2]`."""
        return self.network.score_explained(self._explained(field)) - self.shift

    def baseline_output(self) -> Tensor:
        """Compute the triple's scores for nodes without triples and embeddings."""
        return self.network.score_baseline(self._explained(self.subgraph.without_messages(loops=0.0))) - self.shift

    def _explained(self, field: ReceptiveField) -> ExplainedTriple:
        return ExplainedTriple(field, field.outputs, self.subject, self.relation, self.object)

    def log_probability(self, output: Tensor) -> Tensor:
        """Return the log-sigmoid of the score."""
        return nn.functional.logsigmoid(self.score(output))

    def score(self, output: Tensor) -> Tensor:
        """Return the mean score of both directions."""
        return output.mean()

    def probability(self, output: Tensor) -> float | None:
        """Return the calibrated probability by the score alone, even if the triple is known or ruled out."""
        found = self.scores.probability_of_scores(self.calibration, output.cpu().expand(2)[:, None])
        return None if found is None else float(found[0])

    def predicted_probability(self, output: Tensor) -> float | None:
        """Return the probability that `predict` shows; None for a known triple."""
        found = self.scores.probability(self.calibration)
        return None if found is None or bool(found.isnan()[0]) else float(found[0])


def frozen_copy(network: Network) -> Network:
    """Copy a network: the copy shares the weights but computes no gradients for them, and has empty caches.

    Changing flags of the network itself would disturb other threads. A path network gets a cache for the vectors of
    relations, since all evaluations of an explanation ask for the same relation.
    """
    shared: dict[int, object] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    for module in network.modules():
        for name in ("_scorer", "_last"):
            if module.__dict__.get(name) is not None:
                shared[id(module.__dict__[name])] = None
    copied = copy.deepcopy(network, shared).eval()
    if isinstance(copied, PathNetwork):
        copied.cached_tables = {}
    return copied
