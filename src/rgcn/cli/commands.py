"""`rgcn`: how a command says what it can be told, options that several commands have, and what becomes of a mistake.

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

import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import Parameter, Signature, get_annotations
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import dataclass_transform

from rgcn import plugins
from rgcn.distributed.launch import end, launch, only_rank_0_prints
from rgcn.distributed.rendezvous import is_rank, join, leave
from rgcn.errors import ConfigError, RgcnError
from rgcn.placement import current
from rgcn.system.atomic_files import full_disk
from rgcn.system.formatting import safe_output
from rgcn.system.threads import prepare_process, quiet_distributed, use_threads
from rgcn.version import __version__

GROUPS = {
    "config": "Look at configurations: show, compare, schema.",
    "reproduce": "The paper's figures beside ours: every table, every stated number, and whether they agree.",
    "data": "Data sets and graphs: list, fetch, build, check, and statistics.",
}
ALLOW = "Trust classes of this package where a saved model or a run names them. May be repeated, also at the end."
# Beyond these a slip of the finger is likelier than a wish.
MOST_JOBS, MOST_RUNS, MOST_THREADS = 256, 10_000, 256
RUNS = Path("runs")


class _Commands(TyperGroup):
    """Commands that share `--allow`: whoever is told to add it adds it at the end of the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        allowed, rest, words = list[str](), list[str](), iter(args)
        for word in words:
            if word == "--":  # what follows are no options
                rest += [word, *words]
            elif word == "--allow":
                allowed += [word, *islice(words, 1)]
            else:
                (allowed if word.startswith("--allow=") else rest).append(word)
        return super().parse_args(ctx, [*allowed, *rest])


class _SettingCommand(TyperCommand):
    """A command that tells whoever gives a setting as an option of its own how settings are given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, options = list(args), {name for parameter in self.params for name in parameter.opts}
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of typer's own copy of click, which has no public name
            option = str(getattr(error, "option_name", ""))
            if option and option not in options and "--set" in options:
                from rgcn.runs.configuration import settings_called

                _, _, after = " ".join(words).partition(option)
                value = next(iter(after.lstrip("=").split()), "VALUE")
                keys = settings_called(option.lstrip("-").replace("-", "_"))
                ways = " or ".join(f"--set {key}={value}" for key in keys)
                error.message += ways and f". Settings are given as {ways}"  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    name="rgcn",
    cls=_Commands,
    help="Learn from a knowledge graph with relational graph convolutional networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_groups = {"": app}
for _name, _words in GROUPS.items():
    _groups[_name] = typer.Typer(help=_words, no_args_is_help=True)
    app.add_typer(_groups[_name], name=_name)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rgcn {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    allow: Annotated[list[str] | None, typer.Option(metavar="PACKAGE", help=ALLOW)] = None,
) -> None:
    plugins.allow(*(allow or ()))


class _Said(NamedTuple):
    default: Any
    typer: Any


def option(words: str | None, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field that is an option, called as the field is where no names are given; `settings` are those of typer."""
    return _Said(default, typer.Option(*names, help=words, **settings))


def flag(name: str, words: str) -> Any:
    """A field that is true where its option is given."""
    return option(words, name, default=False)


def argument(words: str, default: Any = Parameter.empty, metavar: str | None = None) -> Any:
    """A field that is given by its place."""
    return _Said(default, typer.Argument(help=words, metavar=metavar))


@dataclass_transform(kw_only_default=True)
class Options:
    """Options that belong together."""

    def __init__(self, **values: Any) -> None:
        vars(self).update({one.name: one.default for one in self.parameters()} | values)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Every option as typer understands it: those of the class itself, then those it inherits."""
        hints = get_type_hints(cls)
        names = dict.fromkeys(name for kind in cls.__mro__ for name in get_annotations(kind))
        return [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[hints[name], said.typer], default=said.default)
            for name, said in ((name, getattr(cls, name, None)) for name in names)
            if isinstance(said, _Said)
        ]


class Command(Options):
    """All that can be said to a command; its documentation is the command's help."""

    every: ClassVar[dict[str, type[Command]]] = {}  # by name as it is typed: "train", or "data list"
    calls: ClassVar[str]  # the file in this folder and the function in it that does it: "train:train"

    def __init_subclass__(cls, name: str = "", calls: str = "") -> None:
        if name:
            Command.every[name], cls.calls = cls, calls
            group, _, last = name.rpartition(" ")
            parameters = cls.parameters()

            def command(**values: Any) -> None:
                cls(**values).call()

            command.__doc__ = cls.__doc__
            command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
            command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
            _groups[group].command(last, cls=_SettingCommand)(command)

    def call(self) -> None:
        """Do it: only now the command's file is loaded."""
        placement, number = current(), getattr(self, "processes", None)
        if placement.is_distributed and not isinstance(self, SharedOptions):
            raise ConfigError("this command works in one process: start it without torchrun")
        if placement.is_distributed and number not in (None, placement.size):
            raise ConfigError(f"torchrun started {placement.size} processes: leave out --processes {number}")
        file, _, function = self.calls.partition(":")
        getattr(import_module(f"rgcn.cli.{file}"), function)(self)


def refuse_if(conflicts: Mapping[str, Any]) -> None:
    """Raise the first sentence whose condition holds."""
    for sentence, condition in conflicts.items():
        if condition:
            raise ConfigError(sentence)


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
SEED = option("Every random choice follows from it.")
ACCEPT_CHANGED_DATA = flag(
    "--accept-changed-data", "Answer from the graph the model was trained on, even where its data have changed since."
)


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


class ComputingOptions(ReadingOptions):
    """Where to compute, and where to take data from."""

    device: str | None = option("cpu, cuda, or auto.")


class SharedOptions(Options):
    """For commands whose work several processes can share."""

    processes: int | None = option(
        "Share the work among so many processes of this machine, with a GPU each, or a share of the cores; as "
        "`torchrun --nproc-per-node N -m rgcn ...`, which also does it on several machines (docs/scale.md).",
        min=1,
        max=MOST_JOBS,
    )

    @property
    def several(self) -> bool:
        """Whether more than one process is to do it."""
        return current().is_distributed or (self.processes or 1) > 1

    def launch(self, folder: Path | None = None, more: Sequence[str] = ()) -> None:
        """Start the processes, unless this is one of them, and end as they do; arguments as `distributed.launch`."""
        if (self.processes or 1) > 1 and not current().is_distributed:
            launch(self.processes or 1, folder, more)


class TrainingOptions(ComputingOptions, SharedOptions, TellingOptions):
    """What a command that trains one model can be told."""


class GraphOptions(Options):
    """How a graph is read that is named instead of a run."""

    labels: list[str] | None = option(
        "Of a graph: table of nodes and their classes; FILE or SPLIT=FILE (train, valid, test); repeatable.",
        metavar="FILE",
    )
    labels_from: str | None = option(
        "Of a graph: the relation whose objects are the classes of its subjects, instead of --labels.",
        metavar="RELATION",
    )
    data: list[str] | None = option(
        "Of a graph: how its files are read, as data.KEY in a configuration: format=nt, "
        "'columns=[from, type, to]', skip_bad_lines=true; repeatable.",
        metavar="KEY=VALUE",
    )

    @property
    def has_labels(self) -> bool:
        """Whether labels are given, so that classes are asked for."""
        return bool(self.labels) or self.labels_from is not None

    def reading(self) -> dict[str, Any]:
        """As arguments of `rgcn.open_model`."""
        from rgcn.runs.yaml_lines import parse_yaml

        own = {"labels": label_files(self.labels) if self.labels else None, "labels_from": self.labels_from}
        found: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
        for change in self.data or ():
            key, separator, text = change.removeprefix("data.").partition("=")
            if not separator or key in ("path", "dataset", ""):
                raise ConfigError(f"--data takes KEY=VALUE, for example format=nt; got {change!r}")
            if own.get(key) is not None:
                raise ConfigError(f"--{key.replace('_', '-')} and --data {change} both say {key}: leave one out")
            found[key] = parse_yaml(text).values
        return found


def label_files(given: list[str]) -> str | dict[str, str]:
    """One file, or the file of each split: "train=a.tsv test=b.tsv".

    >>> label_files(["train=a.tsv", "test=b.tsv"])["test"]
    'b.tsv'
    """
    parts = [item.partition("=") for item in given]
    by_split = {split: path for split, equals, path in parts if equals and split in ("train", "valid", "test")}
    if not by_split and len(given) == 1:
        return given[0]
    if len(by_split) < len(given):
        raise ConfigError(f"--labels {' '.join(given)}: with several files say which split each is, as in train=FILE")
    return by_split


class OpeningOptions(ComputingOptions, GraphOptions):
    """How the model of a run, or a graph, is opened."""

    accept_changed_data: bool = ACCEPT_CHANGED_DATA

    def opening(self) -> dict[str, Any]:
        """As arguments of `rgcn.predict.open_model`."""
        chosen = {"mirror": self.mirror, "device": self.device or "auto"}
        return {**chosen, "accept_changed_data": self.accept_changed_data, **self.reading()}


class SkippingOptions(OpeningOptions):
    """The same, of a command that may go on without what is not known."""

    skip_unknown: bool = flag(
        "--skip-unknown", "Go on without names that are not known, and labels of nodes not in the graph."
    )

    def reading(self) -> dict[str, Any]:
        found = super().reading()
        return {"missing_labels": "drop", **found} if self.skip_unknown and "labels" in found else found


class AskingOptions(OpeningOptions):
    """The same, with nodes that the model has never seen."""

    new_triples: Path | None = option(
        "Triples of nodes that training never saw (any format `rgcn data stats` reads): they are computed from their "
        "neighbors.",
        "--with",
        metavar="FILE",
    )
    new_features: Path | None = option(
        "Table of the new nodes' features, where the model has some.", "--with-features", metavar="FILE"
    )

    def new_nodes(self) -> dict[str, Any]:
        """As arguments of `rgcn.predict.new_nodes.with_new_triples`; empty where there are none."""
        if self.new_triples is not None:
            return {"path": self.new_triples, "features": self.new_features}
        refuse_if({"--with-features goes with --with FILE, the new nodes' triples": self.new_features})
        return {}


def main() -> None:
    """Entry point of `rgcn`: what a user did wrong is said in a sentence, without a traceback."""
    prepare_process()
    warnings.showwarning = _say_warning  # type: ignore[assignment]  # file and line are not looked at
    try:
        with safe_output(), only_rank_0_prints():
            if is_rank():
                quiet_distributed()
                join()
            app()
    except SystemExit as error:
        if error.code and current().is_distributed:
            end(error, "" if current().is_main else "its command was refused")
        leave()
        raise
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        sys.stderr.close()
        sys.exit(0)
    except (Exception, KeyboardInterrupt) as error:
        sentence = _sentence(error)
        if sentence is None and not current().is_distributed:
            raise
        end(error, sentence or traceback.format_exc())


def _sentence(error: BaseException) -> str | None:
    """What a user can act on; None for an error that is a mistake of ours."""
    if isinstance(error, RgcnError):
        return str(error)
    if isinstance(error, OSError):
        return full_disk(error, error.filename or Path.cwd())
    return "interrupted" if isinstance(error, KeyboardInterrupt) else None


def _say_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
    """A warning of ours is a sentence for the user; where in our code it came from tells them nothing."""
    ours = issubclass(category, UserWarning) and "rgcn" in Path(filename).parts
    sys.stderr.write(f"rgcn: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno))
