"""What is to be explained: a network's answer as a function of the edges it hears, and the triples in reach of it."""

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
from rgcn.adjacency.receptive_field import HasRows
from rgcn.errors import DataError
from rgcn.links.calibration import Calibration
from rgcn.links.top_k import TripleStanding, standing_of
from rgcn.models.estimator import Estimator
from rgcn.nn.link_network import Heard, LinkNetwork
from rgcn.nn.path_network import PathNetwork
from rgcn.predict import OpenModel

Ids = NDArray[np.int64]
Network = TypeVar("Network", bound=nn.Module)
MOST_HEARD = 1 << 23  # edges of a graph where it lies, in all layers
LOG_ODDS = "the log-odds"
SELF_LOOP = 2  # as `EdgeStructure.direction` has it


@dataclass(frozen=True, eq=False)
class Reach:
    """Everything L layers read to answer for some nodes, seen as triples.

    A triple and its inverse are one thing to keep or to drop, in all layers alike.
    """

    asked: tuple[int, ...]  # the nodes the answer is about
    field: ReceptiveField  # the edges of each layer, in the layer's own numbering
    triples: Ids  # [T, 3]: subject, relation, object of those in reach
    numbers: Ids  # [T]: theirs in the operator
    place: tuple[Tensor, ...]  # for each layer int64 [E]: which of the T an edge comes from; T for a self-loop
    walk: tuple[int, int] | None = None  # from the asked node to the answer, where the network walks
    hidden: bool = False  # whether the triple asked about is known and was hidden

    @classmethod
    def of_model(
        cls, model: Estimator, asked: list[int], links: Sequence[tuple[int, int, int]] = (), both: bool = False
    ) -> Reach:
        """What a model reads to answer for these nodes.

        links  the triples that are asked about, which a network that walks must not hear; both: from either end
        """
        if model.hides_asked_:
            return cls.walking(model, links, both)
        return cls.of(model.rows_, model.message_triples_, asked, model.num_layers_)

    @classmethod
    def of(cls, rows: HasRows, triples: Ids, asked: Sequence[int], num_layers: int) -> Reach:
        """triples [all, 3]: those the operator was made of, in its order; where they lie, no others are read."""
        distinct = tuple(dict.fromkeys(asked))
        device, most = (rows.device, None) if isinstance(rows, RelationalAdjacency) else ("cpu", MOST_HEARD)
        field = ReceptiveField.within(rows, torch.tensor(distinct, device=device), num_layers, most)
        if field is None:
            raise DataError(
                f"more than {MOST_HEARD:,} edges of this large graph decide the answer, too many to weigh each: ask "
                "about a node that is no hub, or about a neighbor of fewer"
            )
        return cls.over(field, triples, distinct)

    @classmethod
    def walking(cls, model: Estimator, links: Sequence[tuple[int, int, int]], both: bool = False) -> Reach:
        """What a network that walks hears, asked for one of these triples of a subject: as if they had never been.

        both  it is asked for the subject of a triple, too
        """
        adjacency, triples = model.adjacency_, model.message_triples_
        known = np.any([(triples == link).all(axis=1) for link in links], axis=0)
        if known.any():
            keep = torch.from_numpy(np.pad(~known, (0, adjacency.structure.num_nodes), constant_values=True))
            adjacency = adjacency.masked(keep.to(adjacency.device))
        start, ends = links[0][0], torch.tensor([link[2] for link in links], device=adjacency.device)
        field = ReceptiveField.of_walks(adjacency, start, ends, model.num_layers_, model.network_.only_reached, both)
        asked = tuple(dict.fromkeys([start, *ends.tolist()]))
        return replace(cls.over(field, triples, asked), walk=(start, links[0][2]), hidden=bool(known.any()))

    @classmethod
    def over(cls, field: ReceptiveField, triples: Ids, asked: tuple[int, ...]) -> Reach:
        structure = [layer.structure for layer in field.layers]
        origin = torch.cat([edges.origin for edges in structure])
        numbers = torch.unique(origin[origin < structure[0].num_triples])
        # A self-loop's number is beyond all triples': it finds its place behind them.
        place = tuple(torch.searchsorted(numbers, layer.structure.origin) for layer in field.layers)
        chosen = numbers.cpu().numpy()
        return cls(asked, field, np.asarray(triples[chosen], dtype=np.int64), chosen, place)

    def __len__(self) -> int:
        return len(self.triples)

    def question_work(self, network: nn.Module) -> int:
        """Multiply-adds of a question about what is in reach, about."""
        edges = self.field.layers[0].structure
        return network.heard_work(edges.num_targets, edges.num_edges) if isinstance(network, LinkNetwork) else 0

    def weighted(self, factor: Tensor, loops: float = 1.0) -> ReceptiveField:
        """Each triple's messages times its factor [T], nothing normalized again. Differentiable in `factor`."""
        every = torch.cat([factor, factor.new_full((1,), loops)])
        return self._with(replace(layer, weight=layer.weight * every[place]) for layer, place in self._layers())

    def silent(self, loops: float = 1.0) -> ReceptiveField:
        return self.weighted(self.field.layers[0].weight.new_zeros(len(self)), loops)

    def keeping(self, keep: NDArray[np.bool_]) -> ReceptiveField:
        """The graph with only the triples that are kept, normalized as if the others had never been; loops stay."""
        every = torch.from_numpy(np.append(keep, True)).to(self.field.inputs.device)
        return self._with(
            layer.reweighted(layer.raw * every[place].to(layer.raw.dtype)) for layer, place in self._layers()
        )

    def _layers(self) -> Iterable[tuple[RelationalAdjacency, Tensor]]:
        return zip(self.field.layers, self.place, strict=True)

    def _with(self, layers: Iterable[RelationalAdjacency]) -> ReceptiveField:
        return replace(self.field, layers=tuple(layers))

    @cached_property
    def ends(self) -> tuple[tuple[Ids, Ids], ...]:
        """For each layer (source, target) [E]: the nodes that each edge comes from and leads to."""
        triples, ends = np.concatenate([self.triples, np.zeros((1, 3), dtype=np.int64)]), []
        for layer, place in self._layers():
            direction, origin = (of.cpu().numpy() for of in (layer.structure.direction, layer.structure.origin))
            subject, _, object_ = triples[place.cpu().numpy()].T
            node, kinds = origin - layer.structure.num_triples, [direction == SELF_LOOP, direction == 0]
            ends.append((np.select(kinds, [node, subject], object_), np.select(kinds, [node, object_], subject)))
        return tuple(ends)

    @cached_property
    def hop(self) -> Ids:
        """[T]: 1 for a triple that touches an asked node, 2 for one that touches its neighbor, and so on."""
        subject, object_ = self.triples[:, 0], self.triples[:, 2]
        hop = np.zeros(len(self), dtype=np.int64)
        near = np.array(self.asked, dtype=np.int64)
        for distance in range(1, len(self.field.layers) + 1):
            touching = (hop == 0) & (np.isin(subject, near) | np.isin(object_, near))
            hop[touching] = distance
            near = np.unique(np.concatenate([near, subject[touching], object_[touching]]))
        return hop


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """An answer and the triples that can have a say in it; each kind of answers brings its own.

    full       what the network gives when it hears everything in reach
    nodes      what is asked about
    ends       from where to where paths lead, of networks that compare two nodes
    itself     the place in reach of the triple that is asked about, where it is there
    known      whether the answer is in the data; ruled_out: whether examples rule it out
    named      what a question names, in order: a "node", a "relation", a "class"
    """

    reach: Reach
    calibration: Calibration
    full: Tensor = field(kw_only=True, default=torch.empty(0))
    nodes: tuple[int, ...] = field(kw_only=True, default=())
    ends: tuple[int, int] | None = field(kw_only=True, default=None)
    itself: int | None = field(kw_only=True, default=None)
    known: bool = field(kw_only=True, default=False)
    ruled_out: bool = field(kw_only=True, default=False)

    named: ClassVar[tuple[str, ...]]
    strength_name: ClassVar[str] = "the score"

    @property
    def by_score(self) -> bool:
        """Whether the answer itself is given another probability, since examples rule it out.

        No triple that is left out changes that, so that here it is the one its score alone would have.
        """
        return self.ruled_out and self.calibration.fitted and self.calibration.ruled_out_share is not None

    @classmethod
    def numbers(cls, opened: OpenModel, *names: str | None) -> tuple[int | None, ...]:
        """The numbers of what is asked about, given by name."""
        find = {"node": opened.node, "relation": opened.relation, "class": opened.class_}
        each = zip(cls.named, names, strict=False)
        return tuple(None if name is None else find[what](name) for what, name in each)

    @classmethod
    @abstractmethod
    def of(cls, opened: OpenModel, *asked: Any) -> Self:
        """The question about these numbers, which are there."""

    @abstractmethod
    def about(self, opened: OpenModel) -> dict[str, Any]:
        """The question for programs."""

    @abstractmethod
    def title(self, opened: OpenModel) -> str:
        """The question for people: "Why Europe for Switzerland?"."""

    def notes(self, opened: OpenModel) -> tuple[str, ...]:
        """Sentences on what the answer rests on beside its triples."""
        return ()

    @property
    def work(self) -> int:
        """Multiply-adds of one `output`, about; 0 where they are few."""
        return 0

    @abstractmethod
    def output(self, field: ReceptiveField) -> Tensor:
        """What the network gives when it hears these edges."""

    @abstractmethod
    def unheard(self) -> Tensor:
        """What the network gives for nodes it knows nothing of: no triple, and nothing they bring themselves."""

    def strength(self, output: Tensor) -> Tensor:
        """How strongly an output speaks for the answer, a scalar without bounds: what gets explained."""
        return self.score(output)  # a probability would not do: where it is nearly one, no edge changes it any more

    @abstractmethod
    def log_probability(self, output: Tensor) -> Tensor:
        """The logarithm of the answer's probability as the network itself sees it, a scalar."""

    @abstractmethod
    def score(self, output: Tensor) -> Tensor:
        """The network's own number for the answer, a scalar: the class's logit, the triple's score."""

    def probability(self, output: Tensor) -> float | None:
        """Calibrated, by the network's number alone, whatever else is known; None where nothing was calibrated."""
        return None

    def predicted(self, output: Tensor) -> float | None:
        """The probability that a prediction of the same answer has."""
        return self.probability(output)

    def strength_with(self, field: ReceptiveField) -> Tensor:
        return self.strength(self.output(field))


@dataclass(frozen=True, eq=False)
class ClassQuestion(Question):
    """Why is this node of this class? The strength is its log-odds, log (p / (1 - p)), against all other classes."""

    model: Estimator
    network: nn.Module
    node: int
    class_: int

    named = ("node", "class")
    strength_name = LOG_ODDS

    @classmethod
    def of(cls, opened: OpenModel, *asked: Any) -> Self:
        node, class_ = asked
        model, network = opened.model, frozen(opened.model.network_)
        links = model.class_links(node)
        reach = Reach.of_model(model, model.class_asked(node), links)
        with torch.no_grad():
            output = model.class_heard(network, reach.field, node)
        class_ = int(output[0].argmax()) if class_ is None else class_
        if reach.walk is not None:
            reach = replace(reach, walk=(node, links[class_][2]))
        return cls(reach, opened.calibration, model, network, node, class_, full=output, nodes=(node,))

    @property
    def predicted_class(self) -> int:
        return int(self.full[0].argmax())

    def about(self, opened: OpenModel) -> dict[str, Any]:
        classes = {"class": self.class_, "predicted": self.predicted_class}
        named = {key: opened.describe_class(class_) for key, class_ in classes.items()}
        return {"kind": "class", "node": opened.describe(self.node), **named}

    def title(self, opened: OpenModel) -> str:
        return f"Why {opened.titles.class_(self.class_)} for {opened.titles.of(self.node)}?"

    def notes(self, opened: OpenModel) -> tuple[str, ...]:
        is_other = self.predicted_class != self.class_
        return (f"The model itself says {opened.titles.class_(self.predicted_class)}.",) if is_other else ()

    @property
    def work(self) -> int:
        return len(self.model.class_links(self.node)) * self.reach.question_work(self.network)

    def output(self, field: ReceptiveField) -> Tensor:
        return self.model.class_heard(self.network, field, self.node)

    def unheard(self) -> Tensor:
        return self.model.class_heard(self.network, self.reach.silent(loops=0.0), self.node, own=False)

    def strength(self, output: Tensor) -> Tensor:
        others = torch.cat([output[0, : self.class_], output[0, self.class_ + 1 :]])
        return output[0, self.class_] - torch.logsumexp(others, dim=0)

    def log_probability(self, output: Tensor) -> Tensor:
        return torch.log_softmax(output[0], dim=0)[self.class_]

    def score(self, output: Tensor) -> Tensor:
        return output[0, self.class_]

    def probability(self, output: Tensor) -> float | None:
        calibration = self.calibration
        return float(calibration.class_probabilities(output)[0, self.class_]) if calibration.fitted else None


@dataclass(frozen=True, eq=False)
class LinkQuestion(Question):
    """Why does this triple hold? The strength is its score, the mean of both directions (`standing_of`).

    The output has a number for each direction, or one where the network gives both the same.
    """

    network: LinkNetwork
    subject: int
    relation: int
    object: int
    standing: TripleStanding  # of the triple alone
    shift: Tensor | float = 0.0  # what the network's own numbers have more than the scorer's, which knows all answers

    named = ("node", "relation", "node")

    @classmethod
    def of(cls, opened: OpenModel, *asked: Any) -> Self:
        subject, relation, object_ = asked
        reach = Reach.of_model(opened.model, [subject, object_], [asked], both=True)
        standing = standing_of(opened, torch.tensor([asked]))
        same = np.flatnonzero((reach.triples == asked).all(axis=1))
        ends, network = (subject, object_), frozen(opened.model.network_)
        told: dict[str, Any] = {"nodes": ends, "ends": ends, "itself": int(same[0]) if len(same) else None}
        told |= {"known": bool(standing.known[0]), "ruled_out": bool(standing.ruled_out[0])}
        made = cls(reach, opened.calibration, network, subject, relation, object_, standing, **told)
        with torch.no_grad():
            return made.shifted(made.output(reach.field))

    def about(self, opened: OpenModel) -> dict[str, Any]:
        relation = {"relation": opened.describe_relation(self.relation)}
        ends = {"subject": opened.describe(self.subject), **relation, "object": opened.describe(self.object)}
        return {"kind": "link", **ends, "known": self.known}

    def title(self, opened: OpenModel) -> str:
        subject, object_ = opened.titles.of(self.subject), opened.titles.of(self.object)
        return f"Why {subject} —{opened.titles.relation(self.relation)}→ {object_}?"

    def notes(self, opened: OpenModel) -> tuple[str, ...]:
        if not self.ruled_out:
            return ()
        relation = opened.titles.relation(self.relation)
        alike = "Such triples share one probability, whatever their score."
        return (
            f"It goes against what is known of {relation}: `rgcn data stats --relations` shows it.",
            alike if self.by_score else "Predictions leave it out.",
        )

    @property
    def work(self) -> int:
        return 2 * self.reach.question_work(self.network)  # one question from each end

    def output(self, field: ReceptiveField) -> Tensor:
        return self.network.score_heard(self._heard(field)) - self.shift

    def unheard(self) -> Tensor:
        return self.network.score_unheard(self._heard(self.reach.silent(loops=0.0))) - self.shift

    def _heard(self, field: ReceptiveField) -> Heard:
        return Heard(field, field.outputs, self.subject, self.relation, self.object)

    def shifted(self, output: Tensor) -> Self:
        """The same, its output that of the scorer where everything is heard; output: what it is there now."""
        theirs = self.standing.scores[:, 0].to(output.device)
        shift = output.double() - theirs  # exact: twice the digits
        return replace(self, shift=shift, full=output - shift)

    def log_probability(self, output: Tensor) -> Tensor:
        return nn.functional.logsigmoid(self.score(output))

    def score(self, output: Tensor) -> Tensor:
        return output.mean()

    def probability(self, output: Tensor) -> float | None:
        """By the score alone, among the answers to the same question, known or forbidden as it may be."""
        if not self.calibration.fitted:
            return None
        return float(self.standing.by_scores(self.calibration, output.cpu().expand(2)[:, None])[0])

    def predicted(self, output: Tensor) -> float | None:
        found = self.standing.probability(self.calibration if self.calibration.fitted else None)
        return None if found is None or bool(found.isnan()[0]) else float(found[0])


def frozen(network: Network) -> Network:
    """The same network, weights shared and not copied, that asks for no gradients of them, nor remembers its last call.

    A path network keeps what it computes of relations alone: each question of an explanation asks for the same one.

    A flag set on the network itself would disturb whoever else uses it at the same time.
    """
    shared: dict[int, object] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    for module in network.modules():
        for name in ("_scorer", "_last"):
            if module.__dict__.get(name) is not None:
                shared[id(module.__dict__[name])] = None
    made = copy.deepcopy(network, shared).eval()
    if isinstance(made, PathNetwork):
        made.kept_tables = {}
    return made
