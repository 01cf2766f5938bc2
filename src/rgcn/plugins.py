"""What varies is an axis: a table of names, open to classes from outside.

Wherever a built-in name fits, so does a class, the name of an installed entry point, or a dotted name, "package.module:
Class". A name that a *file of unknown origin* brings, a saved model or the folder of a run, is another matter: naming a
class must not be enough to have a module imported. From there only built-in names, entry points, classes that this
program has met already, and packages that the user allows (`allow`, `--allow`, RGCN_ALLOW) are taken.
"""

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from rgcn.errors import ConfigError, DataError, close_matches

ALLOWED = "RGCN_ALLOW"  # environment variable for users; `allow` adds to what it names
_allowed: list[str] = []
_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.<>]*")


class Axis:
    """Names of one kind of thing, and what they stand for.

    kind      what it is called, "decoder"
    interface what every member is a subclass of, as "module:Class"; a mismatch is said in words
    built_in  {name: "module:Class"}: a line here is all it takes to add one

    >>> colors = Axis("error", "rgcn.errors:RgcnError", {"data": "rgcn.errors:DataError"})
    >>> colors.find("data")
    <class 'rgcn.errors.DataError'>
    >>> colors.find("dada")
    Traceback (most recent call last):
    rgcn.errors.ConfigError: unknown error 'dada'; did you mean 'data'?
    """

    def __init__(self, kind: str, interface: str, built_in: Mapping[str, str]) -> None:
        self.kind, self.interface, self.built_in = kind, interface, dict(built_in)
        self._met: dict[str, type[Any]] = {}  # classes that were handed over as such, by their dotted names

    @property
    def group(self) -> str:
        """The entry points that add to this axis: rgcn.decoders, ..."""
        return f"rgcn.{self.kind.replace(' ', '_')}s"

    def names(self) -> tuple[str, ...]:
        """Built-in names, then those of installed packages."""
        return (*self.built_in, *(name for name in _installed(self.group) if name not in self.built_in))

    def problem(self, choice: object) -> str | None:
        """What is wrong with a choice as it is written; whether it can be imported is seen when it is used."""
        if isinstance(choice, type):
            return None if issubclass(choice, imported(self.interface)) else self._not_one(choice)
        if not isinstance(choice, str):
            return f"a {self.kind} is a name or a class, not {choice!r}"
        # Built-in names first: to know those of installed packages, all of them have to be looked through.
        if choice in self.built_in or _DOTTED.fullmatch(choice) or choice in self.names():
            return None
        close = close_matches(choice, self.names())
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(self.names())}"
        return f"unknown {self.kind} {choice!r}; {hint}" + ("" if close else ', or "package.module:Class"')

    def find(self, choice: str | type[Any], *, trusted: bool = False) -> type[Any]:
        """The class a choice stands for.

        trusted  the choice is the user's own, so that a dotted name may be imported; and what it names is from then on
                 known to this process and its workers
        """
        words = self.problem(choice)
        if words is not None:
            raise ConfigError(words)
        if isinstance(choice, type):
            self._met[dotted_name(choice)] = choice
            return choice
        if choice in self._met:
            return self._met[choice]
        found = imported(self.built_in[choice]) if choice in self.built_in else self._load(choice, trusted)
        if not (isinstance(found, type) and issubclass(found, imported(self.interface))):
            raise ConfigError(self._not_one(found))
        return found

    def name_of(self, choice: str | type[Any]) -> str:
        """How a file says a choice: a name as it is, a class by its dotted name."""
        if isinstance(choice, str):
            return choice
        dotted = dotted_name(choice)
        self._met[dotted] = choice
        return next((name for name, place in self.built_in.items() if place == dotted), dotted)

    def _not_one(self, found: object) -> str:
        return f"{getattr(found, '__qualname__', found)} is no {self.kind}: it does not derive from {self.interface}"

    def _load(self, choice: str, trusted: bool) -> Any:
        """What an installed package registered under this name, or what a dotted name says, where it is trusted."""
        entry = _installed(self.group).get(choice) or EntryPoint(choice, choice, self.group)
        module, _, name = entry.value.partition(":")
        package = module.partition(".")[0]
        if entry.dist is None and not (trusted or module in sys.modules or is_allowed(module)):
            raise DataError(
                f"this needs the {self.kind} {choice}, and a file is not believed when it names code to run. If you "
                f"trust the package {package!r}, allow it: --allow {package}, "
                f'rgcn.allow("{package}") or {ALLOWED}; or have it register the entry point {self.group}'
            )
        try:
            found = entry.load()
        except (ImportError, AttributeError) as error:
            if entry.dist is not None:
                words = f"the {self.kind} {choice!r} of the package {entry.dist.name} cannot be loaded: {error}"
                raise ConfigError(words) from error
            if isinstance(error, ModuleNotFoundError):
                missing = (error.name or package).partition(".")[0]
                raise DataError(
                    f"the {self.kind} {choice} needs the package {missing!r}, which is not installed here: install it, "
                    "or add its folder to PYTHONPATH"
                ) from error
            raise ConfigError(f"there is no {name} in {module} to be the {self.kind}: {error}") from error
        if entry.dist is None and trusted:
            allow(module)
        return found


def allow(*packages: str) -> None:
    """Trust packages by name: what a saved model or a run names in them may be imported, here and in worker processes.

    >>> allow("mypackage")
    >>> is_allowed("mypackage.decoders"), is_allowed("mypackages")
    (True, False)
    """
    names = (package.partition(":")[0].strip() for package in packages)
    _allowed.extend(name for name in names if name and name not in _allowed)


def allowed() -> tuple[str, ...]:
    """The packages that are trusted: those of RGCN_ALLOW, then those of `allow`."""
    named = [name.strip() for name in os.environ.get(ALLOWED, "").split(",")]
    return tuple(dict.fromkeys(name for name in [*named, *_allowed] if name))


def is_allowed(module: str) -> bool:
    """Whether a module, or a package it is in, was allowed by name."""
    return any(module == name or module.startswith(f"{name}.") for name in allowed())


def dotted_name(thing: type) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def imported(place: str) -> Any:
    """What "module:name" stands for; for places that this package itself names."""
    return resolve_name(place)


@cache
def _installed(group: str) -> dict[str, EntryPoint]:
    """Entry points by name; read once, since all installed packages are looked through."""
    return {entry.name: entry for entry in entry_points(group=group)}


# Every registry. To add a member is one file, and one line here; a member from outside (a class, a dotted name, an
# entry point of the registry's group) needs no line. Members are written as text and imported when they are chosen, so
# that `config` knows every name and imports no subpackage behind it.
ENCODERS = Axis(
    "encoder",
    "rgcn.nn.encoders:Encoder",
    {
        "none": "rgcn.nn.encoders:PlainEncoder",
        "rgcn": "rgcn.nn.encoders:RgcnEncoder",
        "c-rgcn": "rgcn.nn.encoders:CompressionEncoder",
        "e-rgcn": "rgcn.nn.encoders:EmbeddingEncoder",
        "path": "rgcn.nn.path_network:PathEncoder",
        "universal": "rgcn.nn.universal_network:UniversalEncoder",
        "popularity": "rgcn.nn.popularity:PopularityEncoder",
    },
)
DECODERS = Axis("decoder", "rgcn.nn.decoders:Decoder", {"distmult": "rgcn.nn.decoders:DistMult"})
HEADS = Axis(
    "head",
    "rgcn.nn.relational_encoder:Head",
    {"convolution": "rgcn.nn.relational_encoder:ConvolutionHead", "linear": "rgcn.nn.relational_encoder:LinearHead"},
)
DECOMPOSITIONS = Axis(
    "decomposition",
    "rgcn.nn.decompositions.base:Decomposition",
    {
        "none": "rgcn.nn.decompositions.matrices:Full",
        "basis": "rgcn.nn.decompositions.basis:Basis",
        "block": "rgcn.nn.decompositions.matrices:BlockDiagonal",
        "diagonal": "rgcn.nn.decompositions.matrices:Diagonal",
    },
)
MESSAGE_FUNCTIONS = Axis(
    "message function",
    "rgcn.nn.relational_graph_conv:MessageFunction",
    {"linear": "rgcn.nn.relational_graph_conv:LinearMessages"},
)
OBJECTIVES = Axis(
    "objective",
    "rgcn.training.objectives:Objective",
    {
        "sampled-bce": "rgcn.training.objectives:SampledCrossEntropy",
        "self-adversarial": "rgcn.training.objectives:SelfAdversarial",
        "sampled-softmax": "rgcn.training.objectives:SampledSoftmax",
        "softmax": "rgcn.training.objectives:SoftmaxCrossEntropy",
        "bce": "rgcn.training.objectives:BinaryCrossEntropy",
    },
)
SAMPLERS = Axis(
    "sampler",
    "rgcn.sampling:EdgeSampler",
    {
        "neighborhood": "rgcn.sampling.edges:NeighborhoodEdges",
        "uniform": "rgcn.sampling.edges:UniformEdges",
        "shuffled": "rgcn.sampling.edges:ShuffledEdges",
        "scattered": "rgcn.sampling.edges:ScatteredEdges",
    },
)
OPTIMIZERS = Axis(
    "optimizer",
    "torch.optim:Optimizer",
    {
        "adam": "rgcn.training.optimizers:Adam",
        "lazy-adam": "rgcn.training.optimizers:LazyAdam",
        "adagrad": "rgcn.training.optimizers:RowAdagrad",
    },
)
TASKS = Axis(
    "task",
    "rgcn.models.task:Task",
    {
        "node-classification": "rgcn.models.task:NodeClassification",
        "link-prediction": "rgcn.models.task:LinkPrediction",
        "classification-by-links": "rgcn.models.task:ClassificationByLinks",
        "pretraining": "rgcn.models.task:Pretraining",
    },
)
ANSWER_KINDS = Axis(
    "answer kind",
    "rgcn.models.answer_kind:AnswerKind",
    {"classes": "rgcn.models.answer_kind:ClassKind", "links": "rgcn.models.answer_kind:LinkKind"},
)
EXPLAINERS = Axis(
    "explanation method",
    "rgcn.explain.methods:Explainer",
    {
        "paths": "rgcn.explain.methods:PathGradients",
        "integrated-gradients": "rgcn.explain.methods:IntegratedGradients",
        "edge-mask": "rgcn.explain.methods:EdgeMask",
    },
)
READERS = Axis(
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
ATTRIBUTE_SOURCES = Axis(
    "attribute source", "rgcn.data.attributes:AttributeSource", {"table": "rgcn.data.node_tables:TableAttributes"}
)
TRACKERS = Axis(
    "tracker",
    "rgcn.runs.tracking:RunTracker",
    {
        "tensorboard": "rgcn.runs.tracking:TensorBoardTracker",
        "mlflow": "rgcn.runs.tracking:MlflowTracker",
        "wandb": "rgcn.runs.tracking:WandbTracker",
    },
)
