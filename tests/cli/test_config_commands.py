"""`rgcn config` as a user calls it."""

import json
import subprocess
import sys

import yaml
from in_process import rgcn

from rgcn.runs.configuration import load_configuration


def test_show_gives_yaml_that_loads_again(tmp_path):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    whole = rgcn("config", "show", "rgcn/nc-world", "--set", "training.epochs=7", "--explain")
    assert whole.returncode == 0, whole.stderr
    (tmp_path / "runs" / "a" / "config.yaml").write_text(whole.stdout)
    expected = load_configuration("rgcn/nc-world", ["training.epochs=7"])
    changed = rgcn("config", "show", "runs/a", "--changed", cwd=tmp_path)
    assert yaml.safe_load(changed.stdout) == {
        "task": "node-classification",
        "data": {"dataset": "world"},
        "training": {"epochs": 7},
    }
    as_json = rgcn("config", "show", "runs/a", "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout) == expected.model_dump(mode="json")


def test_show_says_all_problems_without_a_traceback(tmp_path):
    (tmp_path / "mine.yaml").write_text("data:\n  dataset: world\nmodel:\n  hiden: 3\n  layers: 0\n")
    done = rgcn("config", "show", "mine.yaml", "--set", "seed=-1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "rgcn: mine.yaml: 3 problems",
        "  mine.yaml, line 4: model.hiden: unknown key; did you mean 'hidden'?",
        "  mine.yaml, line 5: model.layers: must be greater than or equal to 1 (got 0)",
        "  --set seed=-1: seed: must be greater than or equal to 0 (got -1)",
    ]


def test_flags_of_train_are_named_in_problems_before_any_data_is_read():
    done = rgcn("train", "rgcn/nc-aifb", "--device", "tpu", "--seed", "-1", "--set", "data.dataset=none-such")
    assert done.returncode == 1
    assert "  --device: training.device: unknown device 'tpu'" in done.stderr
    assert "  --seed: seed: must be" in done.stderr


def test_diff_shows_both_sides_and_never_fails_for_a_difference():
    done = rgcn("config", "diff", "rgcn/nc-aifb", "e-rgcn/nc-aifb")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["rgcn/nc-aifb", "e-rgcn/nc-aifb"],
        ["model.encoder", "rgcn", "e-rgcn"],
        ["training.weight_decay", "0.0", "0.005"],
    ]
    assert rgcn("config", "diff", "rgcn/nc-aifb", "rgcn/nc-aifb").stdout == "no difference\n"
    across = json.loads(rgcn("config", "diff", "rgcn/nc-world", "rgcn/lp-world", "--json").stdout)
    assert (across["a"], across["b"]) == ("rgcn/nc-world", "rgcn/lp-world")
    assert {"key": "model.hidden", "a": 16} in across["differences"]


def test_schema_is_one_json_document_and_its_help_says_what_for():
    assert "oneOf" in json.loads(rgcn("config", "schema").stdout)
    link = json.loads(rgcn("config", "schema", "--task", "link-prediction").stdout)
    assert link["properties"]["task"]["const"] == "link-prediction"
    assert "yaml-language-server" in rgcn("config", "schema", "--help").stdout


def test_looking_at_configurations_does_not_wait_for_pytorch():
    code = "import sys\nfrom rgcn.cli import main\ntry:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "config", "diff", "rgcn/nc-aifb", "rgcn/nc-am"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
