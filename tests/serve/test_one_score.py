"""Test that a triple has one score in the command line, HTTP and Python, asked from either end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from small_models import named_rows

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from servers import asking

import rgcn
from rgcn.serve import create_app, load_models

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from in_process import rgcn as command

from small_models import random_graph

SMALL = {"steps": 3, "device": "cpu", "seed": 0}
WALKS = {"encoder": "path", "width": 6, "layers": 3, "objective": "softmax", "batch_edges": 8, "sampler": "uniform"}
MODELS = {
    "path": {**WALKS, **SMALL},
    "each hidden triple alone": {**WALKS, **SMALL, "normalization": "relation"},
    "popularity": {"model": "popularity", **SMALL},
    "rgcn": {"model": "rgcn", "embedding": 6, **SMALL},
    "distmult": {"encoder": "none", "embedding": 6, **SMALL},
    "complex, both directions apart": {"model": "complex", "embedding": 6, **SMALL},
    "rgcn with transe, both directions apart": {
        "model": "rgcn",
        "decoder": "transe",
        "reciprocal": True,
        "embedding": 6,
        **SMALL,
    },
}
SYMMETRIC = ("rgcn", "distmult")


def six_digits(number):
    return float(f"{number:.6g}")


@pytest.fixture(scope="module", params=[*MODELS, "pretrained"])
def served(request, tmp_path_factory):
    """(name, what commands are asked about, the same model in Python, a client of the server, nodes and relations)."""
    name, folder = request.param, tmp_path_factory.mktemp("served")
    graph = random_graph(3)
    if name == "pretrained":
        rows = ["\t".join(triple) for triple in graph.named(graph.split_triples("train"))]
        (folder / "graph.tsv").write_text("\n".join(rows) + "\n")
        place = folder / "graph.tsv"
    else:
        place = folder / "model"
        rgcn.LinkPredictor(**MODELS[name]).fit(graph).save(str(place))
    opened = rgcn.open_model(place, device="cpu")
    with asking(create_app(load_models([place], device="cpu"))) as client:
        yield name, place, opened, client


def from_end(served, triple, end):
    """Return the row of the triple as an answer to a question with one end: in Python, by a command, by HTTP."""
    _, place, opened, client = served
    subject, relation, object_ = triple
    given, answer = ("subject", object_) if end == "subject" else ("object", subject)
    query = {given: triple[0 if end == "subject" else 2], "relation": relation}
    other = "object" if end == "subject" else "subject"
    rows = named_rows(opened.model.predict_frame(**query, k=100))
    (python,) = [row for row in rows if getattr(row, other) == answer]
    words = [part for key, value in query.items() for part in (f"--{key}", value)]
    done = command("predict", place, *words, "-k", 100, "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)["answers"]
    links = client.get(f"/api/models/{place.name}/links", params={**query, "k": 100}).json()["links"]
    assert [row[other] for row in printed] == [link["node"]["name"] for link in links]
    assert [row[other] for row in printed] == [getattr(row, other) for row in rows]
    assert [row.score for row in rows] == sorted((row.score for row in rows), reverse=True)
    (row,) = [row for row in printed if row[other] == answer]
    (link,) = [link for link in links if link["node"]["name"] == answer]
    keys = ("score", "probability", "known")
    assert [row[key] for key in keys] == [getattr(python, key) for key in keys]
    assert [link["score"], link["known"]] == [six_digits(python.score), python.known]
    assert link["probability"] == (None if python.probability is None else six_digits(python.probability))
    return python


def scored(served, triple):
    """Return the score of the triple: in Python, by HTTP, and in explanations of both."""
    _, place, opened, client = served
    (python,) = named_rows(opened.model.triples_frame([triple]))
    named = dict(zip(("subject", "relation", "object"), triple, strict=True))
    (row,) = client.post(f"/api/models/{place.name}/score", json={"triples": [named]}).json()["triples"]
    assert [row["score"], row["known"]] == [six_digits(python.score), python.known]
    assert row["probability"] == (None if python.probability is None else six_digits(python.probability))
    if opened.model.hooks_.num_layers:
        words = [part for key, value in named.items() for part in (f"--{key}", value)]
        done = command("explain", place, *words, "--draws", 1, "--device", "cpu", "--json")
        assert done.returncode == 0, done.stderr
        answer = client.get(f"/api/models/{place.name}/explain", params=named)
        for why in (json.loads(done.stdout), answer.json()):
            assert why["score"] == pytest.approx(python.score, rel=1e-6, abs=1e-6)
            assert why["probability"] == python.probability
            assert why["fidelity"]["strength"]["full"] == pytest.approx(python.score, rel=1e-4, abs=1e-5)
    return python


def of_both_kinds(opened, of_each=2):
    """Known triples and proposed ones, each an answer from both ends."""
    graph, model, found = opened.graph, opened.model, {True: [], False: []}
    for subject, relation in sorted({row[:2] for row in graph.named(graph.split_triples("train"))}):
        for row in named_rows(model.predict_frame(subject=subject, relation=relation, k=100)):
            back = named_rows(model.predict_frame(object=row.object, relation=relation, k=100))
            if len(found[row.known]) < of_each and subject in [one.subject for one in back]:
                found[row.known].append(tuple(row[:3]))
        if min(map(len, found.values())) == of_each:
            return found
    raise AssertionError("too few triples")


def test_command_line_http_and_python_agree_about_every_triple(served):
    name, _, opened, _ = served
    triples, differ = of_both_kinds(opened), []
    for is_known, rows in triples.items():
        for triple in rows:
            there, back = (from_end(served, triple, end) for end in ("subject", "object"))
            whole = scored(served, triple)
            assert {there.known, back.known, whole.known} == {is_known}
            assert whole.score == pytest.approx((there.score + back.score) / 2, rel=1e-5, abs=1e-5)
            if whole.probability is not None:
                wanted = (there.probability + back.probability) / 2
                assert whole.probability == pytest.approx(wanted, rel=1e-4, abs=1e-6)
            assert (whole.probability is None) == (is_known or not opened.calibration.fitted)
            differ.append(there.score != pytest.approx(back.score, rel=1e-4, abs=1e-5))
    assert not any(differ) if name in SYMMETRIC else any(differ)


def test_doubtful_triples_are_those_of_the_lowest_scores(served):
    _, _, opened, _ = served
    train = sorted({tuple(row) for row in opened.graph.named(opened.graph.split_triples("train"))})
    every = sorted(named_rows(opened.model.triples_frame(train)), key=lambda row: row.score)
    kg = rgcn.KnowledgeGraph(opened.graph.split_triples("train"), opened.graph.nodes, opened.graph.relations)
    found = named_rows(opened.model.least_likely(kg, k=5))
    assert [row.score for row in found] == pytest.approx([row.score for row in every[:5]], rel=1e-5, abs=1e-5)
    assert all(row.known for row in found)


def test_of_hundreds_of_known_answers_few_are_shown_and_the_note_says_so(tmp_path):
    rows = [("hub", "has", f"n{i}") for i in range(300)] + [(f"n{i}", "next", f"n{i + 1}") for i in range(300)]
    place = tmp_path / "hub"
    rgcn.LinkPredictor(**{**MODELS["path"], "steps": 1}).fit(rgcn.KnowledgeGraph.from_triples(rows)).save(str(place))
    (model,) = models = load_models([place], device="cpu")
    links = next(group for group in model.groups if group.tag == "links")
    at_once = model.opened.scorer().questions_per_batch
    assert [links.queue(known, 10).max_batch for known in ("mark", "drop")] == [at_once // 8, at_once]
    query = {"subject": "hub", "relation": "has"}
    with asking(create_app(models)) as client:
        for k, note in ((5, False), (100, True)):
            answer = client.get("/api/models/hub/links", params={**query, "k": k}).json()
            assert sum(link["known"] for link in answer["links"]) <= 20
            assert ("280 more known answers are not shown" in (answer["note"] or "")) is note
    words = ("--subject", "hub", "--relation", "has", "-k", 100, "--device", "cpu", "--json")
    (note,) = json.loads(command("predict", place, *words).stdout)["notes"]
    assert note.endswith("280 more known answers are not shown")
