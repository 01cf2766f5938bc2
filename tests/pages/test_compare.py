"""Comparisons: settings that differ, metrics, and what cannot be compared."""

import json

import pytest
from test_report import checked, words

from rgcn.config import LinkPredictionRun, NodeClassificationRun
from rgcn.errors import ConfigError, DataError
from rgcn.pages.charts import Series, text_plot
from rgcn.pages.run_comparison import compare_runs, comparison_page
from rgcn.runs import dump_configuration
from written_runs import about_run


def node_run(folder, accuracy=None, *, seed=0, fingerprint="a" * 64, valid=0.5, **training):
    config = NodeClassificationRun(seed=seed, data={"dataset": "world"}, training={"epochs": 4, **training})
    metrics = [
        {
            "number": i,
            "loss": 1 / i,
            "train_accuracy": i / 4,
            "valid_loss": 1 / i,
            "valid_accuracy": valid,
            "seconds": 0.1 * i,
        }
        for i in range(1, 5)
    ]
    result = None if accuracy is None else {"valid": {"accuracy": valid}, "test": {"accuracy": accuracy}}
    return keep(folder, config, metrics, result, fingerprint)


def link_run(folder, mrr, mean_rank, fingerprint="a" * 64):
    config = LinkPredictionRun(data={"dataset": "world"}, training={"steps": 3})
    metrics = [{"number": i, "loss": 1 / i, "valid_mrr": 0.1 * i, "seconds": i} for i in (1, 2, 3)]
    return keep(folder, config, metrics, {"test": {"mrr": mrr, "mean_rank": mean_rank, "count": 10}}, fingerprint)


def keep(folder, config, metrics, measured, fingerprint):
    folder.mkdir(parents=True)
    about = about_run(config, {} if fingerprint is None else {"fingerprint": fingerprint})
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "config.yaml").write_text(dump_configuration(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    if measured is not None:
        result = {"epochs": 4, "parameters": 9, "stored_parameters": 9, "seconds": 2.0, "metrics": measured}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def figure(comparison, split, metric):
    return next(row for row in comparison.metric_rows() if (row.split, row.metric.name) == (split, metric))


def test_only_settings_that_differ_are_shown(tmp_path):
    one = node_run(tmp_path / "one", 0.8)
    two = node_run(tmp_path / "two", 0.9, learning_rate=0.5)
    comparison = compare_runs([one, two])
    assert comparison.settings() == {"training.learning_rate": [0.01, 0.5]}
    test = figure(comparison, "test", "accuracy")
    assert test.best == {1}
    assert [test.text(i) for i in (0, 1)] == ["80.0 %", "90.0 %"]
    assert figure(comparison, "valid", "accuracy").best == frozenset()  # equal: none stands out
    assert any("single run" in warning for warning in comparison.warnings())


def test_a_lower_mean_rank_is_better(tmp_path):
    runs = [link_run(tmp_path / "a", 0.3, 50.0), link_run(tmp_path / "b", 0.2, 40.0)]
    comparison = compare_runs(runs)
    assert figure(comparison, "test", "mrr").best == {0}
    assert figure(comparison, "test", "mean_rank").best == {1}
    assert all(row.metric.name != "count" for row in comparison.metric_rows())


def test_a_series_counts_as_mean_and_standard_error(tmp_path):
    for seed, accuracy in enumerate((0.7, 0.8, 0.9)):
        node_run(tmp_path / "many" / f"seed-{seed}", accuracy, seed=seed, valid=0.4 + 0.1 * seed)
    node_run(tmp_path / "many" / "seed-10", None, seed=10)
    for seed in range(2):
        node_run(tmp_path / "few" / f"seed-{seed}", 0.80 + 0.02 * seed, seed=seed)
    comparison = compare_runs([tmp_path / "many", tmp_path / "few"])
    spread = figure(comparison, "test", "accuracy").spreads[0]
    assert (spread.mean, spread.runs) == (pytest.approx(0.8), 3)
    assert spread.standard_error == pytest.approx(0.1 / 3**0.5)
    assert figure(comparison, "test", "accuracy").text(0) == "80.0 % ± 5.8"
    assert comparison.settings() == {"seed": ["0, 1, 2, 10", "0, 1"]}
    assert any("3 of 4 runs" in warning for warning in comparison.warnings())
    assert any("less than two standard errors" in warning for warning in comparison.warnings())
    curve = comparison.entries[0].curve("valid_accuracy", 0)
    assert curve.points[0] == (1.0, pytest.approx(0.5))
    assert curve.band[0][1] < 0.5 < curve.band[0][2]


def test_different_tasks_are_shown_but_not_compared(tmp_path):
    comparison = compare_runs([node_run(tmp_path / "nodes", 0.8), link_run(tmp_path / "links", 0.3, 5.0)])
    assert "different tasks" in comparison.warnings()[0]
    assert all(not row.best for row in comparison.metric_rows())
    assert comparison.settings()["task"] == ["node-classification", "link-prediction"]
    assert "model.bottleneck" not in comparison.settings()  # a setting that one task does not know is no difference
    text = words(comparison_page(comparison))
    assert "cannot be compared" in text
    assert "Validation MRR" in text
    assert "Accuracy, validation" in text


@pytest.mark.parametrize(
    ("fingerprints", "message"), [(("a" * 64, "b" * 64), "different data"), (("a" * 64, None), "not known")]
)
def test_different_data_are_not_compared(tmp_path, fingerprints, message):
    runs = [node_run(tmp_path / name, 0.5, fingerprint=p) for name, p in zip("ab", fingerprints, strict=True)]
    comparison = compare_runs(runs)
    assert message in comparison.warnings()[0]
    assert all(not row.best for row in comparison.metric_rows())


def test_unfinished_runs_have_curves_and_no_metrics(tmp_path):
    runs = [node_run(tmp_path / "done", 0.5), node_run(tmp_path / "not", None, epochs=9)]
    comparison = compare_runs(runs)
    assert any("not finished" in warning for warning in comparison.warnings())
    assert figure(comparison, "test", "accuracy").text(1) == ""
    nothing = compare_runs([node_run(tmp_path / "x", None), node_run(tmp_path / "y", None)])
    assert nothing.metric_rows() == []
    assert "No run is finished yet" in words(comparison_page(nothing))


def test_null_differs_from_a_missing_setting(tmp_path):
    runs = [node_run(tmp_path / "a", 0.5), node_run(tmp_path / "b", 0.6, validation=0.25, l2_penalty=0.5, patience=3)]
    comparison = compare_runs([*runs, link_run(tmp_path / "c", 0.3, 5.0)])
    assert comparison.settings()["training.patience"] == [None, 3, None]
    assert comparison.settings()["training.l2_penalty"] == [0.0, 0.5, None]
    assert [entry.has_setting("training.l2_penalty") for entry in comparison.entries] == [True, True, False]
    text = words(comparison_page(comparison))
    assert "training.patiencenull3null" in text
    assert "training.l2_penalty0.00.5" in text
    assert "training.l2_penalty0.00.5null" not in text


def test_the_time_of_a_resumed_run_is_that_of_all_its_sessions(tmp_path):
    run = node_run(tmp_path / "a", 0.5)
    about = json.loads((run / "run.json").read_text())
    began = "2026-11-15T12:00:00Z"
    about["sessions"] = [{"began": began, "ended": None}, {"began": began, "ended": began}]
    (run / "run.json").write_text(json.dumps(about))
    comparison = compare_runs([run, node_run(tmp_path / "b", None)])
    assert [entry["seconds"] for entry in comparison.as_dict()["runs"]] == [[2.0], [pytest.approx(0.4)]]


def test_the_page_is_self_contained(tmp_path):
    runs = [node_run(tmp_path / "<b>one", 0.5), node_run(tmp_path / "two", 0.6, patience=3)]
    text = comparison_page(compare_runs(runs))
    checker = checked(text)
    assert "b" not in checker.tags
    assert "★ 60.0 %" in "".join(checker.words)


def test_runs_of_the_same_name_are_distinguished(tmp_path):
    comparison = compare_runs([node_run(tmp_path / "a" / "run", 0.5), node_run(tmp_path / "b" / "run", 0.6)])
    assert len({entry.name for entry in comparison.entries}) == 2
    json.dumps(comparison.as_dict())


def test_what_is_no_run_is_refused(tmp_path):
    one = node_run(tmp_path / "one", 0.5)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="at least two"):
        compare_runs([one])
    with pytest.raises(DataError, match="no such folder"):
        compare_runs([one, tmp_path / "nowhere"])
    with pytest.raises(DataError, match="not a run"):
        compare_runs([one, tmp_path / "empty"])


# -- curves on a terminal ----------------------------------------------------------------------------------


def lines(rows):
    return ["".join(cell.text for cell in row) for row in rows]


def test_a_text_plot_fits_and_names_its_curves():
    rising = Series("one", [(float(i), i / 100) for i in range(100)])
    falling = Series("two", [(float(i), 1 - i / 100) for i in range(100)])
    rows = lines(text_plot([("a", rising), ("b", falling), ("c", Series("none", []))], width=80, height=10))
    assert max(map(len, rows)) <= 80
    assert rows[0].rstrip().endswith("a")
    assert rows[9].rstrip().endswith("b")
    assert "c" not in "".join(rows)


@pytest.mark.parametrize("points", [[(5.0, 0.5)], [(1.0, 0.0), (2.0, 0.0)], [(1.0, -3.0), (9.0, 4.0)]])
def test_a_text_plot_of_few_values(points):
    assert any(character > "⠀" for row in lines(text_plot([("a", Series("a", points))])) for character in row)
    assert text_plot([("a", Series("a", []))]) == []


def test_curves_with_equal_last_values_keep_their_letters():
    series = [(letter, Series(letter, [(1.0, 0.5), (2.0, 1.0)])) for letter in "abcdef"]
    rows = lines(text_plot(series, width=60, height=6))
    assert max(map(len, rows)) <= 60
    assert set("abcdef") <= set("".join(rows))


def test_series_of_the_same_seeds_are_compared_seed_by_seed(tmp_path):
    """The runs vary more with the seed than between settings: only the paired difference shows that b is better."""
    accuracies = {"a": (0.60, 0.70, 0.80, 0.90), "b": (0.62, 0.71, 0.83, 0.92)}
    for name, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            node_run(tmp_path / name / f"seed-{seed}", accuracy, seed=seed)
    node_run(tmp_path / "b" / "seed-9", 0.1, seed=9)  # a has no such seed
    comparison = compare_runs([tmp_path / "a", tmp_path / "b"])
    [difference] = [one for one in comparison.differences() if one.split == "test"]
    assert difference.seeds == [0, 1, 2, 3]
    assert difference.mean == pytest.approx(0.02)
    assert difference.half_width == pytest.approx(3.18245 * 0.00816497 / 2, rel=1e-4)  # t of 3 degrees of freedom
    assert difference.text == "+2.0 (95 % between +0.7 and +3.3, 4 seeds)"
    [stored] = [one for one in comparison.as_dict()["differences"] if one["split"] == "test"]
    assert stored["interval"] == pytest.approx([0.02 - difference.half_width, 0.02 + difference.half_width])
    assert "+2.0 (95 % between" in comparison_page(comparison)


def test_single_runs_and_different_data_have_no_paired_difference(tmp_path):
    one, two = node_run(tmp_path / "one", 0.8), node_run(tmp_path / "two", 0.9)
    assert compare_runs([one, two]).differences() == []
    for name in ("a", "b"):
        for seed in range(2):
            node_run(tmp_path / name / f"seed-{seed}", 0.5, seed=seed, fingerprint=name * 64)
    assert compare_runs([tmp_path / "a", tmp_path / "b"]).differences() == []
