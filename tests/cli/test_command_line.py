"""The command line as a whole: what it lists, what it loads for that, and what it says to a slip of the finger."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from typing import get_type_hints

import pytest
import typer.main
from in_process import rgcn

from rgcn.cli.commands import GROUPS, Command, Options, app, argument, flag, option

HEAVY = {"torch", "numba", "numpy", "polars"}


def loaded_by(*words: str) -> set[str]:
    """Modules that are there when a command has ended."""
    code = "import sys\nfrom rgcn.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [["--help"], ["predict", "--help"], ["train", "--no-such-option"], ["reproduce", "all", "--help"]]
)
def test_neither_help_nor_a_slip_waits_for_a_command_s_file(words):
    loaded = loaded_by(*words)
    assert not HEAVY & loaded
    files = {command.calls.partition(":")[0] for command in Command.every.values()}
    assert not {f"rgcn.cli.{file}" for file in files} & loaded


@pytest.mark.parametrize("words", [["runs", "."], ["configs"], ["data", "list"], ["resume", "nowhere"]])
def test_what_needs_no_pytorch_does_not_load_it(words):
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


def test_help_lists_every_command_with_the_first_sentence_of_its_class():
    shown = " ".join(rgcn("--help").stdout.replace("│", " ").split())
    for name, command in Command.every.items():
        if " " not in name:
            assert f"{name} {inspect.getdoc(command).splitlines()[0]}" in shown
    for name, words in GROUPS.items():
        assert f"{name} {words}" in shown


def test_every_command_s_function_is_there_and_takes_what_is_said_to_it():
    assert len(Command.every) == 33
    for command in Command.every.values():
        file, _, name = command.calls.partition(":")
        function = getattr(import_module(f"rgcn.cli.{file}"), name)
        (parameter,) = inspect.signature(function).parameters
        assert issubclass(command, get_type_hints(function)[parameter])


def test_a_wrong_command_or_option_is_answered_with_the_one_that_was_meant():
    done = rgcn("trian", "rgcn/nc-world")
    assert done.returncode == 2
    assert "Did you mean 'train'" in done.stderr
    done = rgcn("train", "rgcn/nc-world", "--epoch", "3")
    assert done.returncode == 2
    assert re.search(r"No such option:? .?--epoch", done.stderr)  # click words it so or so


@pytest.mark.parametrize("said", [("--epochs", "3"), ("--epochs=3",)])
def test_a_setting_given_as_an_option_is_told_how_settings_are_given(said):
    done = rgcn("train", "rgcn/lp-world", *said)
    assert done.returncode == 2
    assert "--set training.epochs=3" in " ".join(done.stderr.replace("│", " ").split())
    assert "--set" not in rgcn("train", "rgcn/lp-world", "--device").stderr.split("Error")[1]  # there is such an option
    assert "--set" not in rgcn("predict", "run", *said).stderr  # which takes no settings


def test_inherited_options_become_parameters_after_a_class_s_own():
    class Inner(Options):
        depth: int = option("How deep.", default=3, min=1)
        loud: bool = flag("--loud", "Shout.")

    class Outer(Inner):
        name: str = argument("Who.")
        loud: bool = flag("--loud", "Whisper.")

    found = {parameter.name: parameter.default for parameter in Outer.parameters()}
    assert list(found.items()) == [("name", inspect.Parameter.empty), ("loud", False), ("depth", 3)]
    assert Outer.parameters()[1].annotation.__metadata__[0].help == "Whisper."
    assert Outer(name="x").depth == 3


def test_the_group_holds_all_commands():
    group = typer.main.get_command(app)
    assert list(group.commands) == [
        *[name for name in Command.every if " " not in name],
        *GROUPS,
    ]
    for name, words in GROUPS.items():
        assert group.commands[name].help == words
