"""Test explanations over HTTP: computed once, cached, and refused with a message if a model cannot explain."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from servers import asking

from rgcn.explain import methods as explaining
from rgcn.plugins import EXPLAINERS
from rgcn.serve import Limits, batching, create_app
from rgcn.serve.batching import BatchingExecutor, Dispatcher
from rgcn.serve.common_endpoints import ExplainAnswer

NC, LP = "/api/models/classes-of-world", "/api/models/links-of-world"
TRIPLE = {"subject": "Peru", "relation": "borders", "object": "Chile"}


@pytest.mark.parametrize("method", tuple(EXPLAINERS.built_in)[1:])
def test_a_class_is_explained_over_http(client, method):
    parameters = {"node": "switzerland", "class": "europe", "method": method, "edges": 4}
    response = client.get(NC + "/explain", params=parameters)
    assert response.status_code == 200, response.text
    msgspec.json.decode(response.content, type=ExplainAnswer)
    why = response.json()
    assert (why["question"]["node"]["name"], why["question"]["class"]["name"]) == ("Switzerland", "Europe")
    assert (why["method"], len(why["edges"])) == (method, 4)
    assert why["svg"].startswith("<svg")
    answer = client.get(NC + "/class", params={"node": "switzerland"}).json()
    assert why["score"] == pytest.approx(answer["score"], rel=1e-3)
    assert why["probability"] == pytest.approx(answer["probability"], rel=1e-3)
    assert why["fidelity"]["probability"]["full"] == pytest.approx(why["probability"])


def test_a_link_is_explained_over_http(client):
    response = client.get(LP + "/explain", params=TRIPLE)
    msgspec.json.decode(response.content, type=ExplainAnswer)
    why = response.json()
    assert why["question"]["object"]["name"] == "Chile"
    scored = client.post(LP + "/score", json={"triples": [TRIPLE]}).json()["triples"][0]
    assert why["score"] == pytest.approx(scored["score"], rel=1e-4)
    assert why["probability"] is scored["probability"] is None  # it is in the data
    query = {"subject": TRIPLE["subject"], "relation": TRIPLE["relation"], "k": 1, "known": "drop"}
    (new,) = client.get(LP + "/links", params=query).json()["links"]
    unknown = {**TRIPLE, "object": new["node"]["name"]}
    why = client.get(LP + "/explain", params=unknown).json()
    scored = client.post(LP + "/score", json={"triples": [unknown]}).json()["triples"][0]
    back = {"object": unknown["object"], "relation": TRIPLE["relation"], "k": 1000, "known": "drop"}
    other = [link for link in client.get(LP + "/links", params=back).json()["links"] if link["node"]["name"] == "Peru"]
    shares = [link["probability"] for link in (new, *other)]  # of both directions
    for one in (why, scored):
        assert [one["score"], one["probability"]] == pytest.approx([new["score"], sum(shares) / len(shares)], rel=1e-4)


def test_a_repeated_explanation_is_cached(models, monkeypatch):
    made = []
    really = explaining.explain
    monkeypatch.setattr(explaining, "explain", lambda *a, **k: made.append(a) or really(*a, **k))
    with asking(create_app(models)) as client:
        first, second = (client.get(NC + "/explain", params={"node": "Peru"}) for _ in range(2))
        assert first.content == second.content
        assert len(made) == 1
        assert "rgcn_explanations_kept 1.0" in client.get("/metrics").text


def test_the_cache_of_explanations_is_bounded(monkeypatch):
    monkeypatch.setattr(batching, "CACHED_ANSWERS", 3)
    slow, made = BatchingExecutor("test", 10, 20), []
    dispatcher = Dispatcher([], slow, slow, Limits())

    async def ask(*nodes):
        for node in nodes:
            assert await dispatcher.cached_answer(node, lambda node=node: made.append(node) or [node]) == [node]
        return list(dispatcher.cache)

    assert asyncio.run(ask(0, 1, 2, 3, 4)) == [2, 3, 4]
    assert asyncio.run(ask(2, 5)) == [4, 2, 5]  # the least recently used explanation is dropped
    assert made == [0, 1, 2, 3, 4, 5]
    slow.stop()


def test_a_timeout_returns_503_and_other_requests_continue(models, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(explaining, "explain", lambda *a, **k: go.wait(30))
    with asking(create_app(models, Limits(timeout_s=0.2, max_explaining=2))) as client:
        late = client.get(NC + "/explain", params={"node": "Peru"})
        assert (late.status_code, late.json()["error"]["code"]) == (503, "took_too_long")
        assert late.headers["retry-after"]
        assert client.get(NC + "/class", params={"node": "Peru"}).status_code == 200
        assert client.get(LP + "/links", params={"subject": "Peru", "relation": "borders"}).status_code == 200
        go.set()


def test_too_many_explanations_are_503(models, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(explaining, "explain", lambda *a, **k: go.wait(30))

    async def crowd(client):
        nodes = ["Peru", "Chile", "Norway", "Kenya", "Japan"]
        return await asyncio.gather(*(client.asking.get(NC + "/explain", params={"node": node}) for node in nodes))

    with asking(create_app(models, Limits(timeout_s=0.5, max_explaining=2))) as client:
        codes = sorted(response.json()["error"]["code"] for response in client.do(crowd(client)))
        assert codes == ["too_busy"] * 3 + ["took_too_long"] * 2
        go.set()


def test_a_failure_returns_a_500_error_document_and_the_server_continues(models, monkeypatch, caplog):
    def fails(*arguments, **how):
        raise RuntimeError("a secret of the implementation")

    monkeypatch.setattr(explaining, "explain", fails)
    with asking(create_app(models)) as client:
        response = client.get(NC + "/explain", params={"node": "Peru"})
        assert (response.status_code, response.json()["error"]["code"]) == (500, "failed")
        assert "secret" not in response.text
        assert "secret" in caplog.text
        assert client.get("/api/health").status_code == 200
