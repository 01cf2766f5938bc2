"""Check that the walks in results and docs list the files that really run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("walk", Path(__file__).parents[1] / "tools" / "walk.py")
walk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(walk)

OUTDATED = "run `python tools/walk.py --write` and commit what it changes"


@pytest.mark.parametrize("name", walk.WALKS)
def test_the_results_name_the_files_that_run(name):
    if name == "links":
        pytest.importorskip("starlette", reason="the extra `serve` is not installed")
        pytest.importorskip("httpx", reason="httpx, which sends the walk's requests, is not installed")
    assert walk.trace(name) == json.loads(walk.RESULTS.read_text("utf-8"))[name], OUTDATED


def test_the_architecture_says_what_the_results_say():
    document, walks = walk.DOCUMENT.read_text("utf-8"), json.loads(walk.RESULTS.read_text("utf-8"))
    assert walk.with_section(document, walks) == document, OUTDATED
