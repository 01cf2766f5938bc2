"""How a command says what it can be told: options in groups that belong together, and those that several commands have.

What a command can be told is a class. A field is an option, a flag or an argument; or it is a class of options again, a
group that several commands share, and that a command hands on as one thing:

    class GreetCommand(Command, name="greet", calls="greeting:greet"):
        "Greet somebody."

        name: str = argument("Whom to greet.")
        times: int = option("How often.", default=1, min=1)
        telling: TellingOptions

Typer knows nothing of groups, it reads the parameters of a function: `Command.function` makes one whose parameters are
all the fields. `rgcn greet NAME [--times N] [--json] [-q]` loads cli/greeting.py and calls its `greet` with a
GreetCommand. So a command's file imports at its top what it needs, often PyTorch, which takes seconds, and nobody waits
for that who asks for help, completes a word or mistypes an option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from inspect import Parameter, Signature, isclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import typer
from typing_extensions import Self, dataclass_transform

from rgcn.threads import use_threads

# Beyond these a slip of the finger is likelier than a wish.
MOST_JOBS, MOST_RUNS, MOST_THREADS = 256, 10_000, 256
RUNS = Path("runs")


class _Said(NamedTuple):
    default: Any
    typer: Any


def option(words: str | None, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field that is an option, called as the field is where no names are given; `settings` are those of typer."""
    return _Said(default, typer.Option(*names, help=words, **settings))


def flag(name: str, words: str) -> Any:
    """A field that is true where its option is given."""
    return option(words, name, default=False)


def argument(words: str, default: Any = MISSING, metavar: str | None = None) -> Any:
    """A field that is given by its place."""
    return _Said(default, typer.Argument(help=words, metavar=metavar))


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A group of options: each subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        for name, said in [*vars(cls).items()]:
            if isinstance(said, _Said):
                setattr(cls, name, field(default=said.default, metadata={"typer": said.typer}))
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def parameters(cls) -> Iterator[Parameter]:
        """Every option of the group and of those inside it, as typer understands it."""
        for one, hint, group in cls._fields():
            if group is not None:
                yield from group.parameters()
            else:
                default = Parameter.empty if one.default is MISSING else one.default
                kind: Any = Annotated[hint, one.metadata["typer"]]
                yield Parameter(one.name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)

    @classmethod
    def filled(cls, values: Mapping[str, Any]) -> Self:
        """The group, and those inside it, from the values of all parameters."""
        each = {one.name: group.filled(values) if group else values[one.name] for one, _, group in cls._fields()}
        return cls(**each)

    @classmethod
    def _fields(cls) -> Iterator[tuple[Any, Any, type[Options] | None]]:
        """Each field, its type, and that type again where it is a group."""
        hints = get_type_hints(cls)
        for one in fields(cls):  # type: ignore[arg-type]  # a dataclass, as every subclass is
            hint = hints[one.name]
            yield one, hint, hint if isclass(hint) and issubclass(hint, Options) else None


class Command(Options):
    """All that can be said to a command; its documentation is the command's help.

    name   as it is typed: "train", or "data list"
    calls  the file in this folder and the function in it that does it: "train:train"
    """

    every: ClassVar[dict[str, type[Command]]] = {}
    calls: ClassVar[str]

    def __init_subclass__(cls, name: str = "", calls: str = "") -> None:
        super().__init_subclass__()
        if name:
            Command.every[name], cls.calls = cls, calls

    @classmethod
    def function(cls) -> Callable[..., None]:
        """What typer calls: only then the command's file is loaded."""
        parameters = list(cls.parameters())

        def command(**values: Any) -> None:
            file, _, function = cls.calls.partition(":")
            getattr(import_module(f"rgcn.cli.{file}"), function)(cls.filled(values))

        command.__doc__ = cls.__doc__
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command


def _use_threads(number: int | None) -> int | None:
    if number is not None:
        use_threads(number)
    return number


# -- what means the same everywhere ------------------------------------------------------------------------

AS_JSON = flag("--json", "Print one JSON object on standard output, and nothing else.")
QUIET = option("No progress.", "--quiet", "-q", default=False)
MIRROR = option("Folder to take data sets from (else RGCN_MIRROR).")
DEVICE = option("cpu, cuda, or auto.")
# Obeyed while the command line is read, before anything loads PyTorch: a command has nothing to do with it.
THREADS = option(
    "Threads of each process; by default one a core, with --jobs a share of them.",
    min=1,
    max=MOST_THREADS,
    callback=_use_threads,
)
CHANGES = option("Change a setting: training.epochs=100. May be repeated.", "--set")
JOBS = option("How many at a time, each in a process of its own.", default=1, min=1, max=MOST_JOBS)
SEED = option("Every random choice follows from it.")
RUN = argument("Folder of a run; `rgcn runs` lists them.")
CONFIGURATION = argument("A shipped configuration, such as rgcn/nc-aifb (see `rgcn configs`), or a YAML file.")
ACCEPT_CHANGED_DATA = flag(
    "--accept-changed-data", "Answer from the graph the model was trained on, even where its data have changed since."
)
SKIP_UNKNOWN = flag("--skip-unknown", "Go on without names that are not known.")
ANY_DIRECTION = flag("--any-direction", "Also known triples turned round, in a relation that only goes one way.")


class TellingOptions(Options):
    """How a command tells what it does and has found."""

    as_json: bool = AS_JSON
    quiet: bool = QUIET

    @property
    def bars(self) -> bool | None:
        """Whether to draw bars; None: where standard error is a terminal."""
        return False if self.quiet else None


class ComputingOptions(Options):
    """Where to compute, and where to take data from."""

    device: str | None = DEVICE
    threads: int | None = THREADS
    mirror: Path | None = MIRROR


class OpeningOptions(Options):
    """How the model of a run is opened."""

    mirror: Path | None = MIRROR
    device: str | None = DEVICE
    threads: int | None = THREADS
    accept_changed_data: bool = ACCEPT_CHANGED_DATA


class NewNodeOptions(Options):
    """Nodes that the model of a run has never seen."""

    new_triples: Path | None = option(
        "Triples of nodes that training never saw (any format `rgcn data stats` reads): they are computed from their "
        "neighbors.",
        "--with",
        metavar="FILE",
    )
    new_features: Path | None = option(
        "Table of the new nodes' features, where the model has some.", "--with-features", metavar="FILE"
    )
