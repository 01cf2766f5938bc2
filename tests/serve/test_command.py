"""`rgcn serve` as a process: starting, stopping, ports, tokens, slow clients."""

from __future__ import annotations

import signal
import socket
import subprocess
import time

import httpx
import pytest
from servers import LINKS, RGCN, running

from rgcn.errors import ConfigError
from rgcn.serve.address import Address, read_token
from rgcn.serve.server import distinct_names


def refused(*arguments):
    """Return the message of an `rgcn serve` that does not start."""
    done = subprocess.run([*RGCN, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_port_in_use_is_reported_in_a_sentence(runs):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        message = refused(runs[LINKS], "--port", port)
    assert message == f"rgcn: port {port} is in use: stop the program that uses it, or choose --port {port + 1}\n"


def test_another_address_needs_a_token(runs):
    assert "--token-file" in refused(runs[LINKS], "--host", "0.0.0.0", "--port", "0")


def test_a_folder_without_a_run_is_refused(tmp_path):
    assert "nowhere" in refused(tmp_path / "nowhere")


def test_tokens_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("RGCN_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("RGCN_TOKEN", "from-the-environment")
    assert read_token(None) == "from-the-environment"
    file = tmp_path / "token"
    file.write_text("from-a-file\n", encoding="utf-8")
    assert read_token(file) == "from-a-file"
    for bad in ("short", "has a space in it", "ümlaute-ümlaute", ""):
        file.write_text(bad, encoding="utf-8")
        with pytest.raises(ConfigError, match="at least 8 printable"):
            read_token(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "nothing")


def test_hosts_that_are_answered():
    assert "localhost" in Address().hosts
    assert "my.machine" in Address(allow_hosts=["my.machine"]).hosts
    assert Address("0.0.0.0", token="x" * 8).hosts is None


def test_runs_of_one_name_get_different_names():
    assert distinct_names(["a", "b", "a", "a"]) == ["a", "b", "a-2", "a-3"]
    assert distinct_names(["a", "a", "a-2", "a-2"]) == ["a", "a-3", "a-2", "a-2-2"]


def _read_to_the_end(connection):
    answer = b""
    while part := connection.recv(65536):
        answer += part
    return answer


def test_a_server_from_start_to_stop(runs, tmp_path):
    """One process tests two runs of one name, a token, a slow client, running requests, and a signal."""
    token = tmp_path / "token"
    token.write_text("a-token-for-tests", encoding="utf-8")
    options = ("--token-file", token, "--slow-client", "0.5", "--host", "127.0.0.1")
    with running(runs[LINKS], runs[LINKS], *options) as server:
        assert server.models == (LINKS, f"{LINKS}-2")
        right = {"Authorization": "Bearer a-token-for-tests"}
        assert httpx.get(f"{server.url}/api/health").status_code == 401
        health = httpx.get(f"{server.url}/api/health", headers=right)
        assert health.json()["models"] == [LINKS, f"{LINKS}-2"]
        assert not any("a-token" in str(argument) for argument in server.process.args)

        address = ("127.0.0.1", server.port)
        half_a_request = b"GET /api/health HTTP/1.1\r\nHost: local"
        with socket.create_connection(address, timeout=20) as slow:
            slow.sendall(half_a_request)
            assert b" 408 " in _read_to_the_end(slow)
        head = b"POST /api/models/links-of-world/score HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"  # noqa: E501
        with socket.create_connection(address, timeout=20) as slow:
            slow.sendall(head)
            assert b" 408 " in _read_to_the_end(slow)
        with socket.create_connection(address, timeout=20) as silent:
            assert b" 408 " in _read_to_the_end(silent)

        # A signal arrives during a long request, which is still answered.
        queries = [{"subject": "Peru", "relation": "exports_to"}] * 1000
        with httpx.Client(headers=right, timeout=60) as client:
            client.get(f"{server.url}/api/health")
            request = client.build_request("POST", f"{server.url}/api/models/{LINKS}/links", json={"queries": queries})
            with socket.create_connection(address, timeout=30) as connection:
                body = request.read()
                lines = [f"POST {request.url.path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
                lines += ["Content-Type: application/json", "Authorization: Bearer a-token-for-tests", "", ""]
                connection.sendall("\r\n".join(lines).encode() + body)
                time.sleep(0.05)
                server.process.send_signal(signal.SIGTERM)
                answer = _read_to_the_end(connection)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
        assert answer.count(b'"query"') == 1000
        assert server.process.wait(20) == 0
        assert server.process.stderr.read().splitlines()[-1] == "stopped"
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url)


def test_ctrl_c_ends_it_with_success(live_server_of_its_own):
    live_server_of_its_own.process.send_signal(signal.SIGINT)
    assert live_server_of_its_own.process.wait(20) == 0


@pytest.fixture
def live_server_of_its_own(runs):
    with running(runs[LINKS], "-q") as server:
        yield server
