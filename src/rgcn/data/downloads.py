"""Download files with the indexes, proxy, certificates, trusted hosts and logins that pip uses.

Only pip's settings are used. pip itself never downloads anything, because it may run code from the archive.
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
BLOCK_BYTES = 1 << 18
MAX_ATTEMPTS = 3
_LINK = re.compile(r"""<(a|base)\b[^>]*?\shref\s*=\s*["']([^"'>]+)""", re.IGNORECASE)
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class FetchError(DataError):
    """A file could not be downloaded. The message never names the index, which may be private."""


class _ConnectionLostError(FetchError):
    """The connection broke, so another attempt may succeed."""


def pip_settings() -> dict[str, str]:
    """Return pip's options by name: those of all commands, then of `pip download`, then of PIP_* variables."""
    lines = re.findall(r"^(global|download|:env:)\.([\w-]+)=(.*)$", _run_pip("config", "list"), re.MULTILINE)
    lines.sort(key=lambda line: ("global", "download", ":env:").index(line[0]))
    options: dict[str, str] = {name.replace("_", "-"): str(ast.literal_eval(value)) for _, name, value in lines}
    if "index-url" not in options:
        default = re.search(r"--index-url\b[^(]*\(default\s+(\S+?)\)", _run_pip("--isolated", "download", "--help"))
        options["index-url"] = default[1] if default else ""
    return options


def _run_pip(*arguments: str) -> str:
    """Return the output of a pip command. pip has no supported Python interface."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    environment = {**os.environ, "COLUMNS": "1000"}  # do not wrap lines
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise FetchError(f"cannot run pip, whose settings name the package index ({type(error).__name__})") from None
    return done.stdout


class Client:
    """Downloads over https, http (loopback and trusted hosts only) and file, with pip's options by name."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self._trusted = set(settings.get("trusted-host", "").split())
        seconds = settings.get("timeout") or settings.get("default-timeout") or ""
        self._timeout = max(float(seconds), 1.0) if re.fullmatch(r"\d+(\.\d+)?", seconds) else 15.0

    def page(self, url: str, accept: str, max_bytes: int) -> tuple[str, str, str]:
        """Return (text, content type, final address) of a page."""
        with self._open(url, accept) as response:
            text = b"".join(_bounded(response, max_bytes)).decode(errors="replace")
            return text, response.headers.get_content_type(), response.geturl()

    def download(
        self, url: str, target: Path, *, max_bytes: int, sha256: str | None = None, description: str = ""
    ) -> str:
        """Download a file; try again if the connection breaks.

        Args:
            url: The address.
            target: Where to write the file; removed if the download fails.
            max_bytes: Upper limit for its size.
            sha256: Its checksum, if it is known.
            description: Its name on the progress bar.

        Returns:
            The file's sha256.

        Raises:
            FetchError: The file cannot be downloaded, is too large or has another checksum.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                digest = self._download_once(url, target, description or target.name, max_bytes)
                if sha256 not in (None, digest):
                    raise FetchError(f"wrong checksum: sha256 {digest[:16]}… where {str(sha256)[:16]}… is expected")
                break
            except BaseException as error:
                target.unlink(missing_ok=True)
                if attempt == MAX_ATTEMPTS or not isinstance(error, _ConnectionLostError):
                    raise
            time.sleep(0.2 * attempt)
        return digest

    def _download_once(self, url: str, target: Path, description: str, max_bytes: int) -> str:
        digest = hashlib.sha256()
        with (
            self._open(url) as response,
            target.open("wb") as out,
            progress(description, _content_length(response), "bytes") as meter,
        ):
            for block in _bounded(response, max_bytes):
                digest.update(block)
                out.write(block)
                meter.advance(len(block))
        return digest.hexdigest()

    @contextmanager
    def _open(self, url: str, accept: str = "*/*") -> Iterator[Any]:
        """Open a response to read from; every failure becomes a FetchError."""
        request = self._request(url, accept)
        try:
            with self._opener(request.host).open(request, timeout=self._timeout) as response:
                yield response
        except urllib.error.HTTPError as error:
            kind = _ConnectionLostError if error.code in (429, 500, 502, 503, 504) else FetchError
            raise kind(f"the server answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise FetchError(f"not reachable ({_reason(error.reason)})") from None
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise _ConnectionLostError(f"the connection broke ({_reason(error)})") from None

    def _request(self, url: str, accept: str) -> urllib.request.Request:
        """Make a request whose credentials, from the address or netrc, are in a header."""
        parts = urlsplit(url)
        host, address = parts.hostname or "", parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("https", "http", "file"):
            raise FetchError(f"refused: addresses of kind {parts.scheme!r} are not supported")
        if parts.scheme == "http" and not {host, address} & (self._trusted | LOOPBACK):
            raise FetchError("refused: plain http; name the host in pip's trusted-host to allow it")
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "rgcn"}
        request = urllib.request.Request(urlunsplit(parts._replace(netloc=address)), headers=headers)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if not user and host:
            with suppress(OSError, netrc.NetrcParseError):
                entry = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
                user, password = (entry[0], entry[2] or "") if entry else ("", "")
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
        proxies = {"http": proxy, "https": proxy} if proxy else None  # None uses the usual environment variables
        handlers = urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context), _Redirects()
        return urllib.request.build_opener(*handlers)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to something weaker, and sends credentials only to their own host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new address."""
        if urlsplit(newurl).scheme.lower() not in ("https", req.type):
            raise FetchError("refused a redirect from https to an unprotected address")
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and redirected.host == req.host and req.unredirected_hdrs.get("Authorization"):
            redirected.add_unredirected_header("Authorization", req.unredirected_hdrs["Authorization"])
        return redirected


def _content_length(response: Any) -> int | None:
    length = response.headers.get("Content-Length") or ""
    return int(length) if length.isdigit() else None


def _bounded(response: Any, max_bytes: int) -> Iterator[bytes]:
    """Yield the blocks of a response. They have at most `max_bytes`, and as many as the header says."""
    length, received = _content_length(response), 0
    if length is not None and length > max_bytes:
        raise FetchError(f"the file has {length:,} bytes, more than the limit of {max_bytes:,}")
    while block := response.read(BLOCK_BYTES):
        received += len(block)
        if received > max_bytes:
            raise FetchError(f"the file is larger than the limit of {max_bytes:,} bytes")
        yield block
    if length is not None and received < length:
        raise _ConnectionLostError(f"the connection closed after {received:,} of {length:,} bytes")


def _reason(error: object) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__)


class IndexFile(NamedTuple):
    """A file on a package index; `hashes` has a digest for each algorithm."""

    name: str
    url: str
    hashes: Mapping[str, str]


def locate_archive(project: str, filename: str, sha256: str, client: Client) -> str:
    """Return the address of an archive: in a find-links folder, else on the first of pip's indexes that has it.

    Args:
        project: The project's name on the index.
        filename: The archive's name.
        sha256: The archive's checksum.
        client: Has pip's settings.

    Raises:
        FetchError: No index has the archive with this checksum.
    """
    settings = client.settings
    for place in settings.get("find-links", "").split():  # pages of links are not read: indexes have what is needed
        path = (_path_of(place) if place.startswith("file:") else Path(place).expanduser()) / filename
        if path.is_file():
            return path.resolve().as_uri()
    indexes = f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split()
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        indexes = []
    problems = []
    for number, index in enumerate(indexes, 1):
        try:
            files = [file for file in _project_files(index, project, client) if file.name.lower() == filename.lower()]
            for file in files:
                if file.hashes.get("sha256", sha256) == sha256:
                    return _with_credentials_of(index, file.url)
            problem = "offers it with another checksum" if files else f"has no {filename}"
        except FetchError as error:
            problem = str(error)
        problems.append(f"index {number} of {len(indexes)}: {problem}")
    raise FetchError("; ".join(problems) or "pip is set up without an index (no-index)")


def _project_files(index: str, project: str, client: Client) -> list[IndexFile]:
    url = f"{index.rstrip('/')}/{re.sub('[-_.]+', '-', project).lower()}/"
    if url.startswith("file:"):
        pages = [page for page in sorted(_path_of(url).glob("index.*")) if page.suffix in (".html", ".json")]
        if not pages:
            raise FetchError("no such project in the index folder")
        url = pages[0].as_uri()
    return parse_project_page(*client.page(url, ACCEPT, MAX_PAGE_BYTES))


def parse_project_page(text: str, content_type: str, page_url: str) -> list[IndexFile]:
    """Return the files on a project's page of an index.

    Raises:
        FetchError: The page is not a simple API page.

    >>> page = '<a href="../../files/a-1.tar.gz#sha256=00ff">a-1.tar.gz</a>'
    >>> parse_project_page(page, "text/html", "https://example.org/simple/a/")[0].url
    'https://example.org/files/a-1.tar.gz'
    """
    if "json" not in content_type:
        base, links = page_url, []
        for tag, href in _LINK.findall(text):
            url, fragment = urldefrag(urljoin(base, html.unescape(href)))
            algorithm, _, digest = fragment.partition("=")
            if tag.lower() == "base":
                base = url
            else:
                name = unquote(urlsplit(url).path.rpartition("/")[2])
                links.append(IndexFile(name, url, {algorithm: digest} if digest else {}))
        return links
    try:
        files = json.loads(text)["files"]
        return [IndexFile(f["filename"], urljoin(page_url, f["url"]), dict(f.get("hashes") or {})) for f in files]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"the index's answer is not a simple API page ({type(error).__name__})") from error


def _with_credentials_of(index: str, url: str) -> str:
    """Add the index's user name and password to the address of a file on the same server."""
    source, target = urlsplit(index), urlsplit(url)
    is_same_server = (source.scheme, source.hostname, source.port) == (target.scheme, target.hostname, target.port)
    if not is_same_server or "@" in target.netloc or "@" not in source.netloc:
        return url
    return urlunsplit(target._replace(netloc=source.netloc))


def _path_of(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path))
