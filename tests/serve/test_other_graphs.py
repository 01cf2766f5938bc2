"""Graphs that are not `world`: IRIs, literals, blank nodes, several nodes of one title, models outside runs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from servers import asking

import rgcn
from rgcn.graph import titles
from rgcn.serve import create_app, load_models
from rgcn.serve.graph_endpoints import GraphEndpoints, ModelDetails, Neighbors
from rgcn.serve.link_endpoints import LinkAnswer

ADA, BOB, TOWN = "http://x.org/people#ada", "http://x.org/people#bob", "http://x.org/town"
STRANGE = '"a \\"quoted\\" text, ü, 日本, </script> and \\n a line"'
NAMES = [ADA, BOB, TOWN, STRANGE, "_:b0", "http://y.org/ada"]
MODEL = "/api/models/tiny"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    knows, lives, says = "http://x.org/knows", "http://x.org/livesIn", "http://x.org/says"
    kg = rgcn.KnowledgeGraph.from_triples(
        [
            (ADA, knows, BOB),
            (BOB, lives, TOWN),
            (ADA, says, STRANGE),
            (ADA, knows, "_:b0"),
            ("http://y.org/ada", knows, ADA),
        ],
        node_kinds=np.array([0, 0, 0, 1, 2, 0], dtype=np.uint8),
        name="tiny",
    )
    folder = tmp_path_factory.mktemp("models") / "tiny"
    rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(kg).save(str(folder))
    with asking(create_app(load_models([folder, folder], device="cpu"))) as client:
        yield client


def test_the_same_folder_twice_has_two_names(tiny):
    assert tiny.get("/api/health").json()["models"] == ["tiny", "tiny-2"]


def test_names_of_every_kind_are_found(tiny):
    for name in (*NAMES, "bob", "BOB", f"<{BOB}>", "Town"):
        response = tiny.get(MODEL + "/neighbors", params={"node": name})
        assert response.status_code == 200, response.text
        msgspec.json.decode(response.content, type=Neighbors)
    assert tiny.get(MODEL + "/neighbors", params={"node": STRANGE}).json()["node"]["kind"] == "literal"


def test_a_title_of_two_nodes_is_ambiguous(tiny):
    response = tiny.get(MODEL + "/neighbors", params={"node": "ada"})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "ambiguous")
    assert set(response.json()["error"]["suggestions"]) == {ADA, "http://y.org/ada"}


def test_links_search_and_card_of_a_saved_model(tiny):
    links = tiny.get(MODEL + "/links", params={"object": TOWN, "relation": "livesin", "k": 1000})
    msgspec.json.decode(links.content, type=LinkAnswer)
    assert {(link["split"], link["probability"]) for link in links.json()["links"]} == {(None, None)}
    assert {link["node"]["name"] for link in links.json()["links"] if link["known"]} == {BOB}
    assert tiny.get(MODEL + "/search", params={"q": "日本"}).json()["nodes"][0]["kind"] == "literal"
    details = tiny.get(MODEL)
    msgspec.json.decode(details.content, type=ModelDetails)
    assert details.json()["classes"] == []
    assert "saved outside a run" in tiny.get(MODEL + "/card").text


def test_a_model_that_passes_no_messages_cannot_say_why(tiny):
    assert tiny.get(MODEL).json()["explain_methods"] == []
    response = tiny.get(MODEL + "/explain", params={"subject": ADA, "relation": "knows", "object": BOB})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "cannot_explain")


def test_a_very_large_graph_is_searched_by_the_models_thread(monkeypatch, tmp_path):
    monkeypatch.setattr(titles, "QUICKLY_FOUND", 0)
    kg = rgcn.KnowledgeGraph.from_triples([("New Zealand", "near", "Zealandia"), ("Old Zealand", "near", "Zealandia")])
    rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(kg).save(str(tmp_path / "tiny"))
    (served,) = load_models([tmp_path / "tiny"], device="cpu")
    assert not served.names.finds_quickly
    asked = []
    (group,) = (group for group in served.groups if isinstance(group, GraphEndpoints))
    monkeypatch.setattr(group.searches, "answer", lambda questions: asked.append(questions) or [[2]])
    with asking(create_app([served])) as client:
        found = client.get(MODEL + "/search", params={"q": "zea", "limit": 1}).json()["nodes"]
        error = client.get(MODEL + "/neighbors", params={"node": "New Zeeland"}).json()["error"]
    assert asked == [[("zea", 1)]]
    assert [node["name"] for node in found] == ["Old Zealand"]
    assert error["suggestions"][0] == "New Zealand"
