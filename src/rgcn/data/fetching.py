"""Fetching files as bytes, with the proxy, certificates, trusted hosts and logins that pip uses.

pip itself is asked for its settings and never for a download, which may run code from the archive.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import http.client
import netrc
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rgcn.errors import DataError
from rgcn.progress import progress

CHUNK = 1 << 18
ATTEMPTS = 3
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class FetchError(DataError):
    """A file could not be fetched; the reason never names the index, which may be private."""


class _InterruptedError(FetchError):
    """The connection broke: worth another try."""


def pip_settings() -> dict[str, str]:
    """pip's options on this machine by name: those of all commands, then of `pip download`, then PIP_* variables."""
    listed = re.findall(r"^(global|download|:env:)\.([\w-]+)=(.*)$", _pip("config", "list"), re.MULTILINE)
    options: dict[str, str] = {}
    for section in ("global", "download", ":env:"):
        options |= {name.replace("_", "-"): str(ast.literal_eval(value)) for of, name, value in listed if of == section}
    if "index-url" not in options:
        default = re.search(r"--index-url\b[^(]*\(default\s+(\S+?)\)", _pip("--isolated", "download", "--help"))
        options["index-url"] = default[1] if default else ""
    return options


def _pip(*arguments: str) -> str:
    """What pip prints: it is no library, and its commands are all it promises."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    unbroken = {**os.environ, "COLUMNS": "1000"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=unbroken)
    except (OSError, subprocess.SubprocessError) as error:
        raise FetchError(f"pip, which knows the package index, cannot be asked ({type(error).__name__})") from None
    return done.stdout


class Client:
    """Fetches over https, http (loopback and trusted hosts only) and file.

    settings  pip's options by name, without the dashes in front
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self._trusted = set(settings.get("trusted-host", "").split())
        seconds = settings.get("timeout") or settings.get("default-timeout") or ""
        self._timeout = max(float(seconds), 1.0) if re.fullmatch(r"\d+(\.\d+)?", seconds) else 15.0

    def page(self, url: str, accept: str, max_bytes: int) -> tuple[str, str, str]:
        """(text, content type, final address) of a page."""
        with self._answer(url, accept) as response:
            text = b"".join(_bounded(response, max_bytes)).decode(errors="replace")
            return text, response.headers.get_content_type(), response.geturl()

    def download(self, url: str, target: Path, *, description: str, max_bytes: int, sha256: str | None = None) -> str:
        """Fetch into `target` and return the sha256; on any failure `target` is not left behind.

        A wrong checksum is final, a broken connection is tried again.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                found = self._download_once(url, target, description, max_bytes)
                if sha256 not in (None, found):
                    raise FetchError(f"wrong checksum: sha256 {found[:16]}… where {str(sha256)[:16]}… is expected")
                break
            except BaseException as error:
                target.unlink(missing_ok=True)
                if attempt == ATTEMPTS or not isinstance(error, _InterruptedError):
                    raise
            time.sleep(0.2 * attempt)
        return found

    def _download_once(self, url: str, target: Path, description: str, max_bytes: int) -> str:
        digest = hashlib.sha256()
        with (
            self._answer(url) as response,
            target.open("wb") as out,
            progress(description, _length(response), "bytes") as bar,
        ):
            for block in _bounded(response, max_bytes):
                digest.update(block)
                out.write(block)
                bar.advance(len(block))
        return digest.hexdigest()

    @contextmanager
    def _answer(self, url: str, accept: str = "*/*") -> Iterator[Any]:
        """A response to read from; every failure becomes a FetchError."""
        request = self._request(url, accept)
        try:
            with self._opener(request.host).open(request, timeout=self._timeout) as response:
                yield response
        except urllib.error.HTTPError as error:
            kind = _InterruptedError if error.code in (429, 500, 502, 503, 504) else FetchError
            raise kind(f"the server answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise FetchError(f"not reachable ({_reason(error.reason)})") from None
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise _InterruptedError(f"the connection broke ({_reason(error)})") from None

    def _request(self, url: str, accept: str) -> urllib.request.Request:
        """The request with credentials moved from the address (or netrc) into a header."""
        parts = urllib.parse.urlsplit(url)
        host, place = parts.hostname or "", parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("https", "http", "file"):
            raise FetchError(f"addresses of kind {parts.scheme!r} are not fetched")
        if parts.scheme == "http" and not {host, place} & (self._trusted | LOOPBACK):
            raise FetchError("refused: plain http; name the host in pip's trusted-host to allow it")
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "rgcn"}
        request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=place)), headers=headers)
        user, password = urllib.parse.unquote(parts.username or ""), urllib.parse.unquote(parts.password or "")
        if not user and host:
            with suppress(OSError, netrc.NetrcParseError):
                found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
                user, password = (found[0], found[2] or "") if found else ("", "")
        if user:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {login}")
        return request

    def _opener(self, host: str) -> urllib.request.OpenerDirector:
        try:
            context = ssl.create_default_context(cafile=self.settings.get("cert") or None)
            if self.settings.get("client-cert"):
                context.load_cert_chain(self.settings["client-cert"])
        except OSError as error:
            raise FetchError(f"pip's certificate file cannot be used ({_reason(error)})") from None
        if {host, host.partition(":")[0]} & self._trusted:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        proxy = self.settings.get("proxy")
        proxies = {"http": proxy, "https": proxy} if proxy else None  # None: the usual environment variables
        handlers = urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context), _Redirects()
        return urllib.request.build_opener(*handlers)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never to something weaker, and give credentials only to their own host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme.lower() not in ("https", req.type):
            raise FetchError("refused a redirect from https to an unprotected address")
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and redirected.host == req.host and req.unredirected_hdrs.get("Authorization"):
            redirected.add_unredirected_header("Authorization", req.unredirected_hdrs["Authorization"])
        return redirected


def _length(response: Any) -> int | None:
    told = response.headers.get("Content-Length") or ""
    return int(told) if told.isdigit() else None


def _bounded(response: Any, max_bytes: int) -> Iterator[bytes]:
    """The blocks of an answer, of at most `max_bytes` whatever its header tells, and not fewer than that tells."""
    length, received = _length(response), 0
    if length is not None and length > max_bytes:
        raise FetchError(f"the file has {length:,} bytes, more than the limit of {max_bytes:,}")
    while block := response.read(CHUNK):
        received += len(block)
        if received > max_bytes:
            raise FetchError(f"the file is larger than the limit of {max_bytes:,} bytes")
        yield block
    if length is not None and received < length:
        raise _InterruptedError(f"the connection closed after {received:,} of {length:,} bytes")


def _reason(error: object) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__)
