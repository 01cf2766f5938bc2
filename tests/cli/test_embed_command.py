"""`rgcn embed` as a user calls it."""

import json

import numpy as np
import polars as pl
import pytest
import yaml
from in_process import rgcn


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run of each task."""
    folder = tmp_path_factory.mktemp("runs")
    people = [f"p{i}" for i in range(20)]
    (folder / "graph.tsv").write_text("".join(f"{p}\treads\tbook{i % 2}\n" for i, p in enumerate(people)))
    for split, some in (("train", people[:14]), ("test", people[14:])):
        (folder / f"{split}.tsv").write_text("".join(f"{p}\tclass{int(p[1:]) % 2}\n" for p in some))
    labels = {split: str(folder / f"{split}.tsv") for split in ("train", "test")}
    data = {"path": str(folder / "graph.tsv"), "split": None}
    tasks = {
        "classes": {"data": {**data, "labels": labels}, "training": {"epochs": 3}},
        "links": {"task": "link-prediction", "data": data, "model": {"name": "distmult"}, "training": {"steps": 2}},
    }
    for name, config in tasks.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
        done = rgcn("train", folder / f"{name}.yaml", "--out", folder / name, "-q")
        assert done.returncode == 0, done.stderr
    return folder


def test_vectors_relations_and_page_in_one_command(folder):
    files = ["--out", "nodes.parquet", "--relations", "relations.csv", "--plot", "map.html"]
    done = rgcn("embed", "classes", *files, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written: ") == 3
    table = pl.read_parquet(folder / "nodes.parquet")
    assert len(table) == 22
    assert table["class"].to_list()[0] == "class0"
    assert pl.read_csv(folder / "relations.csv")["name"].to_list() == ["reads", "reads"]
    assert (folder / "map.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_page_alone_the_same_bytes_for_the_same_seed(folder):
    pages = []
    for name in ("one.html", "two.html"):
        done = rgcn("embed", "links", "--plot", name, "--seed", 7, cwd=folder)
        assert done.returncode == 0, done.stderr
        pages.append((folder / name).read_bytes())
    assert pages[0] == pages[1]


def test_json_is_all_there_is_on_standard_output(folder):
    done = rgcn("embed", "classes", "--plot", "m.html", "--map", "pca", "--most", 21, "--json", cwd=folder)
    result = json.loads(done.stdout)
    assert (result["nodes"], result["width"], result["files"]) == (22, 16, {"plot": "m.html"})
    assert (result["map"]["nodes"], result["map"]["candidates"], result["map"]["method"]) == (21, 22, "pca")
    assert done.stderr == ""


def test_some_nodes_by_name_in_their_order_each_once(folder):
    (folder / "people.txt").write_text("p3\n\nBOOK1\np3\n")
    done = rgcn("embed", "links", "--nodes", "people.txt", "--out", "some.npz", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = np.load(folder / "some.npz", allow_pickle=False)
    assert json.loads(found["table.json"])["name"] == ["p3", "book1"]
    assert found["vectors"].shape[0] == 2


def test_unknown_names_are_an_error_unless_they_are_skipped(folder):
    (folder / "odd.txt").write_text("p3\nbok1\n")
    done = rgcn("embed", "links", "--nodes", "odd.txt", "--out", "odd.csv", cwd=folder)
    assert done.returncode == 1
    assert "line 2" in done.stderr
    assert "book1" in done.stderr
    assert not (folder / "odd.csv").exists()
    done = rgcn("embed", "links", "--nodes", "odd.txt", "--out", "odd.csv", "--skip-unknown", cwd=folder)
    assert done.returncode == 0
    assert "1 unknown name left out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to write"),
        (["--out", "nodes.xls"], ".parquet, .csv, .jsonl, .npz"),
        (["--relations", "relations"], "--relations relations"),
        (["--plot", "map.png"], "a name in .html"),
        (["--out", "a.csv", "--relations", "a.csv"], "the same file twice"),
        (["--out", "a.csv", "--layer", "5"], "the network has 2 layers"),
        (["--out", "a.csv", "--plot", "a.html", "--split", "valid"], "it has train, test"),
    ],
)
def test_impossible_options_are_reported_before_anything_is_written(folder, arguments, words):
    before = sorted(folder.iterdir())
    done = rgcn("embed", "classes", *arguments, cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("rgcn: ")
    assert words in done.stderr
    assert done.stdout == ""
    assert sorted(folder.iterdir()) == before


def test_a_split_is_refused_for_a_run_without_classes(folder):
    for files in (["--plot", "s.html"], ["--out", "s.csv"]):
        done = rgcn("embed", "links", *files, "--split", "test", cwd=folder)
        assert done.returncode == 1
        assert done.stderr.startswith("rgcn: --split is for classifiers, and links ")
        assert not (folder / files[1]).exists()


def test_the_map_has_no_more_nodes_than_asked_for(folder):
    done = rgcn("embed", "classes", "--plot", "few.html", "--map", "pca", "--most", 5, "--json", cwd=folder)
    assert json.loads(done.stdout)["map"]["nodes"] == 5


def test_a_folder_without_a_run_is_refused(folder, tmp_path):
    done = rgcn("embed", tmp_path, "--plot", "map.html", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
