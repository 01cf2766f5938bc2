"""Test encoders, decoders, objectives, samplers and heads of another package wherever built-in ones are used. One of
them has no node vectors and computes each question separately.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from outside import command, forgotten, installed
from stranger_models import Doubled, EveryOther, Softmax, Translation, Walks

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.explain import explain_class, explain_link
from rgcn.links.completion import complete
from rgcn.links.relation_constraints import ALLOW_ALL
from rgcn.links.top_k import answer_links
from rgcn.models import LinkClassifier
from rgcn.nn.link_network import VectorNetwork
from rgcn.nn.scorer import Questions
from rgcn.predict.opened_model import with_new_triples
from rgcn.runs import load_configuration
from small_models import named_rows

HERE = Path(__file__).parent
MODELS = {
    "decoder": {"encoder": "c-rgcn", "decoder": Translation, "embedding": 8, "options": {"scale": 0.1}},
    "encoder": {"encoder": Walks, "embedding": 4, "layers": 2, "batch_edges": 60, "sampler": "uniform"},
    "objective": {"encoder": "rgcn", "embedding": 6, "objective": Softmax, "batch_edges": 8},
    "sampler": {"encoder": "none", "embedding": 6, "batch_edges": 20, "sampler": EveryOther},
    "all": {
        "encoder": Walks, "embedding": 4, "layers": 2, "objective": Softmax, "batch_edges": 8, "sampler": EveryOther
    },
}  # fmt: skip


def small_world():
    return rgcn.load("world").subgraph(range(90))


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def fitted(request):
    return rgcn.LinkPredictor(steps=6, evaluate_every=3, seed=1, **request.param).fit(small_world())


def test_it_is_evaluated_queried_and_calibrated(fitted):
    metrics = fitted.evaluate(split="test")
    assert 0 < metrics["mrr"] <= 1
    answers = named_rows(fitted.predict_frame(subject=0, relation=0, k=5))
    assert [t.score for t in answers] == sorted((t.score for t in answers), reverse=True)
    assert fitted.calibration_.fitted
    assert all(t.probability is None if t.known else 0 <= t.probability <= 1 for t in answers)
    scored, subjects = (
        named_rows(fitted.triples_frame([t[:3] for t in answers])),
        named_rows(fitted.predict_frame(relation=0, object=3, k=3)),
    )
    assert len(subjects) == 3
    if isinstance(fitted.network_, VectorNetwork):  # the same from both ends
        scored += named_rows(fitted.triples_frame([t[:3] for t in subjects]))
        both = [t.score for t in (*answers, *subjects)]
    else:  # a walk from the other end is another walk
        backs = [
            named_rows(fitted.predict_frame(relation=0, object=t.object, k=200, answer_filter=ALLOW_ALL))
            for t in answers
        ]
        back = [next(b.score for b in rows if b.subject == t.subject) for t, rows in zip(answers, backs, strict=True)]
        both = [(t.score + other) / 2 for t, other in zip(answers, back, strict=True)]
    assert [t.score for t in scored] == pytest.approx(both, rel=1e-4, abs=1e-5)


def test_saved_and_loaded_it_answers_the_same(fitted, tmp_path):
    fitted.save(str(tmp_path))
    opened = rgcn.open_model(tmp_path)
    nodes = torch.arange(10)
    questions = Questions(nodes, nodes % 3, nodes % 2 == 0)
    ours, theirs = answer_links(fitted, questions, 4), answer_links(opened, questions, 4)
    assert torch.equal(ours.node, theirs.node)
    assert torch.equal(ours.score, theirs.score)
    found = complete(opened, [0, 1], limit=20, min_probability=0.0)
    assert len(found) == 20
    assert (np.diff(found.score if found.probability is None else found.probability) <= 0).all()


def test_it_is_explained_by_its_triples(fitted, tmp_path):
    fitted.save(str(tmp_path))
    opened = rgcn.open_model(tmp_path)
    if not fitted.hooks_.num_layers:
        with pytest.raises(DataError, match="no message passing"):
            explain_link(opened, 0, 0, 1)
        return
    why = explain_link(opened, 0, 0, 1, edges=3, draws=2)
    assert why.score == pytest.approx(named_rows(fitted.triples_frame([(0, 0, 1)]))[0].score, rel=1e-4, abs=1e-5)
    assert why.fidelity.strength.full == pytest.approx(why.score, abs=1e-6)
    assert "<svg" in why.as_page()


def test_it_is_served(fitted, tmp_path):
    sys.path.append(str(HERE.parent / "serve"))
    from servers import asking

    from rgcn.serve import create_app, load_models

    fitted.save(str(tmp_path / "mine"))
    names, relation = fitted.graph_.nodes, fitted.graph_.relations[0]
    best = named_rows(fitted.predict_frame(subject=0, relation=0, k=3))
    (served,) = models = load_models([tmp_path / "mine"], device="cpu")
    links = next(group for group in served.groups if group.tag == "links")
    most = 64 if isinstance(fitted.network_, VectorNetwork) else 16  # as many as the scorer takes at once
    assert [links.queue("mark", k).max_batch for k in (10, 100, 1000)] == [most, most // 2, most // 8]
    with asking(create_app(models)) as client:
        query = {"subject": names[0], "relation": relation, "k": 3}
        links = client.get("/api/models/mine/links", params=query).json()["links"]
        assert [link["node"]["name"] for link in links] == [t.object for t in best]
        assert [link["score"] for link in links] == pytest.approx([t.score for t in best], rel=1e-4, abs=1e-5)
        triple = {"subject": names[0], "relation": relation, "object": names[1]}
        scored = client.post("/api/models/mine/score", json={"triples": [triple]}).json()["triples"][0]
        assert scored["score"] == pytest.approx(
            named_rows(fitted.triples_frame([(0, 0, 1)]))[0].score, rel=1e-4, abs=1e-5
        )
        why = client.get("/api/models/mine/explain", params={**triple, "edges": 3})
        assert (why.status_code == 200) == bool(fitted.hooks_.num_layers)


def test_a_model_without_node_vectors_needs_nothing_fitted_for_new_nodes(tmp_path):
    model = rgcn.LinkPredictor(steps=3, **MODELS["encoder"]).fit(small_world())
    assert not isinstance(model.network_, VectorNetwork)
    assert model.network_.source is None
    model.save(str(tmp_path / "model"))
    (tmp_path / "new.tsv").write_text(f"Atlantis\tborders\t{model.graph_.nodes[0]}\n")
    larger = with_new_triples(rgcn.open_model(tmp_path / "model"), tmp_path / "new.tsv")
    before, after = model.network_.state_dict(), larger.model.network_.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(named_rows(larger.model.predict_frame(subject="Atlantis", relation="borders", k=3))) == 3
    with pytest.raises(DataError, match="no node vectors"):
        model.embeddings()


def test_any_link_model_can_rank_classes(tmp_path):
    kg = rgcn.load("world")
    for settings in ({"model": "c-rgcn", "embedding": 16, "bottleneck": 8, "steps": 5}, MODELS["encoder"]):
        classifier = LinkClassifier(**{"steps": 2, **settings, "edge_dropout": 0.2}).fit(kg)
        metrics = classifier.measure()
        assert set(metrics) == {"train", "valid", "test"}
        classifier.save(str(tmp_path))
        opened = rgcn.open_model(tmp_path)
        assert opened.answers("classes")
        ours = classifier.predict_frame(["Peru"])
        assert ours.equals(opened.model.predict_frame(["Peru"]))
        why = explain_class(opened, opened.node("Peru"), draws=2, edges=3)
        assert why.score == pytest.approx(ours["score"][0], rel=1e-4, abs=1e-5)
    assert metrics["test"]["count"] == 51


def test_an_external_head():
    classifier = rgcn.NodeClassifier(head=Doubled, epochs=30, validation=0.2, patience=8, watch="accuracy")
    classifier.fit(rgcn.load("world"))
    assert classifier.measure()["test"]["accuracy"] > 0.5
    assert classifier.model.title == "rgcn+Doubled"


# -- options of components --------------------------------------------------------------------------------


def test_a_sampler_gets_its_options():
    model = rgcn.LinkPredictor(batch_edges=20, sampler=EveryOther, objective_options={"apart": 3})
    drawn = model.prepare(small_world()).trainer().sampler.sample(seed=0)
    assert set(np.diff(drawn)) == {3}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"encoder": "c-rgcn", "decoder": Translation, "options": {"scael": 2.0}},
            r"options\.scael: unknown key; did you mean 'scale'\? \(options of the encoder c-rgcn and the decoder "
            r"stranger_models:Translation\)",
        ),
        (
            {"decoder": Translation, "options": {"scale": "much"}},
            r"options\.scale: must be a valid number \(got 'much'\)",
        ),
        (
            {"options": {"margin": 2.0}},
            r"options\.margin: unknown key; the encoder rgcn and the decoder distmult declare no options: remove it",
        ),
        ({"sampler": EveryOther, "objective_options": {"appart": 3}}, r"objective_options\.appart: .* mean 'apart'\?"),
    ],
)
def test_options_that_no_component_declares_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        rgcn.LinkPredictor(**settings)


def test_options_of_a_head_are_checked():
    with pytest.raises(ConfigError, match="the head stranger_models:Doubled declare no options"):
        rgcn.NodeClassifier(head=Doubled, options={"width": 3})


OPTIONS = """
task: link-prediction
data: {dataset: world}
model:
  decoder: "stranger_models:Translation"
  options:
    scael: 2.0
"""


def test_options_in_a_file_and_on_the_command_line_are_checked_where_they_stand(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text(OPTIONS)
    with pytest.raises(ConfigError, match=r"options\.yaml, line 7: model\.options\.scael: .* did you mean 'scale'\?"):
        load_configuration(str(file))
    with pytest.raises(ConfigError, match=r"--set model\.options=\{slace: 1\}: model\.options\.slace: .*'scale'\?"):
        load_configuration(str(file), ["model.options={slace: 1}"])
    assert load_configuration(str(file), ["model.options={scale: 1}"]).model.options == {"scale": 1}


def test_a_run_with_options_that_are_no_longer_declared_can_still_be_read(tmp_path):
    """The run was trained by another version of the class."""
    (tmp_path / "config.yaml").write_text(OPTIONS)
    (tmp_path / "run.json").write_text("{}")
    assert load_configuration(str(tmp_path)).model.options == {"scael": 2.0}


# -- on the command line ---------------------------------------------------------------------------------


WALKS = """
task: link-prediction
data: {path: PATH}
model: {encoder: "stranger_models:Walks", embedding: 4, layers: 2}
training: {steps: 6, evaluate_every: 3, objective: "stranger_models:Softmax", batch_edges: 8, sampler: uniform}
checkpoints: {every_steps: 2}
"""


@pytest.fixture
def configuration(tmp_path):
    kg = small_world()
    for split in ("train", "valid", "test"):
        lines = ["\t".join(triple) for triple in kg.named(kg.split_triples(split))]
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "walks.yaml").write_text(WALKS.replace("PATH", str(tmp_path / "data")))
    return tmp_path / "walks.yaml"


def in_a_process(*arguments, cwd, **variables):
    """`rgcn ARGUMENTS` in its own process, which can import the external module."""
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), **variables}
    code = "import sys; from rgcn.cli import main; sys.argv[0] = 'rgcn'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=place,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_trains_stops_resumes_to_the_same_bits_reports_and_tunes(configuration, tmp_path, monkeypatch):
    whole = command("train", configuration, "--out", tmp_path / "whole", "--quiet")
    assert whole.returncode == 0, whole.stderr
    short = command("train", configuration, "--out", tmp_path / "short", "--set", "training.steps=6", "--quiet")
    assert short.returncode == 0, short.stderr
    # Back to the state after four steps, as if killed there.
    run = tmp_path / "short"
    for name in ("result.json",):
        (run / name).unlink()
    for path in sorted((run / "checkpoints").iterdir()):
        if "6" in path.stem.split("-")[-1]:
            path.unlink()
    resumed = command("resume", run, "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    weights = [(tmp_path / name / "model" / "weights.safetensors").read_bytes() for name in ("whole", "short")]
    assert weights[0] == weights[1]
    report = command("report", tmp_path / "whole")
    assert report.returncode == 0, report.stderr
    assert "Walks" in (tmp_path / "whole" / "report.html").read_text()
    tuned = command("tune", configuration, "--trials", "2", "--out", tmp_path / "tune", "--quiet", "--set",
                    "training.steps=3")  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr


def test_a_file_that_names_code_is_trusted_only_if_the_user_allows_it(configuration, tmp_path, monkeypatch):
    assert command("train", configuration, "--out", tmp_path / "run", "--quiet").returncode == 0
    arguments = ("predict", "run", "--subject", small_world().nodes[0], "--relation", "borders", "--json")
    refused = in_a_process(*arguments, cwd=tmp_path, RGCN_ALLOW="")
    assert refused.returncode == 1
    assert "stranger_models:Walks" in refused.stderr
    assert "--allow stranger_models" in refused.stderr
    allowed = in_a_process("--allow", "stranger_models", *arguments, cwd=tmp_path, RGCN_ALLOW="")
    assert allowed.returncode == 0, allowed.stderr
    assert json.loads(allowed.stdout)["answers"]
    missing = in_a_process("--allow", "stranger_models", *arguments, cwd=tmp_path, RGCN_ALLOW="", PYTHONPATH="")
    assert missing.returncode == 1
    assert "needs the package 'stranger_models', which is not installed" in missing.stderr


def test_an_entry_point_needs_no_permission(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    with installed(tmp_path, "rgcn.encoders", "walks = stranger_models:Walks"):
        model = rgcn.LinkPredictor(encoder="walks", embedding=4, steps=2, batch_edges=20).fit(small_world())
        model.save(str(tmp_path / "model"))
        assert json.loads((tmp_path / "model" / "model.json").read_text())["settings"]["encoder"] == "walks"
        forgotten("stranger_models", monkeypatch)
        assert rgcn.load_model(tmp_path / "model").model.title == "walks"
    with pytest.raises(ConfigError, match="unknown encoder 'walks'"):
        rgcn.load_model(tmp_path / "model")


def test_a_callback_stops_a_training():
    kg = small_world()
    seen = []

    def enough(epoch):
        seen.append(epoch.number)
        return epoch.number < 4

    model = rgcn.LinkPredictor(encoder="none", embedding=4, steps=100).fit(kg, enough)
    assert seen == [1, 2, 3, 4]
    assert model.history_[-1].number == 4
    model.evaluate(split="test")


@pytest.mark.parametrize(("watch", "best"), [("hits@10", max), ("mean_rank", min), ("mrr", max)])
def test_the_best_weights_are_selected_by_any_metric_of_the_task(watch, best):
    model = rgcn.LinkPredictor(encoder="none", embedding=6, steps=12, evaluate_every=2, learning_rate=0.3, watch=watch)
    model.fit(small_world())
    measured = [epoch[f"valid_{watch}"] for epoch in model.history_]
    assert model.evaluate(split="valid")[watch] == best(value for value in measured if value is not None)
