"""The program `rgcn`: its command groups, options that several commands share, and how errors are shown.

A command is a dataclass with a field for each option, so that commands share options by inheritance. Its docstring
describes the command and the options. For an example see `BenchOptions` in options.py.

The files that declare commands import nothing slow, so that help, completion and typing errors do not wait for PyTorch.
"""

# ruff: noqa: RUF009 - typer reads the options of a command from defaults

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from inspect import Parameter, Signature, cleandoc
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo, ParameterInfo
from typing_extensions import dataclass_transform

from rgcn import plugins
from rgcn.distributed.launch import end, launch, print_on_rank_0_only
from rgcn.distributed.rendezvous import is_rank, join, leave
from rgcn.errors import ConfigError, RgcnError
from rgcn.placement import current
from rgcn.system.atomic_files import disk_error_message
from rgcn.system.formatting import safe_output
from rgcn.system.threads import prepare_process, silence_distributed_logs, use_threads
from rgcn.version import __version__

# Larger numbers are more likely typing errors.
MAX_JOBS, MAX_RUNS, MAX_THREADS = 256, 10_000, 256
RUNS = Path("runs")
Options = TypeVar("Options")


class _CommandGroup(TyperGroup):
    """Commands that share `--allow`, which may also be given after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        allowed, rest, remaining = list[str](), list[str](), iter(args)
        for arg in remaining:
            if arg == "--":  # what follows are no options
                rest += [arg, *remaining]
            elif arg == "--allow":
                allowed += [arg, *islice(remaining, 1)]
            else:
                (allowed if arg.startswith("--allow=") else rest).append(arg)
        return super().parse_args(ctx, [*allowed, *rest])


class _Command(TyperCommand):
    """A command that suggests `--set` for an unknown option that is the name of a setting."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        text, names = " ".join(args), {name for parameter in self.params for name in parameter.opts}
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of typer's own copy of click, which has no public name
            option = str(getattr(error, "option_name", ""))
            if option and option not in names and "--set" in names:
                from rgcn.runs.configuration import settings_named

                value = next(iter(text.partition(option)[2].lstrip("=").split()), "VALUE")
                keys = settings_named(option.lstrip("-").replace("-", "_"))
                suggestions = " or ".join(f"--set {key}={value}" for key in keys)
                error.message += suggestions and f". Settings are given as {suggestions}"  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    name="rgcn",
    cls=_CommandGroup,
    help="Train and use relational graph convolutional networks on knowledge graphs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Show and compare configurations.", no_args_is_help=True)
reproduce_app = typer.Typer(help="Reproduce the paper's results and compare them with ours.", no_args_is_help=True)
data_app = typer.Typer(help="List and download data sets; build, check and describe graphs.", no_args_is_help=True)
for _name, _group in (("config", config_app), ("reproduce", reproduce_app), ("data", data_app)):
    app.add_typer(_group, name=_name)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rgcn {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        Option(metavar="PACKAGE", help="Trust classes of this package that a saved model or run names. Repeatable."),
    ] = None,
) -> None:
    """Apply the options of all commands."""
    if allow:
        plugins.allow(*allow)


@dataclass_transform()
def command(group: typer.Typer, name: str, function: str) -> Callable[[type[Options]], type[Options]]:
    """Make a dataclass a command, with its fields as options and the help that its docstring gives.

    Args:
        group: The group of commands.
        name: Name of the command.
        function: Called with the options, as "module:function" in `rgcn.cli`. Its module is imported for that only.
    """

    def register(options: type[Options]) -> type[Options]:
        parameters = _parameters_of(dataclass(options))

        def run(**values: Any) -> None:
            _check_processes(values.get("processes"), issubclass(options, DistributedOptions))
            resolve_name(f"rgcn.cli.{function}")(options(**values))

        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        group.command(name, cls=_Command, help=_help_text(options))(run)
        return options

    return register


def _parameters_of(options: type[Any]) -> list[Parameter]:
    """Return a parameter for each option: those of the class itself, then those it inherits, in panels by class."""
    hints, parameters = get_type_hints(options, include_extras=True), dict[str, Parameter]()
    for owner in options.__mro__:
        descriptions, panel = _descriptions(owner), vars(owner).get("panel")
        for name in vars(owner).get("__annotations__", ()):
            default = getattr(options, name, None)
            is_declared, hint = isinstance(default, ParameterInfo), hints[name]
            if name in parameters or not (name in descriptions or is_declared):
                continue
            is_annotated = hasattr(hint, "__metadata__")
            option: Any = copy(hint.__metadata__[0] if is_annotated else default if is_declared else Option(default))
            option.help = descriptions.get(name) or option.help
            if isinstance(option, OptionInfo):
                option.rich_help_panel = option.rich_help_panel or panel
            kind, default = (Annotated[hint.__origin__, option], default) if is_annotated else (hint, option)
            parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
    return list(parameters.values())


def _descriptions(documented: Any) -> dict[str, str]:
    """Return the descriptions of attributes in a docstring."""
    section = re.search(r"^Attributes:\n((?: .*\n?)*)", cleandoc(documented.__doc__ or ""), re.M)
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section[1] if section else "", re.M)
    return {name: " ".join(text.split()).replace("[", r"\[") for name, text in entries}  # "[" begins rich's markup


def _help_text(function: Any) -> str:
    """Return a docstring without its attributes, with paragraphs in one line each."""
    paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
    # typer keeps the lines of a paragraph that begins with \b.
    lines = (f"\b\n{text}" if text.startswith("Examples:") else " ".join(text.splitlines()) for text in paragraphs)
    return "\n\n".join(line for line in lines if not line.startswith("Attributes:"))


def _check_processes(number: int | None, is_distributable: bool) -> None:
    placement = current()
    if placement.is_distributed and not is_distributable:
        raise ConfigError("this command works in one process: start it without torchrun")
    if placement.is_distributed and number not in (None, placement.size):
        raise ConfigError(f"torchrun started {placement.size} processes: leave out --processes {number}")


def refuse_if(conflicts: Mapping[str, Any]) -> None:
    """Raise ConfigError with the first message whose condition holds."""
    for message, condition in conflicts.items():
        if condition:
            raise ConfigError(message)


def _use_threads(number: int | None) -> int | None:
    if number is not None:
        use_threads(number)
    return number


AS_JSON = Option(False, "--json", help="Print one JSON object on standard output, and nothing else.")
QUIET = Option(False, "--quiet", "-q", help="Show no progress.")
MIRROR = Option(None, help="Folder to take data sets from. Default: RGCN_MIRROR.")
# Applied while the command line is parsed, before anything imports PyTorch.
THREADS = Option(
    None,
    help="Threads per process. Default: one per core, divided among --jobs or --processes.",
    min=1,
    max=MAX_THREADS,
    callback=_use_threads,
    rich_help_panel="Computing",
)
CHANGES = Option(None, "--set", help="Change a setting: training.epochs=100. Repeatable.")
JOBS = Option(1, help="Trainings at the same time, each in its own process.", min=1, max=MAX_JOBS)
SEED = Option(None, help="Seed of all random choices.")
ACCEPT_CHANGED_DATA = Option(
    False, "--accept-changed-data", help="Use the training graph even if its files have changed since."
)


@dataclass
class OutputOptions:
    """How a command prints progress and results."""

    panel: ClassVar[str] = "Output"
    as_json: bool = AS_JSON
    quiet: bool = QUIET

    @property
    def show_progress(self) -> bool | None:
        """False for no progress bars; None to show them if standard error is a terminal."""
        return False if self.quiet else None

    def print_note(self, text: str) -> None:
        """Print a line on standard error, except with --quiet."""
        if not self.quiet:
            typer.echo(text, err=True)


@dataclass
class DataOptions:
    """For commands that read data."""

    panel: ClassVar[str] = "Data"
    threads: int | None = THREADS
    mirror: Path | None = MIRROR


@dataclass
class ComputingOptions(DataOptions):
    """For commands that compute on a device of choice.

    Attributes:
        device: cpu, cuda, or auto.
    """

    panel: ClassVar[str] = "Computing"
    device: str | None = None


@dataclass
class DistributedOptions:
    """For commands that can run in several processes.

    Attributes:
        processes: Distribute the work over this many processes on this machine, with a GPU each or a share of the
            cores. Equivalent to `torchrun --nproc-per-node N -m rgcn ...`, which also works on several machines
            (docs/guides/several-machines.md).
    """

    panel: ClassVar[str] = "Computing"
    processes: int | None = Option(None, min=1, max=MAX_JOBS)

    @property
    def is_distributed(self) -> bool:
        """True if more than one process is requested."""
        return current().is_distributed or (self.processes or 1) > 1

    def launch(self, folder: Path | None = None, more: Sequence[str] = ()) -> None:
        """Start the processes, unless this is one of them, and exit as they do; arguments as `distributed.launch`."""
        if (self.processes or 1) > 1 and not current().is_distributed:
            launch(self.processes or 1, folder, more)


@dataclass
class TrainingOptions(ComputingOptions, DistributedOptions, OutputOptions):
    """For commands that train one model."""


@dataclass
class GraphOptions:
    r"""How to read a graph that is given instead of a run.

    Attributes:
        labels: Table of nodes and their classes: FILE or SPLIT=FILE (train, valid, test). Repeatable.
        labels_from: Relation whose objects are the classes of its subjects. Replaces --labels.
        data: How to read the files, as data.KEY in a configuration: format=nt, 'columns=[from, type, to]',
            skip_bad_lines=true. Repeatable.
    """

    panel: ClassVar[str] = "Graph files"
    labels: list[str] | None = Option(None, metavar="FILE")
    labels_from: str | None = Option(None, metavar="RELATION")
    data: list[str] | None = Option(None, metavar="KEY=VALUE")

    @property
    def has_labels(self) -> bool:
        """True if labels are given, so that classes are predicted."""
        return bool(self.labels) or self.labels_from is not None

    def read_arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `rgcn.read` and `rgcn.open_model`."""
        from rgcn.runs.yaml_lines import parse_yaml

        given = {"labels": label_files(self.labels) if self.labels else None, "labels_from": self.labels_from}
        arguments: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        for change in self.data or ():
            key, separator, text = change.removeprefix("data.").partition("=")
            if not separator or key in ("path", "dataset", ""):
                raise ConfigError(f"--data takes KEY=VALUE, for example format=nt; got {change!r}")
            if given.get(key) is not None:
                raise ConfigError(f"--{key.replace('_', '-')} and --data {change} both set {key}: leave one out")
            arguments[key] = parse_yaml(text).values
        return arguments


def label_files(texts: list[str]) -> str | dict[str, str]:
    """Parse the values of --labels: one file, or a file for each split.

    >>> label_files(["train=a.tsv", "test=b.tsv"])["test"]
    'b.tsv'
    """
    parts = [text.partition("=") for text in texts]
    by_split = {split: path for split, equals, path in parts if equals and split in ("train", "valid", "test")}
    if not by_split and len(texts) == 1:
        return texts[0]
    if len(by_split) < len(texts):
        raise ConfigError(f"--labels {' '.join(texts)}: name the split of each file, as in train=FILE")
    return by_split


@dataclass
class ModelOptions(ComputingOptions, GraphOptions):
    """How to open the model of a run, or the pretrained model for a graph."""

    panel: ClassVar[str] = "Data"
    accept_changed_data: bool = ACCEPT_CHANGED_DATA

    def open_arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `rgcn.open_model`."""
        own = {"mirror": self.mirror, "device": self.device or "auto", "accept_changed_data": self.accept_changed_data}
        return {**own, **self.read_arguments()}


@dataclass
class SkippingOptions(ModelOptions):
    """The same, for commands that can leave out unknown names.

    Attributes:
        skip_unknown: Leave out unknown names, and labels of nodes that are not in the graph.
    """

    panel: ClassVar[str] = "Data"
    skip_unknown: bool = Option(False, "--skip-unknown")

    def read_arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `rgcn.read` and `rgcn.open_model`."""
        arguments = super().read_arguments()
        return {"missing_labels": "drop", **arguments} if self.skip_unknown and "labels" in arguments else arguments


@dataclass
class NewNodeOptions(ModelOptions):
    """The same, with nodes that were not in the training graph.

    Attributes:
        new_triples: Triples of nodes that were not in the training graph, in any format that `rgcn data stats` reads.
            The nodes are computed from their neighbors.
        new_features: Table of the new nodes' features, if the model uses features.
    """

    panel: ClassVar[str] = "New nodes"
    new_triples: Path | None = Option(None, "--with", metavar="FILE")
    new_features: Path | None = Option(None, "--with-features", metavar="FILE")

    def new_nodes(self) -> dict[str, Any]:
        """Return keyword arguments of `with_new_triples`; empty if there are no new nodes."""
        if self.new_triples is not None:
            return {"path": self.new_triples, "features": self.new_features}
        refuse_if({"--with-features needs the new nodes' triples: add --with FILE": self.new_features})
        return {}


def main() -> None:
    """Run the command line. Errors of the user are printed as a sentence, without a traceback."""
    prepare_process()
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # file and line are ignored
    try:
        with safe_output(), print_on_rank_0_only():
            if is_rank():
                silence_distributed_logs()
                join()
            app()
    except SystemExit as error:
        if error.code and current().is_distributed:
            end(error, "" if current().is_main else "its command was refused")
        leave()
        raise
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        sys.stderr.close()
        sys.exit(0)
    except (Exception, KeyboardInterrupt) as error:
        message = str(error) if isinstance(error, RgcnError) else None  # None if the error is a bug
        if isinstance(error, OSError):
            message = disk_error_message(error, error.filename or Path.cwd())
        elif isinstance(error, KeyboardInterrupt):
            message = "interrupted"
        if message is None and not current().is_distributed:
            raise
        end(error, message or traceback.format_exc())


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
    """Print a warning of this package as a sentence, without the place in its code."""
    is_ours = issubclass(category, UserWarning) and "rgcn" in Path(filename).parts
    sys.stderr.write(f"rgcn: {message}\n" if is_ours else warnings.formatwarning(message, category, filename, lineno))
