"""Where the server listens, and who may ask. Light, so that a port in use is said before PyTorch is loaded."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rgcn.errors import ConfigError

SHORTEST_TOKEN = 8
TOKEN_VARIABLE = "RGCN_TOKEN"
# Names that only this machine answers to; a browser may be talked into sending others here (DNS rebinding).
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to this address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Address:
    """Where to listen, and who may ask.

    port         0 for any that is free
    token        that /api and /metrics ask for; needed for any address but this machine's own
    allow_hosts  further names that may stand in the Host header
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    allow_hosts: Sequence[str] = ()

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


def read_token(file: Path | None) -> str | None:
    """The token from a file, else from RGCN_TOKEN, else none. Never from the command line, which everybody can see."""
    if file is None:
        token, where = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if token is None:
            return None
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token cannot be read from {file}: {error}") from None
    token = token.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token in {where} must be at least {SHORTEST_TOKEN} characters, printable ASCII without spaces: "
            "`python -c 'import secrets; print(secrets.token_urlsafe(24))'` makes a good one"
        )
    return token


def bound_socket(address: Address) -> socket.socket:
    """A socket at the address; words where it cannot be had."""
    host, port = address.host.strip("[]"), address.port
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"{address.host} is no address to listen on: {error.strerror or error}") from None
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise ConfigError(_not_bound(address, error)) from None
    return listening


def _not_bound(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {address.port} is in use: stop what is there, or choose --port {address.port + 1}"
    if error.errno == errno.EACCES:
        return f"port {address.port} may not be used by you: choose one above 1023, for example --port 8000"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address.host} is no address of this machine: use --host 127.0.0.1, or 0.0.0.0 for all it has"
    return f"cannot listen on {address.host}, port {address.port}: {error.strerror or error}"


def url_of(address: Address, listening: socket.socket) -> str:
    """What to type into a browser."""
    host = address.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
