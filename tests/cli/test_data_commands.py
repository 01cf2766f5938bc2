"""`rgcn data ...` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rgcn.cli.commands import app
from rgcn.errors import ConfigError, DataError, UnknownNameError


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RGCN_MIRROR", raising=False)
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_shows_the_location_of_each_data_set(tmp_path: Path) -> None:
    (tmp_path / "mirror" / "nations").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (tmp_path / "mirror" / "nations" / f"{split}.txt").write_text("")
    listed = json.loads(run("list", "--json", "--mirror", tmp_path / "mirror"))
    where = {row["name"]: row["where"] for row in listed}
    assert (where["world"], where["nations"], where["am"]) == ("embedded", "in the mirror", "not here")
    assert next(row for row in listed if row["name"] == "mutag")["counts"]["labels"] == 340


def test_list_as_a_table() -> None:
    shown = run("list")
    for part in ("world", "embedded", "23,644", "87,688*", "link prediction", "not here", "cache folder"):
        assert part in shown


def test_get_checks_all_names_before_it_fetches_any(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="mutag"):
        run("get", "nations", "mutga")
    assert not (tmp_path / "cache").exists()


def test_get_embedded() -> None:
    assert "embedded" in run("get", "world")


@pytest.mark.needs_data("nations", "umls")
def test_get_prints_the_folder_and_the_source(tmp_path: Path, real_mirror: Path) -> None:
    shown = run("get", "nations", "umls", "--mirror", real_mirror, "--offline")
    assert str(tmp_path / "cache" / "nations") in shown
    assert "downloaded and verified; source: mirror folder" in shown
    assert "already here" in run("get", "nations")


@pytest.mark.needs_data("aifb", "mutag")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aifb", {"entities": 8_285, "relations": 45, "triples": 29_043, "labels": 176, "classes": 4}),
        ("mutag", {"entities": 23_644, "relations": 23, "triples": 74_227, "labels": 340, "classes": 2}),
    ],
)
def test_stats_reproduce_the_papers_table(name: str, expected: dict[str, int], real_mirror: Path) -> None:
    found = json.loads(run("stats", name, "--json", "--mirror", real_mirror, "--offline"))
    assert {key: found[key] for key in expected} == expected
    shown = run("stats", name, "--top", 3, "--offline")
    for count in expected.values():
        assert f"{count:,}" in shown
    assert f"3 of {expected['relations']}" in shown


def test_stats_of_a_file(tmp_path: Path) -> None:
    graph = tmp_path / "g.tsv"
    graph.write_text("a\tknows\tb\nb\tknows\tc\nc\tlikes\ta\n")
    (tmp_path / "labels.tsv").write_text("node\tlabel\na\tone\nb\ttwo\n")
    found = json.loads(run("stats", graph, "--json"))
    assert (found["entities"], found["relation_counts"]) == (3, {"knows": 2, "likes": 1})
    labeled = json.loads(run("stats", graph, "--json", "--labels", f"train={tmp_path / 'labels.tsv'}"))
    assert (labeled["labels"], labeled["classes"]) == (2, 2)
    assert "knows" in run("stats", graph)


def test_stats_of_nothing_known_suggests_names() -> None:
    with pytest.raises(DataError, match="aifb"):
        run("stats", "aifbb")
    with pytest.raises(ConfigError, match="are for files"):
        run("stats", "aifb", "--format", "nt")


def test_skipped_lines_are_counted_and_shown(tmp_path):
    (tmp_path / "g.nt").write_text("<http://a> <http://p> <http://b> .\nbroken\n")
    done = CliRunner().invoke(app, ["data", "stats", str(tmp_path / "g.nt"), "--skip-bad-lines"])
    assert done.exit_code == 0
    assert "skipped 1 bad line:" in done.stderr
    assert "g.nt:2" in done.stderr


def test_statistics_take_the_reading_options_of_other_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("a,is,x\na,is,y\nb,is,x\na,r,b\n")
    found = run("stats", "mine.csv", "--data", "labels_from=is", "--data", "multiple=first", "--json")
    assert json.loads(found)["labels"] == 2
    with pytest.raises(DataError, match="--data multiple=first"):
        run("stats", "mine.csv", "--data", "labels_from=is")
    with pytest.raises(ConfigError, match="did you mean 'columns'"):
        run("stats", "mine.csv", "--data", "colums=[0, 1, 2]")


def test_a_graph_is_built_once_and_opened_wherever_a_graph_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("a\tknows\tb\nb\tknows\tc\na\tknows\tb\nno triple\n")
    (tmp_path / "kinds.tsv").write_text("a\tx\nb\ty\n")
    out = tmp_path / "graph"
    given = ("--labels", tmp_path / "kinds.tsv", "--skip-bad-lines")
    result = json.loads(run("build", tmp_path / "mine.tsv", "--out", out, *given, "--json"))
    assert (result["nodes"], result["relations"], result["triples"], result["duplicates"]) == (3, 1, 2, 1)
    assert json.loads(run("stats", out, "--json"))["labels"] == 2
    with pytest.raises(DataError, match="holds a graph already"):
        run("build", tmp_path / "mine.tsv", "--out", out)
    with pytest.raises(ConfigError, match="needs no building"):
        run("build", "world", "--out", tmp_path / "other")
    assert "1 duplicate left out" in run("build", tmp_path / "mine.tsv", "--out", tmp_path / "again", *given[2:])
