"""The address and the limits of a server. Imports no PyTorch, so that a port in use is reported at once."""

import errno
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Option

from rgcn.errors import ConfigError

TOKEN_VARIABLE = "RGCN_TOKEN"
# Host names of this machine. A browser can be tricked into sending requests for others here (DNS rebinding).
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server at this address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    return re.fullmatch(r"localhost|127(\.\d{1,3}){3}|(::1|\[::1\])", host.lower()) is not None


@dataclass(frozen=True)
class Address:
    """Where a server listens, and which clients it accepts.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        token: Token that clients of /api and /metrics must send. Required unless `host` is a loopback address.
        allow_hosts: Additional names accepted in the Host header.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    allow_hosts: Sequence[str] = ()

    def check(self) -> None:
        """Raise ConfigError if other machines could reach a server without a token."""
        if not is_loopback(self.host) and self.token is None:
            raise ConfigError(
                f"{self.host} can be reached by other machines: require a token with --token-file FILE (or set "
                f"{TOKEN_VARIABLE}), or leave out --host to serve this machine only"
            )

    @property
    def hosts(self) -> list[str] | None:
        """Names accepted in the Host header; None for any, if the token protects the server."""
        return [*LOOPBACK_NAMES, self.host, *self.allow_hosts] if is_loopback(self.host) else None


@dataclass
class Limits:
    """All limits of the server. Those described below are options of `rgcn serve`.

    Attributes:
        timeout_s: Seconds until an unanswered request gets 503.
        max_body_bytes: Bytes of a request's body.
        max_items: Questions in one request.
        max_k: Answers to one question, and rows of a page.
        max_links: Links in one response.
        max_waiting: Requests that may wait for the model.
        max_questions: Questions of all waiting requests together.
        max_explaining: Requests that may wait for an explanation.
        max_connections: Open connections.
        client_timeout_s: Seconds a client may take to send a request or to read.
        idle_timeout_s: Seconds an unused connection stays open.
        shutdown_timeout_s: Seconds to finish running requests when stopped.
    """

    panel: ClassVar[str] = "Limits"
    timeout_s: Annotated[float, Option("--timeout", min=0.1, max=3600)] = 30.0
    max_body_bytes: Annotated[int, Option("--max-body", min=1024, max=1 << 30)] = 1 << 20
    max_items: Annotated[int, Option(min=1, max=100_000)] = 1000
    max_k: Annotated[int, Option(min=1, max=100_000)] = 1000
    max_links: Annotated[int, Option(min=1, max=10_000_000)] = 20_000
    max_waiting: Annotated[int, Option(min=1, max=1_000_000)] = 512
    max_questions: Annotated[int, Option(min=1, max=10**8)] = 20_000
    max_explaining: Annotated[int, Option(min=1, max=10_000)] = 16
    max_connections: Annotated[int, Option(min=1, max=1_000_000)] = 1000
    client_timeout_s: Annotated[float, Option("--slow-client", min=0.1, max=3600)] = 10.0
    idle_timeout_s: Annotated[float, Option("--idle", min=1, max=3600)] = 30.0
    shutdown_timeout_s: Annotated[float, Option("--grace", min=0, max=3600)] = 10.0
    max_name_length: int = 2000  # of a name or a search text; raised to the longest name of the served models
    max_head_bytes: int = 32 << 10  # of a request's first line and headers


def read_token(file: Path | None) -> str | None:
    """Read the token from a file, or else from RGCN_TOKEN.

    There is no option for the token itself, because other users can see the command line.

    Raises:
        ConfigError: If the file cannot be read, or the token is too short or contains other characters.
    """
    try:
        token = os.environ.get(TOKEN_VARIABLE) if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read from {file}: {error}") from None
    if token is not None and not re.fullmatch(r"[!-~]{8,}", token.strip()):
        raise ConfigError(
            f"the token in {file or TOKEN_VARIABLE} must have at least 8 printable ASCII characters without spaces: "
            "`python -c 'import secrets; print(secrets.token_urlsafe(24))'` makes a good one"
        )
    return token and token.strip()


def bound_socket(address: Address) -> socket.socket:
    """Return a socket that listens at this address; ConfigError if that is not possible."""
    host, port = address.host.strip("[]"), address.port
    messages = {
        errno.EADDRINUSE: f"port {port} is in use: stop the program that uses it, or choose --port {port + 1}",
        errno.EACCES: f"you may not use port {port}: choose one above 1023, for example --port 8000",
        errno.EADDRNOTAVAIL: f"{host} is not an address of this machine: use --host 127.0.0.1, or 0.0.0.0 for all",
    }
    family, is_dual_stack = (socket.AF_INET6, host == "::") if ":" in host else (socket.AF_INET, False)
    try:
        return socket.create_server((host, port), family=family, backlog=2048, dualstack_ipv6=is_dual_stack)
    except socket.gaierror as error:
        raise ConfigError(f"{host} is not an address to listen on: {error.strerror or error}") from None
    except OSError as error:
        default = f"cannot listen on {host}, port {port}: {error.strerror or error}"
        raise ConfigError(messages.get(error.errno or 0, default)) from None


def url_of(address: Address, listening: socket.socket) -> str:
    """Return the URL of a server at this address, for a browser on this machine."""
    host = address.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
