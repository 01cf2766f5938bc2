"""Test commands for a graph instead of a run: the pretrained model answers without training."""

from __future__ import annotations

import json
import math
import random

import httpx
import pytest
from in_process import rgcn

FAST_OPTIONS = ("--edges", 3, "--draws", 2)
EX = "http://example.org/"
BANNER = "the pretrained model, over {} ({}); nothing was trained\n"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Return a folder with the data of a user: a table with labels, RDF, and a folder of splits."""
    folder = tmp_path_factory.mktemp("stranger")
    rows = [f"p{i},works_for,c{i % 3}\np{i},lives_in,t{i % 3}\n" for i in range(12)]
    (folder / "mine.csv").write_text("".join(rows))
    (folder / "people.csv").write_text("node,label\np0,x\np1,y\np2,x\n")
    lines = [f"<{EX}p{i}> <{EX}worksFor> <{EX}c{i % 3}> .\n<{EX}p{i}> <{EX}near> <{EX}p{i + 1}> .\n" for i in range(9)]
    (folder / "mine.nt").write_text("".join(lines))
    (folder / "mine").mkdir()
    for split, part in (("train", rows[:9]), ("test", ["p0,works_for,c1\n"])):
        (folder / "mine" / f"{split}.csv").write_text("".join(part))
    return folder


def refused(done, *words):
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert [word for word in words if word not in done.stderr] == []


def test_links_of_a_graph_file_are_predicted(here):
    done = rgcn("predict", "mine.csv", "--subject", "p1", "--relation", "works_for", "-k", 3, cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stderr == BANNER.format("mine.csv", "24 triples")
    assert "works_for" in done.stdout
    done = rgcn("predict", "mine.csv", "--subject", "p1", "--relation", "works_for", "--json", cwd=here)
    answer = json.loads(done.stdout)
    assert (answer["graph"], answer["task"], done.stderr) == ("mine.csv", "link-prediction", "")
    assert "run" not in answer


def test_classes_of_unlabeled_nodes_are_predicted(here):
    done = rgcn("predict", "mine.csv", "--labels", "people.csv", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert [row["node"] for row in json.loads(done.stdout)["predictions"]] == [f"p{i}" for i in range(3, 12)]
    done = rgcn("predict", "mine.csv", "--data", "labels=people.csv", "--node", "p0", "--json", cwd=here)
    assert json.loads(done.stdout)["predictions"][0]["label"] == "x"
    refused(rgcn("predict", "mine.csv", cwd=here), "has no labels", "--labels FILE", "--subject")
    refused(rgcn("predict", "mine.csv", "--classes", "--subject", "p1", cwd=here), "not both")
    refused(rgcn("predict", "mine.csv", "--data", "labels", cwd=here), "KEY=VALUE")
    refused(rgcn("predict", "mine.csv", "--data", "colunms=[0, 1, 2]", cwd=here), "columns")


def test_classes_from_a_relation_of_the_graph(here):
    label_rows = "".join(f"p{i},kind,k{i % 2}\n" for i in range(6))
    (here / "told.csv").write_text((here / "mine.csv").read_text() + label_rows)
    for labels in (("--labels-from", "kind"), ("--data", "labels_from=kind")):
        done = rgcn("predict", "told.csv", *labels, "--node", "p8", "--json", cwd=here)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["predictions"][0]["class"] in ("k0", "k1")
    done = rgcn("explain", "told.csv", "p8", "--labels-from", "kind", "--json", *FAST_OPTIONS, cwd=here)
    assert json.loads(done.stdout)["question"]["kind"] == "class"
    done = rgcn("evaluate", "told.csv", "--labels-from", "kind", cwd=here)
    assert "class" in done.stdout or "accuracy" in done.stdout, done.stderr
    both = ("--labels-from", "kind", "--data", "labels_from=kind")
    refused(rgcn("predict", "told.csv", *both, cwd=here), "--labels-from and --data labels_from=kind", "leave one out")
    refused(rgcn("predict", "told.csv", "--labels-from", "kin", cwd=here), "kind")
    files = ("--labels-from", "kind", "--labels", "people.csv")
    refused(rgcn("predict", "told.csv", *files, cwd=here), "remove one of the two")
    refused(rgcn("predict", "mine.csv", cwd=here), "--labels-from RELATION")


def test_labels_of_unknown_nodes_are_skipped_with_the_option(here):
    (here / "strangers.csv").write_text((here / "people.csv").read_text() + "ghost,y\nphantom,x\n")
    ask = ("predict", "mine.csv", "--labels", "strangers.csv")
    refused(rgcn(*ask, cwd=here), "2 labeled nodes are not in the graph", "--skip-unknown")
    done = rgcn(*ask, "--skip-unknown", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "skipped 2 labels of nodes that are not in the graph" in done.stderr
    assert "p3" in done.stdout
    added = rgcn(*ask, "--skip-unknown", "--data", "missing_labels=add", "--node", "ghost", cwd=here)
    assert added.returncode == 0, added.stderr
    assert rgcn("predict", "mine.csv", "--labels", "people.csv", "--skip-unknown", "-q", cwd=here).stderr == ""


def test_a_completion_writes_only_its_output_file(here):
    command = ("complete", "mine.nt", "--relation", "worksFor")
    done = rgcn(*command, "--minutes", 5, "--out", "new.nt", cwd=here)
    assert done.returncode == 0, done.stderr
    assert f"<{EX}worksFor>" in (here / "new.nt").read_text()
    done = rgcn(*command, "--json", cwd=here)
    assert json.loads(done.stdout)["graph"] == "mine.nt"
    assert rgcn("complete", "mine", "--quiet", cwd=here).returncode == 0
    assert sorted(path.name for path in (here / "mine").iterdir()) == ["test.csv", "train.csv"]
    assert not list(here.glob("*unfinished*")) + list(here.glob("calibration*"))


def test_explanations_of_links_and_classes(here):
    done = rgcn(
        "explain", "mine.nt", "--subject", "p1", "--relation", "worksFor", "--object", "c1", *FAST_OPTIONS, cwd=here
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Why p1 —worksFor→ c1?")
    done = rgcn("explain", "mine.csv", "p4", "--labels", "people.csv", "--json", *FAST_OPTIONS, cwd=here)
    assert json.loads(done.stdout)["question"]["kind"] == "class"


def test_the_order_of_the_rows_changes_no_answer(tmp_path):
    """The graph has more triples than the calibration uses, and leaves that cannot be distinguished."""
    rows = [f"p{i},likes,p{(5 * i + j) % 150}\n" for i in range(150) for j in range(1, 4)]
    rows += [f"p0,has,leaf{i}\n" for i in range(60)]
    tables = []
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        path.write_text("".join(rows))
        random.Random(1).shuffle(rows)
        answers = []
        for question in (("p7", "likes"), ("p3", "has"), ("p0", "has")):
            done = rgcn("predict", path, "--subject", question[0], "--relation", question[1], "--json", "-k", 20)
            assert done.returncode == 0, done.stderr
            answers += json.loads(done.stdout)["answers"]
        tables.append(answers)
    assert [row["object"] for row in tables[0]] == [row["object"] for row in tables[1]]
    for name in ("score", "probability"):
        first, second = ([math.nan if row[name] is None else row[name] for row in rows] for rows in tables)
        assert first == pytest.approx(second, rel=1e-4, abs=1e-5, nan_ok=True)


def test_evaluation_of_the_pretrained_model(here):
    done = rgcn("evaluate", "mine", "--split", "test", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["graph"], found["split"], found["metrics"]["count"]) == ("mine", "test", 2)
    assert "hits@10_of_50" in found["metrics"]
    labels = ("--labels", "train=people.csv", "--labels", "test=more.csv")
    (here / "more.csv").write_text("node,label\np3,x\np4,y\n")
    done = rgcn("evaluate", "mine.csv", *labels, cwd=here)
    assert "of 2 nodes" in done.stdout, done.stderr
    done = rgcn("evaluate", "mine.csv", "--json", cwd=here)
    assert "have no splits: 10% are held out for test" in done.stderr
    assert json.loads(done.stdout)["metrics"]["count"] >= 2
    assert "of 1 node" in rgcn("evaluate", "mine.csv", "--labels", "people.csv", cwd=here).stdout
    refused(rgcn("evaluate", "mine", "--split", "tset", cwd=here), "unknown split 'tset'")
    refused(rgcn("evaluate", "mine", "--on", "world", cwd=here), "rgcn evaluate world")


def test_relation_vectors_exist_and_node_vectors_do_not(here):
    done = rgcn("embed", "mine.csv", "--relations", "relations.csv", cwd=here)
    assert "relations.csv (2 rows)" in done.stdout, done.stderr
    refused(rgcn("embed", "mine.csv", "--out", "nodes.csv", cwd=here), "no node vectors")


@pytest.mark.parametrize("command", [["report"], ["card"], ["resume"], ["export", "--out", "e.pt2"]])
def test_commands_that_need_a_run_say_what_to_do(here, command):
    refused(rgcn(*command, "mine.csv", cwd=here), "mine.csv: not a run", "rgcn runs", "rgcn train")
    refused(rgcn(*command, "mine", cwd=here), "mine: not a run (it has no run.json)", "rgcn train")
    refused(rgcn(*command, "world", cwd=here), "a data set, but a run is needed", "rgcn train")


def test_the_explorer_says_that_nothing_was_trained(here, monkeypatch):
    import asyncio

    from rgcn.serve import create_app, load_models, model_summary

    monkeypatch.chdir(here)
    models = load_models(["mine.nt"], device="cpu")
    about = model_summary(models[0])
    assert (about.name, about.dataset, about.headline) == ("mine.nt", "mine.nt", "pretrained, not trained here")
    assert about.model == "the pretrained model"

    async def fetch(path):
        transport = httpx.ASGITransport(create_app(models))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path)

    answer = asyncio.run(fetch("/api/models/mine.nt/links?subject=p1&relation=worksFor&k=2"))
    assert len(answer.json()["links"]) == 2, answer.text
    assert "which it was not trained on" in asyncio.run(fetch("/api/models/mine.nt/card")).text


def test_a_plain_table_is_queried_and_trained_on(tmp_path):
    rows = [f"p{i};c{(i + more) % 3};brick:feeds\n" for i in range(12) for more in range(1 + i % 2)]
    (tmp_path / "mine.csv").write_text("\ufeffSource;Target;Type\n" + "".join(rows))
    ask = ("--subject", "P1", "--relation", "feeds", "--json")
    done = rgcn("predict", "mine.csv", *ask, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["answers"]
    known = [row["object"] for row in rows if row["known"]]
    assert sorted(known) == ["c1", "c2"]
    done = rgcn(
        *("train", "mine.csv", "--set", "model.name=universal", "--set", "training.steps=1", "--quiet"),
        *("--set", "data.split=null"),  # each triple is the only one of some node
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    done = rgcn("predict", "runs/mine", *ask, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["run"]) == (0, "runs/mine")


@pytest.mark.filterwarnings("always::UserWarning")
def test_a_doubtful_header_is_reported_and_an_option_decides(tmp_path):
    (tmp_path / "mine.csv").write_text("gene,action,illness\n" + "".join(f"g{i},causes,i{i % 3}\n" for i in range(9)))
    command = ("predict", "mine.csv", "--subject", "g1", "--relation", "causes")
    done = rgcn(*command, cwd=tmp_path)
    assert done.returncode == 1
    assert "as triples: gene —action→ illness; g0 —causes→ i0;" in done.stderr
    assert "as a table: g0: action causes, illness i0;" in done.stderr
    assert "--data 'columns=[0, 1, 2]'" in done.stderr
    assert "--data header=true" in done.stderr
    for data_options, triples in (
        (["header=true"], 9),
        (["header=false"], 10),
        (["columns=[0, 1, 2]", "header=true"], 9),
        (["columns=[gene, action, illness]"], 9),
    ):
        done = rgcn(*command, *(part for one in data_options for part in ("--data", one)), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"({triples} triples)" in done.stderr
        assert "may be a header" not in done.stderr
    done = rgcn(*command, "--data", "columns=[0, 1, 2]", cwd=tmp_path)
    assert "(10 triples)" in done.stderr
    assert "(gene, action, illness) may be a header" in done.stderr
