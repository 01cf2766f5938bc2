"""`rgcn`: its commands in the order of the help, and what becomes of a mistake."""

import sys
import traceback
import warnings
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rgcn import plugins as axes
from rgcn.cli import model_commands, study_commands  # noqa: F401  # they register their commands
from rgcn.cli.options import Command
from rgcn.distributed.launch import end, only_rank_0_prints
from rgcn.distributed.rendezvous import is_rank, join, leave
from rgcn.errors import RgcnError
from rgcn.placement import current
from rgcn.system.atomic_files import full_disk
from rgcn.system.formatting import safe_output
from rgcn.system.threads import prepare_process, quiet_distributed
from rgcn.version import __version__

GROUPS = {
    "config": "Look at configurations: show, compare, schema.",
    "reproduce": "The paper's figures beside ours: every table, every stated number, and whether they agree.",
    "data": "Data sets and graphs: list, fetch, build, check, and statistics.",
}
ALLOW = "Trust classes of this package where a saved model or a run names them. May be repeated, also at the end."


class _Commands(TyperGroup):
    """Commands that share `--allow`: whoever is told to add it adds it at the end of the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        allowed: list[str] = []
        rest: list[str] = []
        words = iter(args)
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
                error.message += _as_setting(option, words)  # type: ignore[attr-defined]
            raise


def _as_setting(option: str, words: list[str]) -> str:
    """How to say it, where it is the name of a setting."""
    from rgcn.runs.configuration import settings_called

    keys = settings_called(option.lstrip("-").replace("-", "_"))
    given = next((word for word in words if word.split("=")[0] == option), option)
    after = words[words.index(given) + 1 :] if given in words else []
    value = given.partition("=")[2] or next(iter(after), "VALUE")
    return f". Settings are given as {' or '.join(f'--set {key}={value}' for key in keys)}" if keys else ""


app = typer.Typer(
    name="rgcn",
    cls=_Commands,
    help="Learn from a knowledge graph with relational graph convolutional networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    if allow:
        axes.allow(*allow)


_groups = {name: typer.Typer(help=words, no_args_is_help=True) for name, words in GROUPS.items()}
for _name, _command in Command.every.items():
    _group, _, _last = _name.rpartition(" ")
    (_groups[_group] if _group else app).command(_last, cls=_SettingCommand)(_command.function())
for _name, _typer in _groups.items():
    app.add_typer(_typer, name=_name)


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
