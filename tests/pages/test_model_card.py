"""A model card agrees with the files of the run, escapes names, and contains no path of this machine."""

import json
import shutil

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

import rgcn
from rgcn.config import LinkPredictionRun, NodeClassificationRun
from rgcn.errors import DataError
from rgcn.models.task import RANKING
from rgcn.pages.layout import markdown_text
from rgcn.pages.run_report import model_card
from rgcn.runs import RunFolder, train

HOSTILE = "x|y **bold** [link](http://evil.example) <script>alert(1)</script>\n# heading `code` www.evil.example @all"


@pytest.fixture(scope="module")
def node_run(tmp_path_factory):
    people = [f"p{i}" for i in range(40)]
    graph = rgcn.KnowledgeGraph.from_triples([(p, "reads", f"book{i % 4 == 0}") for i, p in enumerate(people)])
    classes = {p: HOSTILE if i % 4 == 0 else "http://example.org/classes#two" for i, p in enumerate(people)}
    splits = {"train": people[:20], "valid": people[20:30], "test": people[30:]}
    graph = graph.with_labels({split: {p: classes[p] for p in some} for split, some in splits.items()})
    folder = tmp_path_factory.mktemp("runs") / "read_ers"
    config = NodeClassificationRun(
        data={"path": "/secret/place/gr*aph.tsv"}, model={"hidden": 4}, training={"epochs": 5, "device": "cpu"}
    )
    train(config, graph, folder)
    return folder


@pytest.fixture(scope="module")
def link_run(tmp_path_factory):
    names = [f"n{i}" for i in range(20)]
    triples = [(names[i % 20], f"r{i % 3}", names[(i * 7 + 1) % 20]) for i in range(60)]
    triples += [(o, r, s) for s, r, o in triples[48:]]  # what is held out, the other way around, to learn from
    splits = np.array([0] * 48 + [1] * 6 + [2] * 6 + [0] * 12, dtype=np.int8)
    graph = rgcn.KnowledgeGraph.from_triples(triples, triple_splits=splits)
    folder = tmp_path_factory.mktemp("runs") / "links"
    model = {"encoder": "none", "embedding": 8}
    config = LinkPredictionRun(data={"dataset": "wn18"}, model=model, training={"steps": 3, "device": "cpu"}, seed=7)
    train(config, graph, folder)
    return folder


def parts(card):
    """(front matter, {heading: HTML of the section})"""
    _, front, body = card.split("---\n", 2)
    html = MarkdownIt("gfm-like", {"linkify": False}).render(body)
    headings = [piece.split("</h2>\n") for piece in html.split("<h2>")[1:]]
    return yaml.safe_load(front), dict(headings)


def rows(html):
    """The cells of a table."""
    return [[cell.split(">", 1)[1].split("<")[0] for cell in row.split("<td")[1:]] for row in html.split("<tr>")[2:]]


def test_metrics_are_those_that_the_run_stored(node_run):
    front, sections = parts(model_card(RunFolder(node_run)))
    metrics = json.loads((node_run / "result.json").read_text())["metrics"]
    table = rows(sections["Results"])
    assert [row[0] for row in table] == ["training", "validation", "test"]
    assert [row[1] for row in table] == [
        f"{100 * metrics[split]['accuracy']:.1f} %" for split in ("train", "valid", "test")
    ]
    # always predicting the more frequent class is right for the three quarters that belong to it
    assert [row[2:] for row in table] == [["75.0 %", "20"], ["70.0 %", "10"], ["80.0 %", "10"]]
    found = front["model-index"][0]["results"][0]["metrics"]
    assert found == [{"type": "accuracy", "value": round(metrics["test"]["accuracy"], 4), "name": "test accuracy"}]
    assert front["library_name"] == "rgcn"
    assert front["tags"] == ["rgcn", "node-classification", "knowledge-graph"]


def test_it_has_every_section_and_says_how_it_was_made(node_run):
    card = model_card(RunFolder(node_run))
    _, sections = parts(card)
    assert list(sections) == [
        "What it is",
        "What it is for",
        "What it cannot do",
        "Data",
        "Training",
        "Results",
        "Read with care",
        "How to use it",
        "How to cite it",
    ]
    about = json.loads((node_run / "run.json").read_text())
    assert "40 nodes" not in sections["Data"]
    assert "42 nodes, 1 relation, 40 triples" in sections["Data"]
    assert about["data"]["fingerprint"] in sections["Data"]
    assert "training 20, validation 10, test 10" in sections["Data"]
    assert "model.hidden: 4\ntraining.epochs: 5" in sections["Training"]
    assert "Seed: 0" in sections["Training"]
    assert f"torch {rgcn.runs.folder.environment()['versions']['torch']}" in sections["Training"]
    assert "a row for every (relation, node)" in sections["What it cannot do"]
    assert "rgcn predict RUN --nodes" in sections["How to use it"]
    assert "10 test nodes: one node is 10.0 points" in sections["Read with care"]
    assert "not known to rgcn" in sections["Data"]


def test_names_are_escaped_as_text(node_run):
    card = model_card(RunFolder(node_run))
    _, sections = parts(card)
    uses = sections["What it is for"]
    shown = " ".join(HOSTILE.split())[:63]
    assert shown.replace("<", "&lt;").replace(">", "&gt;") in uses
    assert not any(tag in uses for tag in ("<strong>", "<a ", "<script>", "<h1>", "<code>"))
    assert "gr*aph.tsv" in sections["Data"]
    assert "/secret" not in card
    assert str(node_run.parent) not in card
    assert "read_ers" in sections["How to cite it"]


@pytest.mark.parametrize("name", ["*a*", "_a_", "`a`", "[a](b)", "<b>", "a|b", "# a", "~~a~~", "$a$", "\\*a*", "&lt;"])
def test_any_name_is_read_as_it_is(name):
    html = MarkdownIt("gfm-like", {"linkify": False}).render(f"- name: {markdown_text(name)}\n")
    plain = html.replace("<ul>", "").replace("<li>", "").replace("</li>", "").replace("</ul>", "").strip()
    assert plain == "name: " + name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def test_a_link_predictor_is_compared_with_random_choice(link_run):
    front, sections = parts(model_card(RunFolder(link_run)))
    metrics = json.loads((link_run / "result.json").read_text())["metrics"]
    table = rows(sections["Results"])
    assert [row[0] for row in table] == ["validation", "test", "at random"]
    test = metrics["test"]
    assert table[1] == [
        "test",
        f"{test['mrr']:.3f}",
        *(f"{100 * test[name]:.1f} %" for name in ("hits@1", "hits@3", "hits@10")),
        RANKING[-1].format(test["mean_rank"]),
        "12",
    ]
    expected = np.mean(1 / np.arange(1, 21))
    assert table[2] == ["at random", f"{expected:.2g}", "5.0 %", "15.0 %", "50.0 %", "10.5", ""]
    assert {figure["type"] for figure in front["model-index"][0]["results"][0]["metrics"]} >= {"mrr", "hits@10"}
    assert "WordNet 3.0 license" in sections["Data"]
    assert "Seed: 7" in sections["Training"]
    assert "passes no messages" in sections["What it cannot do"]
    assert "ignores a relation's direction" in sections["What it cannot do"]
    assert "100% of these triples, a training triple links the same two nodes" in sections["Read with care"]
    assert "rgcn complete RUN" in sections["How to use it"]


def test_a_given_model_is_not_loaded_again(node_run, tmp_path):
    run = tmp_path / "read_ers"
    shutil.copytree(node_run, run)
    model = rgcn.NodeClassifier.load(str(run / "model"))
    shutil.rmtree(run / "model")
    assert model_card(RunFolder(run), model) == model_card(RunFolder(node_run))
    without = model_card(RunFolder(run))
    assert "missing or damaged" in without
    assert str(tmp_path) not in without
    assert rows(parts(without)[1]["Results"])[2][0] == "test"


def test_an_unfinished_run_says_so(node_run, tmp_path):
    run = tmp_path / "half"
    shutil.copytree(node_run, run)
    (run / "result.json").unlink()
    shutil.rmtree(run / "model")
    card = model_card(RunFolder(run))
    front, sections = parts(card)
    assert "model-index" not in front
    assert "not finished" in card
    assert "So far the lowest validation loss is" in sections["Results"]
    assert "this card shows its current state" in sections["Read with care"]
    with pytest.raises(DataError, match="there is no such folder"):
        model_card(RunFolder(tmp_path / "none"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            '{"fitted": true, "words": "T = 1.3 from 10 *nodes*."}',
            "T = 1.3 from 10 *nodes*.",
        ),
        ('{"fitted": false, "words": "Too few."}', "Too few."),
        ("{}", None),
        ("[1]", None),
        ("no json", None),
    ],
)
def test_calibration_is_shown_if_it_is_known(node_run, tmp_path, content, expected):
    run = tmp_path / "run"
    shutil.copytree(node_run, run)
    (run / "calibration.json").write_text(content)
    _, sections = parts(model_card(RunFolder(run)))
    if expected is None:
        assert "Calibration" not in sections
    else:
        assert expected in sections["Calibration"]
