"""Hostile requests: each is answered 4xx in the documented format, with a message that helps. None is a 5xx."""

from __future__ import annotations

import json
import socket

import httpx
import msgspec
import pytest
from servers import asking

from rgcn.serve import Limits, create_app
from rgcn.serve.schemas import Error

NC, LP = "/api/models/classes-of-world", "/api/models/links-of-world"
JSON = {"Content-Type": "application/json"}
DEEP = b'{"nodes":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ENORMOUS = "x" * 100_000


def a_body(text, **headers):
    return {"content": text if isinstance(text, bytes) else text.encode(), "headers": {**JSON, **headers}}


LINKS = LP + "/links?subject=Peru&relation=borders"
ONE = {"subject": "Peru", "relation": "borders"}
POST_HEALTH = b"POST /api/health HTTP/1.1\r\nHost: localhost\r\n"
PLAIN = {"Content-Type": "text/plain"}
EVIL = {"Origin": "http://evil.example"}


def with_k(k):
    return a_body('{"queries":[{"subject":"Peru","relation":"borders"}],"k":' + k + "}")


# description, method, path, further arguments of httpx, status, text that the message must contain
HOSTILE = [
    ("a path out of the assets", "GET", "/assets/../../etc/passwd", {}, 404, "nothing at this path"),
    ("the same, encoded", "GET", "/assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd", {}, 404, "nothing at this path"),
    ("the same, encoded twice", "GET", "/assets/%252e%252e%252fetc%252fpasswd", {}, 404, "no such file"),
    ("backslashes", "GET", "/assets/..%5c..%5cwindows%5cwin.ini", {}, 404, "no such file"),
    ("overlong UTF-8 in the path", "GET", "/assets/%c0%ae%c0%ae%c0%afetc", {}, 404, "no such file"),
    ("an absolute path as a model", "GET", "/api/models/%2Fetc%2Fpasswd/links", {}, 404, "nothing at this path"),
    ("a dotted model", "GET", "/api/models/..%00/card", {}, 404, "this server has 'classes-of-world'"),
    ("a NUL in a name", "GET", LP + "/neighbors?node=Pe%00ru", {}, 404, "unknown node"),
    ("a NUL in a parameter's name", "GET", LP + "/neighbors?no%00de=Peru", {}, 422, "unknown parameter"),
    ("an unknown model", "GET", "/api/models/worlds/search?q=a", {}, 404, "unknown model"),
    ("an unknown path", "GET", "/admin", {}, 404, "/openapi.json"),
    ("a slash too many", "GET", LP + "/search/?q=a", {}, 404, "nothing at this path"),
    ("k = 0", "GET", LINKS + "&k=0", {}, 422, "k: "),
    ("k = -1", "GET", LINKS + "&k=-1", {}, 422, "k: "),
    ("k = 1e9", "GET", LINKS + "&k=1e9", {}, 422, "a whole number"),
    ("k = 1000000000", "GET", LINKS + "&k=1000000000", {}, 422, "at most 1,000"),
    ("k of a hundred digits", "GET", LINKS + "&k=" + "9" * 100, {}, 422, "whole number"),
    ("k in Arabic digits", "GET", LINKS + "&k=%D9%A1", {}, 422, "whole number"),
    ("k = NaN", "GET", LINKS + "&k=NaN", {}, 422, "whole number"),
    ("a negative offset", "GET", LP + "/neighbors?node=Peru&offset=-5", {}, 422, "offset"),
    ("an enormous name", "GET", f"{LP}/neighbors?node={'x' * 20_000}", {}, 422, "at most 2,000 characters"),
    ("an enormous search", "GET", f"{LP}/search?q={'x' * 20_000}", {}, 422, "at most 2,000 characters"),
    ("a parameter twice", "GET", LP + "/neighbors?node=Peru&node=Chile", {}, 422, "more than once"),
    ("an unknown parameter", "GET", LP + "/neighbors?nod=Peru", {}, 422, "Did you mean 'node'"),
    ("a parameter where there are none", "GET", "/api/health?debug=1", {}, 422, "none here"),
    ("no parameter", "GET", LP + "/links", {}, 422, "relation is missing"),
    ("both ends", "GET", LP + "/links?subject=Peru&object=Chile&relation=borders", {}, 422, "both was given"),
    ("neither end", "GET", LP + "/links?relation=borders", {}, 422, "neither was given"),
    ("a wrong choice", "GET", LINKS + "&known=maybe", {}, 422, "'mark' or 'drop'"),
    ("an empty name", "GET", LP + "/neighbors?node=", {}, 422, "node"),
    ("a query that is not UTF-8", "GET", LP + "/search?q=%ff%fe", {}, 400, "not UTF-8"),
    ("half an escape", "GET", LP + "/neighbors?node=%", {}, 404, "unknown node"),
    ("a name encoded again and again", "GET", LP + "/neighbors?node=%25" + "25" * 980, {}, 404, "unknown node"),
    ("a script as a name", "GET", LP + "/neighbors?node=<script>alert(1)</script>", {}, 404, "unknown node"),
    ("an injection into headers", "GET", LP + "/neighbors?node=a%0d%0aSet-Cookie:%20x=1", {}, 404, "unknown node"),
    ("an explanation of nothing", "GET", NC + "/explain", {}, 422, "a node"),
    ("an explanation of both", "GET", NC + "/explain?node=Peru&subject=Peru", {}, 422, "a node"),
    ("an unknown method of explaining", "GET", NC + "/explain?node=Peru&method=magic", {}, 422, "integrated-gradients"),
    ("a wrong method", "DELETE", LP + "/links", {}, 405, "GET, HEAD, POST"),
    ("an unknown HTTP method", "BREW", "/api/health", {}, 405, "GET, HEAD"),
    ("OPTIONS of another site", "OPTIONS", LP + "/links", {"headers": EVIL}, 405, "GET, HEAD, POST"),
    ("another site's script", "GET", "/api/health", {"headers": {"Sec-Fetch-Site": "cross-site"}}, 403, "web site"),
    ("a body with GET", "GET", "/api/health", a_body("{}"), 400, "takes no body"),
    ("no content type", "POST", NC + "/classes", {"content": b"{}"}, 415, "application/json"),
    ("a form", "POST", NC + "/classes", {"data": {"nodes": "Peru"}}, 415, "application/json"),
    ("text that could be JSON", "POST", NC + "/classes", {"content": b"{}", "headers": PLAIN}, 415, "application/json"),
    ("an empty body", "POST", NC + "/classes", a_body(""), 422, "not JSON"),
    ("half a body", "POST", NC + "/classes", a_body('{"nodes": ["Peru"'), 422, "not JSON"),
    ("deep JSON", "POST", NC + "/classes", a_body(DEEP), 422, "not JSON"),
    ("NaN", "POST", LP + "/links", with_k('NaN'), 422, "k"),
    ("Infinity", "POST", LP + "/links", with_k('Infinity'), 422, "k"),
    ("k as text", "POST", LP + "/links", with_k('"10"'), 422, "k"),
    ("k as a truth", "POST", LP + "/links", with_k('true'), 422, "k"),
    ("half a character", "POST", NC + "/classes", a_body('{"nodes":["\\ud800"]}'), 422, "not JSON"),
    ("invalid UTF-8", "POST", NC + "/classes", a_body(b'{"nodes":["\xff\xfe"]}'), 422, "not JSON"),
    ("a list for an object", "POST", NC + "/classes", a_body("[]"), 422, "object"),
    ("null", "POST", NC + "/classes", a_body("null"), 422, "object"),
    ("no nodes", "POST", NC + "/classes", a_body('{"nodes":[]}'), 422, "nodes"),
    ("a number as a node", "POST", NC + "/classes", a_body('{"nodes":[1]}'), 422, "nodes.0"),
    ("an unknown field", "POST", NC + "/classes", a_body('{"nodes":["Peru"],"__proto__":1}'), 422, "__proto__"),
    ("10,000 queries", "POST", LP + "/links", {"json": {"queries": [ONE] * 10_000}}, 422, "at most 1,000"),
    ("too many links", "POST", LP + "/links", {"json": {"queries": [ONE] * 900, "k": 1000}}, 422, "20,000"),
    ("an enormous name in JSON", "POST", NC + "/classes", {"json": {"nodes": [ENORMOUS]}}, 422, "2,000 characters"),
    ("an unknown node among many", "POST", NC + "/classes", {"json": {"nodes": ["Peru", "Atlantis"]}}, 404, "Atlantis"),
    ("a huge body", "POST", NC + "/classes", a_body(b" " * 2_000_000), 413, "1,048,576 bytes"),
    ("a wrong host", "GET", "/api/health", {"headers": {"Host": "evil.example"}}, 403, "evil.example"),
    ("a host with a trick", "GET", "/api/health", {"headers": {"Host": "localhost.evil.org"}}, 403, "localhost.evil"),
    ("a host that is none", "GET", "/api/health", {"headers": {"Host": "local host/../"}}, 400, "Host"),
]  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case[0])
def test_a_hostile_request_is_refused_with_a_message(client, case):
    _, method, path, settings, status, word = case
    response = client.request(method, path, **settings)
    assert response.status_code == status, response.text
    error = msgspec.json.decode(response.content, type=Error).error
    assert word in error.message
    assert len(response.content) < 3000
    assert "Traceback" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in response.headers


def test_a_body_without_a_length_is_counted(client):
    async def parts():
        for _ in range(40):
            yield b" " * 65536

    response = client.post(NC + "/classes", content=parts(), headers=JSON)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_a_wrong_content_length_is_not_trusted(client):
    response = client.post(NC + "/classes", **a_body('{"nodes":["Peru"]}', **{"Content-Length": "9" * 30}))
    assert response.json()["error"]["code"] == "too_large"


def test_without_the_token_nothing_is_revealed(models):
    wrong = ["Bearer wrong-token", "Bearer", "Basic c2VjcmV0LXRva2Vu", "secret-token", "Bearer secret-token-and-more"]
    with asking(create_app(models, token="secret-token")) as client:
        for headers in ({}, *({"Authorization": value} for value in wrong)):
            for path in ("/api/health", "/api/models/nothing", "/metrics", "/openapi.json", LP + "/search?q=a"):
                response = client.get(path, headers=headers)
                assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
                assert response.headers["www-authenticate"] == "Bearer"
            assert client.get("/", headers=headers).status_code == 200
        right = {"Authorization": "bearer secret-token"}
        assert client.get("/api/health", headers=right).status_code == 200


def test_limits_can_be_smaller(models):
    with asking(create_app(models, Limits(max_k=5, max_items=2, max_name_length=10, max_body_bytes=2000))) as client:
        ask = LINKS + "&k="
        assert (client.get(ask + "5").status_code, client.get(ask + "6").status_code) == (200, 422)
        assert "at most 2 entries" in client.post(NC + "/classes", json={"nodes": ["Peru"] * 3}).text
        schema = client.get("/openapi.json").json()["paths"]["/api/models/{model}/links"]["get"]["parameters"]
        assert next(row["schema"]["maximum"] for row in schema if row["name"] == "k") == 5


# -- below HTTP, where only a real server answers ---------------------------------------------------------

RAW = [
    ("a length and chunks", POST_HEALTH + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("two lengths", POST_HEALTH + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", 400),
    ("a length that is none", POST_HEALTH + b"Content-Length: -1\r\n\r\n", 400),
    ("a space before a colon", b"GET /api/health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
    ("a folded header", b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 400),
    ("a NUL in a header", b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
    ("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ("a version from the future", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
    ("no host", b"GET /api/health HTTP/1.1\r\n\r\n", 400),
    ("two hosts", b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
    ("a path of raw bytes", b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("headers without end", b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 100_000, 431),
    ("an address without end", b"GET /" + b"y" * 100_000, 431),
    ("a long header at once", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 60_000 + b"\r\n\r\n", 431),
    ("many headers at once", b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", 431),
    ("a long address at once", b"GET /" + b"y" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    ("a proxied address", b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
]  # fmt: skip


@pytest.mark.parametrize("case", RAW, ids=lambda case: case[0])
def test_malformed_http_is_refused(live_server, case):
    _, raw, status = case
    with socket.create_connection(("127.0.0.1", live_server.port), timeout=20) as connection:
        connection.sendall(raw)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.rstrip().endswith(b"}"):
            part = connection.recv(65536)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == str(status).encode(), answer
    assert json.loads(body)["error"]["message"]


TO_SCORE = b"POST " + LP.encode() + b"/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
# description, the request up to its trailers, bytes that are sent repeatedly
ENDLESS = [
    ("trailers of an answered request", POST_HEALTH + CHUNKED + b"0\r\n", b"X: " + b"y" * 1000 + b"\r\n"),
    ("trailers of a request that is waited for", TO_SCORE + CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 200),
    ("one trailer without an end", TO_SCORE + CHUNKED + b"0\r\nX: ", b"y" * 1000),
    ("empty lines", b"", b"\r\n" * 500),
]


def memory_of(server):
    """Return its resident bytes; 0 if the system does not report them."""
    rows = httpx.get(f"{server.url}/metrics").text.splitlines()
    return next((float(row.split()[1]) for row in rows if row.startswith("process_resident_memory_bytes ")), 0)


@pytest.mark.parametrize("case", ENDLESS, ids=lambda case: case[0])
def test_endless_requests_are_cut_off(live_server, case):
    _, begin, again = case
    sent, most, before = 0, 64 << 20, memory_of(live_server)
    with socket.create_connection(("127.0.0.1", live_server.port), timeout=20) as connection:
        try:
            connection.sendall(begin)
            while sent < most:
                connection.sendall(again * 16)
                sent += len(again) * 16
        except (ConnectionResetError, BrokenPipeError):
            pass  # cut off, as it should be; how soon is asserted below
    assert sent < most / 4  # the size of the system's buffers
    assert memory_of(live_server) - before < most / 2


def test_a_body_in_many_chunks_with_a_trailer_is_read(live_server):
    body = json.dumps({"triples": [{"subject": "Peru", "relation": "borders", "object": "Chile"}] * 900}).encode()
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (body[i : i + 50] for i in range(0, len(body), 50))
    )
    with socket.create_connection(("127.0.0.1", live_server.port), timeout=20) as connection:
        connection.sendall(TO_SCORE + b"Connection: close\r\n" + CHUNKED + chunks + b"0\r\nX-Sum: 1\r\n\r\n")
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    assert answer.count(b'"score"') == 900
