"""What every estimator shares: parameters, training, evaluation, calibration, saving."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from rgcn.adjacency import ReceptiveField, RelationalAdjacency
from rgcn.adjacency.operator import edge_options
from rgcn.adjacency.receptive_field import RowSource, StoredEdges
from rgcn.config import Section, validate_section
from rgcn.config.fields import chosen_components, find_option_problems, raise_problems
from rgcn.errors import ConfigError, DataError, NotFittedError, close_matches
from rgcn.graph import KnowledgeGraph
from rgcn.links.calibration import Calibration
from rgcn.models.answer_kind import ClassKind, LinkKind, wrong_question_message
from rgcn.models.storage import load_as, save_model
from rgcn.models.task import Task, task_of
from rgcn.nn.row_tables import gather_weights, partitions_by_name
from rgcn.nn.scorer import Scorer
from rgcn.placement import LOCAL, Placement, current
from rgcn.system.progress import Budget
from rgcn.training.fitting import Fitting, Schedule
from rgcn.training.history import Reports, TrainingReport
from rgcn.training.plan import Plan, choose_device, default_sharding, why_not_sharded

OnReport = Callable[[TrainingReport], bool | None]
Nodes = Iterable[str | int]
T = TypeVar("T")


class ModelHooks:
    """Access to a fitted model for other subpackages; every estimator has one as `hooks_`.

    This class has the answers of a model that supports none of it. An estimator overrides what it supports.

    Args:
        model: The fitted model.
    """

    def __init__(self, model: Estimator) -> None:
        self.estimator = model

    # -- explanations: which edges carry messages, and a class's score as a function of them ----

    @property
    def num_layers(self) -> int:
        """How many hops a message travels; 0 if the model passes no messages."""
        return 0

    @property
    def message_triples(self) -> NDArray[np.int64]:
        """The triples whose edges carry messages, [num_triples, 3], in the operator's order."""
        return self.estimator.graph_.split_triples("train")

    @property
    def hides_query(self) -> bool:
        """True if the network walks from the queried node and must not use the edge of the queried triple itself."""
        return False

    def class_links(self, node: int) -> list[tuple[int, int, int]]:
        """Return the triple that each class of a node would be, if the model scores classes as links."""
        return []

    def class_inputs(self, node: int) -> list[int]:
        """Return the nodes whose states decide the class of a node."""
        return [node]

    def class_logits(self, network: nn.Module, field: ReceptiveField, node: int, *, own: bool = True) -> Tensor:
        """Compute the logits of a node, [1, num_classes], with gradients of the field's edges.

        Args:
            network: The model's network, or a copy of it.
            field: The receptive field of `class_inputs(node)`.
            node: The node's id.
            own: False to leave out what nodes contribute apart from messages.

        Raises:
            DataError: The model does not predict classes.
        """
        raise DataError(wrong_question_message(self.estimator.task_info.kinds, ClassKind()))

    # -- vectors: files, maps and comparisons of relations ----------------------------------------

    def embedding_layer(self, layer: int | None) -> int | None:
        """Return the layer that `Estimator.embeddings` uses: the given one, or the default.

        Raises:
            ConfigError: There is no such layer.
        """
        if layer is not None:
            title = self.estimator.model.title
            raise ConfigError(f"layer = {layer}: {title} has no layers, but one vector for each node: leave layer out")
        return None

    def describe_embeddings(self, layer: int | None) -> str:
        """Say in a few words what the embeddings of a layer are."""
        return "the vectors the model scores triples with"

    def relation_embeddings(self) -> tuple[Tensor, Tensor | None, str]:
        """Return a vector for each relation.

        Returns:
            The vectors [num_relations, width], those of the inverses or None, and what they are in words.

        Raises:
            DataError: The model has no weights of single relations.
        """
        raise DataError(f"{self.estimator.model.title} has no weights of single relations that could be compared")

    # -- new nodes and other graphs ----------------------------------------------------------------

    def why_not_extensible(self) -> str | None:
        """Return why the model cannot answer for nodes it was not trained with, or None if it can."""
        return None

    def why_not_transferable(self) -> str | None:
        """Return why the model cannot answer over another graph with the same relations, or None if it can."""
        return wrong_question_message(self.estimator.task_info.kinds, LinkKind())


def one_hot_message(alternative: str) -> str:
    """Say why a model with one-hot inputs cannot answer for a new node, and what to train instead."""
    return (
        "the model's first layer is a table with a row for every (relation, node) of the training graph, and has no "
        f"row for a new node. Train {alternative}"
    )


class Estimator(ABC):
    """Base of all estimators: a model with parameters that can be fitted, evaluated and asked, as in scikit-learn.

    The constructor takes every setting of two configuration sections as a keyword argument, and keeps what it was
    given (`get_params`). Validated settings are in `model` and `training`. Attributes that end in an underscore exist
    after `fit`, `prepare` or `load`.

    Attributes:
        task: Name of the task, as in `rgcn.plugins.TASKS`.
        model_section: Configuration section of the network's settings.
        training_section: Configuration section of the training's settings.
        own_settings: Further settings of the estimator itself, with their defaults.
        hooks: What other subpackages can do with a fitted model.
        model: The network's settings, presets and defaults filled in.
        training: The training's settings; after `prepare` also with what was derived from graph and machine.
        seed: Seed of every random choice.
        new_nodes: Nodes that were added after training (see `rgcn.predict`).
        placement: The nodes and the share of each batch that this process computes.
        mirror: Folder of downloaded data sets, for models that read further graphs by name.
        history_: Reports of the training.
        is_transferred: True if the weights were learned on other graphs than `graph_`.
    """

    task: ClassVar[str]
    model_section: ClassVar[type[Section]]
    training_section: ClassVar[type[Section]]
    own_settings: ClassVar[Mapping[str, Any]] = {"seed": 0}
    hooks: ClassVar[type[ModelHooks]] = ModelHooks

    model: Any
    training: Any
    seed: int
    new_nodes: tuple[int, ...] = ()
    placement: Placement = LOCAL
    mirror: Path | None = None

    # -- parameters --------------------------------------------------------------------------------------

    @classmethod
    def _default_params(cls) -> dict[str, Any]:
        """Return the constructor's parameters with their defaults.

        The default is None for what a preset (a value of `model`) may set, and for empty dicts and lists.
        """
        sections = cls.model_section, cls.training_section
        by_preset = {name for section in sections for preset in section.shorthands.values() for name in preset}
        fields = {name: field.default for section in sections for name, field in section.model_fields.items()}
        defaults = {
            name: None if name in by_preset or default in ({}, []) else default
            for name, default in fields.items()
            if name != "name"
        }
        return {"model": None, **cls.own_settings, **defaults}

    def _configure(self, params: Mapping[str, Any], *, is_trusted: bool = True) -> None:
        """Keep the parameters as they are, and build the sections from them.

        Args:
            params: Parameters by name; None leaves a parameter to the preset or to the configuration's default.
            is_trusted: True for parameters of the user's own, whose dotted names of classes may be imported. False for
                settings from a file, of which only what `rgcn.plugins` allows is imported.

        Raises:
            ConfigError: A parameter is unknown or wrong, or two of them exclude each other.
        """
        owner, defaults = type(self).__name__, self._default_params()
        # Constructors pass their `locals()`; link estimators share one, with an argument that not all of them have.
        params = {name: value for name, value in params.items() if name in defaults or value is not None}
        params.pop("self", None)
        unknown = next((name for name in params if name not in defaults), None)
        if unknown is not None:
            close = close_matches(unknown, sorted(defaults))
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(defaults))}"
            raise ConfigError(f"{owner} has no parameter {unknown!r}; {hint}")
        given = {name: value for name, value in params.items() if value is not None or not is_trusted}
        preset = given.pop("model", None)

        def build(section: type[Section]) -> Any:
            values = {name: value for name, value in given.items() if name in section.model_fields}
            has_name = preset is not None and ("name" in section.model_fields or preset in section.shorthands)
            return validate_section(section, {**values, "name": preset} if has_name else values, owner)

        self.model, self.training = sections = build(self.model_section), build(self.training_section)
        if is_trusted:
            for _, registry, choice in (chosen for section in sections for chosen in chosen_components(section)):
                registry.resolve(choice, trusted=True)
            raise_problems(owner, [problem for section in sections for problem in find_option_problems(section)])
        for name, default in self.own_settings.items():
            setattr(self, name, given.get(name, default))
        self._params = {**defaults, **params}
        self._forget()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Make an estimator from settings that were read from a file.

        Classes that the settings name by dotted names are imported only if `rgcn.plugins` allows it.

        Args:
            settings: Settings by name, as `settings_` has them.
        """
        estimator = cls.__new__(cls)
        estimator._configure(settings, is_trusted=False)
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name, exactly as they were given.

        Args:
            deep: Has no effect: no parameter is an estimator.
        """
        return dict(self._params)

    def set_params(self, **params: Any) -> Self:
        """Change parameters. The estimator must then be fitted again.

        Args:
            params: Parameters of the constructor. A new `model` also resets what its presets stand for.
        """
        unchanged = self._params
        if params.get("model") is not None:
            names = {name for preset in self.model_section.shorthands.values() for name in preset}
            unchanged = {**unchanged, **dict.fromkeys(names)}
        self._configure({**unchanged, **params})
        return self

    @property
    def settings_(self) -> dict[str, Any]:
        """Every setting by name, presets and defaults filled in: what is saved with the model."""
        own = {name: getattr(self, name) for name in self.own_settings}
        return {**own, **self.model.model_dump(), **self.training.model_dump()}

    # -- fitted state ------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Discard everything that was fitted with other parameters."""
        self.history_: list[TrainingReport] = Reports()
        self.is_transferred = False
        self._graph: KnowledgeGraph | None = None
        self._adjacency: RelationalAdjacency | None = None
        self._stored_edges: StoredEdges | None = None  # of a large stored graph, of which few edges are read
        self._network: Any = None
        self._calibration: Calibration | None = None

    def _fitted(self, part: T | None) -> T:
        if part is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit(kg) first")
        return part

    @property
    def graph_(self) -> KnowledgeGraph:
        """The graph the model was fitted on, with everything held out."""
        return self._fitted(self._graph)

    @property
    def network_(self) -> Any:
        """The PyTorch module."""
        return self._fitted(self._network)

    @property
    def adjacency_(self) -> RelationalAdjacency:
        """The operator of the edges that carry messages; of a stored graph, built on first use."""
        if self._adjacency is None and self._stored_edges is not None:
            self._adjacency = self._operator(self.graph_, "all")
        return self._fitted(self._adjacency)

    @property
    def rows_(self) -> RowSource:
        """What receptive fields are taken from: the operator, or the edges of a stored graph."""
        return self.adjacency_ if self._stored_edges is None else self._stored_edges

    @property
    def fingerprint_(self) -> str:
        """Hash of settings, weights and graph: models with the same hash give the same answers.

        All processes that hold shards of the tables must call it.
        """
        settings = {name: str(value) for name, value in self.settings_.items() if name not in ("device", "sharded")}
        digest = sha256(f"{self.graph_.fingerprint} {sorted(settings.items())}".encode())
        for name, tensor in gather_weights(self.network_, self.placement, in_order=True):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return str(self.placement.from_main(digest.hexdigest)) if self.placement.partition else digest.hexdigest()

    @property
    def num_parameters_(self) -> int:
        """Number of trainable numbers, over all processes."""
        local, total = partitions_by_name(self.network_), 0
        for name, parameter in self.network_.named_parameters():
            rows = local[name].num_nodes if name in local else len(parameter) if parameter.ndim else 1
            total += rows * math.prod(parameter.shape[1:])
        return total

    @property
    def num_parameters_as_published_(self) -> int:
        """Number of parameters as the paper counts them."""
        return self.num_parameters_

    @property
    def hooks_(self) -> ModelHooks:
        """What other subpackages can do with the model."""
        return self.hooks(self)

    @property
    def task_info(self) -> Task:
        """The task that the model was made for."""
        return task_of(self.task)

    def __repr__(self) -> str:
        state = "not fitted" if self._graph is None else f"fitted on {self._graph!r}"
        return f"{type(self).__name__}({self.model.title!r}, {state})"

    # -- training ----------------------------------------------------------------------------------------

    def fit(self, kg: KnowledgeGraph, on_report: OnReport | None = None) -> Self:
        """Train on a graph. Its test split is not read.

        Args:
            kg: The graph, with labels if the model predicts classes.
            on_report: Called with each report of the training. If it returns False, training ends there, with the best
                weights if validation data tell which are best.

        Returns:
            The estimator itself.

        Raises:
            ConfigError: Settings that do not suit the graph or the machine.
            DataError: The graph lacks what the model learns from.
        """
        with self.fitting(kg) as fitting:
            for report in fitting:
                if on_report is not None and report is not None and on_report(report) is False:
                    fitting.stop()
            fitting.finish()
        return self

    def plan(self, kg: KnowledgeGraph) -> Plan:
        """Decide what a training on this graph will do: draw its splits and fill in the settings left open.

        Raises:
            ConfigError: Settings that do not suit the graph or the machine.
            DataError: The graph lacks what the model learns from.
        """
        graph, device, placement = self._hold_out(kg), choose_device(self.training.device), current()
        derived = placement.from_main(lambda: self._derived_settings(graph))  # rank 0's machine decides for all
        derived |= default_sharding(self.model, self.training, graph)
        training = self.training.model_copy(update=derived)
        if placement.is_distributed and training.sharded:
            placement = self._partitioned(graph, training)
        return Plan(self.model, training, self.seed, graph, device, placement, derived)

    def _hold_out(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph with a validation split, if the settings ask for one and the graph has none."""
        return kg

    def _derived_settings(self, graph: KnowledgeGraph) -> dict[str, Any]:
        """Return training settings that were left open and follow from the graph and the machine."""
        return {}

    def _partitioned(self, graph: KnowledgeGraph, training: Any) -> Placement:
        """Return the placement that divides the nodes among the processes."""
        if (reason := why_not_sharded(self.model, training, graph)) is not None:
            raise ConfigError(f"training.sharded: {reason}; or set it to false")
        return current().partitioned(graph.num_nodes)

    def fitting(self, kg: KnowledgeGraph | Plan) -> Fitting:
        """Return a training that takes its steps one at a time, and can be stopped, saved and resumed.

        Args:
            kg: The graph, or a plan of `plan`.
        """
        trainer, training = self.prepare(kg).trainer(), self.training
        metric = self.task_info.watch(training)
        steps = training.length * trainer.steps_per_unit
        schedule = Schedule(steps, metric, training.patience, **self._schedule_options(trainer))
        return Fitting(trainer, schedule, self.seed, self.history_, training.deterministic)

    def prepare(self, kg: KnowledgeGraph | Plan) -> Self:
        """Do everything that comes before the first step: plan, build the operator and the untrained network.

        Args:
            kg: The graph, or a plan of `plan`.
        """
        plan = kg if isinstance(kg, Plan) else self.plan(kg)
        self.training, self.placement = plan.training, plan.placement
        return self._build(plan.graph)

    @abstractmethod
    def _build(self, graph: KnowledgeGraph) -> Self:
        """Build the operator and the untrained network, for a graph whose splits are drawn."""

    @abstractmethod
    def trainer(self) -> Any:
        """Return the `Trainer` that takes the steps; after `prepare`."""

    @abstractmethod
    def _schedule_options(self, trainer: Any) -> dict[str, Any]:
        """Return when a training reports and measures, as arguments of `Schedule`."""

    @property
    def metric_columns(self) -> tuple[str, ...]:
        """Names of the metrics that reports of the training may have besides the loss."""
        return tuple(f"valid_{metric.name}" for metric in self.task_info.validation_metrics)

    def _begin(
        self, graph: KnowledgeGraph, split: str = "all", has_messages: bool = True
    ) -> tuple[RelationalAdjacency, torch.Generator]:
        """Discard what was fitted, and build the operator of a split.

        Returns:
            The operator, without edges if the model has no messages, and the generator of initial weights.
        """
        self._forget()
        self._graph = graph
        options = {"split": split} if has_messages else {"split": None, "self_loops": False}
        self._adjacency = self._operator(graph, **options)
        return self._adjacency, torch.Generator().manual_seed(self.seed)

    def _operator(self, graph: KnowledgeGraph, split: str | None, **options: Any) -> RelationalAdjacency:
        """Build the operator of the triples of a split; None: an operator without edges."""
        device, options = choose_device(self.training.device), {**edge_options(self.model), **options}
        if split is not None:
            targets = self.placement.partition
            return RelationalAdjacency.from_graph(graph, split=split, device=device, targets=targets, **options)
        nothing = torch.empty((0, 3), dtype=torch.int64, device=device)
        return RelationalAdjacency.from_triples(nothing, graph.num_nodes, graph.num_relations, **options)

    # -- evaluation --------------------------------------------------------------------------------------

    @abstractmethod
    def evaluate(
        self, kg: KnowledgeGraph | None = None, split: str = "test", *, at_most: int | None = None
    ) -> dict[str, Any]:
        """Compute metrics on one split of a graph.

        Args:
            kg: The graph; None: the one the model was fitted on.
            split: "train", "valid" or "test".
            at_most: Measure on so many of its labels or triples, drawn with the seed.
        """

    def score(self, kg: KnowledgeGraph | None = None, split: str = "test") -> float:
        """Return the task's main metric on one split: accuracy of a classifier, MRR of a link predictor.

        Args:
            kg: The graph; None: the one the model was fitted on.
            split: "train", "valid" or "test".
        """
        return float(self.evaluate(kg, split)[self.task_info.headline.name])

    def validate(self, at_most: int | None = None) -> dict[str, float]:
        """Compute the metrics that a training watches on the validation split.

        The network is in evaluation mode afterwards.
        """
        at_most = at_most or getattr(self.training, "evaluate_at_most", None)
        metrics, names = self._evaluate_split("valid", at_most), [one.name for one in self.task_info.validation_metrics]
        return {name: metrics[name] for name in names if name in metrics}

    def _evaluate_split(self, split: str, at_most: int | None) -> dict[str, Any]:
        """Call `evaluate`, whose `at_most` an estimator of another package may lack."""
        return self.evaluate(split=split) if at_most is None else self.evaluate(split=split, at_most=at_most)

    def _draw_rows(self, rows: Tensor, at_most: int | None) -> Tensor:
        """Draw `at_most` rows with the seed, in their order: the same rows for every model."""
        if at_most is None or at_most >= len(rows):
            return rows
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))[:at_most]
        return rows[drawn.sort().values.to(rows.device)]

    @abstractmethod
    def measured_splits(self) -> list[str]:
        """Return the splits that have something to measure on."""

    def measure(self, at_most: int | None = None) -> dict[str, dict[str, Any]]:
        """Compute the task's metrics on every split that has something to measure on.

        Args:
            at_most: Measure on so many labels or triples of each split, drawn with the seed.

        Returns:
            For each split the metrics, and `count`: of how many labels or questions.
        """
        names = {metric.name for metric in self.task_info.metrics} | {"count"}
        measured = {split: self._evaluate_split(split, at_most) for split in self.measured_splits()}
        return {split: {name: one[name] for name in one if name in names} for split, one in measured.items()}

    # -- answers -----------------------------------------------------------------------------------------

    @property
    def classes_(self) -> list[str]:
        """Class names, in the order of the columns of `logits`."""
        raise DataError(wrong_question_message(self.task_info.kinds, ClassKind()))

    def logits(self, nodes: Nodes) -> Tensor:
        """Compute the logits of nodes.

        Args:
            nodes: Nodes by name or id.

        Returns:
            The logits [num_nodes, num_classes], on the CPU.

        Raises:
            DataError: The model does not predict classes.
        """
        raise DataError(wrong_question_message(self.task_info.kinds, ClassKind()))

    def scorer(self) -> Scorer:
        """Return the scorer of the trained network.

        Raises:
            DataError: The model does not predict links.
        """
        raise DataError(wrong_question_message(self.task_info.kinds, LinkKind()))

    def embeddings(self, nodes: Nodes | None = None, layer: int | None = None) -> NDArray[np.float32]:
        """Return the vectors of nodes.

        Args:
            nodes: Nodes by name or id; None: all nodes.
            layer: After which layer, of a node classifier: -1 is the last one, whose states are the logits. None: the
                last hidden layer.

        Returns:
            The vectors [num_nodes, width].

        Raises:
            ConfigError: There is no such layer.
            DataError: The model has no node vectors.
        """
        raise DataError(
            f"{self.model.title} computes answers from the graph: it has no node vectors to write, draw or compare"
        )

    def _node_ids(self, nodes: Nodes | None) -> NDArray[np.int64]:
        """Return the ids of nodes; None: of all nodes."""
        return np.arange(self.graph_.num_nodes) if nodes is None else self.graph_.names.node_ids(nodes)

    @property
    def _hiding_note(self) -> str | None:
        """What to say about probabilities that are calibrated on known triples and labels, each hidden in turn.

        None if the model cannot hide them: it was trained on them, so they tell nothing about new ones.
        """
        return None

    @property
    def calibration_(self) -> Calibration:
        """How scores become probabilities; fitted on first use."""
        return self.calibrate() if self._calibration is None else self._calibration

    @calibration_.setter
    def calibration_(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def calibrate(self, budget: Budget | None = None) -> Calibration:
        """Fit `calibration_` again.

        Args:
            budget: How much work it may take; None: a few seconds (`calibration_fitting.UNLIMITED_BUDGET`: no limit).
        """
        self._calibration = self.task_info.kind.calibrate(self, self._hiding_note, budget)
        return self._calibration

    # -- saving ------------------------------------------------------------------------------------------

    def save(self, folder: str) -> None:
        """Write the model and its graph into a folder, as safetensors and JSON."""
        save_model(self, folder)

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read a model that `save` wrote."""
        return load_as(folder, cls)

    def extra_state(self) -> dict[str, Any]:
        """Return state to save besides settings, weights and graph: plain values, ready for JSON."""
        return {"learned_elsewhere": self.is_transferred}

    def restore_extra_state(self, values: dict[str, Any]) -> None:
        """Restore what `extra_state` returned."""
        self.is_transferred = values.get("learned_elsewhere") is True

    def over(self, kg: KnowledgeGraph) -> Self:
        """Return the same trained model over another graph.

        Raises:
            DataError: The model has weights of single nodes, or does not predict links.
        """
        raise DataError(self.hooks_.why_not_transferable())

    def _fit_new_nodes(self, known: KnowledgeGraph, steps: int) -> None:  # noqa: B027
        """Fit weights of nodes that `graph_` has beyond `known`, and change no others."""

    def _build_saved(self, graph: KnowledgeGraph) -> Self:
        """Build the network for saved weights, for the graph that was saved with them.

        In several processes the nodes are sharded if the model allows it, whether it was trained so or not.
        """
        self.placement = current()
        if self.placement.is_distributed and "sharded" in self.training_section.model_fields:
            is_possible = why_not_sharded(self.model, self.training, graph) is None
            self.training = self.training.model_copy(update={"sharded": is_possible})
            self.placement = self._partitioned(graph, self.training) if is_possible else self.placement
        return self._build(graph)
