"""Fetching files as bytes, with the indexes, proxy, certificates, trusted hosts and logins that pip uses.

pip itself is asked for its settings and never for a download, which may run code from the archive.
"""

import ast
import base64
import hashlib
import html
import http.client
import json
import netrc
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from rgcn.errors import DataError
from rgcn.system.progress import progress

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
MAX_PAGE_BYTES = 64 << 20
CHUNK = 1 << 18
ATTEMPTS = 3
_LINK = re.compile(r"""<(a|base)\b[^>]*?\shref\s*=\s*["']([^"'>]+)""", re.IGNORECASE)
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
    """Fetches over https, http (loopback and trusted hosts only) and file, with pip's options by name."""

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

    def download(
        self, url: str, target: Path, *, max_bytes: int, sha256: str | None = None, description: str = ""
    ) -> str:
        """Fetch into `target`, which no failure leaves behind: its sha256. Only a broken connection is tried again."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                found = self._download_once(url, target, description or target.name, max_bytes)
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
        parts = urlsplit(url)
        host, place = parts.hostname or "", parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("https", "http", "file"):
            raise FetchError(f"addresses of kind {parts.scheme!r} are not fetched")
        if parts.scheme == "http" and not {host, place} & (self._trusted | LOOPBACK):
            raise FetchError("refused: plain http; name the host in pip's trusted-host to allow it")
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "rgcn"}
        request = urllib.request.Request(urlunsplit(parts._replace(netloc=place)), headers=headers)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
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
        if urlsplit(newurl).scheme.lower() not in ("https", req.type):
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


class IndexFile(NamedTuple):
    """A file a package index offers; hashes: {algorithm: digest}"""

    name: str
    url: str
    hashes: Mapping[str, str]


def locate_archive(project: str, filename: str, sha256: str, client: Client) -> str:
    """The address of an archive: in a find-links folder, else on the first of pip's indexes that offers these bytes."""
    settings = client.settings
    for place in settings.get("find-links", "").split():
        found = (_path_of(place) if place.startswith("file:") else Path(place).expanduser()) / filename
        if found.is_file():  # pages of links elsewhere are not read: an index has what is needed
            return found.resolve().as_uri()
    urls = f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split()
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        urls = []
    reasons = []
    for number, index in enumerate(urls, 1):
        try:
            files = [file for file in _files(index, project, client) if file.name.lower() == filename.lower()]
            for file in files:
                if file.hashes.get("sha256", sha256) == sha256:
                    return _with_credentials_of(index, file.url)
            reason = "offers it with another checksum" if files else f"has no {filename}"
        except FetchError as error:
            reason = str(error)
        reasons.append(f"index {number} of {len(urls)}: {reason}")
    raise FetchError("; ".join(reasons) or "pip is set up without an index (no-index)")


def _files(index: str, project: str, client: Client) -> list[IndexFile]:
    url = f"{index.rstrip('/')}/{re.sub('[-_.]+', '-', project).lower()}/"
    if url.startswith("file:"):
        pages = [page for page in sorted(_path_of(url).glob("index.*")) if page.suffix in (".html", ".json")]
        if not pages:
            raise FetchError("no such project in the index folder")
        url = pages[0].as_uri()
    return parse_project_page(*client.page(url, ACCEPT, MAX_PAGE_BYTES))


def parse_project_page(text: str, content_type: str, page_url: str) -> list[IndexFile]:
    """The files named on a project's page.

    >>> page = '<a href="../../files/a-1.tar.gz#sha256=00ff">a-1.tar.gz</a>'
    >>> parse_project_page(page, "text/html", "https://example.org/simple/a/")[0].url
    'https://example.org/files/a-1.tar.gz'
    """
    if "json" not in content_type:
        base, files = page_url, []
        for tag, href in _LINK.findall(text):
            url, fragment = urldefrag(urljoin(base, html.unescape(href)))
            algorithm, _, digest = fragment.partition("=")
            if tag.lower() == "base":
                base = url
            else:
                name = unquote(urlsplit(url).path.rpartition("/")[2])
                files.append(IndexFile(name, url, {algorithm: digest} if digest else {}))
        return files
    try:
        found = json.loads(text)["files"]
        return [IndexFile(f["filename"], urljoin(page_url, f["url"]), dict(f.get("hashes") or {})) for f in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"the index's answer is no simple API page ({type(error).__name__})") from error


def _with_credentials_of(index: str, url: str) -> str:
    """An index given with a user name and password usually keeps its files behind the same door."""
    source, target = urlsplit(index), urlsplit(url)
    same_door = (source.scheme, source.hostname, source.port) == (target.scheme, target.hostname, target.port)
    if not same_door or "@" in target.netloc or "@" not in source.netloc:
        return url
    return urlunsplit(target._replace(netloc=source.netloc))


def _path_of(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path))
