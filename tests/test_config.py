"""Configuration: unknown keys, all problems at once, combinations that cannot be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rgcn.config import RUNS, DataConfig, NodeClassificationRun, NodeModelConfig, NodeTrainingConfig, Section, validated
from rgcn.errors import ConfigError


def problems(section, **values):
    with pytest.raises(ConfigError) as caught:
        validated(section, values, "file.yaml")
    return str(caught.value)


def test_an_unknown_key_comes_with_the_closest_known_one():
    assert "hiden: unknown key; did you mean 'hidden'?" in problems(NodeModelConfig, hiden=16)
    nested = problems(NodeClassificationRun, data={"dataset": "world"}, training={"epoch": 3})
    assert "training.epoch: unknown key; did you mean 'epochs'?" in nested


def test_an_unknown_key_like_no_other_comes_with_all_known_ones():
    message = problems(NodeClassificationRun, data={"dataset": "world"}, zzz=1)
    assert "known here: task, seed, data, model, training" in message


def test_all_problems_are_reported_at_once():
    message = problems(
        NodeClassificationRun,
        data={"dataset": "world"},
        model={"hidden": 0, "layer": 2, "dropout": 1.0},
        training={"epochs": "many", "learning_rate": -1},
        sed=1,
    )
    assert message.startswith("file.yaml: 6 problems")
    for where in ("model.hidden", "model.layer", "model.dropout", "training.epochs", "training.learning_rate", "sed"):
        assert f"  {where}: " in message
    assert "(got 'many')" in message


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        (NodeModelConfig, {"decomposition": "basis"}, "`bases` goes with"),
        (NodeModelConfig, {"bases": 3}, "`bases` goes with"),
        (NodeModelConfig, {"decomposition": "block"}, "`blocks` goes with"),
        (NodeModelConfig, {"blocks": 3}, "`blocks` goes with"),
        (NodeModelConfig, {"decomposition": "block", "blocks": 3, "hidden": 16}, "does not divide into 3 blocks"),
        (NodeModelConfig, {"normalization": "row"}, "normalization"),
        (NodeModelConfig, {"name": "gcn"}, "'rgcn' or 'e-rgcn'"),
        (NodeModelConfig, {"layers": 0}, "layers"),
        (NodeTrainingConfig, {"device": "tpu"}, "unknown device 'tpu'"),
        (NodeTrainingConfig, {"edge_dropout": 1.0}, "edge_dropout"),
        (NodeTrainingConfig, {"patience": 0}, "patience"),
        (DataConfig, {}, "either `dataset` or `path`"),
        (DataConfig, {"dataset": "world", "path": "x.nt"}, "either `dataset` or `path`"),
        (DataConfig, {"dataset": "world", "labels_from": "region"}, "with `path`, not with `dataset`"),
    ],
)
def test_impossible_settings_are_refused_in_words(section, values, words):
    message = problems(section, **values)
    assert words in message
    assert message.startswith("file.yaml: 1 problem\n")


def test_what_is_possible_is_accepted():
    validated(NodeModelConfig, {"decomposition": "block", "blocks": 4})
    validated(NodeModelConfig, {"decomposition": "basis", "bases": 4})
    validated(NodeTrainingConfig, {"device": "cuda:1"})
    run = validated(NodeClassificationRun, {"data": {"path": "x.nt", "labels_from": "r"}})
    assert run.data.title == "x.nt"
    assert run.model == NodeModelConfig()


def test_defaults_are_the_papers():
    model, training = NodeModelConfig(), NodeTrainingConfig()
    assert (model.layers, model.hidden, model.normalization, model.aggregation) == (2, 16, "relation", "sum")
    assert (training.epochs, training.learning_rate, training.weight_decay, training.l2_penalty) == (50, 0.01, 0, 0)


def test_every_setting_is_described():
    for run in RUNS.values():
        sections = [f.annotation for f in run.model_fields.values() if issubclass(type(f.annotation), type)]
        for section in (s for s in sections if issubclass(s, Section)):
            for name, setting in section.model_fields.items():
                assert setting.description, f"{section.__name__}.{name}"


def test_a_configuration_cannot_be_changed_afterwards():
    config = NodeModelConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.hidden = 3
