"""Test configuration sections: unknown keys, complete lists of problems, invalid combinations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from pydantic import ValidationError

import rgcn
from rgcn.config import (
    DataConfig,
    LinkModelConfig,
    LinkPredictionRun,
    LinkTrainingConfig,
    NodeClassificationRun,
    NodeModelConfig,
    NodeTrainingConfig,
    Section,
    search_spaces,
    tuned,
    validate_section,
)
from rgcn.config.fields import FIELDS_ONLY, Origin, find_problems, raise_problems
from rgcn.errors import ConfigError
from rgcn.models.task import task_of
from rgcn.plugins import TASKS

RUNS = {name: task_of(name).run_config for name in TASKS.built_in}
WORLD = {"data": {"dataset": "world"}}


def problems(section, **values):
    with pytest.raises(ConfigError) as caught:
        validate_section(section, values, "file.yaml")
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
        (DataConfig, {"path": "x.nt", "labels_from": "r", "labels": "l.tsv"}, "remove one of the two"),
        (DataConfig, {"path": "x.nt", "labels": {"trian": "l.tsv"}}, "unknown split 'trian'"),
        (DataConfig, {"path": "x.nt", "inverse": "r"}, "`labels_from`, which is not given"),
        (DataConfig, {"path": "x.tsv", "columns": [0, 1]}, "subject, relation and object; these are 2"),
        (
            DataConfig,
            {"dataset": "world", "prune": 0},
            "must be a valid boolean (got 0); or must be greater than or equal to 1 (got 0)",
        ),
        (NodeModelConfig, {"decomposition": "block", "blocks": 6}, "set hidden to 12 or 18, or blocks to 4"),
        (NodeModelConfig, {"decomposition": "block", "blocks": 100}, "set hidden to 100, or blocks to 16"),
        (NodeModelConfig, {"name": "e-rgcn", "decomposition": "block", "blocks": 5}, "a width of 32 (embedding)"),
        (
            NodeModelConfig,
            {"name": "e-rgcn", "layers": 3, "decomposition": "block", "blocks": 4, "hidden": 6},
            "a width of 6 (hidden)",
        ),
        (NodeModelConfig, {"name": "e-rgcn", "input": "one-hot"}, "leave it at auto"),
        (NodeModelConfig, {"decomposition": "diagonal", "input": "one-hot"}, "set input to features"),
        (NodeModelConfig, {"name": "e-rgcn", "layers": 3, "decomposition": "diagonal"}, "embedding = 32 is not hidden"),
        (NodeModelConfig, {"layers": True}, "layers: must be a number (got true)"),
        (NodeModelConfig, {"gain": float("inf")}, "must be a finite number (got inf)"),
        (NodeModelConfig, {"normalization": "relatoin"}, "did you mean 'relation'?"),
        (NodeModelConfig, {"bases": "none"}, "must be a valid integer (got 'none')"),
        (LinkModelConfig, {"self_loop_apart": True}, "has a full matrix anyway: set self_loop_apart to null"),
        (
            LinkModelConfig,
            {"decomposition": "basis", "bases": 2, "self_loop_apart": True, "self_loops": False},
            "no self-loops to set apart",
        ),
        (LinkModelConfig, {"coefficient_init": "normal"}, "only `decomposition: basis` has coefficients"),
        (LinkModelConfig, {"fans": "published"}, "goes with `decomposition: block`"),
        (
            LinkModelConfig,
            {"decomposition": "basis", "bases": 2, "input": "one-hot", "separate_inverse_bases": True},
            "`input: embedding`",
        ),
        (LinkTrainingConfig, {"patience": 3}, "set `evaluate_every` too"),
        (NodeClassificationRun, {**WORLD, "trackers": ["mlflow", "mlflow"]}, "'mlflow' is named twice"),
        (NodeClassificationRun, {**WORLD, "trackers": ["mlfow"]}, "did you mean 'mlflow'?"),
        (NodeClassificationRun, {**WORLD, "seed": 2**63}, "must be less than 9223372036854775808"),
        (NodeClassificationRun, {**WORLD, "model": 3}, "model: must be a section"),
        (NodeClassificationRun, {**WORLD, "training": None}, "training: a section without keys: remove the line"),
        (NodeClassificationRun, {**WORLD, "epochs": 3}, "did you mean 'training.epochs'?"),
        (NodeClassificationRun, {}, "data: missing; give it, for example `data: {dataset: world}`"),
        (
            NodeClassificationRun,
            {"data": {"dataset": "world", "prune": 2}, "model": {"layers": 3}},
            "a model of 3 layers reads 3 hops; pruned to 2",
        ),
        (
            NodeClassificationRun,
            {**WORLD, "model": {"self_loops": False}, "training": {"self_loop_dropout": 0.1}},
            "no self-loops to drop",
        ),
        (LinkPredictionRun, {"data": {"dataset": "world", "prune": True}}, "set prune to false"),
        (LinkPredictionRun, {**WORLD, "training": {"warmup": 2000}}, "set warmup to 1000 or less"),
        (
            LinkPredictionRun,
            {**WORLD, "model": {"input": "one-hot"}, "training": {"self_loop_dropout_on": "message"}},
            "one-hot nodes have no self-loop message",
        ),
        (
            LinkPredictionRun,
            {**WORLD, "training": {"self_loop_dropout_on": "message"}},
            "set self_loop_dropout_on to edge",
        ),
        (
            LinkPredictionRun,
            {**WORLD, "model": {"self_loops": False}, "training": {"self_loop_dropout_on": "message"}},
            "no self-loops to drop numbers of",
        ),
        (
            LinkPredictionRun,
            {"data": {"path": "x.tsv", "weight": 3}, "training": {"batch_edges": 10}},
            "edge weights cannot be used with sampled edges",
        ),
    ],
)
def test_invalid_settings_are_refused_with_a_message(section, values, words):
    message = problems(section, **values)
    assert words in message
    assert message.startswith("file.yaml: 1 problem\n")


def test_valid_settings_are_accepted():
    validate_section(NodeModelConfig, {"decomposition": "block", "blocks": 4})
    validate_section(NodeModelConfig, {"decomposition": "basis", "bases": 4})
    validate_section(NodeTrainingConfig, {"device": "cuda:1"})
    run = validate_section(NodeClassificationRun, {"data": {"path": "x.nt", "labels_from": "r"}})
    assert run.data.title == "x.nt"
    assert run.model == NodeModelConfig()
    for prune in (True, False, 2, 5):
        run = validate_section(NodeClassificationRun, {"data": {"dataset": "world", "prune": prune}})
        assert run.data.prune is prune or run.data.prune == prune
    message = {"self_loop_dropout_on": "message"}
    blocks = {"decomposition": "block", "blocks": 4}
    validate_section(LinkPredictionRun, {**WORLD, "model": blocks, "training": message})
    validate_section(LinkPredictionRun, {**WORLD, "model": {"name": "distmult"}, "training": message})
    validate_section(
        LinkPredictionRun, {**WORLD, "training": {"steps": 3, "evaluate_every": 100}}
    )  # the last is measured


def test_combinations_are_checked_although_other_fields_are_wrong():
    found = find_problems(
        NodeClassificationRun,
        {
            "data": {"dataset": "world", "path": "x", "prune": 1, "nonsense": 1},
            "model": {"dropout": 2, "bases": 3, "decomposition": "block", "blocks": 3, "input": "one-hot"},
            "training": {"epochs": "many", "device": "tpu"},
        },
    )
    keys = ["data.nonsense", "model.dropout", "training.epochs", "training.device"]
    keys += ["data.dataset", "model.bases", "model.blocks", "data.prune"]
    assert [problem.key for problem in found] == keys


def test_invalid_values_cause_no_further_problems():
    assert [p.key for p in find_problems(NodeModelConfig, {"decomposition": "block", "blcks": 4})] == ["blcks"]
    assert [p.key for p in find_problems(NodeModelConfig, {"decomposition": "block", "blocks": "x"})] == ["blocks"]
    assert [p.key for p in find_problems(NodeClassificationRun, {"data": 3, "model": {"layers": 9}})] == ["data"]


def test_a_problem_is_shown_where_its_value_was_given():
    values = {**WORLD, "model": {"decomposition": "basis", "hidden": 0}, "training": {"epochs": 0}}
    origins = {
        (): Origin("f.yaml", 1),
        ("model",): Origin("f.yaml", 4),
        ("model", "decomposition"): Origin("f.yaml", 5),
        ("model", "hidden"): Origin("--set model.hidden=0"),
    }
    with pytest.raises(ConfigError) as caught:
        raise_problems("f.yaml", find_problems(NodeClassificationRun, values), origins)
    lines = str(caught.value).splitlines()
    assert lines[0] == "f.yaml: 3 problems"
    assert lines[1].startswith("  f.yaml, line 1: training.epochs: ")
    assert lines[2].startswith("  f.yaml, line 5: model.decomposition: `bases` goes with")
    assert lines[3].startswith("  --set model.hidden=0: model.hidden: must be")


class Recorder:
    """A stand-in for a section that records which fields are read."""

    def __init__(self, section, read, path=""):
        self._section, self._read, self._path = section, read, path

    def __getattr__(self, name):
        value = getattr(self._section, name)
        if isinstance(value, Section):
            return Recorder(value, self._read, f"{self._path}{name}.")
        if name in type(self._section).model_fields:
            self._read.add(self._path + name)
        return value


def test_rules_read_only_the_fields_they_name():
    names = ({"encoder": name} for name in ("rgcn", "e-rgcn", "c-rgcn", "none"))
    ways = [{"decomposition": way, "bases": 3, "blocks": 3} for way in ("none", "basis", "block", "diagonal")]
    models = [{**name, **way, **more} for name in names for way in ways for more in TWISTS]
    data = {"dataset": "world", "labels_from": "r", "prune": 1, "weight": 3}
    training = {"self_loop_dropout": 0.1, "self_loop_dropout_on": "message", "batch_edges": 3, "patience": 3}
    for kind in RUNS.values():
        inner = kind.sections()
        for model in models:
            parts = {"data": data, "model": model, "training": training}
            made = {
                name: inner[name].model_construct(**{k: v for k, v in values.items() if k in inner[name].model_fields})
                for name, values in parts.items()
            }
            for section in (*made.values(), kind.model_construct(**made)):
                for rule in type(section).rules():
                    read = set()
                    list(rule.check(Recorder(section, read)))
                    assert read <= set(rule.keys), rule


TWISTS = ({}, {"layers": 3, "self_loops": False}, {"input": "one-hot", "self_loop_apart": True, "fans": "published"})


def test_sections_made_by_hand_obey_the_rules_too():
    with pytest.raises(ValidationError, match="goes with `decomposition: basis`"):
        NodeModelConfig(bases=3)
    NodeModelConfig.model_validate({"bases": 3}, context=FIELDS_ONLY)


# -- search spaces -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RUNS.values(), ids=RUNS)
def test_search_spaces_hold_valid_values_and_know_what_they_depend_on(kind):
    spaces = search_spaces(kind)
    length = "training.epochs" if kind is NodeClassificationRun else "training.steps"
    assert {"training.learning_rate", length, "model.decomposition", "model.bases"} <= spaces.keys()
    seen = []
    for key, space in spaces.items():
        section, name = key.split(".")
        assert section in ("model", "training")
        assert name != "device"
        field = kind.sections()[section].model_fields[name]
        assert space.default == field.default
        values = space.choices or (space.low, space.high)
        for value in values:
            problems = find_problems(kind, {**WORLD, section: {name: int(value) if space.integer else value}})
            assert not any(problem.key == key and problem.message.startswith("must be") for problem in problems)
        for parent in space.when:
            inner, setting = parent.split(".")
            assert setting in kind.sections()[inner].model_fields
            assert parent not in spaces or parent in seen
        seen.append(key)


@pytest.mark.parametrize("kind", RUNS.values(), ids=RUNS)
def test_settings_drawn_from_search_spaces_are_valid(kind):
    random = Random(0)
    shorthands = kind.sections()["model"].shorthands
    for _ in range(300):
        meant = dict(random.choice(list(shorthands.values())))
        run = {"data": {"dataset": "world"}, "model": meant, "training": {}}
        whole = {f"model.{k}": v for k, v in kind.sections()["model"](**meant).model_dump().items()}
        for key, space in search_spaces(kind).items():
            drawn = random.choice(space.choices) if space.choices else random.uniform(space.low, space.high)
            value = (int(drawn) if space.integer else drawn) if space.applies(whole) else space.default
            whole[key] = value
            section, name = key.split(".")
            run[section][name] = value
        assert find_problems(kind, run) == []


def test_search_spaces_stand_in_the_json_schema():
    rate = NodeTrainingConfig.model_json_schema()["properties"]["learning_rate"]
    assert rate["search"] == {"low": 1e-3, "high": 0.1, "log": True}
    bases = search_spaces(NodeClassificationRun)["model.bases"]
    assert (bases.integer, bases.log, dict(bases.when)) == (True, True, {"model.decomposition": "basis"})
    assert not bases.applies({"model.decomposition": "none"})
    layers = search_spaces(LinkPredictionRun)["model.layers"]
    assert layers.applies({"model.encoder": "c-rgcn"})
    assert not layers.applies({"model.encoder": "none"})


@pytest.mark.parametrize("space", [{}, {"low": 1}, {"low": 2, "high": 1}, {"low": 0, "high": 1, "log": True}])
def test_an_invalid_search_space_is_refused_at_its_declaration(space):
    with pytest.raises(ValueError, match=r"search space|must be below"):
        tuned(0, **space)


def test_defaults_equal_those_of_the_paper():
    model, training = NodeModelConfig(), NodeTrainingConfig()
    assert (model.layers, model.hidden, model.normalization, model.aggregation) == (2, 16, "relation", "sum")
    assert (training.epochs, training.learning_rate, training.weight_decay, training.l2_penalty) == (50, 0.01, 0, 0)


def test_every_setting_is_described():
    for run in RUNS.values():
        sections = [f.annotation for f in run.model_fields.values() if issubclass(type(f.annotation), type)]
        for section in (s for s in sections if issubclass(s, Section)):
            for name, setting in section.model_fields.items():
                assert setting.description, f"{section.__name__}.{name}"


def test_a_misspelled_setting_is_a_type_error_as_it_is_an_error(tmp_path):
    pytest.importorskip("mypy", reason="the lowest versions (make bounds) are too low for mypy")
    expected = {
        "rgcn.NodeClassifier(hiden=3)": 'Unexpected keyword argument "hiden"',
        "rgcn.LinkPredictor(embedding='wide')": 'has incompatible type "str"; expected "int"',
        "rgcn.LinkPredictor('c-rgcn', decoder=rgcn.nn.Basis)": 'expected "str | type[Decoder] | None"',
    }
    (tmp_path / "own.py").write_text("import rgcn\n" + "\n".join(expected) + "\n")
    # From the root and with its settings: `make types` has read all of PyTorch with them just before.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "own.py")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    for words in expected.values():
        assert words in checked.stdout
    with pytest.raises(TypeError, match="unexpected keyword argument 'hiden'"):
        rgcn.NodeClassifier(hiden=3)
    with pytest.raises(ConfigError, match="NodeClassifier has no parameter 'hiden'; did you mean 'hidden'"):
        rgcn.NodeClassifier().set_params(hiden=3)


def test_shorthands_set_other_settings_and_explicit_settings_come_first():
    assert (LinkModelConfig(name="distmult").encoder, LinkModelConfig(name="distmult").title) == ("none", "distmult")
    assert LinkModelConfig(name="distmult", encoder="c-rgcn").title == "c-rgcn"
    assert "name" not in LinkModelConfig(name="c-rgcn").model_dump()
    assert LinkModelConfig(encoder="none", decoder="mypackage.decoders:Mine").title == "Mine"
    assert NodeModelConfig(head="linear").title == "rgcn+linear"


def test_a_configuration_cannot_be_changed_afterwards():
    config = NodeModelConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.hidden = 3
