"""What every estimator shares: settings, fitting a step at a time, measuring, asking, saving."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self, TypedDict

from rgcn.adjacency import RelationalAdjacency
from rgcn.adjacency.receptive_field import HasRows, StoredEdges
from rgcn.config import Scheme, Section, validated
from rgcn.config.fields import choices, option_problems, refuse_problems
from rgcn.errors import ConfigError, DataError, NotFittedError, close_matches
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration import Calibration
from rgcn.models.answer_kind import ClassKind, LinkKind, cannot_answer
from rgcn.models.hooks import ModelHooks
from rgcn.models.task import Task, task_of
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoders import Encoder
from rgcn.nn.relational_encoder import edge_options
from rgcn.nn.relational_graph_conv import MessageFunction
from rgcn.nn.row_tables import partitions_by_name, whole_weights
from rgcn.nn.scorer import Scorer
from rgcn.placement import LOCAL, Placement, current
from rgcn.system.progress import Budget
from rgcn.training.fitting import Fitting, Schedule
from rgcn.training.history import Epoch
from rgcn.training.plan import Plan, choose_device, default_sharding, why_not_sharded

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
    decomposition: str | type[Decomposition]
    message_function: str | type[MessageFunction]
    convolution_options: dict[str, Any]
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


class Estimator(ModelHooks):
    """A model with settings that can be fitted, measured and asked, in the manner of scikit-learn.

    Its settings are given flat and kept by the section they belong to.

    model_section, training_section   the sections its settings belong to
    own_settings                      further settings, which it takes itself, with their defaults
    """

    model_section: ClassVar[type[Section]]
    training_section: ClassVar[type[Section]]
    own_settings: ClassVar[Mapping[str, Any]] = {"seed": 0}

    model: Any
    training: Any

    task: ClassVar[str]
    seed: int
    new_nodes: tuple[int, ...] = ()  # that training never saw; it has none itself
    placement: Placement = LOCAL
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

        def settings_of(section: type[Section]) -> Any:
            own = {*section.model_fields, *(["name"] if given.get("name") in section.shorthands else [])}
            return validated(section, {key: value for key, value in given.items() if key in own}, owner)

        self.model, self.training = map(settings_of, sections)
        if trusted:
            for _, axis, choice in (*choices(self.model), *choices(self.training)):
                axis.find(choice, trusted=True)
            refuse_problems(owner, [*option_problems(self.model), *option_problems(self.training)])
        for key, default in self.own_settings.items():
            setattr(self, key, given.get(key, default))
        self._forget()

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

    # -- what was fitted ---------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Forget everything that was fitted with other settings."""
        self.history_: list[Epoch] = []
        self._graph: KnowledgeGraph | None = None
        self._adjacency: RelationalAdjacency | None = None
        self.learned_elsewhere = False  # True if its weights come from other graphs than the one it answers for
        self._in_place: StoredEdges | None = None  # of a large graph: what answers for a few nodes need of it
        self._network: Any = None
        self._calibration: Calibration | None = None

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
        for name, tensor in whole_weights(self.network_, self.placement, in_order=True):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return str(self.placement.from_main(digest.hexdigest)) if self.placement.partition else digest.hexdigest()

    @property
    def num_parameters_(self) -> int:
        """Numbers that training may change, in all processes."""
        local, total = partitions_by_name(self.network_), 0
        for name, parameter in self.network_.named_parameters():
            rows = local[name].num_nodes if name in local else len(parameter) if parameter.ndim else 1
            total += rows * math.prod(parameter.shape[1:])
        return total

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

    def plan(self, kg: KnowledgeGraph) -> Plan:
        """What a training on this graph will do: everything held out, every setting that was left open filled in.

        Raises:
            ConfigError: Settings that do not suit the graph or the machine.
            DataError: A graph that this cannot be learned from.
        """
        graph = self.hold_out(kg)
        chosen = current().from_main(lambda: self.open_settings(graph))  # by the main process's machine, for all
        chosen |= default_sharding(self.model, self.training, graph)
        training = self.training.model_copy(update=chosen)
        placement = self._placement(graph, training)
        return Plan(self.model, training, self.seed, graph, choose_device(training.device), placement, chosen)

    def hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        """The graph as it is learned from: with a validation split, where one is asked for and the graph has none."""
        return kg

    def open_settings(self, graph: KnowledgeGraph) -> dict[str, Any]:
        """Settings of the training that were left open and follow from the graph and the machine."""
        return {}

    def _placement(self, graph: KnowledgeGraph, training: Any) -> Placement:
        """Where a model with these settings is computed."""
        placement = current()
        if not (placement.is_distributed and training.sharded):
            return placement
        if (reason := why_not_sharded(self.model, training, graph)) is not None:
            raise ConfigError(f"training.sharded: {reason}; or set it to false")
        return placement.partitioned(graph.num_nodes)

    def fitting(self, kg: KnowledgeGraph | Plan) -> Fitting:
        """`fit` a step at a time: a training that can be stopped, written down and continued."""
        trainer, training = self.prepare(kg).trainer(), self.training
        watch = self.task_().watch(training)
        steps = training.epochs * trainer.steps_an_epoch
        schedule = Schedule(steps, watch, training.patience, **self._measuring(trainer))
        return Fitting(trainer, schedule, self.seed, self.history_, training.deterministic)

    def prepare(self, kg: KnowledgeGraph | Plan) -> Self:
        """Everything before the first step: plan, build the operator and the untrained network."""
        plan = kg if isinstance(kg, Plan) else self.plan(kg)
        self.training, self.placement = plan.training, plan.placement
        return self.build(plan.graph)

    @abstractmethod
    def build(self, graph: KnowledgeGraph) -> Self:
        """Build the operator and the untrained network for a graph as `hold_out` gives it."""

    @abstractmethod
    def trainer(self) -> Any:
        """What takes the steps, for loops of one's own; after `prepare`."""

    @abstractmethod
    def _measuring(self, trainer: Any) -> dict[str, Any]:
        """When a training reports and measures, as `Schedule` takes it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Figures that a report of the training may have, besides the loss."""
        return tuple(f"valid_{metric.name}" for metric in self.task_().watched)

    def _begin(
        self, graph: KnowledgeGraph, split: str = "all", hears: bool = True
    ) -> tuple[RelationalAdjacency, torch.Generator]:
        """A fresh start on this graph: the operator of a split's triples, and where initial weights come from.

        hears  whether there are messages; else the operator has no edges
        """
        self._forget()
        self._graph = graph
        self._adjacency = self._operator(graph, split) if hears else self._operator(graph, None, self_loops=False)
        return self._adjacency, torch.Generator().manual_seed(self.seed)

    def divide_nodes(self, graph: KnowledgeGraph) -> None:
        """Divide the nodes among several processes if the model allows it, however it was trained."""
        if current().is_distributed and "sharded" in self.training_section.model_fields:
            can = why_not_sharded(self.model, self.training, graph) is None
            self.training = self.training.model_copy(update={"sharded": can})

    def _operator(self, graph: KnowledgeGraph, split: str | None, **changes: bool) -> RelationalAdjacency:
        """Of the triples of a split; None: of no triples. changes: of which edges there are."""
        device, options = choose_device(self.training.device), edge_options(self.model) | changes
        if split is not None:
            targets = self.placement.partition
            return RelationalAdjacency.from_graph(graph, split=split, device=device, targets=targets, **options)
        nothing = torch.empty((0, 3), dtype=torch.int64, device=device)
        return RelationalAdjacency.from_triples(nothing, graph.num_nodes, graph.num_relations, **options)

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
        raise DataError(cannot_answer(self.task_().kinds, ClassKind()))

    def logits(self, nodes: Nodes) -> Tensor:
        """[n, classes]: the score of every class, on the CPU."""
        raise DataError(cannot_answer(self.task_().kinds, ClassKind()))

    def scorer(self) -> Scorer:
        """What scores triples, of a model that answers for links."""
        raise DataError(cannot_answer(self.task_().kinds, LinkKind()))

    @property
    def hiding_(self) -> str | None:
        """What to say of figures on known triples and labels, each hidden while it is asked about.

        None where nothing is hidden: a model that learned them by heart is no judge of them.
        """
        return None

    @property
    def calibration_(self) -> Calibration:
        """How scores become probabilities; fitted on validation data, or on known ones (`hiding_`), when first asked
        for."""
        return self.calibrate() if self._calibration is None else self._calibration

    @calibration_.setter
    def calibration_(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def calibrate(self, budget: Budget | None = None) -> Calibration:
        """Fit `calibration_` anew, in seconds by default; `rgcn.links.calibration_fitting.PATIENT` has no limit."""
        self._calibration = self.task_().kind.calibrate(self, self.hiding_, budget)
        return self._calibration

    # -- keeping -----------------------------------------------------------------------------------------

    def save(self, folder: str) -> None:
        """Write the model and its graph into a folder: safetensors and JSON, never pickle."""
        from rgcn.models.storage import save_model

        save_model(self, folder)

    def beside(self) -> dict[str, Any]:
        """What belongs to the model beside its settings, weights and graph: plain values, ready for JSON."""
        return {"learned_elsewhere": self.learned_elsewhere}

    def restore_beside(self, values: dict[str, Any]) -> None:
        self.learned_elsewhere = values.get("learned_elsewhere") is True

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read what `save` wrote."""
        from rgcn.models.storage import load_as

        return load_as(folder, cls)

    def restore_saved(self, graph: KnowledgeGraph) -> Self:
        """Build the network for weights that were saved with this very graph, in which everything is held out."""
        self.placement = self._placement(graph, self.training)
        return self.build(graph)
