"""`rgcn bench` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from rgcn.cli.commands import app
from rgcn.errors import ConfigError


def test_a_tiny_graph_is_measured_in_processes_of_their_own(tmp_path):
    out = tmp_path / "out.json"
    words = ["bench", "random-200", "--model", "rgcn", "--device", "cpu", "--peer", "none", "--steps", "2"]
    command = [sys.executable, "-c", "from rgcn.cli import main; main()", *words]
    command += ["--rounds", "1", "--threads", "1", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "random-200" in done.stdout
    assert "reached" in done.stdout
    assert max(map(len, done.stdout.splitlines()[2:])) <= 120
    assert "round 1" in done.stderr
    result = json.loads(out.read_text())
    assert result["command"].startswith("rgcn bench random-200 --model rgcn")
    (row,) = result["rows"]
    assert "failed" not in row, row
    assert (row["graph"], row["side"], row["steps"], row["threads"]) == ("random-200", "rgcn", 2, 1)
    assert row["seconds"] > 0
    assert row["floor"]["bytes"] > 0
    assert result["speeds"]["cpu"]["bandwidth"] > 0


def test_json_alone_can_go_to_standard_output(monkeypatch):
    found = {"rows": [], "machine": {}, "speeds": {}, "notes": []}
    monkeypatch.setattr("rgcn.bench.comparison.compare", lambda *_: found)
    done = CliRunner().invoke(app, ["bench", "random-200", "--json", "-", "--quiet"])
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout) == found


def test_mistakes_are_answered_before_anything_is_measured():
    def complaint(*words):
        return CliRunner().invoke(app, ["bench", *words]).exception

    for words, answer in [
        (("no-such-graph",), "am-shaped"),
        (("no-such-file.npz",), "no such file"),
        (("random-200", "--model", "gcn"), "rgcn, e-rgcn"),
        (("random-200", "--peer", "dgl"), "fast, plain"),
        (("random-200", "--device", "tpu"), "unknown device"),
        (("random-200", "--plot", "steps.txt"), ".svg"),
        (("--write-npz", "file.npz"), "takes one graph"),
    ]:
        assert answer in str(complaint(*words))
    assert isinstance(complaint("no-such-graph"), ConfigError)


def test_a_graph_can_be_written_to_a_file(tmp_path):
    done = CliRunner().invoke(app, ["bench", "random-200", "--write-npz", str(tmp_path / "g.npz")])
    assert done.exit_code == 0
    with np.load(tmp_path / "g.npz") as file:
        assert file["triples"].shape == (200, 3)


@pytest.mark.parametrize("word", ["--model", "--device", "--peer", "--json", "--plot"])
def test_help_names_the_options(word):
    done = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    assert word in done.stdout
