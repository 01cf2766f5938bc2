"""Test the kind `number` of another package: training, resuming, tuning, reports, predictions and serving."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest
import stranger_number
import yaml
from outside import command

import rgcn
from rgcn.errors import DataError
from rgcn.models.answer_kind import ClassKind, kind_of
from rgcn.predict import open_model
from rgcn.runs import load_configuration, load_data, train

PEOPLE = [f"p{i}" for i in range(40)]
NUMBERS = {person: 1.5 * (i % 4) for i, person in enumerate(PEOPLE)}  # of the book that each of them reads


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, and a trained run of it."""
    folder = tmp_path_factory.mktemp("numbers")
    triples = [f"{person}\treads\tbook{i % 4}\n" for i, person in enumerate(PEOPLE)]
    triples += [f"{person}\tknows\t{PEOPLE[(i * 7 + 3) % 40]}\n" for i, person in enumerate(PEOPLE)]
    (folder / "graph.tsv").write_text("".join(triples))
    for split, some in (("train", PEOPLE[:28]), ("test", PEOPLE[28:])):
        (folder / f"{split}.tsv").write_text("".join(f"{person}\t{NUMBERS[person]}\n" for person in some))
    data = {"path": str(folder / "graph.tsv"), "labels": {s: str(folder / f"{s}.tsv") for s in ("train", "test")}}
    model = {"encoder": "e-rgcn", "embedding": 8, "hidden": 8}
    training = {"epochs": 60, "learning_rate": 0.03, "device": "cpu"}
    settings = {"task": "stranger_number:Regression", "data": data, "model": model, "training": training}
    (folder / "numbers.yaml").write_text(yaml.safe_dump(settings))
    assert "test   root mean square error" in done("train", "numbers.yaml", "--out", "run", "-q", cwd=folder)
    return folder


def done(*arguments: object, cwd: Path) -> str:
    found = command(*arguments, cwd=cwd)
    assert found.returncode == 0, found.stderr
    return found.stdout


def answered(*arguments: object, cwd: Path) -> dict:
    return json.loads(done(*arguments, "--json", cwd=cwd))


def test_it_is_measured_and_reported(here: Path) -> None:
    measured = json.loads((here / "run" / "result.json").read_text())["metrics"]["test"]
    assert (measured["rmse"] < 0.8, measured["count"]) == (True, 12)
    result = answered("report", "run", cwd=here)
    assert result["measured"] == {"split": "test", **measured}
    page = (here / "run" / "report.html").read_text()
    assert "test root mean square error" in page
    card = done("card", "run", cwd=here)
    assert "root mean square error" in card
    assert stranger_number.Numbers.commands[0] in card


def test_a_stopped_training_goes_on_to_the_same_weights(here: Path) -> None:
    changes = ["training.epochs=40", "checkpoints.every_steps=10"]
    config = load_configuration(str(here / "numbers.yaml"), changes)
    graph = load_data(config.data)
    train(config, graph, here / "whole")

    def stop(step: float) -> None:
        if step == 25:
            raise RuntimeError("the power fails")

    with pytest.raises(RuntimeError, match="power"):
        train(config, graph, here / "stopped", on_step=stop)
    done("resume", "stopped", "-q", cwd=here)
    assert len({open_model(here / name).fingerprint_ for name in ("whole", "stopped")}) == 1


def test_it_is_tuned(here: Path) -> None:
    how = ("--search", "model.embedding=4,8", "--fix", "all", "--trials", 2, "--out", "study", "-q")
    found = answered("tune", "numbers.yaml", *how, "--set", "training.epochs=5", cwd=here)
    assert (found["trials"], found["metric"]) == (2, "rmse")
    assert load_configuration(str(here / "study" / "best.yaml")).task == "stranger_number:Regression"


def test_numbers_of_nodes_are_predicted(here: Path) -> None:
    (here / "names.txt").write_text("p30\np31\n")
    model = rgcn.load_model(here / "run")
    assert isinstance(model, stranger_number.NumberPredictor)
    expected = model.numbers(["p30", "p31"])
    printed = done("predict", "run", "--nodes", "names.txt", cwd=here)
    assert [f"{number:.4g}" in printed for number in expected] == [True, True]
    assert "known label" in printed
    found = answered("predict", "run", "--nodes", "names.txt", cwd=here)["predictions"]
    assert [(row["node"], row["label"]) for row in found] == [("p30", "3.0"), ("p31", "4.5")]
    assert [row["number"] for row in found] == pytest.approx(expected)
    done("predict", "run", "--nodes", "names.txt", "--out", "numbers.csv", cwd=here)
    assert pl.read_csv(here / "numbers.csv")["number"].to_list() == pytest.approx(expected)
    refused = command("predict", "run", "--nodes", "names.txt", "--out", "numbers.nt", cwd=here)
    assert "gives no triples" in refused.stderr
    assert (
        "a question about triples needs one that predicts links"
        in command("predict", "run", "--subject", "p1", "--relation", "reads", cwd=here).stderr
    )
    assert kind_of("stranger_number:Numbers") is kind_of(stranger_number.Numbers)
    with pytest.raises(DataError, match="this model gives nodes a number; a question about a node's class needs"):
        open_model(here / "run").require_kind(ClassKind)


@pytest.mark.parametrize("method", ["integrated-gradients", "edge-mask"])
def test_the_triples_behind_a_number_are_found(here: Path, method: str) -> None:
    why = answered("explain", "run", "p31", "--method", method, "--edges", 3, "--draws", 3, cwd=here)
    assert (why["question"]["kind"], why["question"]["node"]["name"], why["method"]) == ("number", "p31", method)
    assert why["probability"] is None
    assert why["fidelity"]["strength"]["name"] == "the number"
    output = done("explain", "run", "p31", "--draws", 3, "--out", "why.html", cwd=here)
    assert output.startswith(f"Why {why['score']:.3g} for p31?")
    assert "reads" in output
    assert "Without" in (here / "why.html").read_text()


def test_it_is_served(here: Path) -> None:
    pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    sys.path.append(str(Path(__file__).parents[1] / "serve"))
    from servers import asking

    from rgcn.serve import create_app, load_models

    with asking(create_app(load_models([here / "run"], device="cpu"))) as client:
        found = client.get("/api/models/run/number", params={"node": "p31"}).json()
        expected = rgcn.load_model(here / "run").numbers(["p31"])
        assert (found["node"]["name"], [found["number"]]) == ("p31", pytest.approx(expected))
        assert client.get("/api/models").json()["models"][0]["answers"] == ["number"]
        described = client.get("/openapi.json").json()["paths"]["/api/models/{model}/number"]["get"]
        assert described["parameters"][-1]["name"] == "node"
        why = client.get("/api/models/run/explain", params={"node": "p31"})
        assert why.json()["question"]["kind"] == "number", why.text
        assert client.get("/api/models/run/class", params={"node": "p31"}).status_code == 409
