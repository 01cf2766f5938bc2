"""The length of a training: epochs of node classification; steps, or passes over the triples, of link prediction."""

from __future__ import annotations

import math

import pytest

import rgcn
from rgcn.errors import ConfigError
from rgcn.runs import load_configuration, resume, train
from rgcn.runs.assembly import plan_run


def test_epochs_of_link_prediction_are_passes_over_the_training_triples():
    world = rgcn.load("world")
    plan = rgcn.LinkPredictor(encoder="none", epochs=3, batch_edges=1000).plan(world)
    assert plan.training.steps == 3 * math.ceil(world.num_triples_in("train") / 1000)
    assert plan.training.epochs is None  # from here on the number of steps counts


def test_a_pass_over_all_triples_at_once_is_one_step():
    assert (
        rgcn.LinkPredictor(encoder="none", epochs=3).plan(rgcn.load("world").subgraph(range(100))).training.steps == 3
    )


def test_epochs_of_a_network_that_asks_about_few_triples_at_a_time_need_the_size_of_a_batch():
    with pytest.raises(ConfigError, match=r"training\.batch_edges"):
        rgcn.LinkPredictor(encoder="path", epochs=1).plan(rgcn.load("world"))


def test_a_run_of_epochs_keeps_its_number_of_steps(tmp_path):
    changes = ["training.epochs=2", "training.batch_edges=10000", "model.embedding=4", "training.evaluate_every=0"]
    config, world = load_configuration("distmult/lp-world", changes), rgcn.load("world")
    steps = 2 * math.ceil(2 * world.num_triples_in("train") / 10_000)  # each triple is asked in both directions
    assert plan_run(config, world).config.training.length == steps
    result = train(config, world, tmp_path / "run")
    assert result.as_dict()["steps"] == result.length == steps
    assert resume(tmp_path / "run").length == steps


def test_node_classification_counts_epochs(tmp_path):
    config = load_configuration("rgcn/nc-world", ["training.epochs=2"])
    assert (config.training.unit, config.training.length) == ("epoch", 2)
    assert train(config, rgcn.load("world"), tmp_path / "run").as_dict()["epochs"] == 2


def test_a_number_of_steps_replaces_the_epochs_of_a_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("task: link-prediction\ndata: {dataset: world}\ntraining: {epochs: 3}\n")
    config = load_configuration(str(tmp_path / "mine.yaml"), ["training.steps=7"])
    assert (config.training.length, config.training.epochs) == (7, None)
    with pytest.raises(ConfigError, match="unknown key"):
        load_configuration("rgcn/nc-world", ["training.steps=7"])
