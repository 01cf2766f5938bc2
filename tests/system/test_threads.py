"""Test that idle threads sleep, and that the number of threads is the requested one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import typer.main

from rgcn.cli.commands import app
from rgcn.system import threads
from rgcn.system.threads import (
    THREAD_VARIABLES,
    WAIT_POLICY_VARIABLE,
    WAIT_POLICY_VARIABLES,
    thread_limits,
    threads_per_process,
    use_threads,
    wait_passively,
)


def fresh(code: str, *options: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run Python in its own process with only the given environment variables."""
    env = {name: value for name, value in os.environ.items() if name not in (*THREAD_VARIABLES, *WAIT_POLICY_VARIABLES)}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env={**env, **given}, capture_output=True, text=True, check=True, timeout=120)


ON_REQUEST = "import os, rgcn; rgcn.system.threads.wait_passively()"
IN_A_COMMAND = """
import contextlib, io, os, sys
from rgcn.cli import main
assert "torch" not in sys.modules  # which reads the variables when it is loaded
sys.argv = ["rgcn", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
"""


@pytest.mark.parametrize(
    ("code", "given", "expected"),
    [
        (IN_A_COMMAND, {}, "PASSIVE"),
        (ON_REQUEST, {}, "PASSIVE"),
        (ON_REQUEST, {WAIT_POLICY_VARIABLE: "ACTIVE"}, "ACTIVE"),
        (ON_REQUEST, {"GOMP_SPINCOUNT": "1000"}, "None"),
        (ON_REQUEST, {"KMP_BLOCKTIME": "1"}, "None"),
    ],
)
def test_threads_wait_passively_in_commands_and_on_request_unless_the_user_chose(
    code: str, given: dict[str, str], expected: str
) -> None:
    done = fresh(f"{code}\nprint(os.environ.get({WAIT_POLICY_VARIABLE!r}))", **given)
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_openmp_uses_the_setting() -> None:
    """OpenMP prints how its threads wait when PyTorch loads it."""
    code = "import rgcn; rgcn.system.threads.wait_passively(); rgcn.NodeClassifier"
    option_hint = fresh(code, OMP_DISPLAY_ENV="TRUE").stderr.replace(" ", "")
    if WAIT_POLICY_VARIABLE not in option_hint:
        pytest.skip("PyTorch's threads are not OpenMP's here")
    assert f"{WAIT_POLICY_VARIABLE}='PASSIVE'" in option_hint


def test_pytorch_first_gives_one_hint_and_no_error() -> None:
    call = "rgcn.system.threads.wait_passively()"
    code = f"import torch, rgcn; {call}; {call}; import rgcn.models"
    done = fresh(code, "-W", "error::UserWarning", OMP_NUM_THREADS="2")
    assert done.stderr.count("torch was imported before wait_passively() was called") == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "chosen", "hints"), [(1, {}, 0), (2, {}, 1), (2, {WAIT_POLICY_VARIABLE: "ACTIVE"}, 0)]
)
def test_the_hint_is_shown_only_where_it_applies(
    number: int,
    chosen: dict[str, str],
    hints: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    restore_threads: None,
) -> None:
    for name in WAIT_POLICY_VARIABLES:
        monkeypatch.setenv(name, "")  # monkeypatch restores the value afterward
        monkeypatch.delenv(name)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    torch.set_num_threads(number)
    for _ in range(2):
        wait_passively()
    assert len(caplog.records) == hints
    assert torch.get_num_threads() == (1 if hints else number)  # its threads could not learn to sleep any more
    assert os.environ[WAIT_POLICY_VARIABLE] == chosen.get(WAIT_POLICY_VARIABLE, "PASSIVE")


def test_the_number_asked_for_is_this_process_s_and_every_child_s(
    monkeypatch: pytest.MonkeyPatch, restore_threads: None
) -> None:
    for name in (*THREAD_VARIABLES, "MKL_DYNAMIC"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(threads, "_num_threads", None)
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    assert [threads_per_process(jobs) for jobs in (1, 3, 20)] == [8, 2, 1]
    use_threads(3)
    assert torch.get_num_threads() == 3
    assert threads_per_process(20) == 3  # the requested number, not a share
    assert thread_limits(threads_per_process(20)) == dict.fromkeys(THREAD_VARIABLES, "3")


def test_every_command_that_computes_takes_a_number_of_threads() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    computing = ["train", "resume", "evaluate", "predict", "complete", "explain", "embed", "serve", "tune", "bench"]
    reproducing = ["node-classification", "link-prediction", "tensor-statistics", "timings", "all"]
    for command in [
        *(commands[name] for name in computing),
        *(commands["reproduce"].commands[name] for name in reproducing),
    ]:
        assert "--threads" in [option for parameter in command.params for option in parameter.opts], command.name


@pytest.mark.parametrize(
    ("given", "threads", "expected"),
    [
        ({}, 4, ["4", "4"]),
        ({"OMP_NUM_THREADS": "2"}, 4, ["2", "2"]),
        ({"OMP_NUM_THREADS": "8,2", "MKL_NUM_THREADS": "1"}, 4, ["4", "1"]),
        ({"OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "0"}, 4, ["4", "4"]),
    ],
)
def test_threads_are_limited_but_never_raised_above_what_the_user_set(
    given: dict[str, str], threads: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    limits = thread_limits(threads)
    assert [limits["OMP_NUM_THREADS"], limits["MKL_NUM_THREADS"]] == expected
