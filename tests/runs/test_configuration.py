"""Configurations: built-in ones are valid, changes apply, problems are explained."""

import warnings
from pathlib import Path

import pytest
import yaml

from rgcn.config import NodeClassificationRun
from rgcn.errors import ConfigError, DataError, UnknownNameError
from rgcn.models import LinkPredictor
from rgcn.models.task import task_of
from rgcn.plugins import TASKS
from rgcn.runs import builtin_configurations, dump_configuration, load_configuration
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import differences, non_default_settings, run_schema, with_absolute_paths
from rgcn.runs.yaml_lines import MAX_BYTES, YamlError, parse_yaml

RUNS = {name: task_of(name).run_config for name in TASKS.names()}


def written(tmp_path, text, name="mine.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(name, *changes, **overrides):
    with pytest.raises(ConfigError) as caught:
        load_configuration(name, changes, overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", builtin_configurations())
def test_every_builtin_configuration_is_valid_and_makes_a_model(name):
    config = load_configuration(name)
    assert config.model.title == name.split("/")[0]
    assert make_model(config).seed == config.seed


@pytest.mark.parametrize("dataset", ["fb-toy", "wn18", "wn18rr", "fb15k", "fb15k-237", "world"])
@pytest.mark.parametrize("model", ["rgcn", "c-rgcn", "distmult"])
def test_every_link_prediction_set_has_its_configurations(model, dataset):
    assert load_configuration(f"{model}/lp-{dataset}").data.dataset == dataset


@pytest.mark.parametrize("dataset", ["aifb", "mutag", "bgs", "am"])
@pytest.mark.parametrize("model", ["rgcn", "e-rgcn"])
def test_every_published_run_has_a_configuration(model, dataset):
    assert f"{model}/nc-{dataset}" in builtin_configurations()


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
    with pytest.raises(UnknownNameError, match=r"'c-rgcn/lp-world'.*`rgcn configs`.*a graph: a file"):
        load_configuration("lp-world")
    with pytest.raises(UnknownNameError, match=r"unknown configuration 'zz'\. `rgcn configs` lists all"):
        load_configuration("zz")
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


def test_every_setting_is_documented():
    def check(section):
        for name, field in section.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                check(field.annotation)
            else:
                assert field.description, f"{section.__name__}.{name}"

    for run in RUNS.values():
        check(run)


# -- everything wrong at once, with its place ----------------------------------------------------------

WRONG = """\
task: node-classification
data:
  dataset: world
  prune: 2
model:
  name: rgcn
  layers: 3
  hiden: 4
  decomposition: block
  blocks: 5
training:
  epochs: 10
  learning_rate: fast
  epochs: 20
trackers:
  - mlflow
  - tensorbord
yes: 1
"""


def test_every_problem_comes_with_its_line_and_a_fix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, WRONG.replace("hiden: 4", "hidden: 16\n  dropot: 0.1"))
    message = refusal("mine.yaml", "model.bases=3", "training.edge_dropout=1", "seed=x", seed=-1)
    lines = message.splitlines()
    assert lines[0] == "mine.yaml: 10 problems"
    places = [line.strip().split(": ")[:2] for line in lines[1:]]
    assert places == [
        ["mine.yaml, line 4", "data.prune"],
        ["mine.yaml, line 9", "model.dropot"],
        ["mine.yaml, line 11", "model.blocks"],
        ["mine.yaml, line 14", "training.learning_rate"],
        ["mine.yaml, line 15", "training.epochs"],
        ["mine.yaml, line 18", "trackers"],
        ["mine.yaml, line 19", "yes"],
        ["--seed", "seed"],
        ["--set training.edge_dropout=1", "training.edge_dropout"],
        ["--set model.bases=3", "model.bases"],
    ]
    assert "already given on line 13" in message
    assert "set hidden to 15 or 20, or blocks to 4" in message
    assert "did you mean 'tensorboard'?" in message


def test_a_missing_section_and_a_wrong_task_are_reported_with_all_other_problems(tmp_path):
    path = written(tmp_path, "seed: 1\ntask: node-clasification\nmodel:\n  layers: 0\n")
    message = refusal(path, "epochs", "training.epochs=[")
    assert "5 problems" in message
    assert "line 2: task: unknown task 'node-clasification'" in message
    assert "did you mean 'node-classification'?" in message
    assert "line 1: data: missing" in message
    assert "--set: takes section.key=value" in message
    assert "a task is a name or a class, not ['a']" in refusal(written(tmp_path, "task: [a]\n"))


def test_a_builtin_configuration_is_called_by_its_name_in_problems():
    assert "rgcn/nc-mutag, line 9: model.bases: " in refusal("rgcn/nc-mutag", "model.decomposition=none")
    whole = refusal("rgcn/nc-aifb", "model={hidden: 0}")  # the section's lines no longer count
    assert "--set model={hidden: 0}: model.hidden: " in whole


def test_a_change_may_unset_and_may_hold_a_mapping():
    config = load_configuration("rgcn/nc-mutag", ["model.decomposition=none", "model.bases=", "data={dataset: world}"])
    assert (config.model.bases, config.data.dataset) == (None, "world")
    assert "'hidden' is given twice" in refusal("rgcn/nc-aifb", "model={hidden: 1, hidden: 2}")


def test_a_run_folder_is_a_name_too(tmp_path):
    config = load_configuration("rgcn/nc-world", ["training.epochs=7"])
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    written(folder, dump_configuration(config), "config.yaml")
    assert load_configuration(str(folder)) == config
    (tmp_path / "run.json").write_text("{}")
    assert "no config.yaml" in refusal(str(tmp_path))
    assert "no such file" in refusal(str(tmp_path / "none.yaml"))


# -- a graph in place of a configuration ---------------------------------------------------------------


def test_a_graph_means_link_prediction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("source,target,type\na,b,r\n")
    Path("mine").mkdir()
    Path("mine/train.txt").write_text("a\tr\tb\n")
    for name in ("mine.csv", "mine", "./mine.csv", str(tmp_path / "mine.csv")):
        config = load_configuration(name, ["model.name=rgcn"])
        assert (config.task, Path(config.data.path)) == ("link-prediction", Path(name))
        assert config == load_configuration(Path(written(tmp_path, dump_configuration(config))).name)
    for name in ("world", "WORLD", "dataset:world"):
        assert load_configuration(name, ["model.name=path"]).data == load_configuration("rgcn/nc-world").data
    given = ["model.name=rgcn", "data.labels=people.csv", "data.header=false", "seed=3"]
    config = load_configuration("mine.csv", given)
    assert (config.task, config.data.labels, config.data.header, config.seed) == (
        *("node-classification", "people.csv", False),
        3,
    )


def test_paths_in_a_file_are_relative_to_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("project", "other"):
        Path(folder).mkdir()
    for file in ("project/graph.tsv", "project/few.tsv", "elsewhere.tsv"):
        Path(file).write_text("a\tr\tb\n")
    text = "task: pretraining\ndata: {path: graph.tsv, labels: {train: a.csv, test: /b.csv}, features: f.csv}\n"
    graphs = "training: {graphs: {few.tsv: 1, codex-s: 1, nosuch: 1}, pairs_hidden_in: [few.tsv]}\n"
    written(tmp_path / "project", text + graphs)
    config = load_configuration("project/mine.yaml", ["data.columns=[0, 1, 2]"])
    labels = {"train": "project/a.csv", "test": "/b.csv"}
    assert config.data.path == "project/graph.tsv"
    assert (config.data.labels, config.data.features) == (labels, "project/f.csv")
    assert config.training.graphs == {"project/few.tsv": 1, "codex-s": 1, "nosuch": 1}
    assert config.training.pairs_hidden_in == ["project/few.tsv"]
    whole = with_absolute_paths(config)
    monkeypatch.chdir("other")
    again = load_configuration(written(tmp_path / "other", dump_configuration(whole)))
    assert again == whole
    assert whole.data.path == str(tmp_path / "project" / "graph.tsv")
    assert next(iter(whole.training.graphs)) == str(tmp_path / "project" / "few.tsv")
    # A path relative to the working folder was valid in earlier versions: the message says what to write.
    monkeypatch.chdir(tmp_path)
    words = refusal(written(tmp_path / "project", "task: link-prediction\ndata: {path: elsewhere.tsv}\n"))
    assert "line 2: data.path: there is no" in words
    assert "write ../elsewhere.tsv" in words
    # Paths on the command line are relative to the working folder.
    assert load_configuration("project/mine.yaml", ["data.path=elsewhere.tsv"]).data.path == "elsewhere.tsv"


@pytest.mark.parametrize("name", ["path", "universal", "distmult"])
def test_a_graph_gets_the_training_settings_of_its_model(name):
    config = load_configuration("world", [f"model.name={name}", "training.steps=7"])
    model = LinkPredictor(name, steps=7)
    assert (config.model, config.training) == (model.model, model.training)
    assert load_configuration("world", [f"model.name={name}", "training.batch_edges=5"]).training.batch_edges == 5


def test_names_that_are_neither_a_configuration_nor_a_graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("a,r,b\n")
    Path("mine.dat").write_text("a b c\n")
    Path("world").mkdir()
    with pytest.raises(DataError, match=r"mien\.csv: there is no such file.*'mine\.csv'.*`rgcn configs`"):
        load_configuration("mien.csv")
    with pytest.raises(ConfigError, match=r"mine\.dat: not a configuration.*needs an ending"):
        load_configuration("mine.dat")
    with pytest.raises(ConfigError, match=r"\./world for the folder, dataset:world for the data set"):
        load_configuration("world")
    assert load_configuration("./world", ["model.name=rgcn"]).data.path == "world"
    assert "takes section.key=value" in refusal("mine.csv", "model")
    assert "training: " in refusal("mine.csv", "model.name=path", "training=5")


# -- YAML that is not trusted --------------------------------------------------------------------------

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{after}: &{after} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "more than 20,000 values"),
        (MERGES, "more than 20,000 values"),
        ("data: &d {path: *d}\n", "line 1: an alias that contains itself"),
        ("[" * 20_000, "nested too deeply"),
        ("#" * (MAX_BYTES + 1), "too large"),
        ("seed: !!python/object/apply:os.getcwd []\n", "line 1: not valid YAML: could not determine a constructor"),
        ("data:\n\tdataset: world\n", "line 2: not valid YAML.*indent with spaces"),
        ("seed: 1\nwhen: 2001-99-99\n", "line 2: not valid YAML: month"),
        ("seed: " + "9" * 5000, "line 1: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "expected a single document"),
        ("a: \x00", "not valid YAML"),
        ("", "empty"),
        ("- 1", "mapping of sections"),
    ],
    ids=lambda text: text[:20],
)
def test_files_that_are_no_configuration_are_refused(text, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        load_configuration(written(tmp_path, text))


def test_merged_keys_and_aliases_are_read_and_not_shared(tmp_path):
    text = "base: &b {a: 1, c: 1}\none:\n  <<: *b\n  a: 2\ntwo: *b\nthree: *b\n"
    read = parse_yaml(text)
    assert read.values["one"] == {"a": 2, "c": 1}
    assert read.duplicates == []
    assert (read.lines["one", "a"], read.lines["one", "c"]) == (4, 1)
    assert read.values["two"] is not read.values["three"]


def test_keys_are_read_as_text():
    assert parse_yaml("on: 1\n2: 3\nnull: 4\n").values == {"on": 1, "2": 3, "null": 4}
    (twice,) = parse_yaml("x:\n  1: a\n  '1': b\n").duplicates
    assert (twice.path, twice.first_line, twice.line) == (("x", "1"), 2, 3)
    assert parse_yaml("{a: 1, a: 2}").duplicates
    with pytest.raises(YamlError, match="unhashable"):
        parse_yaml("? [a]\n: 1\n")


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfdata:\r\n  dataset: world\r\n")
    assert load_configuration(str(path)).data.dataset == "world"


# -- what older versions wrote -------------------------------------------------------------------------


def test_a_configuration_saved_before_checkpoints_and_trackers_loads_with_their_defaults(tmp_path):
    values = yaml.safe_load(dump_configuration(load_configuration("rgcn/lp-world")))
    del values["checkpoints"], values["trackers"], values["training"]["deterministic"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_configuration(written(tmp_path, yaml.safe_dump(values))) == load_configuration("rgcn/lp-world")


# -- showing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", builtin_configurations())
@pytest.mark.parametrize(
    "options", [{}, {"explain": True}, {"only_changed": True}, {"only_changed": True, "explain": True}]
)
def test_every_form_of_a_dump_loads_again(name, options, tmp_path):
    config = load_configuration(name, ["trackers=[mlflow]"])
    assert load_configuration(written(tmp_path, dump_configuration(config, **options))) == config


def test_an_explained_configuration_says_what_each_setting_is():
    text = dump_configuration(load_configuration("rgcn/nc-world"), explain=True)
    assert "  # Width of the hidden states between convolutions.\n  hidden: 16\n" in text


def test_differences_are_listed_in_the_order_of_the_settings():
    a = load_configuration("rgcn/nc-world", ["trackers=[mlflow]"])
    b = load_configuration("rgcn/nc-world", ["training.epochs=3", "model.decomposition=basis", "model.bases=2"])
    found = differences(a, b)
    assert [d.key for d in found] == ["model.decomposition", "model.bases", "training.epochs", "trackers"]
    assert found[1][1:] == (None, 2, True, True)
    assert differences(a, a) == []
    across = {d.key: d for d in differences(a, load_configuration("rgcn/lp-world"))}
    assert not across["model.hidden"].is_in_b
    assert not across["model.bottleneck"].is_in_a


def test_non_default_settings_include_the_task():
    config = NodeClassificationRun(data={"dataset": "world"})
    assert non_default_settings(config) == {"task": "node-classification", "data": {"dataset": "world"}}


# -- JSON Schema ---------------------------------------------------------------------------------------


def test_the_schema_distinguishes_tasks_and_describes_every_setting():
    schema = run_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    parts = schema["$defs"]
    assert [one["$ref"] for one in schema["oneOf"]] == [f"#/$defs/{run.__name__}" for run in RUNS.values()]
    assert "task" not in parts["NodeClassificationRun"]["required"]  # which a file without task is
    assert "task" in parts["LinkPredictionRun"]["required"]
    for name, part in parts.items():
        assert part["additionalProperties"] is False
        for key, setting in part["properties"].items():
            assert setting.get("description") or "$ref" in setting, f"{name}.{key}"
            assert "default" in setting or "$ref" in setting or key in ("data", "trackers"), f"{name}.{key}"
    assert parts["NodeModelConfig"]["properties"]["hidden"]["search"]["choices"] == [8, 16, 32, 64]


@pytest.mark.parametrize("task", RUNS)
def test_the_schema_of_one_task_stands_alone(task):
    schema = run_schema(task)
    assert schema["properties"]["task"]["const"] == task
    assert schema["$schema"]


def test_an_unknown_task_has_no_schema():
    with pytest.raises(UnknownNameError, match="link-prediction"):
        run_schema("link-predction")


def test_a_section_that_a_change_invented_is_shown_as_that_change():
    with pytest.raises(ConfigError, match=r"--set modl\.x=3: modl: unknown key; did you mean 'model'"):
        load_configuration("rgcn/nc-world", ["modl.x=3"])


@pytest.mark.parametrize("name", ["", "  "])
def test_a_configuration_needs_a_name(name):
    with pytest.raises(ConfigError, match="needs a name"):
        load_configuration(name)
