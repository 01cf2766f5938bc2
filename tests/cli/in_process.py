"""Run the command line in this process, because starting Python for each call would dominate the time of the tests."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from rgcn.cli import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def rgcn(*arguments, cwd="."):
    """Run `rgcn ARGUMENTS`; return its output and exit code."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setenv("COLUMNS", "80")
        patch.setattr(sys, "argv", ["rgcn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())
