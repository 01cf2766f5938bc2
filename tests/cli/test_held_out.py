"""Test data without splits: what a run holds out, stores and prints; and `rgcn split`."""

from __future__ import annotations

import json
import os
import warnings

import numpy as np
import pytest
from in_process import rgcn as rgcn_says

from rgcn.data import read
from rgcn.data.graph_store import load_graph
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.predict import open_model
from rgcn.runs import RunFolder, load_configuration, load_data, load_run_data, train
from rgcn.runs.assembly import check_data_unchanged

QUICK = ["training.steps=1", "training.device=cpu", "model.name=distmult", "model.embedding=4"]
PAIRS = [(i, j) for i in range(12) for j in range(12) if i != j and (i * j) % 3 == 1]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    rows = [f"n{i},{'likes' if (i + j) % 2 else 'knows'},n{j},{1990 + i + j}" for i, j in PAIRS]
    path.write_text("\n".join(["subject,relation,object,year", *rows]) + "\n")
    (tmp_path / "people.csv").write_text(
        "node,class\n" + "".join(f"n{i},{'ab'[i % 2]}\n" for i in range(1, 12) if i % 3)
    )
    return path


def configured(table, *changes):
    return load_configuration(str(table), [*QUICK, "data.columns=[subject, relation, object]", *changes])


def test_a_run_stores_its_held_out_triples_and_is_evaluated_on_them(table, tmp_path):
    config = configured(table)
    result = train(config, load_data(config.data), tmp_path / "run")
    assert set(result.metrics) == {"valid", "test"}
    graph = load_graph(tmp_path / "run" / "model" / "graph")
    assert (
        graph.fingerprint
        == load_run_data(config).fingerprint
        == RunFolder(tmp_path / "run").about()["data"]["fingerprint"]
    )
    assert graph.metadata["split"] == "triples held out at random, seed 0"
    os.utime(table, (1, 1))  # the file looks changed: it is read and split again, with the same result
    check_data_unchanged(RunFolder(tmp_path / "run"))
    assert open_model(tmp_path / "run").graph.fingerprint == graph.fingerprint


def test_every_seed_of_a_run_has_the_same_test_triples_and_data_seed_draws_others(table):
    first, second, other = (load_run_data(configured(table, change)) for change in ("seed=0", "seed=5", "data.seed=5"))
    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_by_time_the_latest_triples_are_test(table):
    config = configured(table, "data.split=time", "data.time=year", "data.test=0.2", "training.validation=0.2")
    plain, parted = load_data(config.data), load_run_data(config)
    assert train(config, plain).metrics.keys() == {"valid", "test"}
    when = plain.triple_times
    assert when[parted.triple_splits == 2].mean() > when[parted.triple_splits == 1].mean() > when.mean()
    with pytest.raises(ConfigError, match="go together"):
        configured(table, "data.split=time")
    with pytest.raises(DataError, match="neither a number nor a date"):
        read(table, columns=["subject", "relation", "object"], time="relation")


def test_dates_are_times(tmp_path):
    days = ["2024-05-01", "2023-12-31T23:00:00", "2024-01-01 08:30:00"]
    (tmp_path / "t.tsv").write_text(
        "".join(f"a\tr\t{i}\t{day}\n" for i, day in enumerate(days)) + "a\tr\t0\t2020-01-01\n"
    )
    graph = read(tmp_path / "t.tsv", columns=(0, 1, 2), time=3)
    # The first triple occurs twice: its earliest time counts.
    assert np.argsort(graph.triple_times).tolist() == [0, 1, 2]


def test_without_held_out_data_the_metrics_are_labeled_as_training(table, tmp_path):
    config = configured(table, "data.split=null")
    assert set(train(config, load_data(config.data)).metrics) == {"train"}
    star = tmp_path / "star.csv"
    star.write_text("".join(f"hub,has,n{i}\n" for i in range(9)))
    config = load_configuration(str(star), QUICK)
    with pytest.warns(UserWarning, match="none of 9 triples can be held out") as warned:
        result = train(config, load_run_data(config))
    assert (set(result.metrics), len(warned)) == ({"train"}, 1)
    changes = [part for change in QUICK for part in ("--set", change)]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = rgcn_says("train", str(star), *changes, "--no-keep")
    assert code == 0
    assert err.count("none of 9 triples can be held out") == 1
    assert "nothing was held out" in out
    assert "held out │" not in out


def test_a_training_says_how_many_labels_of_a_relation_it_holds_out(tmp_path):
    rows = [f"p{i},kind,k{i % 2}\np{i},knows,p{(i + 2) % 40}\n" for i in range(40)]
    (tmp_path / "mine.csv").write_text("".join(rows))
    settings = ["model.name=rgcn", "model.hidden=4", "training.epochs=2", "training.device=cpu"]
    changes = [part for change in settings for part in ("--set", change)]
    done = rgcn_says("train", "mine.csv", "--data", "labels_from=kind", *changes, "--no-keep", cwd=tmp_path)
    assert done.returncode == 0
    assert "of 40 labels, 4 for test are held out (labels for test drawn at random, seed 0)" in done.stderr
    assert "(4 nodes; " in done.stdout
    changes += ["--set", "data.test=0.25"]
    done = rgcn_says("train", "mine.csv", "--data", "labels_from=kind", *changes, "--no-keep", cwd=tmp_path)
    assert "of 40 labels, 10 for test are held out" in done.stderr
    changes += ["--set", "training.validation=0.2"]
    done = rgcn_says("train", "mine.csv", "--data", "labels_from=kind", *changes, "--no-keep", cwd=tmp_path)
    assert "of 40 labels, 6 for valid and 10 for test are held out" in done.stderr
    assert "(6 nodes; " in done.stdout
    predicted = rgcn_says(
        "predict", "mine.csv", "--data", "labels_from=kind", "--classes", "--node", "p1", cwd=tmp_path
    )
    assert "(40 triples, 40 labels)" in predicted.stderr


def test_labels_without_a_split_hold_out_test_labels(table):
    labels = f"data.labels={table.parent / 'people.csv'}"
    changes = ["task=node-classification", labels, "model.name=rgcn", "model.hidden=4", "training.epochs=2"]
    config = load_configuration(
        str(table), ["training.device=cpu", "data.columns=[subject, relation, object]", *changes]
    )
    graph = load_run_data(config)
    assert graph.triple_splits is None
    assert graph.labels.counts() == {"train": 7, "test": 1}
    assert "test" in train(config, graph).metrics


@pytest.mark.parametrize("ending", ["csv", "tsv", "nt"])
def test_a_split_that_is_written_is_read_back_as_it_was(ending, tmp_path):
    names = (lambda i: f'a, "{i}"') if ending == "csv" else (lambda i: f"http://x/n{i}")
    triples = [(names(i), "http://x/r", names(j)) for i, j in PAIRS]
    source = tmp_path / f"graph.{ending}"
    if ending == "nt":
        KnowledgeGraph.from_triples(triples).to_rdf(source)
    else:
        KnowledgeGraph.from_triples(triples).to_polars().select("subject", "relation", "object").write_csv(
            source, separator="\t" if ending == "tsv" else ","
        )
    code, out, _ = rgcn_says("split", str(source), "--out", str(tmp_path / "s"), "--test", "0.2", "--json")
    assert code == 0
    assert [path.rpartition(".")[2] for path in json.loads(out)["files"]] == [ending] * 3
    parted, back = read(source).split(0.1, 0.2), read(tmp_path / "s")
    for split in ("train", "valid", "test"):
        assert sorted(parted.named(parted.split_triples(split))) == sorted(back.named(back.split_triples(split)))
    code, _, err = rgcn_says("split", str(source), "--out", str(tmp_path / "s"))
    assert code == 1
    assert "choose another folder" in err


def test_labels_are_written_beside_the_triples(table, tmp_path):
    people = str(table.parent / "people.csv")
    given = ("--labels", people, "--by", "year", "--data", "columns=[subject, relation, object]")
    code, out, _ = rgcn_says("split", str(table), "--out", str(tmp_path / "s"), *given)
    assert code == 0
    assert "labels: train" in out
    back = read(tmp_path / "s", labels=tmp_path / "s" / "labels.csv")
    assert set(back.labels.counts()) == {"train", "valid", "test"}
