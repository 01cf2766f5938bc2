"""Test how published results and ours are read, compared and shown."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rgcn.data.catalog import find_dataset
from rgcn.errors import DataError
from rgcn.paper import LINK, NODE, published
from rgcn.paper.published import (
    ACCURACY,
    RANKING,
    Judgment,
    PaperReport,
    PaperResult,
    PaperRow,
    PaperTable,
    html_page,
    json_text,
    judge,
    judge_time,
    layout_table,
    markdown,
    markdown_table,
)
from rgcn.paper.quick_tables import count_as_published, datasets_table, parameters_table, timings_table
from rgcn.paper.trainings import (
    CONFIGURATIONS,
    ReproductionPlan,
    TrainingResult,
    run_trainings,
    training_table,
)
from rgcn.runs import builtin_configurations, load_configuration, load_data
from rgcn.runs.assembly import make_model
from rgcn.runs.series import SeriesCallback

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """Make all data sets unavailable."""
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RGCN_MIRROR", raising=False)
    monkeypatch.setattr("rgcn.data.registry.Sources._sources_of", lambda *_: iter(()))


def results(*accuracies, seconds=1.0):
    return [{"metrics": {"test": {"accuracy": a}}, "seconds": seconds} for a in accuracies]


# -- what is published ------------------------------------------------------------------------------------------


def test_every_published_result_has_a_builtin_configuration():
    assert set(ACCURACY) | set(RANKING) <= set(builtin_configurations())
    for name in CONFIGURATIONS[NODE]:
        assert load_configuration(name).task == NODE
    for name in CONFIGURATIONS[LINK]:
        assert load_configuration(name).task == LINK


def test_the_headings_of_the_configurations_have_the_same_results():
    for name, results in ACCURACY.items():
        head = builtin_configurations()[name].read_text(encoding="utf-8").split("\n", 1)[0]
        assert all(f"{figure.value:.2f} ± {figure.error:.2f}" in head for figure in results)
    for name, rows in RANKING.items():
        head = builtin_configurations()[name].read_text(encoding="utf-8").split("\n", 1)[0]
        assert all(f"{row['mrr'].value:.3f}" in head for row in rows)


@pytest.mark.parametrize("name", [*published.NODE_DATASETS, *published.LINK_DATASETS])
def test_the_catalog_checks_the_same_counts(name):
    dataset = find_dataset(name)
    counts = dataset.published_after_pruning or dataset.counts
    stated = published.NODE_DATASETS.get(name) or published.LINK_DATASETS[name]
    assert (counts.entities, counts.relations) == (stated["entities"], stated["relations"])
    if name in published.NODE_DATASETS:
        assert (counts.triples, counts.labels, counts.classes) == tuple(
            stated[key] for key in ("edges", "labeled", "classes")
        )
    else:
        assert {f"{split} edges": n for split, n in counts.triples_per_split.items()} == dict(list(stated.items())[2:])


def test_the_errors_of_table_2_are_standard_errors():
    runs = TrainingResult.of(results(*[32 / 36] * 9, 33 / 36)).metrics["accuracy"]
    figure = ACCURACY["e-rgcn/nc-aifb"][0]
    assert round(100 * runs.mean, 2) == figure.value
    assert round(100 * runs.standard_error, 2) == figure.error
    assert round(100 * runs.standard_deviation, 2) != figure.error


# -- how it is judged -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "error", "published_error", "verdict"),
    [
        (10.0, 0.5, None, "agrees"),
        (10.9, 0.5, None, "agrees"),
        (11.1, 0.5, None, "above"),
        (8.9, 0.5, None, "below"),
        (11.1, 0.5, 0.5, "agrees"),
        (10.0, 0.0, None, "agrees"),
        (10.01, 0.0, None, "above"),
        (10.01, None, 0.5, "higher"),
        (9.0, None, None, "lower"),
    ],
)
def test_two_standard_errors_of_both(ours, error, published_error, verdict):
    assert judge(PaperResult(10.0, "TF-RGCN", "Table 2", published_error), ours, error).verdict == verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (0.01, "4,500 × faster"),
        (5.0, "9 × faster"),
        (45.01, "equal"),
        (60.0, "1.33 × slower"),
        (9000.0, "200 × slower"),
    ],
)
def test_a_slower_time_is_called_slower(seconds, verdict):
    assert judge_time(PaperResult(45.0, "Torch-RGCN", "Section 5.3"), seconds).verdict == verdict


def test_rows_without_data_stay_with_the_reason():
    table = training_table(
        NODE, {"rgcn/nc-aifb": TrainingResult.of(results(0.95, 0.97)), "rgcn/nc-bgs": "the data are away"}
    )
    aifb, bgs = table.rows
    assert (aifb.runs, aifb.seconds, len(aifb.published)) == (2, 1.0, 2)
    assert (bgs.ours, bgs.error, bgs.runs, bgs.note) == (None, None, None, "the data are away")
    assert {judged.verdict for judged in bgs.published} == {"none"}
    assert [judged.figure.value for judged in bgs.published] == [82.76, 83.10]


def test_link_rows_have_all_four_metrics():
    run = {"mrr": 0.8, "hits@1": 0.7, "hits@3": 0.9, "hits@10": 0.95, "mean_rank": 3.0, "count": 10}
    table = training_table(
        LINK, {"rgcn/lp-wn18": TrainingResult.of([{"metrics": {"valid": run, "test": run}, "seconds": 9.0}])}
    )
    assert [row.quantity for row in table.rows] == ["MRR", "Hits@1", "Hits@3", "Hits@10"]
    assert [judged.verdict for judged in table.rows[0].published] == ["higher", "lower"]


# -- how it is run ----------------------------------------------------------------------------------------------


def test_trials_are_kept_apart_and_old_runs_can_be_refused(tmp_path, monkeypatch):
    from rgcn.paper import trainings

    monkeypatch.setitem(trainings.LONG_RUNS, "rgcn/nc-world", 2)
    plan = ReproductionPlan(tmp_path, changes=("training.epochs=1",), device="cpu")
    first = run_trainings(["rgcn/nc-world"], plan)
    assert [path.name for path in tmp_path.iterdir()] == ["rgcn-nc-world+training.epochs=1+device=cpu"]
    assert isinstance(first.outcomes["rgcn/nc-world"], TrainingResult)
    assert first.outcomes["rgcn/nc-world"].metrics["accuracy"].runs == 2
    trial_outcomes = []

    class Ear(SeriesCallback):
        def run_ended(self, row):
            trial_outcomes.append(row.outcome)

    assert run_trainings(["rgcn/nc-world"], plan, Ear()).outcomes == first.outcomes
    assert trial_outcomes == ["reused", "reused"]
    with pytest.raises(DataError, match="--fresh"):
        run_trainings(["rgcn/nc-world"], ReproductionPlan(tmp_path, changes=plan.changes, device="cpu", fresh=True))


def test_trainings_without_data_give_the_reason(nowhere, tmp_path):
    skipped = []

    class Ear(SeriesCallback):
        def unavailable(self, name, why):
            skipped.append(name)

    given = run_trainings(["rgcn/nc-bgs"], ReproductionPlan(tmp_path), Ear())
    assert skipped == ["rgcn/nc-bgs"]
    assert "neither on this machine nor" in given.outcomes["rgcn/nc-bgs"]
    assert given.failures == []


def test_parameters_and_counts_without_data(nowhere):
    table = parameters_table(["am", "wn18"])
    assert table.rows[0].ours == pytest.approx(100 * 7_989_387 / 98_715_221)
    assert table.rows[0].published[0].verdict == "equal"
    assert "published counts" in table.rows[0].note
    assert table.rows[1].ours is None
    counts = datasets_table(["bgs"])
    assert [row.ours for row in counts.rows] == [None] * 5
    times = timings_table(["am", "wn18"])
    assert all(row.ours is None for row in times.rows)
    assert len(times.rows) == 5


@pytest.mark.needs_data("aifb", "fb-toy")
def test_counts_and_parameters_of_real_data(real_mirror):
    table = datasets_table(["aifb", "fb-toy"], real_mirror)
    assert [judged.verdict for row in table.rows for judged in row.published] == ["equal"] * 10
    shares = parameters_table(["aifb"], real_mirror)
    assert shares.rows[0].note == "279,684 of 12,068,804"
    assert shares.rows[0].published[0].verdict == "lower"


@pytest.mark.needs_data("aifb", "mutag")
@pytest.mark.parametrize(("name", "parameters"), [("aifb", 279_684), ("mutag", 759_522)])
def test_e_rgcn_has_as_many_parameters_as_published(name, parameters, real_mirror):
    config = load_configuration(f"e-rgcn/nc-{name}")
    classifier = make_model(config).prepare(load_data(config.data, real_mirror))
    assert classifier.num_parameters_ == classifier.num_parameters_as_published_ == parameters


def test_counts_are_named_as_in_the_paper():
    import rgcn

    counts = count_as_published(rgcn.load("world"))
    assert counts["labeled"] == sum(value for key, value in counts.items() if key.startswith("labeled, "))


# -- how it is shown --------------------------------------------------------------------------------------------


@pytest.fixture
def report():
    published = (
        Judgment(PaperResult(1.5, "Torch-RGCN", "T", 0.1), "above"),
        Judgment(PaperResult(2.5, "TF-RGCN", "T"), "below"),
    )
    rows = [
        PaperRow("A <b>|", "x", published, 2.0, 0.05, 10, 61.0, note="one <i>"),
        PaperRow("A <b>|", "y", published[:1], 1.0, note="one <i>"),
        PaperRow("B", "x", (Judgment(PaperResult(None, "c-RGCN", "T", words="fewer"), "none"),), note="two"),
    ]
    table = PaperTable("t", "A table", rows, "the rule", ("a note",), changed=("training.epochs=2",))
    return PaperReport([table], {"command": "rgcn reproduce t", "date": "2026-11-15", "machine": {"cores": 2}})


def test_lines_columns_and_notes(report):
    laid = layout_table(report.tables[0])
    assert laid.columns == ("what", "of", "published", "ours", "runs", "time", "verdict")
    assert [line["published"] for line in laid.lines] == [
        "Torch-RGCN 1.500 ± 0.100",
        "TF-RGCN 2.500",
        "Torch-RGCN 1.500 ± 0.100",
        "c-RGCN fewer",
    ]
    assert [bool(line["what"]) for line in laid.lines] == [True, False, False, True]
    assert [line["verdict"] for line in laid.lines] == ["above [1]", "below", "above [1]", "none [2]"]
    assert laid.footnotes == ["[1] one <i>", "[2] two"]


def test_markdown_and_json(report):
    text = markdown(report)
    assert "CHANGED by --set training.epochs=2" in text
    assert "not a reproduction" in text
    assert "A <b>\\|" in text
    widths = {
        line.count("|") - line.count("\\|") for line in markdown_table(report.tables[0]).splitlines() if "|" in line
    }
    assert widths == {8}
    read = json.loads(json_text(report))
    assert (read["format"], read["version"], read["tables"][0]["rows"][0]["ours"]) == ("rgcn-reproduction", 1, 2.0)
    again = PaperReport([PaperTable.from_dict(table) for table in read["tables"]], report.about)
    assert json_text(again) == json_text(report)


def test_html_is_whole_and_loads_nothing(report):
    page = html_page(report)

    class Checker(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open_tags = []

        def handle_starttag(self, tag, attrs):
            assert tag not in ("link", "img", "iframe")
            assert not {"src"} & {name for name, _ in attrs}
            if tag != "meta":
                self.open_tags.append(tag)

        def handle_endtag(self, tag):
            assert self.open_tags.pop() == tag

    checker = Checker()
    checker.feed(page)
    assert checker.open_tags == []
    assert "A &lt;b&gt;|" in page
    assert "://" not in page
    assert "prefers-color-scheme: dark" in page


def test_the_page_shows_what_the_results_hold():
    command = [sys.executable, ROOT / "tools" / "reproduction_page.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
