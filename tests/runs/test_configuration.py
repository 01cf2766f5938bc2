"""Configurations: shipped ones are whole, changes apply, mistakes are explained."""

import pytest

from rgcn.config import RUNS
from rgcn.errors import ConfigError, UnknownNameError
from rgcn.runs import dump_configuration, load_configuration, shipped_configurations
from rgcn.runs.training import make_model


@pytest.mark.parametrize("name", shipped_configurations())
def test_every_shipped_configuration_is_valid_and_makes_a_model(name):
    config = load_configuration(name)
    assert config.model.name == name.split("/")[0]
    assert make_model(config).seed == config.seed


@pytest.mark.parametrize("dataset", ["fb-toy", "wn18", "wn18rr", "fb15k", "fb15k-237", "world"])
@pytest.mark.parametrize("model", ["rgcn", "c-rgcn", "distmult"])
def test_every_link_prediction_set_has_its_configurations(model, dataset):
    assert load_configuration(f"{model}/lp-{dataset}").data.dataset == dataset


@pytest.mark.parametrize("dataset", ["aifb", "mutag", "bgs", "am"])
@pytest.mark.parametrize("model", ["rgcn", "e-rgcn"])
def test_every_published_run_has_a_configuration(model, dataset):
    assert f"{model}/nc-{dataset}" in shipped_configurations()


def test_published_hyper_parameters():
    mutag = load_configuration("rgcn/nc-mutag")
    assert (mutag.model.bases, mutag.model.hidden, mutag.training.l2_penalty) == (30, 16, 5e-4)
    am = load_configuration("rgcn/nc-am")
    assert (am.model.bases, am.model.hidden, am.data.prune) == (40, 10, True)
    assert load_configuration("e-rgcn/nc-am").training.epochs == 100
    assert load_configuration("e-rgcn/nc-aifb").training.weight_decay == 0.005


def test_changes_then_flags():
    config = load_configuration("rgcn/nc-aifb", ["training.epochs=7", "seed=1"], {"seed": 3})
    assert (config.training.epochs, config.seed) == (7, 3)


def test_a_dumped_configuration_loads_again(tmp_path):
    config = load_configuration("e-rgcn/nc-mutag", ["training.epochs=7"])
    path = tmp_path / "c.yaml"
    path.write_text(dump_configuration(config))
    assert load_configuration(str(path)) == config


def test_unknown_names_and_keys_suggest_the_closest():
    with pytest.raises(UnknownNameError, match="rgcn/nc-aifb"):
        load_configuration("rgcn/nc-aifbb")
    with pytest.raises(ConfigError, match=r"training\.epoch: unknown key; did you mean 'epochs'"):
        load_configuration("rgcn/nc-aifb", ["training.epoch=7"])


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        load_configuration("rgcn/nc-aifb", ["training.epochs=none", "model.hiden=3", "model.dropout=2"])
    assert str(caught.value).count("\n") == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("epochs", "section.key=value"),
        ("task.deep=1", "not a section"),
        ("training.epochs=[", "not valid YAML"),
        ("model.decomposition=basis", "bases"),
        ("model.blocks=3", "blocks"),
        ("data.path=x", "either"),
        ("training.device=tpu", "device"),
    ],
)
def test_bad_changes_are_explained(change, words):
    with pytest.raises(ConfigError, match=words):
        load_configuration("rgcn/nc-aifb", [change])


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "\udcff", "task: node-classification"])
def test_bad_files_are_explained(text, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError):
        load_configuration(str(path))


def test_every_knob_is_documented():
    def check(section):
        for name, field in section.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                check(field.annotation)
            else:
                assert field.description, f"{section.__name__}.{name}"

    for run in RUNS.values():
        check(run)
