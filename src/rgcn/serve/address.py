"""Where the server listens, who may ask and how much. Light, so that a port in use is said before PyTorch is loaded."""

import errno
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rgcn.errors import ConfigError

TOKEN_VARIABLE = "RGCN_TOKEN"
# Names that only this machine answers to; a browser may be talked into sending others here (DNS rebinding).
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to this address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    return re.fullmatch(r"localhost|127(\.\d{1,3}){3}|(::1|\[::1\])", host.lower()) is not None


@dataclass(frozen=True)
class Address:
    """Where to listen, and who may ask."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0 for any that is free
    token: str | None = None  # that /api and /metrics ask for; needed for any address but this machine's own
    allow_hosts: Sequence[str] = ()  # further names that may stand in the Host header

    def check(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise ConfigError(
                f"{self.host} can be reached by other machines: give --token-file FILE (or set {TOKEN_VARIABLE}) so "
                "that only those who have the token may ask, or leave --host out to serve this machine alone"
            )

    @property
    def hosts(self) -> list[str] | None:
        """Host names to answer to; None for any, where the token decides."""
        return [*LOOPBACK_NAMES, self.host, *self.allow_hosts] if is_loopback(self.host) else None


@dataclass(frozen=True)
class Limits:
    """Every bound of the server, with its default."""

    body: int = 1 << 20  # bytes of a request's body
    items: int = 1000  # questions in one request: nodes, queries or triples
    k: int = 1000  # links in the answer to one question, and rows of a page of facts or of search results
    links: int = 20_000  # links in one answer, over all its questions
    name: int = 2000  # characters of a name or of a search; where a name that is served is longer, so many
    seconds: float = 30.0  # until a request that is not answered gets 503
    waiting: int = 512  # requests that may wait for the model before others get 503
    questions: int = 20_000  # of those requests together that may wait before further requests with many get 503
    explaining: int = 16  # requests that may wait for an explanation before others get 503
    connections: int = 1000  # open at once; further ones get 503
    head: int = 32 << 10  # bytes of a request's first line and headers
    slow: float = 10.0  # seconds a client may take to send a request, or to read its answer
    idle: float = 30.0  # seconds a connection may stay open with nothing asked
    stopping: float = 10.0  # seconds that requests under way have to finish once the server is asked to stop


def read_token(file: Path | None) -> str | None:
    """The token from a file, else from RGCN_TOKEN, else none. Never from the command line, which everybody can see."""
    try:
        token = os.environ.get(TOKEN_VARIABLE) if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read from {file}: {error}") from None
    if token is not None and not re.fullmatch(r"[!-~]{8,}", token.strip()):
        raise ConfigError(
            f"the token in {file or TOKEN_VARIABLE} must be at least 8 characters, printable ASCII without spaces: "
            "`python -c 'import secrets; print(secrets.token_urlsafe(24))'` makes a good one"
        )
    return token and token.strip()


def bound_socket(address: Address) -> socket.socket:
    host, port = address.host.strip("[]"), address.port
    words = {
        errno.EADDRINUSE: f"port {port} is in use: stop what is there, or choose --port {port + 1}",
        errno.EACCES: f"port {port} may not be used by you: choose one above 1023, for example --port 8000",
        errno.EADDRNOTAVAIL: f"{host} is no address of this machine: use --host 127.0.0.1, or 0.0.0.0 for all it has",
    }
    family, both = (socket.AF_INET6, host == "::") if ":" in host else (socket.AF_INET, False)
    try:
        return socket.create_server((host, port), family=family, backlog=2048, dualstack_ipv6=both)
    except socket.gaierror as error:
        raise ConfigError(f"{host} is no address to listen on: {error.strerror or error}") from None
    except OSError as error:
        other = f"cannot listen on {host}, port {port}: {error.strerror or error}"
        raise ConfigError(words.get(error.errno or 0, other)) from None


def url_of(address: Address, listening: socket.socket) -> str:
    host = address.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
