"""`rgcn predict` and `rgcn complete` as a user calls them."""

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
from pyoxigraph import RdfFormat, parse
from test_report_commands import rgcn

import rgcn as library
from rgcn.nn.scorer import VectorScorer
from rgcn.predict import questions as question_notes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a classifier and a link predictor of `world`."""
    folder = tmp_path_factory.mktemp("runs")
    steps = ("training.steps=300", "training.batch_edges=1000", "training.penalty=0.001")
    small = {
        "rgcn/nc-world": ("training.epochs=5", "training.validation=0.2"),
        "distmult/lp-world": (*steps, "training.evaluate_every=null", "model.embedding=64"),
    }
    for name, settings in small.items():
        changes = [part for setting in settings for part in ("--set", setting)]
        done = rgcn("train", name, *changes, "--out", folder / name.split("/")[1][:2], "-q")
        assert done.returncode == 0, done.stderr
    return folder


def triples_of(path):
    return list(parse(path.read_bytes(), format=RdfFormat.N_TRIPLES))


def refused(done, *words):
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


# -- classes ----------------------------------------------------------------------------------------------


def test_classes_of_a_file_of_nodes(runs, tmp_path):
    (tmp_path / "people.txt").write_text("\ufeffSwitzerland\n\n<Norway>\nnorway\n", encoding="utf-8")
    done = rgcn("predict", runs / "nc", "--nodes", "people.txt", "--out", "classes.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Written: 3 predictions to classes.csv\n")
    frame = pl.read_csv(tmp_path / "classes.csv")
    assert frame["node"].to_list() == ["Switzerland", "Norway", "Norway"]
    shares = frame.select(pl.selectors.starts_with("p(")).sum_horizontal()
    assert shares.to_list() == pytest.approx([1.0] * 3, abs=1e-4)


def test_all_nodes_to_the_terminal_and_as_json(runs):
    like_labeled = rgcn("predict", runs / "nc")
    assert "2,109 nodes not like labeled ones left out; --all-nodes" in like_labeled.stderr
    assert "and 234 more predictions" in like_labeled.stdout
    done = rgcn("predict", runs / "nc", "--all-nodes")
    assert done.returncode == 0, done.stderr
    assert "and 2,343 more predictions; --out FILE writes them all" in done.stdout
    assert "How reliable probabilities are: --reliability" in done.stdout
    answer = json.loads(rgcn("predict", runs / "nc", "--node", "Switzerland", "--json").stdout)
    assert answer["calibration"]["fitted"]
    (only,) = answer["predictions"]
    assert only["node"] == "Switzerland"
    assert only["label_split"] in ("train", "valid", "test")


def test_classes_of_unlabeled_nodes_as_rdf(runs, tmp_path):
    done = rgcn("predict", runs / "nc", "--known", "drop", "--all-nodes", "--out", tmp_path / "new.nt", "--json")
    assert done.returncode == 0, done.stderr
    triples = triples_of(tmp_path / "new.nt")
    assert len(triples) == json.loads(done.stdout)["written"] == 2363 - 254
    assert {triple.predicate.value for triple in triples} == {"urn:rgcn:predictedClass"}
    some = rgcn("predict", runs / "nc", "--predicate", "in", "--min-probability", "0.3", "--out", tmp_path / "x.nt.gz")
    assert some.returncode == 0, some.stderr


def test_nodes_on_standard_input(runs, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Peru\nChile\n")))
    done = rgcn("predict", runs / "nc", "--nodes", "-", "--json")
    assert [row["node"] for row in json.loads(done.stdout)["predictions"]] == ["Peru", "Chile"]


def test_unknown_names_are_reported(runs, tmp_path):
    (tmp_path / "names.txt").write_text("Peru\nSwizerland\nnobody at all\n")
    wrong = rgcn("predict", runs / "nc", "--nodes", tmp_path / "names.txt", "--out", tmp_path / "out.csv")
    refused(wrong, "2 of 3 names are not known", "line 2: unknown node 'Swizerland'. Did you mean 'Switzerland'")
    assert not (tmp_path / "out.csv").exists()
    some = rgcn("predict", runs / "nc", "--nodes", tmp_path / "names.txt", "--skip-unknown", "--json")
    assert json.loads(some.stdout)["skipped"] == 2
    refused(rgcn("predict", runs / "nc", "--node", "Swizerland"), "Did you mean 'Switzerland'")


def test_files_without_a_list_of_nodes_are_refused(runs, tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    refused(rgcn("predict", runs / "nc", "--nodes", tmp_path / "empty.txt"), "no names in it")
    (tmp_path / "latin.txt").write_bytes(b"Peru\nCuba\nCura\xe7ao\n")
    refused(rgcn("predict", runs / "nc", "--nodes", tmp_path / "latin.txt"), "line 3: not UTF-8")
    refused(rgcn("predict", runs / "nc", "--nodes", tmp_path / "none.txt"), "cannot be read")
    refused(rgcn("predict", runs / "nc", "--out", "classes.xlsx"), "must be one of .csv")


# -- links ------------------------------------------------------------------------------------------------


def test_missing_objects_of_a_subject(runs):
    done = rgcn("predict", runs / "lp", "--subject", "Peru", "--relation", "borders", "-k", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Peru") == 8
    assert "How reliable probabilities are: --reliability" in done.stdout
    assert "in the data" in done.stdout
    answer = json.loads(rgcn("predict", runs / "lp", "--object", "Peru", "--relation", "borders", "--json").stdout)
    assert [row["object"] for row in answer["answers"]] == ["Peru"] * 10
    scores = [row["score"] for row in answer["answers"]]
    assert scores == sorted(scores, reverse=True)


def test_every_relation_of_a_subject(runs, tmp_path):
    done = rgcn("predict", runs / "lp", "--subject", "Peru", "-k", "3", "--out", tmp_path / "peru.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "peru.jsonl").read_text().splitlines()]
    assert len({row["relation"] for row in rows}) > 25  # of the 31 relations; countries are not subjects of the others
    assert all((row["probability"] is None) == row["known"] for row in rows)
    single = [row for row in rows if row["relation"] == "capital"]
    assert [(row["object"], row["known"]) for row in single] == [("Lima", True)]
    all_ = rgcn("predict", runs / "lp", "--subject", "Peru", "-k", "3", "--any-node", "--out", tmp_path / "all.jsonl")
    assert all_.returncode == 0, all_.stderr
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 3 * 31


def test_a_file_of_questions_as_rdf_has_what_is_not_known(runs, tmp_path):
    (tmp_path / "q.csv").write_text("subject,relation\nPeru,borders\nChile,exports_to\n")
    ask = ("predict", runs / "lp", "--queries", tmp_path / "q.csv", "--out")
    assert rgcn(*ask, tmp_path / "new.nt").returncode == 0
    assert len(triples_of(tmp_path / "new.nt")) == 20
    marked = rgcn(*ask, tmp_path / "all.csv")
    assert marked.returncode == 0, marked.stderr
    frame = pl.read_csv(tmp_path / "all.csv")
    assert frame["known"].any()
    known = set(library.load("world").named())
    for row in frame.iter_rows(named=True):
        assert ((row["subject"], row["relation"], row["object"]) in known) == row["known"]


def test_a_note_says_which_question_it_is_about_also_where_answers_are_written(runs, tmp_path):
    (tmp_path / "q.csv").write_text("subject,relation\nPeru,capital\ncoffee,capital\nPeru,exports_to\n")
    ask = ("predict", runs / "lp", "--queries", tmp_path / "q.csv")
    lines = rgcn(*ask).stdout.splitlines()[-3:]
    question, known = lines[0].split(": ", 1)
    assert (question, "known" in known) == ("Peru —capital→ ?", True)
    senseless = "coffee is not expected as a subject of capital: no similar node is one"
    assert lines[1:] == [f"coffee —capital→ ?: {senseless}", "--any-node shows answers all the same"]
    for name in ("out.csv", "out.nt"):
        done = rgcn(*ask, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-3:] == lines
    frame = pl.read_csv(tmp_path / "out.csv")
    notes = {row["relation"]: row["note"] for row in frame.iter_rows(named=True)}
    assert notes == {"capital": known, "exports_to": None}
    assert json.loads(rgcn(*ask, "--json", "--out", tmp_path / "out.parquet").stdout)["notes"] == lines
    alone = rgcn("predict", runs / "lp", "--subject", "Peru", "--relation", "capital")
    assert alone.stdout.splitlines()[-1] == known
    turned = rgcn(
        "predict", runs / "lp", "--object", "Lima", "--relation", "capital", "--relation", "borders", "--json"
    )
    assert json.loads(turned.stdout)["notes"][0].startswith("? —capital→ Lima: ")


def test_k_limits_the_number_of_answers(runs, tmp_path):
    (tmp_path / "q.csv").write_text("subject,relation\nPeru,exports_to\nChile,exports_to\n")
    ask = ("predict", runs / "lp", "--queries", tmp_path / "q.csv")
    for k in (1, 10, 30):
        shown = rgcn(*ask, "-k", k).stdout
        assert [sum(line.startswith(f"  {name} ") for line in shown.splitlines()) for name in ("Peru", "Chile")] == [
            k
        ] * 2
        assert "more answers" not in shown
    (tmp_path / "q.csv").write_text("subject,relation\nPeru,exports_to\nChile,exports_to\nChile,borders\n")
    assert "and 10 more answers; -k 10 shows them all, --out FILE writes them" in rgcn(*ask).stdout


def test_invalid_questions_are_reported(runs, tmp_path):
    refused(rgcn("predict", runs / "lp"), "give --subject or --object", "rgcn complete")
    refused(rgcn("predict", runs / "lp", "--relation", "borders"), "either --subject or --object")
    refused(rgcn("predict", runs / "lp", "--subject", "Peru", "--object", "Chile"), "either --subject or --object")
    refused(rgcn("predict", runs / "lp", "--subject", "Peru", "--relation", "bordrs"), "Did you mean 'borders'")
    refused(rgcn("predict", runs / "lp", "--subject", "Peru", "--node", "Peru"), "not both")
    refused(rgcn("predict", runs / "lp", "--nodes", "x.txt"), "predicts links")
    refused(rgcn("predict", runs / "nc", "--subject", "Peru"), "classifies nodes")
    refused(rgcn("predict", tmp_path / "none"), "there is no such file or folder", "rgcn runs")


def test_the_reliability_table_is_shown(runs):
    for run in ("nc", "lp"):
        done = rgcn("predict", runs / run, "--reliability")
        assert done.returncode == 0, done.stderr
        assert "On the calibration data; the bar" in done.stdout
        assert " mean   right " in done.stdout
        values = json.loads(rgcn("predict", runs / run, "--reliability", "--json").stdout)
        assert values["calibration"]["reliability"]
        assert (runs / run / "calibration.json").exists()


# -- completion -------------------------------------------------------------------------------------------


def test_missing_triples_of_a_relation(runs, tmp_path):
    command = ("complete", runs / "lp", "--relation", "exports_to", "--min-probability", "0.0005")
    done = rgcn(*command, "--out", tmp_path / "new.nt")
    assert done.returncode == 0, done.stderr
    triples = triples_of(tmp_path / "new.nt")
    assert len(triples) > 10
    assert {triple.predicate.value for triple in triples} == {"urn:rgcn:relation:exports_to"}
    rows = [
        line.split("# score ")[1].split(", probability ") for line in (tmp_path / "new.nt").read_text().splitlines()
    ]
    probabilities = [float(pair[1]) for pair in rows]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[-1] >= 0.0005


def test_completion_as_a_table_and_as_json(runs, tmp_path):
    most = ("--limit", "50", "--min-probability", "0")
    done = rgcn("complete", runs / "lp", *most, "--only-seen", "--out", tmp_path / "new.parquet", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    frame = pl.read_parquet(tmp_path / "new.parquet")
    assert result["written"] == result["found"] == frame.height == 50
    known = set(library.load("world").named())
    assert not known & set(frame.select("subject", "relation", "object").iter_rows())
    shown = rgcn("complete", runs / "lp", *most, "--any-node")
    assert "and 30 more answers" in shown.stdout


def test_without_a_good_candidate_a_note_is_printed_and_an_empty_file_written(runs, tmp_path):
    done = rgcn("complete", runs / "lp", "--min-probability", "1", "--out", tmp_path / "none.csv")
    assert done.returncode == 0, done.stderr
    assert "0 missing triples" in done.stdout
    assert "The best candidate has probability" in done.stdout
    assert "lower --min-probability, which is 1" in done.stdout
    assert pl.read_csv(tmp_path / "none.csv").height == 0


def test_invalid_completions_are_refused(runs):
    refused(rgcn("complete", runs / "nc"), "classifies nodes")
    refused(rgcn("complete", runs / "lp", "--only-seen", "--any-node"), "contradict each other")
    refused(rgcn("complete", runs / "lp", "--out", "new.xlsx"), "must be one of .csv")
    refused(rgcn("complete", runs / "lp", "--relation", "export_to"), "Did you mean 'exports_to'")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way there")
def test_no_note_denies_missing_answers_if_an_answer_is_probable(runs, monkeypatch):
    monkeypatch.setattr(
        question_notes, "MIN_PROBABILITY_OF_MORE", 2.0
    )  # as if the number of known answers made further ones improbable
    has_note = {}
    for relation in ("party_to", "exports_to"):
        command = (
            "predict",
            runs / "lp",
            "--subject",
            "Bulgaria",
            "--relation",
            relation,
            "--known",
            "drop",
            "-k",
            "3",
        )
        shares = [row["probability"] for row in json.loads(rgcn(*command, "--json").stdout)["answers"]]
        probable = 1 - math.prod(1 - share for share in shares) > 0.5
        has_note[probable] = "probably nothing is missing here" in rgcn(*command).stdout
    assert has_note == {False: True, True: False}


def test_a_stopped_completion_is_resumed_by_the_same_command(runs, tmp_path, monkeypatch):
    answer, calls = VectorScorer.scores, []

    def slowly_then_interrupted(self, *questions):
        calls.append(questions)
        time.sleep(0.2 if len(calls) < 5 else 0)
        if len(calls) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return answer(self, *questions)

    monkeypatch.setattr(VectorScorer, "questions_per_batch", 16)
    command = ("complete", runs / "lp", "--min-probability", "0", "--relation", "exports_to", "--json", "--out")
    whole = json.loads(rgcn(*command, tmp_path / "whole.csv").stdout)
    out, kept = tmp_path / "new.csv", tmp_path / "new.csv.unfinished"
    assert not list(tmp_path.glob("*.unfinished"))  # short completions store no progress
    monkeypatch.setattr(VectorScorer, "scores", slowly_then_interrupted)
    first = json.loads(rgcn(*command, out, "--minutes", "0.01").stdout)
    assert 16 <= first["pairs"] == whole["pairs"] - first["left"] <= 64
    assert first["written"] == pl.read_csv(out).height > 0
    calls += [None] * (6 - len(calls))
    done = rgcn(*command, out)
    assert done.returncode == 130
    assert f"stopped by Ctrl-C after {first['pairs'] + 16} of {whole['pairs']} pairs" in done.stderr
    assert "the same command continues" in done.stderr
    refused(rgcn(*command, out, "-k", "3"), "with other options (k was 10, now 3)", "--restart")
    assert kept.exists()
    for more in ((), ("--restart",)):
        assert {**json.loads(rgcn(*command, out, *more).stdout), "out": ""} == {**whole, "out": ""}
        assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
        assert not kept.exists()
        kept.write_bytes(b"what a call left behind")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way there")
def test_an_interrupt_leaves_no_files_and_sets_the_exit_code(runs, tmp_path):
    shutil.copytree(runs / "lp", tmp_path / "lp")
    slow = (
        "import rgcn.predict.answer_tables as t, time, sys\n"
        "from rgcn.cli import main\n"
        "rows = t.link_triples\n"
        "def slowly(*a):\n"
        "    for line in rows(*a):\n"
        "        print('writing', file=sys.stderr, flush=True); time.sleep(60); yield line\n"
        "t.link_triples = slowly\n"
        "sys.argv = ['rgcn', 'complete', 'lp', '--limit', '5', '--min-probability', '0', '--out', 'new.nt']\n"
        "main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", slow], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert "writing" in process.stderr.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lp"]
