"""Test the API: every endpoint answers by its schema, for any kind of name."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
import torch
from servers import asking

from rgcn.links.top_k import answer_links
from rgcn.nn.scorer import Questions
from rgcn.predict import questions as question_notes
from rgcn.serve import Limits, create_app
from rgcn.serve.answer_endpoints import ClassAnswer, ClassAnswerList, LinkAnswer, LinkAnswerList, Scores
from rgcn.serve.common_endpoints import ModelDetails, Neighbors, NodeFacts, SearchResults
from rgcn.serve.schemas import Error
from rgcn.serve.server import Health, Models
from small_models import named_rows

NC, LP = "/api/models/classes-of-world", "/api/models/links-of-world"


def checked(response, shape):
    """Return the JSON of a response that matches its schema."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    msgspec.json.decode(response.content, type=shape)
    return response.json()


def refused(response, status, code):
    """Return the message of an error response."""
    assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text
    msgspec.json.decode(response.content, type=Error)
    return response.json()["error"]


def test_health_and_models(client):
    health = checked(client.get("/api/health"), Health)
    assert health["models"] == ["classes-of-world", "links-of-world"]
    lines = checked(client.get("/api/models"), Models)["models"]
    assert [line["task"] for line in lines] == ["node-classification", "link-prediction"]
    assert [line["answers"] for line in lines] == [["classes"], ["links"]]
    assert lines[0]["headline"].startswith("test accuracy")
    assert lines[1]["headline"].startswith("test MRR 0.")


@pytest.mark.parametrize("address", [NC, LP])
def test_details_of_a_model(client, models, address):
    details = checked(client.get(address), ModelDetails)
    assert details["counts"]["nodes"] == models[0].graph.num_nodes
    assert sum(relation["count"] for relation in details["relations"]) == details["counts"]["triples"]
    assert details["explain_methods"] == ["integrated-gradients", "edge-mask"]
    assert details["calibration"]["words"]
    assert len(details["examples"]["nodes"]) == 5
    assert (len(details["classes"]) > 1) == (address == NC)


def test_a_card_in_markdown(client):
    response = client.get(NC + "/card")
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "# " in response.text


def test_search(client, models):
    found = checked(client.get(LP + "/search", params={"q": "swit"}), SearchResults)
    assert (found["query"], found["nodes"][0]["name"]) == ("swit", "Switzerland")
    kg = models[1].graph
    assert found["nodes"][0]["degree"] == len({tuple(t) for t in kg.named() if "Switzerland" in (t[0], t[2])})
    assert checked(client.get(LP + "/search", params={"q": ""}), SearchResults)["nodes"] == []
    assert len(checked(client.get(LP + "/search", params={"q": "a", "limit": 3}), SearchResults)["nodes"]) == 3


def test_pages_of_facts_are_complete_and_disjoint(client, models):
    whole = checked(client.get(LP + "/neighbors", params={"node": "Peru", "limit": 1000}), Neighbors)
    known = models[1].graph.neighbors("Peru")
    facts = {(fact["relation"]["name"], fact["node"]["name"], fact["outgoing"]) for fact in whole["facts"]}
    assert facts == {tuple(fact) for fact in known}
    assert whole["total"] == len(known)
    outgoing = [fact["outgoing"] for fact in whole["facts"]]
    assert outgoing == sorted(outgoing, reverse=True)
    assert {fact["split"] for fact in whole["facts"]} == {"train", "valid", "test"}
    pages = []
    for offset in range(0, whole["total"], 40):
        parameters = {"node": "Peru", "limit": 40, "offset": offset}
        pages += client.get(LP + "/neighbors", params=parameters).json()["facts"]
    assert pages == whole["facts"]
    beyond = client.get(LP + "/neighbors", params={"node": "Peru", "offset": 999_999_999}).json()
    assert (beyond["facts"], beyond["total"]) == ([], whole["total"])


def test_the_class_of_a_node(client, models):
    answer = checked(client.get(NC + "/class", params={"node": "switzerland"}), ClassAnswer)
    opened = models[0].opened
    logits, classes = opened.model.logits(["Switzerland"])[0].tolist(), opened.model.classes_
    assert [answer["class"]["name"]] == opened.model.predict(["Switzerland"]).tolist()
    scores = [row["score"] for row in answer["classes"]]
    assert scores == sorted(scores, reverse=True)
    assert scores == pytest.approx(sorted(logits, reverse=True), rel=1e-4)
    shares = {row["class"]["name"]: row["probability"] for row in answer["classes"]}
    assert shares == pytest.approx(
        dict(zip(classes, opened.model.predict_proba(["Switzerland"])[0], strict=True)), rel=1e-4
    )
    first = answer["classes"][0]
    assert {key: answer[key] for key in first} == first
    assert answer["label"]["name"] == "Europe"
    assert answer["label_split"] in ("train", "valid", "test")
    many = checked(client.post(NC + "/classes", json={"nodes": ["Switzerland", "Peru"]}), ClassAnswerList)
    assert many["predictions"][0] == answer
    unlabeled = client.get(NC + "/class", params={"node": "coffee"}).json()
    assert (unlabeled["label"], unlabeled["label_split"]) == (None, None)


@pytest.mark.parametrize("known", ["mark", "drop"])
@pytest.mark.parametrize("end", ["subject", "object"])
def test_links_are_those_of_the_model(client, models, known, end):
    opened = models[1].opened
    parameters = {end: "Peru", "relation": "exports_to", "k": 7, "known": known}
    answer = checked(client.get(LP + "/links", params=parameters), LinkAnswer)
    peru, exports = torch.tensor([opened.node("Peru")]), torch.tensor([opened.relation("exports_to")])
    expected = answer_links(opened, Questions(peru, exports, end == "subject"), 7, known)
    names = [opened.graph.nodes[i] for i in expected.node[0].tolist()]
    assert [link["node"]["name"] for link in answer["links"]] == names
    assert [link["known"] for link in answer["links"]] == expected.known[0].tolist()
    assert [link["score"] for link in answer["links"]] == pytest.approx(expected.score[0].tolist(), rel=1e-4)
    assert [link["probability"] is None for link in answer["links"]] == expected.known[0].tolist()  # in the data
    assert [link["probability"] or math.nan for link in answer["links"]] == pytest.approx(
        expected.probability[0].tolist(), rel=1e-4, nan_ok=True
    )
    assert answer["note"] is None
    assert all((link["split"] == "train") == link["known"] for link in answer["links"])
    given = answer["query"].pop(end)
    assert given["name"] == "Peru"
    assert [answer["query"][other] for other in ("subject", "object") if other != end] == [None]


def test_a_question_has_a_note_if_its_status_is_special(client):
    queries = [
        {"subject": "Switzerland", "relation": "capital"},
        {"subject": "coffee", "relation": "capital"},
        {"subject": "Peru", "relation": "exports_to"},
    ]
    many = checked(client.post(LP + "/links", json={"queries": queries, "k": 4}), LinkAnswerList)["answers"]
    assert [[link["known"] for link in answer["links"]] for answer in many[:2]] == [[True], []]
    assert many[0]["note"] == "1 known; probably nothing is missing here"
    assert many[1]["note"].startswith("coffee is not expected as a subject of capital: no similar node is one")
    assert many[2]["note"] is None
    assert len(many[2]["links"]) == 4


def test_no_note_denies_missing_answers_if_an_answer_is_probable(client, monkeypatch):
    monkeypatch.setattr(
        question_notes, "MIN_PROBABILITY_OF_MORE", 2.0
    )  # as if the number of known answers made further ones improbable
    notes = {}
    for k in (1, 1000):  # all of them are new answers
        query = {"subject": "China", "relation": "borders", "known": "drop", "k": k}
        answer = client.get(LP + "/links", params=query).json()
        probable = 1 - math.prod(1 - link["probability"] for link in answer["links"]) > 0.5
        notes[probable] = answer["note"]
    assert notes[False].endswith("known; probably nothing is missing here")
    assert notes[True] is None


def test_many_links_at_once_are_the_single_ones(client):
    queries = [
        {"subject": "Peru", "relation": "exports_to"},
        {"object": "Switzerland", "relation": "borders"},
        {"subject": "Norway", "relation": "exports_to"},
    ]
    many = checked(client.post(LP + "/links", json={"queries": queries, "k": 4}), LinkAnswerList)
    alone = [client.get(LP + "/links", params={**query, "k": 4}).json() for query in queries]
    nodes = [[link["node"] for link in answer["links"]] for answer in many["answers"]]
    assert nodes == [[link["node"] for link in answer["links"]] for answer in alone]
    assert [answer["query"] for answer in many["answers"]] == [answer["query"] for answer in alone]


def test_scores_of_triples(client, models):
    triples = [
        {"subject": "Peru", "relation": "borders", "object": "Chile"},
        {"subject": "peru", "relation": "borders", "object": "Norway"},
    ]
    answer = checked(client.post(LP + "/score", json={"triples": triples}), Scores)
    named = [tuple(t.values()) for t in (triples[0], {**triples[1], "subject": "Peru"})]
    expected = named_rows(models[1].opened.model.triples_frame(named))
    assert [row["score"] for row in answer["triples"]] == pytest.approx([one.score for one in expected], rel=1e-4)
    assert answer["triples"][0]["probability"] is expected[0].probability is None  # it is in the data
    assert answer["triples"][1]["probability"] == pytest.approx(expected[1].probability, rel=1e-4)
    assert [(row["known"], row["split"]) for row in answer["triples"]] == [(True, "train"), (False, None)]


def test_a_held_out_triple_is_not_marked_as_known(models):
    graph = models[1].graph
    relation, kept = graph.relations.id("member_of"), graph.split_triples("test")
    subject, held_out = (graph.nodes[end] for end in kept[kept[:, 1] == relation][0, [0, 2]])
    query, splits = {"subject": subject, "relation": "member_of", "k": graph.num_nodes}, {}
    with asking(create_app(models, Limits(max_k=graph.num_nodes))) as client:
        for known in ("mark", "drop"):
            links = client.get(LP + "/links", params={**query, "known": known}).json()["links"]
            splits[known] = {link["node"]["name"]: link["split"] for link in links}
        triple = {"subject": subject, "relation": "member_of", "object": held_out}
        row = client.post(LP + "/score", json={"triples": [triple]}).json()["triples"][0]
    assert (row["known"], row["split"], splits["drop"][held_out]) == (False, "test", "test")
    assert {*splits["mark"].values()} == {None, "train", "valid", "test"}
    assert splits["drop"] == {name: split for name, split in splits["mark"].items() if split != "train"}


def test_long_requests_are_answered_in_order(client, models):
    names = list(models[1].graph.nodes)[:250]
    nodes = checked(client.post(NC + "/classes", json={"nodes": names}), ClassAnswerList)["predictions"]
    assert [answer["node"]["name"] for answer in nodes] == names
    triples = [{"subject": name, "relation": "borders", "object": "Peru"} for name in names]
    scored = checked(client.post(LP + "/score", json={"triples": triples}), Scores)["triples"]
    assert [row["subject"]["name"] for row in scored] == names


def test_titles_are_prepared_before_requests_are_served(models):
    for served in models:
        kinds = [
            served.names._nodes,
            served.names._relations,
            *([served.names._classes] if served.graph.labels else []),
        ]
        assert all("search" in vars(called) for called in kinds)


def test_unknown_names_are_answered_with_near_ones(client):
    error = refused(client.get(LP + "/neighbors", params={"node": "Swizerland"}), 404, "unknown_node")
    assert error["suggestions"][0] == "Switzerland"
    assert "Did you mean 'Switzerland'" in error["message"]
    parameters = {"subject": "Peru", "relation": "exprots_to"}
    assert (
        refused(client.get(LP + "/links", params=parameters), 404, "unknown_relation")["suggestions"][0] == "exports_to"
    )
    parameters = {"node": "Peru", "class": "Europa"}
    assert refused(client.get(NC + "/explain", params=parameters), 404, "unknown_class")["suggestions"] == ["Europe"]
    assert refused(client.get("/api/models/link-of-world"), 404, "unknown_model")["suggestions"][0] == "links-of-world"


def test_a_model_of_another_task_lists_its_endpoints(client):
    error = refused(client.get(LP + "/class", params={"node": "Peru"}), 409, "wrong_task")
    assert "is for link-prediction and does not answer /class" in error["message"]
    assert "use /card, /search, /neighbors, /explain, /links, /score, or another model" in error["message"]
    parameters = {"subject": "Peru", "relation": "borders"}
    error = refused(client.get(NC + "/links", params=parameters), 409, "wrong_task")
    assert "/class, /classes" in error["message"]
    error = refused(client.get(NC + "/explain", params={**parameters, "object": "Chile"}), 409, "wrong_task")
    assert "does not answer why a triple is likely" in error["message"]
    error = refused(client.get(LP + "/explain", params={"node": "Peru"}), 409, "wrong_task")
    assert "does not answer why a node has a class" in error["message"]


def test_the_page_and_its_files_come_from_memory(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    script = client.get("/assets/explorer.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    again = client.get("/assets/explorer.js", headers={"If-None-Match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    refused(client.get("/assets/index.html"), 404, "not_found")


def test_head_gives_the_headers_of_get(client):
    for path in ("/", "/api/health", LP + "/search?q=swit"):
        whole, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_headers_that_protect(client):
    answer = client.get("/api/health")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_wrong_method_is_answered_with_the_right_ones(client):
    response = client.put(LP + "/links")
    refused(response, 405, "wrong_method")
    assert response.headers["allow"] == "GET, HEAD, POST"


def test_metrics_count_by_url_pattern(client):
    client.get(LP + "/links", params={"subject": "Peru", "relation": "borders"})
    client.get("/some/path/of/a/stranger")
    client.request("BREW", "/api/health")
    text = client.get("/metrics").text
    assert 'rgcn_requests_total{endpoint="/api/models/{model}/links",method="GET",status="200"}' in text
    assert 'rgcn_requests_total{endpoint="other",method="GET",status="404"}' in text
    assert 'method="other"' in text
    assert "stranger" not in text
    assert "Peru" not in text
    assert 'rgcn_model_info{dataset="world",model="links-of-world",task="link-prediction"} 1.0' in text
    for name in ("rgcn_request_seconds_bucket", "rgcn_batch_questions_bucket", "rgcn_in_flight", "rgcn_waiting"):
        assert name in text


def test_every_example_of_the_document_works(client):
    document = client.get("/openapi.json").json()
    tried = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"]
            assert operation["description"]
            parameters = {row["name"]: row["example"] for row in operation.get("parameters", ())}
            assert None not in parameters.values(), (path, parameters)
            if path.endswith("/explain"):
                continue  # asks about a node or a triple, the document shows both
            if path.endswith("/links"):
                parameters.pop("object", None)
            address = path.replace("{model}", parameters.pop("model", ""))
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            response = client.request(method, address, params=parameters, json=body)
            assert response.status_code == 200, (path, parameters, response.text)
            if "json" in response.headers["content-type"]:
                content = operation["responses"]["200"]["content"]["application/json"]
                assert set(content["example"]) == set(response.json())
            tried += 1
    assert tried == 11


def test_the_document_lists_the_limits_and_the_models(client):
    document = client.get("/openapi.json").json()
    links = document["paths"]["/api/models/{model}/links"]
    schemas = {row["name"]: row["schema"] for row in links["get"]["parameters"]}
    assert schemas["k"]["maximum"] == 1000
    assert schemas["model"]["enum"] == ["links-of-world"]
    assert set(links["post"]["responses"]) >= {"200", "400", "401", "404", "413", "422", "503"}
    assert "x-limit" not in json.dumps(document)


def test_facts_of_a_graph_with_loops_and_repeats():
    import rgcn

    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "a"), ("a", "r", "b"), ("a", "r", "b")])
    facts = NodeFacts(kg)
    assert (facts.page(0, 1, 0)[1], facts.degree([0, 1])) == (4, [3, 2])
    assert [(node, outgoing) for _, node, outgoing, _ in facts.page(0, 10, 0)[0]] == [
        (0, True),
        (1, True),
        (1, True),
        (0, False),
    ]
