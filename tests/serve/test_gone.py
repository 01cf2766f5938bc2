"""Test disconnected clients: their questions are not computed, and other clients do not wait for them."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from rgcn.serve import Limits, create_app
from rgcn.serve.answer_endpoints import LinkEndpoints
from rgcn.serve.common_endpoints import ExplainEndpoints
from rgcn.serve.server import protocol_for

LP = "/api/models/links-of-world"
QUESTION = {"subject": "Peru", "relation": "borders"}
MANY = json.dumps({"queries": [QUESTION] * 200}).encode()
BULK = (
    f"POST {LP}/links HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(MANY)}\r\n\r\n"
).encode() + MANY
WHY = f"GET {LP}/explain?subject=Peru&relation=borders&object=Chile&edges=%d HTTP/1.1\r\nHost: localhost\r\n\r\n"


def queue_of_links(served):
    """Return the queue of the questions below."""
    (group,) = (group for group in served.groups if isinstance(group, LinkEndpoints))
    return group.queue("mark", 10)


@contextmanager
def listening(app, limits=None):
    """Run uvicorn with our protocol in a thread of this process; yield the port."""
    config = uvicorn.Config(app, http=protocol_for(limits or Limits()), log_level="error", access_log=False)
    server, place = uvicorn.Server(config), socket.socket()
    place.bind(("127.0.0.1", 0))
    place.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([place])))
    thread.start()
    try:
        yield place.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        place.close()


class Gated:
    """Work that continues when `go` is set, and counts its questions."""

    def __init__(self, work):
        self.work, self.computed, self.go = work, [], threading.Event()

    def __call__(self, questions):
        self.computed += questions
        assert self.go.wait(60)
        return self.work(questions)


def figure(port, name):
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    return next(float(row.split()[1]) for row in text.splitlines() if row.startswith(name + " "))


def becomes(read, wanted):
    """Wait until a condition holds; the time limit allows for a busy machine."""
    for _ in range(600):
        if read() == wanted:
            return True
        time.sleep(0.05)
    return False


def all_gone(port, requests):
    """Send each on a connection of its own; close them all once every one is being answered."""
    connections = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        connection.sendall(request)
    assert becomes(lambda: figure(port, "rgcn_in_flight"), len(requests) + 1)  # and the one of the client
    for connection in connections:
        connection.close()
    assert becomes(lambda: figure(port, "rgcn_in_flight"), 1)


def test_questions_of_disconnected_clients_are_not_computed(models, monkeypatch, caplog):
    queue = queue_of_links(models[1])
    gated = Gated(queue.answer)
    monkeypatch.setattr(queue, "answer", gated)
    with caplog.at_level(logging.ERROR), listening(create_app(models)) as port:
        all_gone(port, [BULK] * 30)
        assert figure(port, "rgcn_waiting") == figure(port, "rgcn_waiting_questions") == 0
        begun = len(gated.computed)
        gated.go.set()
        answer = httpx.get(f"http://127.0.0.1:{port}{LP}/links", params={**QUESTION, "k": 3}, timeout=60)
        assert len(answer.json()["links"]) == 3
        counted = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert begun <= queue.max_batch
    assert len(gated.computed) == begun + 1
    assert 'endpoint="/api/models/{model}/links",method="POST",status="499"} 30.0' in counted
    assert not caplog.records


def test_explanations_for_disconnected_clients_are_not_computed(models, monkeypatch):
    gated = Gated(lambda questions: [{"made": True}])
    monkeypatch.setattr(ExplainEndpoints, "_explain", lambda self, *question: gated([question])[0])
    with listening(create_app(models)) as port:
        all_gone(port, [(WHY % edges).encode() for edges in range(1, 11)])
        assert figure(port, "rgcn_explaining") <= 1  # the explanation that is being computed
        gated.go.set()
        address = f"http://127.0.0.1:{port}{LP}/explain"
        assert httpx.get(address, params={**QUESTION, "object": "Norway"}, timeout=60).json() == {"made": True}
        assert becomes(lambda: figure(port, "rgcn_explaining"), 0)
    assert len(gated.computed) == 2


ONE = f"GET {LP}/links?subject=Peru&relation=borders HTTP/1.1\r\nHost: localhost\r\n".encode()


def test_several_requests_at_once_on_one_connection(models, monkeypatch, caplog):
    queue = queue_of_links(models[1])
    gated = Gated(queue.answer)
    monkeypatch.setattr(queue, "answer", gated)
    with caplog.at_level(logging.DEBUG), listening(create_app(models)) as port:
        gone = socket.create_connection(("127.0.0.1", port), timeout=20)
        gone.sendall((ONE + b"\r\n") * 30)
        assert becomes(lambda: figure(port, "rgcn_in_flight"), 2)
        gone.close()
        gated.go.set()
        assert becomes(lambda: figure(port, "rgcn_in_flight"), 1)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall((ONE + b"\r\n") * 30 + ONE + b"Connection: close\r\n\r\n")
            assert connection.makefile("rb").read().count(b"HTTP/1.1 200") == 31
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_timer_that_fired_during_an_answer_is_set_again(models, monkeypatch):
    queue = queue_of_links(models[1])
    gated = Gated(queue.answer)
    monkeypatch.setattr(queue, "answer", gated)
    with (
        listening(create_app(models), Limits(client_timeout_s=0.3)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
    ):
        connection.sendall(ONE + b"\r\nGET /api/hea")  # half a request after one that takes long
        time.sleep(0.6)
        gated.go.set()
        answers = connection.makefile("rb").read()
    assert answers.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answers
