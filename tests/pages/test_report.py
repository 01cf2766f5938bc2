"""Test reports of runs: complete, well-formed, self-contained, and safe for hostile names."""

import dataclasses
import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import rgcn
from rgcn.cli.output import ClassOutcome
from rgcn.config import LinkPredictionRun, NodeClassificationRun
from rgcn.data import wordnet
from rgcn.data.wordnet import ExternalNames
from rgcn.errors import DataError
from rgcn.graph import NodeKind
from rgcn.graph.titles import short_name
from rgcn.links.ranking import summarize
from rgcn.models.task import task_of
from rgcn.pages import PageParts, PageSection, make_report, page, save_page
from rgcn.pages.charts import (
    Bar,
    Mark,
    Series,
    bar_chart,
    column_chart,
    heat_map,
    line_chart,
    nice_ticks,
    thin_out,
)
from rgcn.pages.layout import name_markup
from rgcn.pages.link_report import evaluate_links
from rgcn.pages.node_report import class_metrics, evaluate_nodes
from rgcn.runs import RunFolder, dump_configuration, load_configuration, load_data, train
from rgcn.runs.assembly import load_trained
from written_runs import about_run

VOID = {"meta", "br", "wbr", "hr", "col"}


class Checker(HTMLParser):
    """Records every element, and raises an error for unbalanced tags."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.attributes, self.tags, self.words = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> where {self.open[-3:]} are open")
        else:
            self.open.pop()

    def handle_data(self, text):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(text)


def checked(text):
    """Parse the page; check that it is complete and loads nothing."""
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.problems == []
    assert checker.open == []
    assert checker.tags.count("script") == 1
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(checker.tags)
    for element, name, value in checker.attributes:
        assert not name.startswith("on"), (element, name)
        if name in ("src", "srcset", "action", "data") or (
            name in ("href", "xlink:href") and not value.startswith("#")
        ):
            raise AssertionError(f"<{element} {name}={value}> leads outside")
        if name == "style":
            assert "url(" not in value
    assert "url(" not in text
    assert "@import" not in text
    return checker


def words(text):
    return " ".join("".join(checked(text).words).split())


def keep(folder, config, model=None, metrics=(), result=None, sessions=None, environment=()):
    """Write a run folder as a training does."""
    folder.mkdir(parents=True)
    fingerprint = "f" * 64 if model is None else model.graph_.fingerprint
    about = about_run(config, {"fingerprint": fingerprint}, sessions or [])
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "config.yaml").write_text(dump_configuration(config), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(list(environment)))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    if model is not None:
        model.save(str(folder / "model"))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


HOSTILE = [
    "<script>alert(1)</script>",
    "http://example.org/" + "very-long-" * 60 + "name",
    "שלום עולם",
    "‮abc \"quoted\" 'single' & <b>",
    "line\nbreak\ttab\x00null",
]


def node_graph():
    """Return twelve people in two classes, which read different books; some names contain HTML."""
    people = [*HOSTILE, *(f"p{i}" for i in range(7))]
    triples = [(person, "reads<i>", f"book{i % 2}") for i, person in enumerate(people)]
    classes = {person: ["<em>one</em>", "http://example.org/classes#two"][i % 2] for i, person in enumerate(people)}
    graph = rgcn.KnowledgeGraph.from_triples(triples)
    held_out = people[:6]
    return graph.with_labels(
        {
            "train": {p: c for p, c in classes.items() if p not in held_out},
            "valid": {p: classes[p] for p in held_out[5:]},
            "test": {p: classes[p] for p in held_out[:5]},
        }
    )


def node_config(**training):
    return NodeClassificationRun(data={"path": "<graph>.tsv"}, training={"epochs": 4, "device": "cpu", **training})


@pytest.fixture(scope="module")
def classifier():
    return rgcn.NodeClassifier(epochs=4, device="cpu", seed=0).fit(node_graph())


@pytest.fixture(scope="module")
def predictor():
    """Sixty triples over HOSTILE and other names, half a dozen of them held out."""
    names = [*HOSTILE, *(f"n{i}" for i in range(15))]
    triples = [(names[i % 20], f"r{i % 3}", names[(i * 7 + 1) % 20]) for i in range(60)]
    splits = np.array([0] * 48 + [1] * 6 + [2] * 6, dtype=np.int8)
    graph = rgcn.KnowledgeGraph.from_triples(triples, triple_splits=splits)
    return rgcn.LinkPredictor(encoder="none", embedding=8, steps=3, device="cpu", seed=0).fit(graph)


def link_config():
    model = {"name": "distmult", "embedding": 8}
    return LinkPredictionRun(data={"path": "g.tsv"}, model=model, training={"steps": 3, "device": "cpu"})


NODE_METRICS = [
    {
        "number": i,
        "loss": 1 / i,
        "train_accuracy": 0.5,
        "valid_loss": abs(i - 3) + 0.1,
        "valid_accuracy": 0.5,
        "seconds": 0.1 * i,
    }
    for i in range(1, 5)
]
NODE_RESULT = {"epochs": 4, "parameters": 99, "stored_parameters": 9, "seconds": 1.5, "metrics": {}}
SESSIONS = [
    {
        "began": "2026-11-15T12:00:00Z",
        "ended": "2026-11-15T12:00:10Z",
        "outcome": "interrupted",
        "from_step": 0,
        "to_step": 2,
    },
    {
        "began": "2026-11-15T13:00:00Z",
        "ended": "2026-11-15T13:00:20Z",
        "outcome": "finished",
        "from_step": 2,
        "to_step": 4,
    },
]


@pytest.fixture
def node_run(tmp_path, classifier):
    return keep(tmp_path / "run", node_config(), classifier, NODE_METRICS, NODE_RESULT, SESSIONS)


# -- whole pages -------------------------------------------------------------------------------------------


def test_a_report_of_node_classification_has_every_section(node_run):
    report = make_report(node_run)
    text = words(report.html)
    sections = node_config().model_dump().values()
    # The task is not a setting that can differ.
    settings = sum(len(values) if isinstance(values, dict) else 1 for values in sections) - 1
    for expected in (
        "test accuracy",
        "baseline",
        "Learning curves",
        "best validation: 0.100 at epoch 3",
        "resumed at 2",
        "Confusion matrix",
        "precision",
        "Least certain",
        "Parameters as the paper counts",
        "one seed (0)",
        "5 test nodes: one node is 20.0 points",
        f"All {settings} settings",
        "interrupted",
        "1.5 s, in all sessions",
    ):
        assert expected in text, expected
    measured = report.values["measured"]
    assert (measured["split"], measured["count"]) == ("test", 5)
    assert sum(map(sum, measured["confusion"])) == 5
    json.dumps(report.values)


def test_names_from_the_data_stay_text(node_run):
    report = make_report(node_run)
    checker = checked(report.html)
    assert "em" not in checker.tags
    assert "i" not in checker.tags
    assert "<script>alert" not in report.html
    assert "&lt;script&gt;alert(1)&lt;/" in report.html
    assert "\x00" not in report.html
    shown = " ".join(checker.words)
    assert "שלום עולם" in shown
    assert "very-long-" * 20 not in shown  # cut short; the whole name is in a title
    assert any(
        name == "title" and value.startswith("http://example.org/very-long-") for _, name, value in checker.attributes
    )


def test_only_the_pages_own_script_may_run():
    text = page("A page", PageParts([PageSection("One", "An explanation.", "content")]))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in html.unescape(policy[1])
    assert "sha256-" in policy[1]


def test_a_report_of_link_prediction_has_every_section(tmp_path, predictor):
    metrics = [{"number": i, "loss": 1 / i, "valid_mrr": 0.2 if i == 3 else None, "seconds": i} for i in (1, 2, 3)]
    result = {"epochs": 3, "parameters": 9, "stored_parameters": 9, "seconds": 1.0, "metrics": {"test": {"mrr": 0.999}}}
    run = keep(tmp_path / "run", link_config(), predictor, metrics, result)
    calls = []
    report = make_report(run, on_progress=lambda done, total: calls.append((done, total)))
    text = words(report.html)
    for expected in (
        "test MRR",
        "which object?",
        "Metrics per relation",
        "Relation profiles",
        "never itself",
        "Example triples",
        "They should be equal",
        "No probabilities, only scores: 6 validation triples are too few",
    ):
        assert expected in text, expected
    assert calls[-1] == (12, 12)  # two questions per triple
    valid = make_report(run, "valid")
    assert valid.values["measured"]["split"] == "valid"
    assert "they are optimistic" in words(valid.html)


def test_hundreds_of_relations_are_cut_to_the_best_and_worst(tmp_path):
    triples = [(f"n{i % 40}", f"r{i % 60}", f"n{(i // 60 + i + 1) % 40}") for i in range(600)]
    splits = np.array([0] * 300 + [2] * 300, dtype=np.int8)
    graph = rgcn.KnowledgeGraph.from_triples(triples, triple_splits=splits)
    model = rgcn.LinkPredictor(encoder="none", embedding=4, steps=1, device="cpu").fit(graph)
    result = {"epochs": 1, "parameters": 9, "stored_parameters": 9, "seconds": 1.0, "metrics": {}}
    text = words(make_report(keep(tmp_path / "run", link_config(), model, result=result)).html)
    assert "The best 10" in text
    assert "The worst 10" in text
    assert "All 60 relations" in text


@pytest.mark.parametrize("metrics", [[], NODE_METRICS[:1], NODE_METRICS])
def test_a_report_of_an_unfinished_run_shows_the_available_data(tmp_path, metrics):
    sessions = [{**SESSIONS[0], "to_step": None}]
    run = keep(tmp_path / "run", node_config(), metrics=metrics, sessions=sessions)
    report = make_report(run)
    text = words(report.html)
    assert "not finished" in text
    assert "has no checkpoint yet" in text
    assert report.values["measured"] is None
    if not metrics:
        assert "Nothing has been reported yet" in text


def test_the_time_is_that_of_all_sessions_also_of_those_that_were_killed(tmp_path, classifier):
    killed = {**SESSIONS[0], "ended": None, "outcome": None, "to_step": None}
    last = {**SESSIONS[1], "ended": SESSIONS[1]["began"]}  # resumed with nothing left to do
    run = keep(
        tmp_path / "run", node_config(), classifier, NODE_METRICS, {**NODE_RESULT, "seconds": 2.741}, [killed, last]
    )
    report = make_report(run)
    assert report.values["seconds"] == 2.741
    assert "2.74 s, in all sessions" in words(report.html)
    assert "killed" in words(report.html)


def test_the_time_of_a_run_that_is_not_finished_is_that_of_its_reports(tmp_path):
    killed = {**SESSIONS[0], "ended": None, "outcome": None, "to_step": None}
    nodes = keep(tmp_path / "nodes", node_config(), metrics=NODE_METRICS, sessions=[killed])
    assert make_report(nodes).values["seconds"] == pytest.approx(0.4)  # the last epoch is the last report
    metrics = [{"number": i, "loss": 1 / i, "valid_mrr": None, "seconds": 1.5 * i} for i in (1, 2)]
    links = keep(tmp_path / "links", link_config(), metrics=metrics, sessions=[killed])
    assert make_report(links).values["seconds"] == 3.0
    assert make_report(keep(tmp_path / "none", link_config())).values["seconds"] is None


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    """Return a run without its result, as if it had been killed after its last checkpoint."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    changes = ["model.name=distmult", "model.embedding=4", "training.steps=2", "checkpoints.every_steps=1"]
    config = load_configuration("rgcn/lp-world", [*changes, "training.device=cpu", "training.evaluate_every=null"])
    train(config, load_data(config.data), folder)
    (folder / "result.json").unlink()
    return folder


def test_a_run_that_is_not_finished_is_measured_on_validation_data_only(cut_off):
    report = make_report(cut_off)
    assert report.values["measured"]["split"] == "valid"
    text = words(report.html)
    assert "validation MRR" in text
    assert "The test split was not read" in text
    assert "known to be true (in training or validation)" in text
    model = load_trained(RunFolder(cut_off))
    ranks = model.ranks(split="valid", known=("train", "valid"))
    assert report.values["measured"]["mrr"] == summarize(ranks).both.mrr
    with pytest.raises(DataError, match="test split is read once, at the end"):
        make_report(cut_off, "test")


def test_a_report_without_its_model_still_has_the_rest(node_run):
    shutil.rmtree(node_run / "model")
    report = make_report(node_run)
    assert report.values["measured"] is None
    assert "The model was not measured" in words(report.html)
    with pytest.raises(DataError, match="nothing to measure in split 'test'"):
        make_report(node_run, "test")


def test_settings_are_shown_as_in_a_file(tmp_path):
    text = words(make_report(keep(tmp_path / "run", node_config(patience=3, validation=0.2))).html)
    assert "training.patience3null" in text


def test_a_run_without_validation_or_held_out_nodes(tmp_path):
    graph = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
    model = rgcn.NodeClassifier(epochs=1, device="cpu").fit(graph)
    metrics = [{**NODE_METRICS[0], "valid_loss": None, "valid_accuracy": None}]
    run = keep(tmp_path / "run", node_config(), model, metrics, NODE_RESULT)
    text = words(make_report(run).html)
    assert "Nothing was held out for validation" in text
    assert "the data have no held-out split" in text
    with pytest.raises(DataError, match="nothing to measure in split 'test'"):
        make_report(run, "test")


def test_a_broken_line_of_metrics_is_passed_over(node_run):
    with (node_run / "metrics.jsonl").open("a") as file:
        file.write('{"number": 5, "loss": 0.')
    with pytest.warns(UserWarning, match="line 5|passed over|cannot be read"):
        report = make_report(node_run)
    assert report.values["epochs"] == 4


def test_missing_values_do_not_break_the_curves(tmp_path):
    metrics = [{**NODE_METRICS[0], "loss": float("nan"), "valid_loss": float("inf")}, NODE_METRICS[1]]
    text = make_report(keep(tmp_path / "run", node_config(), metrics=metrics)).html
    checked(text)
    assert "nan" not in text.split("<script>")[0]


def test_what_cannot_be_written_or_read_is_reported(tmp_path, node_run):
    with pytest.raises(DataError, match="is a folder"):
        save_page(tmp_path, make_report(node_run).html)
    with pytest.raises(DataError):
        make_report(tmp_path / "nothing")


def test_changed_settings_come_first(tmp_path):
    text = words(make_report(keep(tmp_path / "run", node_config(learning_rate=0.5))).html)
    assert text.index("training.learning_rate") < text.index("All ")


def test_the_machine_and_what_changed_between_sessions(tmp_path):
    one = {
        "versions": {"python": "3.11", "torch": "2.0"},
        "hardware": {"cpu": "<cpu>"},
        "git": None,
        "command": "rgcn <x> a/b --out=/home/me/c '/home/me/d e' /home/me/f",
    }
    two = {**one, "versions": {"python": "3.11", "torch": "2.1"}}
    run = keep(tmp_path / "run", node_config(), environment=[one, two])
    text = words(make_report(run).html)
    assert "torch 2.0 → 2.1" in text
    assert "rgcn <x> a/b --out=c 'd e' f" in text


# -- names -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named_by_labels():
    """People and their groups under numbers, with labels that say who they are; one relation is percent-encoded."""
    home, label = "http://example.org/", "http://www.w3.org/2000/01/rdf-schema#label"
    people, groups = ([f"{home}{what}{i}instance" for i in range(size)] for what, size in (("id", 12), ("group", 2)))
    triples = [(one, f"{home}works%20for", groups[i % 2]) for i, one in enumerate(people)]
    triples += [(one, f"{home}knows", people[(i + 1) % 12]) for i, one in enumerate(people)]
    triples += [(one, label, f'"Person <{i}>"') for i, one in enumerate(people)]
    triples += [(one, label, f'"Group {i}"@en') for i, one in enumerate(groups)]
    graph = rgcn.KnowledgeGraph.from_triples(triples)
    kinds = np.array([NodeKind.LITERAL if name.startswith('"') else NodeKind.IRI for name in graph.nodes], np.uint8)
    splits = np.array([2 * (r != label and number % 4 == 0) for number, (_, r, _) in enumerate(triples)], np.int8)
    parts = {"train": range(6), "test": range(6, 12)}
    labels = {split: {people[i]: groups[i % 2] for i in part} for split, part in parts.items()}
    return dataclasses.replace(graph, node_kinds=kinds, triple_splits=splits).with_labels(labels)


def test_a_report_uses_display_names(named_by_labels, tmp_path):
    nodes = rgcn.NodeClassifier(epochs=2, device="cpu").fit(named_by_labels)
    links = rgcn.LinkPredictor(encoder="none", embedding=4, steps=2, device="cpu").fit(named_by_labels)
    for name, config, model in (("nodes", node_config(), nodes), ("links", link_config(), links)):
        text = words(make_report(keep(tmp_path / name, config, model, result=NODE_RESULT)).html)
        assert "Person <" in text
        assert "Group 0" in text
        assert "works for" in text
        assert not re.search(r"instance|works%20for", text)
    majority = ClassOutcome(task_of("node-classification")).baseline(nodes, "test", {"count": 6})
    assert "always 'Group 0'" in majority


def test_a_report_uses_the_display_names_of_a_data_set(predictor, tmp_path, monkeypatch):
    outside = ExternalNames({0: "The first of all"}, {})
    monkeypatch.setattr(wordnet, "load_external_names", lambda *given: outside)
    run = keep(tmp_path / "run", link_config(), predictor, result=NODE_RESULT)
    assert "The first of all" in words(make_report(run).html)


# -- what is measured --------------------------------------------------------------------------------------


def test_node_metrics_agree_with_the_model(classifier):
    measured = evaluate_nodes(classifier, "test")
    assert measured["accuracy"] == pytest.approx(classifier.score(split="test"))
    labels = classifier.graph_.labels
    most = np.bincount(labels.of("train")[1]).argmax()
    assert measured["majority"]["accuracy"] == pytest.approx((labels.of("test")[1] == most).mean())
    assert all(node["predicted"] != node["truth"] for node in measured["surest_mistakes"])
    assert sum(metrics["nodes"] for metrics in measured["by_class"]) == measured["count"]
    certain = classifier.predict_frame([node["node"] for node in measured["most_certain"]])
    scores = dict(certain.select("node", "score").iter_rows())
    assert {node["node"]: node["score"] for node in measured["most_certain"]} == pytest.approx(scores)
    # No validation data for the calibration.
    assert all(node["probability"] is None for node in measured["most_certain"])


def test_probabilities_are_calibrated_or_not_there(tmp_path):
    people = [f"p{i}" for i in range(60)]
    graph = rgcn.KnowledgeGraph.from_triples([(p, "reads", f"book{i % 7 % 2}") for i, p in enumerate(people)])
    splits = {"train": people[:20], "valid": people[20:40], "test": people[40:]}
    labels = {split: {p: f"class{int(p[1:]) % 2}" for p in some} for split, some in splits.items()}
    model = rgcn.NodeClassifier(epochs=3, device="cpu").fit(graph.with_labels(labels))
    measured = make_report(keep(tmp_path / "run", node_config(), model, result=NODE_RESULT))
    nodes = measured.values["measured"]["most_certain"]
    frame = model.predict_frame([node["node"] for node in nodes])
    expected = {node: numbers for node, _, *numbers in frame.iter_rows()}
    assert {node["node"]: (node["score"], node["probability"]) for node in nodes} == {
        node: pytest.approx(tuple(numbers)) for node, numbers in expected.items()
    }
    assert [node["probability"] for node in nodes] == sorted((node["probability"] for node in nodes), reverse=True)
    assert "Calibrated on 20 validation nodes" in words(measured.html)
    assert "scoreprobability" in words(measured.html)


def test_a_class_that_is_never_predicted_has_no_precision():
    found = class_metrics(["a", "b"], np.array([[2, 0], [2, 0]]))
    assert [(metrics["precision"], metrics["recall"]) for metrics in found] == [(0.5, 1.0), (None, 0.0)]


def test_link_metrics_agree_with_the_model_for_all_block_sizes(predictor):
    measured, relations = evaluate_links(predictor, "test"), predictor.graph_.relations
    expected = summarize(predictor.ranks(split="test"))
    assert measured.items() >= expected.as_dict(relations).items()
    assert sum(one["object"] + one["subject"] for one in measured["ranks"]) == measured["count"]
    calls = []
    ranks = predictor.ranks(split="test", memory_budget=1, on_progress=calls.append)
    assert calls == list(range(1, 13))  # a block for each question
    assert summarize(ranks) == expected


# -- charts ------------------------------------------------------------------------------------------------


def test_a_hundred_thousand_points_are_thinned_and_keep_their_extremes():
    points = [(float(i), 5.0 if i == 54_321 else -5.0 if i == 77_777 else 0.0) for i in range(100_000)]
    kept = thin_out(points)
    assert len(kept) <= 600
    assert {(54_321.0, 5.0), (77_777.0, -5.0), points[0], points[-1]} <= set(kept)
    assert kept == sorted(kept)
    assert len(line_chart([Series("a", points)], title="t", x_label="x", y_label="y")) < 60_000


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 5), (-3, 7), (0, 1e-9), (1e12, 3e12), (0.1, 0.1)])
def test_ticks_enclose_the_values(low, high):
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 8


@pytest.mark.parametrize("points", [[], [(3.0, 0.5)], [(1.0, 2.0), (2.0, 2.0)], [(1.0, -1.0), (2.0, float("nan"))]])
def test_charts_of_few_values_are_valid(points):
    chart = line_chart(
        [Series("<a>", points, [(1.0, 0.0, 1.0)])], title="<t>", x_label="x", y_label="y", marks=[Mark("<m>", 1.0)]
    )
    parser = Checker()
    parser.feed(chart)
    assert parser.problems == []
    assert parser.open == []
    assert "<t>" not in chart


def test_empty_and_flat_columns_bars_and_matrices():
    assert "Nothing" in column_chart([], [], title="t", x_label="x", y_label="y")
    for chart in (
        column_chart(["1"], [("a", [0])], title="t", x_label="x", y_label="y"),
        bar_chart([Bar("a", [0.0, None])], ["v", "w"], label="l"),
        heat_map(["<r>"] * 2, ["<r>"] * 2, [[0, 0], [1, 0]], corner="c"),
    ):
        parser = Checker()
        parser.feed(chart)
        assert parser.problems == []
        assert parser.open == []


def test_many_classes_are_numbered():
    names = [f"class {i}" for i in range(30)]
    text = heat_map(names, names, np.eye(30, dtype=int).tolist(), corner="true class")
    assert "30 · " in text


def test_names_are_shortened_for_reading_only():
    assert short_name('"a \\"quoted\\" text"@en') == 'a \\"quoted\\" text'
    assert short_name("x" * 100).endswith("…")
    assert short_name("http://example.org/") == "example.org"
    assert 'title="http://example.org/a#b"' in name_markup("http://example.org/a#b")


# -- colors ------------------------------------------------------------------------------------------------


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_every_color_can_be_read_in_light_and_dark():
    style = (Path(rgcn.__file__).parent / "pages" / "templates" / "page.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for colors in (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in (light, dark.split("* {")[0])):
        for text in ("text", "muted", "accent"):
            assert contrast(colors[text], colors["card"]) >= 4.5, text
            assert contrast(colors[text], colors["ground"]) >= 4.5, text
        for kind in ("good", "bad"):
            assert contrast(colors[kind], colors[f"{kind}-ground"]) >= 4.5, kind
        for number in range(1, 9):
            assert contrast(colors[f"series-{number}"], colors["card"]) >= 3, number
        for shade in range(10):
            on = colors["on-pale" if shade < 7 else "on-deep"]
            assert contrast(on, colors[f"heat-{shade}"]) >= 4.5, shade
