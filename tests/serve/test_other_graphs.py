"""Graphs that are not `world`: IRIs, literals, blank nodes, several nodes of one title, models outside runs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from servers import asking

import rgcn
from rgcn.graph import titles
from rgcn.serve import Limits, create_app, load_models
from rgcn.serve.answer_endpoints import LinkAnswer
from rgcn.serve.common_endpoints import GraphEndpoints, ModelDetails, Neighbors

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
    rgcn.LinkPredictor(encoder="none", embedding=4, steps=1).fit(kg).save(str(folder))
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


LONG = ["x" * 2500, "日本" * 1500, '"' + "POLYGON ((7.1 46.9, " * 5000 + '))"', "http://x.org/" + "long-" * 500]


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    """Return a graph with very long names of nodes, relations and classes."""
    triples = [(name, relation, other) for name in LONG for relation in ("r", "s" * 3000) for other in (*LONG, "short")]
    kg = rgcn.KnowledgeGraph.from_triples(triples, name="long", labels={name: name for name in LONG})
    folder = tmp_path_factory.mktemp("models")
    rgcn.LinkPredictor("rgcn", embedding=4, steps=1, device="cpu").fit(kg).save(str(folder / "links"))
    rgcn.NodeClassifier(hidden=4, epochs=1, device="cpu").fit(kg).save(str(folder / "classes"))
    with asking(create_app(load_models([folder / "links", folder / "classes"], device="cpu"))) as client:
        yield client


def test_every_name_in_an_answer_can_be_queried(long_names):
    def ask(model, what, **query):
        response = long_names.get(f"/api/models/{model}{what}", params=query)
        assert response.status_code == 200, response.text[:300]
        assert len(response.request.url.raw_path) < Limits().max_head_bytes - 4096  # the limit for headers
        return response.json()

    given = [link["node"]["name"] for link in ask("links", "/links", subject="short", relation="r", k=10)["links"]]
    assert set(given) > {LONG[0], LONG[3]}  # a moderately long one is unchanged
    assert max(map(len, given)) < 9000
    for name in given:
        assert ask("links", "/neighbors", node=name)["node"]["name"] == name
        found = ask("classes", "/class", node=name)
        ask("classes", "/explain", node=name, **{"class": found["class"]["name"]})
    for relation in ask("links", "")["relations"]:
        for end in given:
            ask("links", "/links", object=end, relation=relation["name"])
            query = {"subject": end, "relation": relation["name"], "object": given[0]}
            explained = ask("links", "/explain", edges=1, **query)
            assert all(edge["subject"]["name"] in given for edge in explained["edges"])
            scored = long_names.post("/api/models/links/score", json={"triples": [query]}).json()["triples"][0]
            assert (scored["subject"]["name"], scored["object"]["name"]) == (end, given[0])
    examples = long_names.get("/openapi.json").json()["paths"]["/api/models/{model}/neighbors"]["get"]["parameters"]
    ask("links", "/neighbors", node=next(one["example"] for one in examples if one["name"] == "node"))


def test_a_long_name_can_be_queried_unshortened(long_names):
    whole = {"nodes": [LONG[0], LONG[2]]}
    assert long_names.post("/api/models/classes/classes", json=whole).status_code == 200
    refused = long_names.post("/api/models/classes/classes", json={"nodes": ["x" * 200_000]})
    assert f"at most {len(LONG[2]):,} characters" in refused.json()["error"]["message"]


def test_a_plain_name_is_not_an_iri(long_names, tiny):
    def kind(client, model, name):
        return client.get(f"/api/models/{model}/neighbors", params={"node": name}).json()["node"]["kind"]

    assert [kind(long_names, "links", name) for name in (LONG[0], LONG[3], "short")] == ["name", "iri", "name"]
    assert [kind(tiny, "tiny", name) for name in (ADA, STRANGE, "_:b0")] == ["iri", "literal", "blank"]
    kinds = long_names.get("/openapi.json").json()["components"]["schemas"]["Node"]["properties"]["kind"]
    assert "name" in kinds["enum"]


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


def test_a_model_without_messages_cannot_explain(tiny):
    assert tiny.get(MODEL).json()["explain_methods"] == []
    response = tiny.get(MODEL + "/explain", params={"subject": ADA, "relation": "knows", "object": BOB})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "cannot_explain")


def test_a_very_large_graph_is_searched_by_the_models_thread(monkeypatch, tmp_path):
    monkeypatch.setattr(titles, "MAX_FAST_NAMES", 0)
    kg = rgcn.KnowledgeGraph.from_triples([("New Zealand", "near", "Zealandia"), ("Old Zealand", "near", "Zealandia")])
    rgcn.LinkPredictor(encoder="none", embedding=4, steps=1).fit(kg).save(str(tmp_path / "tiny"))
    (served,) = load_models([tmp_path / "tiny"], device="cpu")
    assert not served.names.is_search_fast
    calls = []
    (group,) = (group for group in served.groups if isinstance(group, GraphEndpoints))
    monkeypatch.setattr(group.searches, "answer", lambda questions: calls.append(questions) or [[2]])
    with asking(create_app([served])) as client:
        found = client.get(MODEL + "/search", params={"q": "zea", "limit": 1}).json()["nodes"]
        error = client.get(MODEL + "/neighbors", params={"node": "New Zeeland"}).json()["error"]
    assert calls == [[("zea", 1)]]
    assert [node["name"] for node in found] == ["Old Zealand"]
    assert error["suggestions"][0] == "New Zealand"
