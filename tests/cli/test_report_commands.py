"""`rgcn report` and `rgcn compare` as a user calls them."""

import json

import pytest
import yaml
from in_process import rgcn


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with two runs of `rgcn train`."""
    folder = tmp_path_factory.mktemp("runs")
    people = [f"p{i}" for i in range(20)]
    (folder / "graph.tsv").write_text("".join(f"{p}\treads\tbook{i % 2}\n" for i, p in enumerate(people)))
    for split, some in (("train", people[:14]), ("test", people[14:])):
        (folder / f"{split}.tsv").write_text("".join(f"{p}\tclass{int(p[1:]) % 2}\n" for p in some))
    labels = {split: str(folder / f"{split}.tsv") for split in ("train", "test")}
    config = {"data": {"path": str(folder / "graph.tsv"), "labels": labels}, "training": {"epochs": 3}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(config))
    for name, seed in (("one", 0), ("two", 1)):
        done = rgcn("train", folder / "mine.yaml", "--seed", seed, "--out", folder / name, "-q")
        assert done.returncode == 0, done.stderr
    return folder


def test_a_report_is_written_into_the_run_folder(runs):
    done = rgcn("report", "one", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "report.html" in done.stdout
    assert (runs / "one" / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_json_says_what_was_measured(runs):
    out = runs / "elsewhere.html"
    done = rgcn("report", runs / "one", "--out", out, "--split", "test", "--json")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert (values["report"], values["task"], values["measured"]["count"]) == (str(out), "node-classification", 6)
    assert out.exists()


def test_runs_are_compared_on_the_terminal_and_as_a_page(runs):
    done = rgcn("compare", "one", "two", "--out", "c.html", cwd=runs)
    assert done.returncode == 0, done.stderr
    for expected in (
        "settings that differ",
        "seed",
        "test accuracy",
        "Accuracy, training during training",
        "single run",
    ):
        assert expected in done.stdout, expected
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert (runs / "c.html").exists()
    values = json.loads(rgcn("compare", "one", "two", "--json", cwd=runs).stdout)
    assert [run["name"] for run in values["runs"]] == ["one", "two"]
    assert values["settings"] == {"seed": [0, 1]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nothing"], "no such folder"),
        (["report", "one", "--split", "valid"], "nothing to measure"),
        (["report", "one", "--out", "."], "is a folder"),
        (["compare", "one"], "at least two"),
        (["compare", "one", "nothing"], "no such folder"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(runs, arguments, message):
    done = rgcn(*arguments, cwd=runs)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
