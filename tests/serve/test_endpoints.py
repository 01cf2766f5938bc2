"""Test groups of endpoints: those for the kinds of answers of a task, and those that the task declares."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from servers import asking
from stranger import BothAtOnce, CousinFinder, CousinsAnswer, ThiefFinder

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.plugins import TASKS
from rgcn.serve import create_app, load_models
from rgcn.serve.answer_endpoints import ClassAnswer, LinkAnswer
from rgcn.serve.common_endpoints import ExplainAnswer
from rgcn.serve.served_model import groups_of

MODEL = "/api/models/tiny"
PEOPLE = [f"person {i}" for i in range(12)]


@pytest.fixture(scope="module")
def graph():
    """Return people who read one of two books, which is their class; no labels are held out for calibration."""
    triples = [(name, "reads", f"book {i % 2}") for i, name in enumerate(PEOPLE)]
    kg = rgcn.KnowledgeGraph.from_triples(triples, name="readers")
    return kg.with_labels({"train": {name: f"group {i % 2}" for i, name in enumerate(PEOPLE)}})


@pytest.fixture
def serving(graph, tmp_path):
    """Save an estimator and serve the saved model."""

    def served(estimator):
        estimator.fit(graph).save(str(tmp_path / "tiny"))
        return create_app(load_models([tmp_path / "tiny"], device="cpu"))

    return served


def test_no_module_of_the_subpackage_names_a_task():
    package = Path(rgcn.__file__).parent / "serve"
    files = [*package.glob("*.py"), *package.glob("explorer/*.js"), package.parent / "cli" / "serve.py"]
    found = [file.name for file in files for name in TASKS.names() if name in file.read_text(encoding="utf-8")]
    assert found == []


def test_an_external_task_adds_its_endpoints(serving):
    with asking(serving(CousinFinder(hidden=4, epochs=2, device="cpu"))) as client:
        found = client.get(MODEL + "/cousins", params={"node": "Person 2"})
        msgspec.json.decode(found.content, type=CousinsAnswer)
        assert found.json()["cousins"] == [PEOPLE[i] for i in (0, 4, 6, 8, 10)]
        about = client.get(MODEL).json()
        assert (about["task"], about["answers"]) == ("stranger:Cousins", [])
        for path in ("class?node=person+2", "links?subject=person+2&relation=reads", "explain?node=person+2"):
            error = client.get(f"{MODEL}/{path}").json()["error"]
            assert error["code"] == "wrong_task"
            assert "/search, /neighbors, /explain, /cousins" in error["message"]
        described = client.get("/openapi.json").json()["paths"]["/api/models/{model}/cousins"]["get"]
        assert (described["summary"], described["description"]) == ("Find Cousins", "Nodes of the same class.")
        parameters = {row["name"]: row["example"] for row in described["parameters"]}
        assert client.get(MODEL + "/cousins", params={"node": parameters["node"]}).status_code == 200
        assert client.get(MODEL + "/cousins", params={"nod": "x"}).json()["error"]["suggestions"] == ["node"]
        assert 'rgcn_batch_questions_count{kind="cousins",model="tiny"} 2.0' in client.get("/metrics").text


def test_a_model_that_answers_both_kinds_has_both_groups(serving):
    with asking(serving(BothAtOnce("rgcn", embedding=8, epochs=2, device="cpu"))) as client:
        assert client.get(MODEL).json()["answers"] == ["classes", "links"]
        one = client.get(MODEL + "/class", params={"node": "person 2"})
        msgspec.json.decode(one.content, type=ClassAnswer)
        links = client.get(MODEL + "/links", params={"subject": "person 2", "relation": "reads", "k": 3})
        msgspec.json.decode(links.content, type=LinkAnswer)
        for query in ({"node": "person 2"}, {"subject": "person 2", "relation": "reads", "object": "book 0"}):
            why = client.get(MODEL + "/explain", params=query)
            assert why.status_code == 200, why.text
            msgspec.json.decode(why.content, type=ExplainAnswer)


def test_a_calibration_on_classes_gives_no_probabilities_of_links(tmp_path):
    BothAtOnce("distmult", embedding=8, epochs=2, device="cpu").fit(rgcn.load("world")).save(str(tmp_path / "tiny"))
    with asking(create_app(load_models([tmp_path / "tiny"], device="cpu"))) as client:
        assert client.get(MODEL + "/class", params={"node": "Peru"}).json()["probability"] is not None
        triple = {"subject": "Peru", "relation": "borders", "object": "Chile"}
        query = {key: triple[key] for key in ("subject", "relation")}
        links = client.get(MODEL + "/links", params=query).json()["links"]
        scored = client.post(MODEL + "/score", json={"triples": [triple]}).json()["triples"]
        assert {row["probability"] for row in (*links, *scored)} == {None}


def test_two_groups_with_one_endpoint_are_refused(serving):
    with pytest.raises(ConfigError, match="ThiefEndpoints has an endpoint 'GET links'"):
        serving(ThiefFinder(hidden=4, epochs=2, device="cpu"))


def test_without_held_out_labels_there_are_scores_and_no_probabilities(serving):
    with asking(serving(rgcn.NodeClassifier(hidden=4, epochs=2, device="cpu"))) as client:
        answer = client.get(MODEL + "/class", params={"node": "person 2"}).json()
        assert (answer["probability"], {row["probability"] for row in answer["classes"]}) == (None, {None})
        assert answer["score"] == answer["classes"][0]["score"] > answer["classes"][1]["score"]
        why = client.get(MODEL + "/explain", params={"node": "person 2"})
        msgspec.json.decode(why.content, type=ExplainAnswer)
        assert why.json()["probability"] is why.json()["fidelity"]["probability"] is None
        assert why.json()["fidelity"]["strength"]["name"] == "the log-odds"
        about = client.get(MODEL).json()["calibration"]
        assert (about["fitted"], about["words"][:17]) == (False, "No probabilities:")


def test_a_model_whose_numbers_are_not_finite_is_not_served(graph, tmp_path):
    for name, model in (
        ("classes", rgcn.NodeClassifier(hidden=4, epochs=1, device="cpu")),
        ("links", rgcn.LinkPredictor(encoder="none", embedding=4, steps=1, device="cpu")),
    ):
        model.fit(graph)
        for parameter in model.network_.parameters():
            parameter.data.fill_(float("nan"))
        model.save(str(tmp_path / name))
        with pytest.raises(DataError, match="its training has diverged"):
            load_models([tmp_path / name], device="cpu")


def test_every_endpoint_is_declared_once_with_words():
    declared = [endpoint for group in groups_of(None) for endpoint in group.declared()]
    assert len({endpoint.key for endpoint in declared}) == len(declared) == 10
    assert all(endpoint.function.__doc__ for endpoint in declared)
