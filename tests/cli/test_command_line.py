"""Test the command line as a whole: help, imported modules, and messages about typing errors."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getclosurevars
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, get_type_hints

import pytest
import typer
import typer.main
from in_process import rgcn
from typer.testing import CliRunner

from rgcn import cli
from rgcn.cli import commands as commands_file
from rgcn.cli.commands import app, command

HEAVY = {"torch", "numba", "numpy", "polars"}
DECLARING = {"__init__", "commands", "options"}  # files of rgcn/cli without slow imports


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its name: "train", "data list"."""
    for name, found in (group or typer.main.get_command(app)).commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, f"{prefix}{name} ")
        else:
            yield prefix + name, found


COMMANDS = dict(commands())


def loaded_by(*words: str) -> set[str]:
    """Return the modules that are loaded after a command."""
    code = "import sys\nfrom rgcn.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [["--help"], ["predict", "--help"], ["train", "--no-such-option"], ["reproduce", "all", "--help"]]
)
def test_help_and_usage_errors_do_not_import_the_command_module(words):
    loaded = loaded_by(*words)
    assert not HEAVY & loaded
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - DECLARING
    assert not {f"rgcn.cli.{file}" for file in files} & loaded


@pytest.mark.parametrize("words", [["runs", "."], ["configs"], ["data", "list"], ["resume", "nowhere"]])
def test_commands_without_models_do_not_import_pytorch(words):
    assert "torch" not in loaded_by(*words)


def test_the_package_is_the_command():
    for words in (["configs"], ["nonsense"]):
        done = subprocess.run([sys.executable, "-m", "rgcn", *words], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (rgcn(*words).returncode, rgcn(*words).stdout)


def test_completion_knows_commands_and_options():
    def completed(line: str) -> str:
        env = {"_RGCN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        code = "import sys; sys.argv[0] = 'rgcn'; from rgcn.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env})
        return done.stdout

    assert completed("rgcn com").split() == ["compare", "complete"]
    assert "--max-waiting" in completed("rgcn serve --max").split()
    assert completed("rgcn data li").split() == ["list"]


def test_help_lists_every_command_with_its_first_sentence():
    group = typer.main.get_command(app)
    shown = " ".join(rgcn("--help").stdout.replace("│", " ").split())
    for name, found in group.commands.items():
        assert f"{name} {found.help.splitlines()[0]}" in shown


def test_every_command_has_two_examples_with_options_that_exist():
    assert len(COMMANDS) == 33
    for name, found in COMMANDS.items():
        _, _, text = found.help.partition("\n\n\b\nExamples:\n")
        examples = [line.strip() for line in text.splitlines()]
        assert len(examples) == 2, name
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for example in examples:
            assert example.startswith(f"rgcn {name}"), example
            used = {word.partition("=")[0] for word in shlex.split(example) if re.match("--[a-z]", word)}
            assert used <= options, example


def test_help_keeps_the_lines_of_examples_and_joins_those_of_paragraphs():
    shown = rgcn("train", "--help").stdout
    assert "rgcn train mine.csv --labels people.csv --minutes 5" in shown
    assert "trained for a few minutes (--minutes). The best one" in " ".join(shown.split())


def test_a_wrong_command_or_option_suggests_the_closest_one():
    done = rgcn("trian", "rgcn/nc-world")
    assert done.returncode == 2
    assert "Did you mean 'train'" in done.stderr
    done = rgcn("train", "rgcn/nc-world", "--epoch", "3")
    assert done.returncode == 2
    assert re.search(r"No such option:? .?--epoch", done.stderr)  # the wording depends on the version of click


@pytest.mark.parametrize("options", [("--patience", "3"), ("--patience=3",)])
def test_a_setting_given_as_an_option_suggests_set(options):
    done = rgcn("train", "rgcn/lp-world", *options)
    assert done.returncode == 2
    assert "--set training.patience=3" in " ".join(done.stderr.replace("│", " ").split())
    assert "--set" not in rgcn("train", "rgcn/lp-world", "--device").stderr.split("Error")[1]  # this option exists
    assert "--set" not in rgcn("predict", "run", *options).stderr  # this command takes no settings


def test_fields_of_a_dataclass_become_options_in_panels(monkeypatch):
    @dataclass
    class Inner:
        panel: ClassVar[str] = "Volume"
        loud: bool = typer.Option(False, "--loud", help="Shout.")
        depth: int = typer.Option(3, help="How deep.", min=1)

    group = typer.Typer()

    @command(group, "greet", "commands:print")
    class Outer(Inner):
        """Greet.

        Examples:
          rgcn greet x

        Attributes:
            times: How often.
        """

        panel: ClassVar[str] = "Person"
        name: str = typer.Argument(..., help="Who.")
        loud: bool = typer.Option(False, "--loud", help="Whisper.")
        times: int = 1

    received = []
    monkeypatch.setattr(commands_file, "print", received.append, raising=False)
    found = typer.main.get_command(group)
    panels = [(parameter.name, getattr(parameter, "rich_help_panel", None)) for parameter in found.params[:4]]
    assert panels == [("name", None), ("loud", "Person"), ("times", "Person"), ("depth", "Volume")]
    assert [found.params[place].help for place in (1, 2)] == ["Whisper.", "How often."]
    assert found.help == "Greet.\n\n\b\nExamples:\n  rgcn greet x"
    assert CliRunner().invoke(group, ["x", "--depth", "5", "--times", "2"]).exit_code == 0
    assert received == [Outer(name="x", loud=False, times=2, depth=5)]
    assert CliRunner().invoke(group, ["x", "--depth", "0"]).exit_code == 2


def test_every_command_names_a_function_that_takes_its_options():
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    registered = [found for group in groups for found in group.registered_commands]
    assert len(registered) == len(COMMANDS)
    for found in registered:
        declared = getclosurevars(found.callback).nonlocals
        function = resolve_name(f"rgcn.cli.{declared['function']}")
        (hint,) = (kind for name, kind in get_type_hints(function).items() if name != "return")
        assert issubclass(declared["options"], hint)
