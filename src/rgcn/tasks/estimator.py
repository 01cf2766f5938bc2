"""What every estimator shares: settings, fitting a step at a time, figures, keeping."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self, TypedDict

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.receptive_field import HasRows
from rgcn.adjacency.stored_edges import StoredEdges
from rgcn.config import Scheme, Section, validated
from rgcn.config.knobs import choices, option_problems
from rgcn.config.section import listed
from rgcn.errors import ConfigError, DataError, NotFittedError, close_matches
from rgcn.graph import KnowledgeGraph
from rgcn.joining import refuse_shared_gpus
from rgcn.nn.spread_tables import shards_by_name, whole_weights
from rgcn.processes import processes
from rgcn.sharding import Shards
from rgcn.tasks.fitting import Fitting, Schedule
from rgcn.tasks.task import Epoch, Task, task_of

if TYPE_CHECKING:
    from rgcn.answers.calibration import Calibration
    from rgcn.budget import Budget
    from rgcn.nn.encoders import Encoder
    from rgcn.scoring import Scorer

OnEpoch = Callable[[Epoch], bool | None]
Nodes = Iterable[str | int]
Part = TypeVar("Part")


class SharedSettings(TypedDict, total=False):
    """Keyword arguments of every estimator, so that a type checker knows them; `rgcn.config` says what each one means.

    A test holds them to the fields there.
    """

    encoder: str | type[Encoder]
    layers: int
    embedding: int
    bases: int | None
    blocks: int | None
    normalization: Literal["relation", "node", "direction", "none"]
    aggregation: Literal["sum", "mean"]
    inverse: bool
    self_loops: bool
    bias: bool
    init: Scheme
    gain: float
    options: dict[str, Any]
    epochs: int
    learning_rate: float
    weight_decay: float
    edge_dropout: float
    self_loop_dropout: float
    patience: int | None
    device: str
    deterministic: bool
    sharded: bool | None


class Estimator(ABC):
    """A model with settings that can be fitted, measured and asked, in the manner of scikit-learn.

    model_section, training_section   the sections its settings belong to
    own_settings                      further settings, which it takes itself, with their defaults
    """

    task: ClassVar[str]
    model_section: ClassVar[type[Section]]
    training_section: ClassVar[type[Section]]
    own_settings: ClassVar[Mapping[str, Any]] = {"seed": 0}

    model: Any
    training: Any
    seed: int
    new_nodes: tuple[int, ...] = ()  # that training never saw; it has none itself
    mirror: Path | None = None  # a folder of data sets, for models that read other graphs by their names

    # -- settings ----------------------------------------------------------------------------------------

    def _configure(self, settings: Mapping[str, Any], trusted: bool) -> None:
        """Take settings given flat, each into the section it belongs to; a name none has is refused.

        trusted  the settings are the user's own: classes they name by their dotted names may be imported
        """
        owner, sections = type(self).__name__, (self.model_section, self.training_section)
        given = {key: value for key, value in settings.items() if key != "model"}
        known = {*sections[0].model_fields, *sections[1].model_fields, *self.own_settings} - {"name"}
        unknown = next((key for key in given if key not in known), None)
        if unknown is not None:
            close = close_matches(unknown, sorted(known | {"model"}))
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known | {'model'}))}"
            raise ConfigError(f"{owner} has no setting {unknown!r}; {hint}")
        if settings.get("model") is not None:
            given["name"] = settings["model"]
        self.model, self.training = (
            validated(section, {key: value for key, value in given.items() if _takes(section, key, value)}, owner)
            for section in sections
        )
        if trusted:
            for _, axis, choice in (*choices(self.model), *choices(self.training)):
                axis.find(choice, trusted=True)
            if problems := [*option_problems(self.model), *option_problems(self.training)]:
                raise ConfigError(listed(owner, problems))
        for key, default in self.own_settings.items():
            setattr(self, key, given.get(key, default))
        self.history_: list[Epoch] = []
        self._graph: KnowledgeGraph | None = None
        self._adjacency: RelationalAdjacency | None = None
        self._shards: Shards | None = None  # where several processes hold the nodes
        self._in_place: StoredEdges | None = None  # of a large graph: what answers for a few nodes need of it
        self._network: Any = None
        self._calibration: Calibration | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """One with settings that a file brought; classes it names are imported only where that is allowed (`axes`)."""
        made = cls.__new__(cls)
        made._configure(settings, trusted=False)
        return made

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by name, as the constructor takes them."""
        own = {key: getattr(self, key) for key in self.own_settings}
        return {**own, **self.model.model_dump(), **self.training.model_dump()}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; the model must then be fitted again."""
        kept = self.get_params()
        if settings.get("model") is not None:  # a shorthand speaks for every axis that it stands for
            for meant in self.model_section.shorthands.values():
                kept = {key: value for key, value in kept.items() if key not in meant}
        self._configure({**kept, **settings}, trusted=True)
        return self

    def _fitted(self, part: Part | None) -> Part:
        if part is None:
            raise NotFittedError(f"this {type(self).__name__} has not been fitted: call fit(kg) first")
        return part

    @property
    def graph_(self) -> KnowledgeGraph:
        return self._fitted(self._graph)

    @property
    def network_(self) -> Any:
        return self._fitted(self._network)

    @property
    def adjacency_(self) -> RelationalAdjacency:
        """The operator of the edges that carry messages; of a large graph in place, made when first asked for."""
        if self._adjacency is None and self._in_place is not None:
            self._adjacency = self._operator(self.graph_, "all")
        return self._fitted(self._adjacency)

    @property
    def rows_(self) -> HasRows:
        """What fields are made of: the operator, or the edges where they lie."""
        return self.adjacency_ if self._in_place is None else self._in_place

    @property
    def fingerprint_(self) -> str:
        """Of its settings, its weights and the graph it knows: models that have the same give the same answers.

        Processes that hold its tables together ask for it together.
        """
        settings = {key: str(value) for key, value in self.get_params().items() if key not in ("device", "sharded")}
        digest = sha256(f"{self.graph_.fingerprint} {sorted(settings.items())}".encode())
        for name, tensor in whole_weights(self.network_, in_order=True):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return str(processes().tell(digest.hexdigest())[0]) if shards_by_name(self.network_) else digest.hexdigest()

    @property
    def num_parameters_(self) -> int:
        """Numbers that training may change, whoever holds them."""
        spread = shards_by_name(self.network_)
        sizes = ((spread[name].count if name in spread else None, p) for name, p in self.network_.named_parameters())
        return sum(p.numel() if rows is None else rows * math.prod(p.shape[1:]) for rows, p in sizes)

    @property
    def num_parameters_as_published_(self) -> int:
        """The same as the paper counts them."""
        return self.num_parameters_

    def __repr__(self) -> str:
        state = "not fitted" if self._graph is None else f"fitted on {self._graph!r}"
        return f"{type(self).__name__}({self.model.title!r}, {state})"

    def task_(self) -> Task:
        return task_of(self.task)

    # -- learning ----------------------------------------------------------------------------------------

    def fit(self, kg: KnowledgeGraph, on_epoch: OnEpoch | None = None) -> Self:
        """Learn from what may be learned from; nothing of a test split is read.

        on_epoch  called with every report of the training; where it returns False, the training ends there, with the
                  best weights where these are told by validation
        """
        with self.fitting(kg) as fitting:
            for epoch in fitting:
                if on_epoch is not None and epoch is not None and on_epoch(epoch) is False:
                    fitting.stop()
            fitting.finish()
        return self

    def fitting(self, kg: KnowledgeGraph) -> Fitting:
        """`fit` a step at a time: a training that can be stopped, written down and continued."""
        trainer, training = self.prepare(kg).trainer(), self.training
        watch = self.task_().watch(training)
        steps = training.epochs * trainer.steps_an_epoch
        schedule = Schedule(steps, watch, training.patience, **self._measuring(trainer))
        return Fitting(trainer, schedule, self.seed, self.history_, training.deterministic)

    @abstractmethod
    def prepare(self, kg: KnowledgeGraph) -> Self:
        """Everything before the first step: check the graph, build the operator and the untrained network."""

    @abstractmethod
    def trainer(self) -> Any:
        """What takes the steps, for loops of one's own; after `prepare`."""

    @abstractmethod
    def _measuring(self, trainer: Any) -> dict[str, Any]:
        """When a training reports and measures, as `Schedule` takes it."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Figures that a report of the training may have, besides the loss."""

    def _begin(
        self, graph: KnowledgeGraph, split: str = "all", hears: bool = True
    ) -> tuple[RelationalAdjacency, torch.Generator]:
        """A fresh start on this graph: the operator of a split's triples, and where initial weights come from.

        hears  whether there are messages; else the operator has no edges
        """
        self._graph, self._network, self.history_, self._calibration = graph, None, [], None
        self.learned_elsewhere = False
        self._in_place, group = None, processes()
        self._shards = None
        if self.training.sharded and group.together:
            from rgcn.tasks.trainers import cannot_shard

            if (reason := cannot_shard(self.model, self.training, graph)) is not None:
                raise ConfigError(f"training.sharded: {reason}; or set it to false")
            self._shards = Shards(graph.num_nodes, group)
        self._adjacency = self._operator(graph, split) if hears else self._operator(graph, None, self_loops=False)
        return self._adjacency, torch.Generator().manual_seed(self.seed)

    def hold_in_shards(self, graph: KnowledgeGraph) -> None:
        """Let several processes each hold a part of the nodes, however it was trained, where that can be."""
        from rgcn.tasks.trainers import cannot_shard

        if processes().together and "sharded" in self.training_section.model_fields:
            can = cannot_shard(self.model, self.training, graph) is None
            self.training = self.training.model_copy(update={"sharded": can})

    def _operator(self, graph: KnowledgeGraph, split: str | None, **changes: bool) -> RelationalAdjacency:
        """Of the triples of a split; None: of no triples. changes: of which edges there are."""
        device, rule = choose_device(self.training.device), edge_rule(self.model) | changes
        if split is not None:
            return RelationalAdjacency.from_graph(graph, split=split, device=device, shards=self._shards, **rule)
        nothing = torch.empty((0, 3), dtype=torch.int64, device=device)
        return RelationalAdjacency.from_triples(nothing, graph.num_nodes, graph.num_relations, **rule)

    # -- measuring ---------------------------------------------------------------------------------------

    @abstractmethod
    def evaluate(
        self, kg: KnowledgeGraph | None = None, split: str = "test", *, at_most: int | None = None
    ) -> dict[str, Any]:
        """Figures on one split of a graph (None: the one it was fitted on); at_most: on so many of it, drawn."""

    def validated(self, at_most: int | None = None) -> dict[str, float]:
        """Validation figures, as a training watches them. They leave the network in evaluation mode."""
        at_most = at_most or getattr(self.training, "evaluate_at_most", None)
        figures = self._figures("valid", at_most)
        return {metric.name: figures[metric.name] for metric in self.task_().watched if metric.name in figures}

    def _figures(self, split: str, at_most: int | None) -> dict[str, Any]:
        """Estimators from outside need not know how to be measured on a part."""
        return self.evaluate(split=split) if at_most is None else self.evaluate(split=split, at_most=at_most)

    def _some(self, rows: Tensor, at_most: int | None) -> Tensor:
        """So many rows, drawn with the seed, in their order; the same whatever the model."""
        if at_most is None or at_most >= len(rows):
            return rows
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))[:at_most]
        return rows[drawn.sort().values.to(rows.device)]

    @abstractmethod
    def measured_splits(self) -> list[str]:
        """Splits on which there is something to measure, once it is trained."""

    def measure(self, at_most: int | None = None) -> dict[str, dict[str, Any]]:
        """The task's metrics on every split that has something to measure, or on so many of each, and how many."""
        names = {metric.name for metric in self.task_().metrics} | {"count"}
        return {
            split: {k: value for k, value in self._figures(split, at_most).items() if k in names}
            for split in self.measured_splits()
        }

    # -- asking ------------------------------------------------------------------------------------------

    @property
    def classes_(self) -> list[str]:
        """Class names, in the order of `logits`' columns, of a model that answers for classes."""
        raise DataError(cannot_answer(self, "classes"))

    def logits(self, nodes: Nodes) -> Tensor:
        """[n, classes]: the score of every class, on the CPU."""
        raise DataError(cannot_answer(self, "classes"))

    def scorer(self) -> Scorer:
        """What scores triples, of a model that answers for links."""
        raise DataError(cannot_answer(self, "links"))

    @property
    @abstractmethod
    def num_layers_(self) -> int:
        """How many hops away a node can be heard; 0 where no messages are passed."""

    @property
    def message_triples_(self) -> NDArray[np.int64]:
        """[T, 3]: the triples whose edges carry messages, in the operator's order."""
        return self.graph_.split_triples("train")

    @property
    def hides_asked_(self) -> bool:
        """Whether its network answers by walking from the asked node, as `LinkNetwork.hides_asked` says."""
        return False

    learned_elsewhere = False
    """Whether its weights come from other graphs than the one it answers for."""

    @property
    def hiding_(self) -> str | None:
        """What to say of figures on known triples and labels, each hidden while it is asked about.

        None where nothing is hidden: a model that learned them by heart is no judge of them.
        """
        return None

    def class_links(self, node: int) -> list[tuple[int, int, int]]:
        """The triple that each class would be, of a model that asks for classes as links."""
        return []

    def class_asked(self, node: int) -> list[int]:
        """Nodes that must be computed to tell the class of one."""
        return [node]

    def class_heard(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        """[1, classes]: logits of a node from the receptive field of `class_asked`, with gradients of its edges.

        network  this model's, or a copy of it; own=False: without what nodes bring themselves, around the messages
        """
        raise DataError(cannot_answer(self, "classes"))

    @property
    def calibration_(self) -> Calibration:
        """How scores become probabilities; fitted on validation data, or on known ones (`hiding_`), when first asked
        for."""
        return self.calibrate() if self._calibration is None else self._calibration

    @calibration_.setter
    def calibration_(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def calibrate(self, budget: Budget | None = None) -> Calibration:
        """Fit `calibration_` anew, in seconds by default; `rgcn.answers.calibration.PATIENT` has no limit."""
        from rgcn.answers.calibration import QUICK, calibrate_classes, calibrate_links

        calibrate = calibrate_classes if "classes" in self.task_().answers else calibrate_links
        self._calibration = calibrate(self, self.hiding_, budget or QUICK)
        return self._calibration

    # -- vectors -----------------------------------------------------------------------------------------

    def vector_layer(self, layer: int | None) -> int | None:
        """The layer that `vectors` takes by default; ConfigError for one that there is not."""
        if layer is not None:
            raise ConfigError(
                f"layer is for models that answer layer by layer; {self.model.title} has one vector for each node"
            )
        return None

    def vectors(self, nodes: NDArray[np.int64], layer: int | None = None) -> NDArray[np.float32]:
        """[n, width]: what the model holds of nodes; DataError where it holds nothing of them."""
        raise DataError(
            f"{self.model.title} computes every answer anew: it has no vectors of nodes to write, to draw or to compare"
        )

    def vector_words(self, layer: int | None) -> str:
        """What these vectors are."""
        return "the vectors the model scores triples with"

    def relation_vectors(self) -> tuple[Tensor, Tensor | None, str]:
        """([R, width], the inverses' or None, what the numbers are); DataError where relations have no weights."""
        raise DataError(f"{self.model.title} has no weights of a relation's own that could be compared")

    # -- a graph that has grown --------------------------------------------------------------------------

    def cannot_extend(self) -> str | None:
        """Why it cannot answer for nodes it was not trained with; None where it can."""
        return None

    def settle(self, known: KnowledgeGraph, steps: int) -> None:  # noqa: B027
        """Fit what is new, after the graph has grown from `known`; nothing that was trained changes."""

    # -- another graph -----------------------------------------------------------------------------------

    def cannot_move(self) -> str | None:
        """Why it cannot answer over another graph that has the same relations (`over`); None where it can."""
        return cannot_answer(self, "links")

    def over(self, kg: KnowledgeGraph) -> Self:
        """The same trained model over another graph, whose relations it knows."""
        raise DataError(self.cannot_move())

    # -- keeping -----------------------------------------------------------------------------------------

    def save(self, folder: str) -> None:
        """Write the model and its graph into a folder: safetensors and JSON, never pickle."""
        from rgcn.tasks.storage import save_model

        save_model(self, folder)

    def beside(self) -> dict[str, Any]:
        """What belongs to the model beside its settings, weights and graph: plain values, ready for JSON."""
        return {"learned_elsewhere": self.learned_elsewhere}

    def restore_beside(self, values: dict[str, Any]) -> None:
        self.learned_elsewhere = values.get("learned_elsewhere") is True

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read what `save` wrote."""
        from rgcn.tasks.storage import load_as

        return load_as(folder, cls)

    def restore_saved(self, graph: KnowledgeGraph) -> Self:
        """Prepare for weights that were saved with this very graph."""
        return self.prepare(graph)


def cannot_answer(model: Estimator, what: str) -> str:
    """The words for a question of a kind that a model does not answer."""
    does = {"classes": "classifies nodes", "links": "predicts links"}
    example = {"classes": "`rgcn train rgcn/nc-world`", "links": "`rgcn train rgcn/lp-world`"}
    has = " and ".join(does[kind] for kind in model.task_().answers if kind in does) or "answers other questions"
    asked = {"classes": "a question about a node's class", "links": "a question about triples"}[what]
    return f"this model {has}; {asked} needs one that {does[what]}, such as {example[what]} makes"


def one_hot_words(instead: str) -> str:
    """Why a model with a lookup by node does not know a new one."""
    return (
        "this model's first layer is a table with a row for every (relation, node) of the training graph, and has none "
        f"for a node it never saw. Train {instead}"
    )


def edge_rule(model: Any) -> dict[str, Any]:
    """Which edges there are, and how they are normalized, as an operator is told."""
    return {name: getattr(model, name) for name in ("inverse", "self_loops", "normalization", "aggregation")}


def on_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array)).to(device)


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name != "cpu" and processes().together:
        refuse_shared_gpus(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but PyTorch sees no GPU here; use cpu or auto")
    return torch.device(name)


def _takes(section: type[Section], key: str, value: Any) -> bool:
    """Whether a setting is one of the section's, or a shorthand that stands for some."""
    return key in section.model_fields or (key == "name" and value in section.shorthands)
