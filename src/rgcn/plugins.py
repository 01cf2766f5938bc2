"""Registries: components that are chosen by name, and that other packages can add to.

A component is given by its built-in name, by the name of an entry point of an installed package, by a dotted name
"package.module:Class", or as a class.

A dotted name in a file of unknown origin (a saved model, the folder of a run) must not import code. From such a file
only these are accepted: built-in names, entry points, classes that this process has already imported, and packages that
the user allows with `allow`, `--allow` or the environment variable RGCN_ALLOW.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from rgcn.errors import ConfigError, DataError, close_matches

ALLOW_VARIABLE = "RGCN_ALLOW"  # read where a user sets it; the library itself never writes it
_allowed: list[str] = []
_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.<>]*")


@dataclass(eq=False)
class Registry:
    """The components of one kind, by name.

    Args:
        kind: What a component is called in messages, for example "decoder".
        interface: The base class of every component, as "module:Class".
        built_in: Name -> "module:Class", or "Class" if it is in the module of the interface. A component is imported
            when it is chosen.

    >>> errors = Registry("error", "rgcn.errors:RgcnError", {"data": "DataError"})
    >>> errors.resolve("data")
    <class 'rgcn.errors.DataError'>
    >>> errors.resolve("dada")
    Traceback (most recent call last):
    rgcn.errors.ConfigError: unknown error 'dada'; did you mean 'data'?
    """

    kind: str
    interface: str
    built_in: Mapping[str, str]
    _classes: dict[str, type[Any]] = field(default_factory=dict)  # by dotted name; some cannot be imported

    def __post_init__(self) -> None:
        module = self.interface.partition(":")[0]
        self.built_in = {name: path if ":" in path else f"{module}:{path}" for name, path in self.built_in.items()}

    @property
    def group(self) -> str:
        """The group of entry points whose components belong here, for example "rgcn.decoders"."""
        return f"rgcn.{self.kind.replace(' ', '_')}s"

    def names(self) -> tuple[str, ...]:
        """List the built-in names, then those of installed packages."""
        return tuple({**self.built_in, **_installed(self.group)})

    def problem(self, choice: object) -> str | None:
        """Return what is wrong with a choice, or None. Imports nothing but the interface, and that only for a class."""
        if isinstance(choice, type):
            return None if issubclass(choice, resolve_name(self.interface)) else self._wrong_type(choice)
        if not isinstance(choice, str):
            return f"a {self.kind} is a name or a class, not {choice!r}"
        # Built-in names first: listing entry points reads the metadata of every installed package.
        if choice in self.built_in or _DOTTED.fullmatch(choice) or choice in self.names():
            return None
        close = close_matches(choice, self.names())
        hint = f"did you mean {close[0]!r}?" if close else f'use {", ".join(self.names())}, or "package.module:Class"'
        return f"unknown {self.kind} {choice!r}; {hint}"

    def resolve(self, choice: str | type[Any], *, trusted: bool = False) -> type[Any]:
        """Return the class of a component.

        Args:
            choice: A name, a dotted name, or the class itself.
            trusted: True if the choice is the user's own, so that a dotted name may be imported. Its module is then
                allowed in this process and in its workers.

        Raises:
            ConfigError: There is no such component, or it does not derive from the interface.
            DataError: The component needs a package that is not allowed or not installed.
        """
        problem = self.problem(choice)
        if problem is not None:
            raise ConfigError(problem)
        if isinstance(choice, type):
            self._classes[dotted_name(choice)] = choice
            return choice
        if choice in self._classes:
            return self._classes[choice]
        component = resolve_name(self.built_in[choice]) if choice in self.built_in else self._load(choice, trusted)
        if not (isinstance(component, type) and issubclass(component, resolve_name(self.interface))):
            raise ConfigError(self._wrong_type(component))
        return component

    def name_of(self, choice: str | type[Any]) -> str:
        """Return the name to write into a file: a name as it is, a class as its built-in or dotted name."""
        if isinstance(choice, str):
            return choice
        dotted = dotted_name(choice)
        self._classes[dotted] = choice
        return next((name for name, path in self.built_in.items() if path == dotted), dotted)

    def _wrong_type(self, component: object) -> str:
        name = getattr(component, "__qualname__", component)
        return f"{name} is no {self.kind}: it does not derive from {self.interface}"

    def _load(self, choice: str, trusted: bool) -> Any:
        """Import the component of an entry point, or of a dotted name if it is trusted."""
        entry = _installed(self.group).get(choice) or EntryPoint(choice, choice, self.group)
        module, _, name = entry.value.partition(":")
        package = module.partition(".")[0]
        if entry.dist is None and not (trusted or module in sys.modules or is_allowed(module)):
            raise DataError(
                f"the {self.kind} {choice} is code of the package {package!r}, and a file may not import code by naming"
                f" it. If you trust the package, allow it with --allow {package}, "
                f'rgcn.allow("{package}") or {ALLOW_VARIABLE}={package}; or register the entry point {self.group} in it'
            )
        try:
            component = entry.load()
        except (ImportError, AttributeError) as error:
            if entry.dist is not None:
                message = f"the {self.kind} {choice!r} of the package {entry.dist.name} cannot be imported: {error}"
                raise ConfigError(message) from error
            if isinstance(error, ModuleNotFoundError):
                missing = (error.name or package).partition(".")[0]
                raise DataError(
                    f"the {self.kind} {choice} needs the package {missing!r}, which is not installed: install it, "
                    "or add its folder to PYTHONPATH"
                ) from error
            raise ConfigError(f"there is no {name} in {module} to use as {self.kind}: {error}") from error
        if entry.dist is None and trusted:
            allow(module)
        return component


def allow(*packages: str) -> None:
    """Allow saved models and runs to import components from these packages, here and in worker processes.

    >>> allow("mypackage")
    >>> is_allowed("mypackage.decoders"), is_allowed("mypackages")
    (True, False)
    """
    _allowed.extend(package.partition(":")[0].strip() for package in packages)


def allowed_packages() -> tuple[str, ...]:
    """List the allowed packages: those of RGCN_ALLOW, then those given to `allow`."""
    variable = [name.strip() for name in os.environ.get(ALLOW_VARIABLE, "").split(",")]
    return tuple(dict.fromkeys(name for name in [*variable, *_allowed] if name))


def is_allowed(module: str) -> bool:
    """Return True if the module, or a package that contains it, is allowed."""
    return any(f"{module}.".startswith(f"{name}.") for name in allowed_packages())


def dotted_name(component: type) -> str:
    """Return "module:Class"."""
    return f"{component.__module__}:{component.__qualname__}"


@cache
def _installed(group: str) -> dict[str, EntryPoint]:
    """Entry points by name; cached, since the metadata of all installed packages are read."""
    return {entry.name: entry for entry in entry_points(group=group)}


# To add a component: write it in one file, and add one line here. Components of other packages need no line. Paths are
# text, so that `rgcn.config` knows every name without importing the subpackages that implement them.
ENCODERS = Registry(
    "encoder",
    "rgcn.nn.encoders:Encoder",
    {
        "none": "LookupEncoder",
        "rgcn": "RGCNEncoder",
        "c-rgcn": "CRGCNEncoder",
        "e-rgcn": "ERGCNEncoder",
        "path": "rgcn.nn.path_network:PathEncoder",
        "universal": "rgcn.nn.universal_network:UniversalEncoder",
        "popularity": "rgcn.nn.popularity:PopularityEncoder",
    },
)
DECODERS = Registry(
    "decoder",
    "rgcn.nn.decoders.base:Decoder",
    {
        "distmult": "rgcn.nn.decoders.distmult:DistMult",
        "complex": "rgcn.nn.decoders.complex:ComplEx",
        "transe": "rgcn.nn.decoders.transe:TransE",
        "rotate": "rgcn.nn.decoders.rotate:RotatE",
    },
)
HEADS = Registry("head", "rgcn.nn.relational_encoder:Head", {"convolution": "ConvolutionHead", "linear": "LinearHead"})
DECOMPOSITIONS = Registry(
    "decomposition",
    "rgcn.nn.decompositions.base:Decomposition",
    {
        "none": "rgcn.nn.decompositions.matrices:Full",
        "basis": "rgcn.nn.decompositions.basis:Basis",
        "block": "rgcn.nn.decompositions.matrices:BlockDiagonal",
        "diagonal": "rgcn.nn.decompositions.matrices:Diagonal",
    },
)
MESSAGE_FUNCTIONS = Registry(
    "message function", "rgcn.nn.relational_graph_conv:MessageFunction", {"linear": "LinearMessages"}
)
OBJECTIVES = Registry(
    "objective",
    "rgcn.training.objectives:Objective",
    {
        "sampled-bce": "SampledCrossEntropy",
        "self-adversarial": "SelfAdversarial",
        "sampled-softmax": "SampledSoftmax",
        "softmax": "SoftmaxCrossEntropy",
        "softmax-unfiltered": "UnfilteredSoftmax",
        "bce": "BinaryCrossEntropy",
    },
)
SAMPLERS = Registry(
    "sampler",
    "rgcn.sampling.edges:EdgeSampler",
    {
        "neighborhood": "NeighborhoodEdges",
        "uniform": "UniformEdges",
        "shuffled": "ShuffledEdges",
        "grouped": "GroupedEdges",
        "scattered": "ScatteredEdges",
    },
)
OPTIMIZERS = Registry(
    "optimizer",
    "torch.optim:Optimizer",
    {
        "adam": "rgcn.training.optimizers:Adam",
        "lazy-adam": "rgcn.training.optimizers:LazyAdam",
        "adagrad": "rgcn.training.optimizers:Adagrad",
        "row-adagrad": "rgcn.training.optimizers:RowAdagrad",
    },
)
TASKS = Registry(
    "task",
    "rgcn.models.task:Task",
    {
        "node-classification": "NodeClassification",
        "link-prediction": "LinkPrediction",
        "classification-by-links": "ClassificationByLinks",
        "pretraining": "Pretraining",
    },
)
ANSWER_KINDS = Registry(
    "answer kind", "rgcn.models.answer_kind:AnswerKind", {"classes": "ClassKind", "links": "LinkKind"}
)
EXPLAINERS = Registry(
    "explanation method",
    "rgcn.explain.methods:Explainer",
    {"paths": "PathGradients", "integrated-gradients": "IntegratedGradients", "edge-mask": "EdgeMask"},
)
READERS = Registry(
    "reader",
    "rgcn.data.readers:TripleReader",
    {
        "nt": "rgcn.data.rdf:NTriplesReader",
        "nq": "rgcn.data.rdf:NQuadsReader",
        "ttl": "rgcn.data.rdf:TurtleReader",
        "trig": "rgcn.data.rdf:TriGReader",
        "rdf": "rgcn.data.rdf:RdfXmlReader",
        "jsonld": "rgcn.data.rdf:JsonLdReader",
        "tsv": "rgcn.data.tables:TsvReader",
        "csv": "rgcn.data.tables:CsvReader",
        "parquet": "rgcn.data.tables:ParquetReader",
    },
)
ATTRIBUTE_SOURCES = Registry(
    "attribute source", "rgcn.data.attributes:AttributeSource", {"table": "rgcn.data.node_tables:TableAttributes"}
)
TRACKERS = Registry(
    "tracker",
    "rgcn.runs.tracking:RunTracker",
    {"tensorboard": "TensorBoardTracker", "mlflow": "MlflowTracker", "wandb": "WandbTracker"},
)
