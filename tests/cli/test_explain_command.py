"""`rgcn explain` as a user calls it."""

from __future__ import annotations

import json
import math

import pytest
import torch
from in_process import rgcn

import rgcn as package
from rgcn.links.top_k import rate_triples
from rgcn.predict import open_model
from rgcn.system.progress import Budget


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a classifier, a link predictor and one that passes no messages, all of `world`."""
    folder, world = tmp_path_factory.mktemp("models"), package.load("world")
    package.NodeClassifier(model="e-rgcn", embedding=8, hidden=8, epochs=10).fit(world).save(str(folder / "classes"))
    package.LinkPredictor(embedding=8, steps=2).fit(world).save(str(folder / "links"))
    package.LinkPredictor(encoder="none", embedding=8, steps=1).fit(world).save(str(folder / "plain"))
    return folder


TRIPLE = ("--subject", "Peru", "--relation", "borders", "--object", "Bolivia")


def test_a_class_is_explained_in_words(models):
    done = rgcn("explain", models / "classes", "switzerland", "--edges", 3, "--draws", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert " for Switzerland?" in done.stdout.splitlines()[0]
    assert "Supporting triples:" in done.stdout
    assert "Without these 3 triples the probability" in done.stdout


def test_a_triple_is_explained_by_the_other_method(models):
    done = rgcn("explain", models / "links", *TRIPLE, "--method", "edge-mask", "--draws", 2, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["method"] == "edge-mask"
    assert result["question"]["subject"]["title"] == "Peru"


def test_more_minutes_complete_what_was_left_out(models, monkeypatch):
    monkeypatch.setattr("rgcn.cli.predict.DEFAULT_BUDGET", Budget(seconds=0.0))
    command = ("explain", models / "links", *TRIPLE, "--draws", 2, "--json")
    hurried, whole = (json.loads(rgcn(*command, *more).stdout) for more in ((), ("--minutes", 5)))
    assert "`rgcn explain --minutes 5` allows more" in hurried["left_out"][-1]
    assert (hurried["fidelity"]["draws"], whole["fidelity"]["draws"], whole["left_out"]) == (0, 2, [])


def test_a_class_can_be_chosen(models):
    done = rgcn("explain", models / "classes", "Switzerland", "--class", "Africa", "--draws", 1)
    assert done.stdout.startswith("Why Africa for Switzerland?")


@pytest.mark.parametrize("kind", ["html", "svg", "json", "txt"])
def test_the_suffix_chooses_the_format(models, tmp_path, kind):
    out = tmp_path / "new" / f"why.{kind}"
    done = rgcn("explain", models / "links", *TRIPLE, "--draws", 1, "--out", out)
    assert done.returncode == 0
    assert f"Written: {out}" in done.stdout
    written = out.read_text(encoding="utf-8")
    begins = {"html": "<!DOCTYPE html>", "svg": "<?xml", "json": "{", "txt": "Why Peru —borders→ Bolivia?"}
    assert written.startswith(begins[kind])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to explain"),
        (("Peru", "--relation", "borders"), "give either NODE or"),
        (("--subject", "Peru"), "add --relation and --object"),
        (("--subject", "Peru", "--object", "Chile"), "add --relation"),
        ((*TRIPLE, "--class", "Europe"), "--class needs a NODE"),
        (("Peru", "--out", "why.pdf"), ".html, .svg, .json, .txt"),
        (("Peru", "--with-features", "new.csv"), "--with-features needs"),
        (("Peruu",), "Did you mean 'Peru'"),
        (("Peru", "--class", "Europa"), "unknown class 'Europa'"),
        (TRIPLE, "classifies nodes"),
    ],
)
def test_invalid_options_are_refused(models, arguments, words):
    done = rgcn("explain", models / "classes", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rgcn: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_probability_equals_that_of_a_prediction_and_excluded_triples_are_marked(models):
    opened = open_model(models / "links")
    for (subject, object_), out in ((("Afghanistan", "Kabul"), False), (("Kabul", "Afghanistan"), True)):
        triple = "--subject", subject, "--relation", "capital", "--object", object_
        result = json.loads(rgcn("explain", models / "links", *triple, "--draws", 1, "--json").stdout)
        ids = torch.tensor([[opened.node(subject), opened.relation("capital"), opened.node(object_)]])
        found = float(rate_triples(opened, ids)[1])
        assert (result["probability"] or math.nan) == pytest.approx(found, rel=1e-4, nan_ok=True)
        assert result["ruled_out"] is out
        text = rgcn("explain", models / "links", *triple, "--draws", 1).stdout
        assert ("It contradicts the constraints on capital" in text) is out
        assert ("In the data" in text) is not out  # and then it has no probability


def test_a_model_of_the_other_task_or_without_messages_is_refused(models, tmp_path):
    assert "predicts links" in rgcn("explain", models / "links", "Peru").stderr
    assert "no message passing" in rgcn("explain", models / "plain", *TRIPLE).stderr
    assert rgcn("explain", tmp_path, "Peru").returncode == 1
