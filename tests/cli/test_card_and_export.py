"""`rgcn card` and `rgcn export` as a user calls them."""

import json
import shutil

import pytest
import torch
from test_report_commands import rgcn

import rgcn as library


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    done = rgcn("train", "rgcn/nc-world", "--set", "training.epochs=2", "--out", folder / "world", "-q")
    assert done.returncode == 0, done.stderr
    return folder / "world"


def test_a_card_is_printed_or_written(run, tmp_path):
    printed = rgcn("card", run)
    assert printed.returncode == 0
    assert printed.stdout.startswith("---\nlibrary_name: rgcn\n")
    assert "| test | " in printed.stdout
    written = rgcn("card", run, "--out", tmp_path / "MODEL_CARD.md")
    assert written.stdout == f"Written: {tmp_path / 'MODEL_CARD.md'}\n"
    assert (tmp_path / "MODEL_CARD.md").read_text(encoding="utf-8") == printed.stdout


def test_a_card_of_a_folder_without_a_run_is_refused(run, tmp_path):
    missing = rgcn("card", tmp_path / "none")
    assert missing.returncode == 1
    assert "there is no such folder" in missing.stderr
    folder = rgcn("card", run, "--out", tmp_path)
    assert folder.returncode == 1
    assert "is a folder; --out takes the name of a file" in folder.stderr


def test_an_encoder_is_exported_and_gives_the_models_numbers(run, tmp_path):
    path = tmp_path / "encoder.pt2"
    done = rgcn("export", run, "--out", path, "--json")
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert (about["encoder"], about["task"], about["nodes"]) == (str(path), "node-classification", 2363)
    extra = {"nodes.jsonl": "", "classes.jsonl": ""}
    program = torch.export.load(path, extra_files=extra)
    names = [json.loads(line) for line in extra["nodes.jsonl"].splitlines()]
    model = library.NodeClassifier.load(str(run / "model"))
    logits = program.module()(torch.tensor([names.index("Switzerland"), 5]))
    expected = torch.from_numpy(model.embeddings(["Switzerland", 5], layer=-1))
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    exported = rgcn("export", run, "--out", path)
    assert exported.stdout.startswith(f"Written: {path} (")
    assert "2,363 nodes; logits" in exported.stdout


@pytest.mark.parametrize(
    ("out", "words"),
    [("encoder.onnx", "use encoder.pt2"), (".", "is a folder"), ("file/encoder.pt2", "cannot write")],
)
def test_invalid_output_paths_are_refused(run, tmp_path, out, words):
    (tmp_path / "file").write_text("")
    done = rgcn("export", run, "--out", tmp_path / out)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_saved_model_can_be_exported_too_but_has_no_card(run, tmp_path):
    shutil.copytree(run / "model", tmp_path / "saved")
    assert rgcn("export", tmp_path / "saved", "--out", tmp_path / "encoder.pt2").returncode == 0
    card = rgcn("card", tmp_path / "saved")
    assert card.returncode == 1
    assert "not a run" in card.stderr
