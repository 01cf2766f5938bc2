"""Test the package index client with indexes on this machine, never with the real network."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgcn.data import downloads as fetching
from rgcn.data.downloads import Client, FetchError, locate_archive, parse_project_page, pip_settings

ARCHIVE = b"the archive's bytes" * 1000
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
NAME = "Some_Data-1.0.tar.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves /simple/some-data/ as JSON or HTML and /files/; misbehaves as the server's `mode` says."""

    def do_GET(self) -> None:
        mode, server = self.server.mode, self.server  # type: ignore[attr-defined]
        server.requests.append((self.path, dict(self.headers)))
        if mode == "login" and self.headers.get("Authorization") != server.login:
            self.answer(401, b"", "text/plain")
        elif self.path == "/simple/some-data/":
            digest = "0" * 64 if mode == "other hash" else SHA256
            if mode == "html":
                link = f'<a href="../../files/{NAME}#sha256={digest}">{NAME}</a>'
                self.answer(200, f"<html><body>{link}</body></html>".encode(), "text/html; charset=utf-8")
            else:
                files = [{"filename": NAME, "url": f"../../files/{NAME}", "hashes": {"sha256": digest}}]
                body = json.dumps({"meta": {"api-version": "1.0"}, "name": "some-data", "files": files}).encode()
                self.answer(200, body, "application/vnd.pypi.simple.v1+json")
        elif self.path == f"/files/{NAME}":
            broken = mode == "always breaks" or (mode == "breaks once" and not server.broken)
            server.broken = server.broken or broken
            self.answer(200, ARCHIVE, "application/octet-stream", cut=100 if broken else None)
        else:
            self.answer(404, b"", "text/plain")

    def answer(self, code: int, body: bytes, kind: str, cut: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.ThreadingHTTPServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NETRC", os.devnull)
    monkeypatch.setattr(fetching.time, "sleep", lambda seconds: None)
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.mode, running.requests, running.broken, running.login = "json", [], False, ""  # type: ignore[attr-defined]
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def client_of(server: http.server.ThreadingHTTPServer, login: str = "") -> Client:
    return Client({"index-url": f"http://{login}127.0.0.1:{server.server_port}/simple/", "timeout": "5"})


def fetch(client: Client, target: Path, sha256: str = SHA256, max_bytes: int = 10**6) -> bytes:
    url = locate_archive("Some.Data", NAME, SHA256, client)
    client.download(url, target, description=NAME, max_bytes=max_bytes, sha256=sha256)
    return target.read_bytes()


@pytest.mark.parametrize("mode", ["json", "html"])
def test_both_forms_of_the_simple_api_are_read(server, tmp_path: Path, mode: str) -> None:
    server.mode = mode
    assert fetch(client_of(server), tmp_path / "a") == ARCHIVE
    path, headers = server.requests[0]
    assert path == "/simple/some-data/"
    assert "application/vnd.pypi.simple.v1+json" in headers["Accept"]


@pytest.mark.parametrize("form", ["html", "json"])
def test_an_index_may_be_a_folder(tmp_path: Path, form: str) -> None:
    project = tmp_path / "simple" / "some-data"
    project.mkdir(parents=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / NAME).write_bytes(ARCHIVE)
    if form == "html":
        (project / "index.html").write_text(f'<a href="../../files/{NAME}">{NAME}</a>')
    else:
        (project / "index.json").write_text(json.dumps({"files": [{"filename": NAME, "url": f"../../files/{NAME}"}]}))
    client = Client({"index-url": (tmp_path / "simple").as_uri()})
    assert fetch(client, tmp_path / "a") == ARCHIVE


def test_a_find_links_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(ARCHIVE)
    for place in (str(tmp_path), tmp_path.as_uri()):
        assert fetch(Client({"find-links": f"{tmp_path}/none {place}"}), tmp_path / "a") == ARCHIVE


def test_the_next_index_is_asked_and_every_failure_is_named(server, tmp_path: Path) -> None:
    empty = tmp_path / "simple"
    empty.mkdir()
    good = f"http://127.0.0.1:{server.server_port}/simple"
    client = Client({"index-url": empty.as_uri(), "extra-index-url": good})
    assert locate_archive("some-data", NAME, SHA256, client).endswith(NAME)
    with pytest.raises(FetchError, match=r"index 1 of 2: no such project.*index 2 of 2: the server answered 404"):
        locate_archive("other", NAME, SHA256, client)


def test_an_index_with_a_wrong_checksum_is_skipped(server) -> None:
    server.mode = "other hash"
    with pytest.raises(FetchError, match="another checksum"):
        locate_archive("some-data", NAME, SHA256, client_of(server))


def test_a_wrong_checksum_leaves_no_file(server, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="wrong checksum"):
        fetch(client_of(server), tmp_path / "a", sha256="0" * 64)
    assert not list(tmp_path.iterdir())


def test_a_broken_connection_is_tried_again(server, tmp_path: Path) -> None:
    server.mode = "breaks once"
    assert fetch(client_of(server), tmp_path / "a") == ARCHIVE


def test_a_connection_that_always_breaks_leaves_no_file(server, tmp_path: Path) -> None:
    server.mode = "always breaks"
    with pytest.raises(FetchError, match="connection"):
        fetch(client_of(server), tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_too_large_a_file_is_refused(server, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="more than the limit"):
        fetch(client_of(server), tmp_path / "a", max_bytes=100)
    assert not list(tmp_path.iterdir())


def test_credentials_in_the_address_go_into_a_header_and_into_no_message(server, tmp_path: Path) -> None:
    server.mode, server.login = "login", "Basic " + base64.b64encode(b"ada:pass word").decode()
    assert fetch(client_of(server, "ada:pass%20word@"), tmp_path / "a") == ARCHIVE
    with pytest.raises(FetchError) as failure:
        fetch(client_of(server, "ada:wrong@"), tmp_path / "b")
    assert "401" in str(failure.value)
    assert "wrong" not in str(failure.value)
    assert "127.0.0.1" not in str(failure.value)


def test_credentials_in_netrc_are_used(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.mode, server.login = "login", "Basic " + base64.b64encode(b"ada:secret").decode()
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert fetch(client_of(server), tmp_path / "a") == ARCHIVE


@pytest.mark.parametrize("url", ["http://example.invalid/a", "ftp://example.invalid/a"])
def test_unprotected_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(FetchError, match=r"plain http|not supported"):
        Client({}).download(url, tmp_path / "a", description="a", max_bytes=10)


def test_a_certificate_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    client = Client({"cert": str(tmp_path / "none.pem")})
    with pytest.raises(FetchError, match="certificate"):
        client.download("https://127.0.0.1:9/a", tmp_path / "a", description="a", max_bytes=10)


def test_base_of_a_page_and_unusual_links_are_understood() -> None:
    page = '<base href="https://files.example/x/"><a href="a%2B1.zip#md5=00">a</a><a>none</a>'
    (file,) = parse_project_page(page, "text/html", "https://index.example/simple/a/")
    assert (file.name, file.url) == ("a+1.zip", "https://files.example/x/a%2B1.zip")


def test_json_that_is_not_a_project_page_is_reported() -> None:
    with pytest.raises(FetchError, match="not a simple API page"):
        parse_project_page("[1]", "application/json", "https://index.example/")


def test_pip_configuration_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [k for k in os.environ if k.startswith("PIP_")]:
        monkeypatch.delenv(key)
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://one.example/simple/\ntimeout = 7\ntrusted-host = one.example\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///two/simple https://three.example/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.example:3128")
    settings = pip_settings()
    assert settings["index-url"] == "https://one.example/simple/"
    assert settings["extra-index-url"].split() == ["file:///two/simple", "https://three.example/simple"]
    assert (settings["timeout"], settings["proxy"]) == ("7", "http://proxy.example:3128")
    assert settings["trusted-host"] == "one.example"


def test_the_index_that_pip_itself_would_ask_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [k for k in os.environ if k.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert pip_settings()["index-url"].startswith("https://")
    monkeypatch.setenv("PIP_INDEX_URL", "file:///one/simple")
    assert pip_settings()["index-url"] == "file:///one/simple"


def test_an_environment_without_pip_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.sys, "executable", os.devnull)
    with pytest.raises(FetchError, match="cannot run pip"):
        pip_settings()


def test_no_index_means_no_index() -> None:
    client = Client({"no-index": "true", "index-url": "https://one.example/simple"})
    with pytest.raises(FetchError, match="without an index"):
        locate_archive("a", NAME, SHA256, client)


@pytest.mark.parametrize("target", ["http://example.invalid/b", "file:///b", "ftp://example.invalid/b"])
def test_redirects_never_weaken_security(target: str) -> None:
    original = urllib.request.Request("https://index.example/a")
    with pytest.raises(FetchError, match="refused a redirect"):
        fetching._Redirects().redirect_request(original, io.BytesIO(), 302, "", {}, target)
    # the login stays with its host
    original.add_unredirected_header("Authorization", "Basic x")
    for url, stays in (("https://index.example/b", True), ("https://other.example/b", False)):
        followed = fetching._Redirects().redirect_request(original, io.BytesIO(), 302, "", {}, url)
        assert followed is not None
        assert followed.has_header("Authorization") == stays
