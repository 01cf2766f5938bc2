"""How a command says what it can be told, and the options that several commands have.

What a command can be told is a class, each field of it an option, a flag or an argument; options that belong together
are a class of their own, which commands inherit:

    class GreetCommand(Command, TellingOptions, name="greet", calls="greeting:greet"):
        "Greet somebody."

        name: str = argument("Whom to greet.")
        times: int = option("How often.", default=1, min=1)

`rgcn greet NAME [--times N] [--json] [-q]` loads cli/greeting.py and calls its `greet` with a GreetCommand. So nobody
waits for what that file imports, often PyTorch, who asks for help, completes a word or mistypes an option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from inspect import Parameter, Signature, get_annotations
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import typer
from typing_extensions import dataclass_transform

from rgcn.errors import ConfigError
from rgcn.placement import current
from rgcn.system.threads import use_threads

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
    """Options that belong together: each subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        for name, said in [*vars(cls).items()]:
            if isinstance(said, _Said):
                setattr(cls, name, field(default=said.default, metadata={"typer": said.typer}))
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Every option as typer understands it: those of the class itself, then those it inherits."""
        hints, options = get_type_hints(cls), {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
        found = []
        for name in dict.fromkeys(name for kind in cls.__mro__ for name in get_annotations(kind) if name in options):
            default, kind = options[name].default, Annotated[hints[name], options[name].metadata["typer"]]
            default = Parameter.empty if default is MISSING else default
            found.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default))
        return found


class Command(Options):
    """All that can be said to a command; its documentation is the command's help."""

    every: ClassVar[dict[str, type[Command]]] = {}  # by name as it is typed: "train", or "data list"
    calls: ClassVar[str]  # the file in this folder and the function in it that does it: "train:train"

    def __init_subclass__(cls, name: str = "", calls: str = "") -> None:
        super().__init_subclass__()
        if name:
            Command.every[name], cls.calls = cls, calls

    @classmethod
    def function(cls) -> Callable[..., None]:
        """What typer calls: only then the command's file is loaded."""
        parameters = cls.parameters()

        def command(**values: Any) -> None:
            asked = cls(**values)
            _refuse_several(asked)
            file, _, function = cls.calls.partition(":")
            getattr(import_module(f"rgcn.cli.{file}"), function)(asked)

        command.__doc__ = cls.__doc__
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command


def _refuse_several(asked: Command) -> None:
    placement = current()
    if placement.is_distributed and not isinstance(asked, SharedOptions):
        raise ConfigError("this command works in one process: start it without torchrun")
    if placement.is_distributed and isinstance(asked, SharedOptions) and asked.processes not in (None, placement.size):
        raise ConfigError(f"torchrun started {placement.size} processes: leave out --processes {asked.processes}")


def _use_threads(number: int | None) -> int | None:
    if number is not None:
        use_threads(number)
    return number


AS_JSON = flag("--json", "Print one JSON object on standard output, and nothing else.")
QUIET = option("No progress.", "--quiet", "-q", default=False)
MIRROR = option("Folder to take data sets from (else RGCN_MIRROR).")
# Obeyed while the command line is read, before anything loads PyTorch: a command has nothing to do with it.
THREADS = option(
    "Threads of each process; by default one a core, with --jobs or --processes a share of them.",
    min=1,
    max=MOST_THREADS,
    callback=_use_threads,
)
CHANGES = option("Change a setting: training.epochs=100. May be repeated.", "--set")
JOBS = option("How many at a time, each in a process of its own.", default=1, min=1, max=MOST_JOBS)


def label_files(given: list[str]) -> str | dict[str, str]:
    """One file, or the file of each split: "train=a.tsv test=b.tsv".

    >>> label_files(["train=a.tsv", "test=b.tsv"])["test"]
    'b.tsv'
    """
    by_split = {}
    for item in given:
        split, equals, path = item.partition("=")
        if equals and split in ("train", "valid", "test"):
            by_split[split] = path
        elif len(given) == 1:
            return item
        else:
            raise ConfigError(f"--labels {item}: with several files say which split each is, as in train={item}")
    return by_split


class TellingOptions(Options):
    """How a command tells what it does and has found."""

    as_json: bool = AS_JSON
    quiet: bool = QUIET

    @property
    def bars(self) -> bool | None:
        """Whether to draw bars; None: where standard error is a terminal."""
        return False if self.quiet else None


class ReadingOptions(Options):
    """What a command that reads data can be told."""

    threads: int | None = THREADS
    mirror: Path | None = MIRROR


class SharedOptions(Options):
    """For commands whose work several processes can share."""

    processes: int | None = option(
        "Share the work among so many processes of this machine, with a GPU each, or a share of the cores; as "
        "`torchrun --nproc-per-node N -m rgcn ...`, which also does it on several machines (docs/scale.md).",
        min=1,
        max=MOST_JOBS,
        show_default=False,
    )

    @property
    def several(self) -> bool:
        """Whether more than one process is to do it."""
        return current().is_distributed or self.to_launch

    @property
    def to_launch(self) -> bool:
        """Whether they have yet to be started."""
        return (self.processes or 1) > 1 and not current().is_distributed


class ComputingOptions(ReadingOptions):
    """Where to compute, and where to take data from."""

    device: str | None = option("cpu, cuda, or auto.")
