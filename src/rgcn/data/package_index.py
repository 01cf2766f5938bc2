"""Fetching files: from the package index pip is set up for, or from a public address with the same settings.

A package index is read through its simple API, as HTML (PEP 503) or JSON (PEP 691), with the proxy, certificates and
credentials pip would use. Archives are fetched as bytes and checked; pip itself is never asked to download or install,
since that may run code from the archive.
"""

from __future__ import annotations

import ast
import base64
import configparser
import hashlib
import html.parser
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
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rgcn.errors import DataError

DEFAULT_INDEX = "https://pypi.org/simple"
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
MAX_PAGE_BYTES = 64 << 20
CHUNK = 1 << 18
ATTEMPTS = 3


class FetchError(DataError):
    """A file could not be fetched; the reason never names the index, which may be private."""


class _InterruptedError(FetchError):
    """The connection broke: worth another try."""


@dataclass(frozen=True)
class PipSettings:
    """The part of pip's configuration that says where packages come from and how they are reached."""

    index_urls: tuple[str, ...] = (DEFAULT_INDEX,)
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0
    trusted_hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> PipSettings:
        """From pip's option names (without dashes in front) and their values.

        >>> PipSettings.of({"extra-index-url": "file:///more/simple", "timeout": "60"}).index_urls
        ('https://pypi.org/simple', 'file:///more/simple')
        """
        urls = [options.get("index-url", DEFAULT_INDEX), *options.get("extra-index-url", "").split()]
        if options.get("no-index", "").lower() in ("1", "true", "yes", "on"):
            urls = []
        return cls(
            index_urls=tuple(dict.fromkeys(url.strip().rstrip("/") for url in urls if url.strip())),
            find_links=tuple(options.get("find-links", "").split()),
            cert=options.get("cert") or None,
            client_cert=options.get("client-cert") or None,
            proxy=options.get("proxy") or None,
            timeout=_seconds(options.get("timeout", options.get("default-timeout", "15"))),
            trusted_hosts=frozenset(options.get("trusted-host", "").split()),
        )


def pip_settings() -> PipSettings:
    """What pip on this machine is set up with: its configuration files, then PIP_* variables, which win."""
    listed = _pip_config_list()
    options = _options_in(listed) if listed is not None else _config_file_options()
    for key, value in os.environ.items():
        if key.startswith("PIP_") and key != "PIP_CONFIG_FILE":
            options[key[4:].lower().replace("_", "-")] = value
    return PipSettings.of(options)


def _pip_config_list() -> str | None:
    """The lines of `pip config list`, or None where this environment has no pip (uv makes such ones)."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _options_in(listing: str) -> dict[str, str]:
    """Options from lines like global.index-url='...'; those for `pip download` win over the global ones.

    >>> _options_in("download.timeout='9'\\nglobal.timeout='5'\\nfreeze.timeout='7'")
    {'timeout': '9'}
    """
    by_section: dict[str, dict[str, str]] = {"global": {}, "download": {}, ":env:": {}}
    for line in listing.splitlines():
        match = re.fullmatch(r"(:env:|[\w-]+)\.([\w-]+)=(.*)", line.strip())
        if match is None or match[1] not in by_section:
            continue
        try:
            value = str(ast.literal_eval(match[3]))
        except (ValueError, SyntaxError):
            value = match[3]
        by_section[match[1]][match[2].replace("_", "-")] = value
    return {**by_section["global"], **by_section["download"], **by_section[":env:"]}


def _config_file_options() -> dict[str, str]:
    """The same, read from pip's configuration files directly."""
    name = "pip.ini" if os.name == "nt" else "pip.conf"
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = [Path("/etc") / name, Path.home() / ".pip" / name, config_home / "pip" / name]
    if os.environ.get("APPDATA"):
        places.append(Path(os.environ["APPDATA"]) / "pip" / name)
    places.append(Path(sys.prefix) / name)
    if os.environ.get("PIP_CONFIG_FILE"):
        places.append(Path(os.environ["PIP_CONFIG_FILE"]))
    parser = configparser.RawConfigParser()
    try:
        parser.read(places, encoding="utf-8")
    except configparser.Error:
        return {}
    options: dict[str, str] = {}
    for section in ("global", "download"):
        if parser.has_section(section):
            options.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return options


def _seconds(text: str) -> float:
    try:
        return max(float(text), 1.0)
    except ValueError:
        return 15.0


# -- the simple API ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexFile:
    """A file a package index offers."""

    filename: str
    url: str
    hashes: Mapping[str, str] = field(default_factory=dict)


def normalized(project: str) -> str:
    """A project's name as indexes spell it in addresses (PEP 503).

    >>> normalized("pyRDF2Vec_Extra")
    'pyrdf2vec-extra'
    """
    return re.sub(r"[-_.]+", "-", project).lower()


def parse_project_page(body: bytes, content_type: str, page_url: str) -> list[IndexFile]:
    """The files named on a project's page, JSON or HTML.

    >>> page = b'<a href="../../files/a-1.tar.gz#sha256=00ff">a-1.tar.gz</a>'
    >>> parse_project_page(page, "text/html", "https://example.org/simple/a/")[0].url
    'https://example.org/files/a-1.tar.gz'
    """
    if "json" in content_type.lower():
        try:
            found = json.loads(body)["files"]
            return [
                IndexFile(str(f["filename"]), urllib.parse.urljoin(page_url, f["url"]), dict(f.get("hashes") or {}))
                for f in found
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FetchError(f"the index's answer is no simple API page ({type(error).__name__})") from error
    parser = _Links(page_url)
    parser.feed(body.decode("utf-8", errors="replace"))
    return parser.files


class _Links(html.parser.HTMLParser):
    def __init__(self, page_url: str) -> None:
        super().__init__()
        self.base, self.files = page_url, list[IndexFile]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if not href:
            return
        if tag == "base":
            self.base = urllib.parse.urljoin(self.base, href)
        elif tag == "a":
            url, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href))
            name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
            algorithm, _, digest = fragment.partition("=")
            self.files.append(IndexFile(name, url, {algorithm: digest} if digest else {}))


def locate_archive(project: str, filename: str, sha256: str, client: Client) -> IndexFile:
    """Where the archive can be had: a find-links folder first, then each index in pip's order."""
    for place in client.settings.find_links:
        folder = Path(_path_of(place) if place.startswith("file:") else place).expanduser()
        if (folder / filename).is_file():  # pages of links elsewhere are not read: an index has what is needed
            return IndexFile(filename, (folder / filename).resolve().as_uri(), {})
    reasons = []
    for number, index in enumerate(client.settings.index_urls, 1):
        label = f"index {number} of {len(client.settings.index_urls)}"
        try:
            body, content_type, page_url = client.page(f"{index}/{normalized(project)}/")
            offered = [
                f for f in parse_project_page(body, content_type, page_url) if f.filename.lower() == filename.lower()
            ]
        except FetchError as error:
            reasons.append(f"{label}: {error}")
            continue
        for file in offered:
            if file.hashes.get("sha256", sha256) == sha256:
                # an index given with a user name and password usually keeps its files behind the same door
                return IndexFile(file.filename, _with_credentials_of(index, file.url), file.hashes)
        reasons.append(f"{label}: " + ("offers it with another checksum" if offered else f"has no {filename}"))
    raise FetchError("; ".join(reasons) or "pip is set up without an index (no-index)")


def _with_credentials_of(index: str, url: str) -> str:
    source, target = urllib.parse.urlsplit(index), urllib.parse.urlsplit(url)
    same_door = (source.scheme, source.hostname, source.port) == (target.scheme, target.hostname, target.port)
    if not same_door or "@" in target.netloc or "@" not in source.netloc:
        return url
    return urllib.parse.urlunsplit(target._replace(netloc=source.netloc))


# -- fetching ----------------------------------------------------------------------------------------------


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never from https to something weaker, and give credentials only to their own host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise FetchError("refused a redirect from https to an unprotected address")
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and redirected.host == req.host and req.unredirected_hdrs.get("Authorization"):
            redirected.add_unredirected_header("Authorization", req.unredirected_hdrs["Authorization"])
        return redirected


class Client:
    """Fetches over https, http (loopback and trusted hosts only) and file, with pip's settings."""

    def __init__(self, settings: PipSettings | None = None) -> None:
        self.settings = pip_settings() if settings is None else settings

    def page(self, url: str) -> tuple[bytes, str, str]:
        """(body, content type, final address) of an index page."""
        with self._answer(url, ACCEPT) as (stream, length, content_type, final_url):
            body = stream.read(MAX_PAGE_BYTES + 1)
            if len(body) > MAX_PAGE_BYTES:
                raise FetchError("the index page is too large")
            if length is not None and len(body) < length:
                raise FetchError(f"the connection closed after {len(body):,} of {length:,} bytes")
            return body, content_type, final_url

    def download(self, url: str, target: Path, *, description: str, max_bytes: int, sha256: str | None = None) -> str:
        """Fetch into `target` and return the sha256; on any failure `target` is not left behind.

        A wrong checksum is final, a broken connection is tried again.
        """
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    digest = self._download_once(url, target, description, max_bytes)
                    break
                except _InterruptedError:
                    if attempt == ATTEMPTS:
                        raise
                    time.sleep(0.2 * attempt)
            if sha256 is not None and digest != sha256:
                raise FetchError(f"wrong checksum: sha256 {digest[:16]}… where {sha256[:16]}… is expected")
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return digest

    def _download_once(self, url: str, target: Path, description: str, max_bytes: int) -> str:
        from rgcn.progress import progress

        digest, received = hashlib.sha256(), 0
        with self._answer(url, "*/*") as (stream, length, _, _):
            if length is not None and length > max_bytes:
                raise FetchError(f"the file has {length:,} bytes, more than the limit of {max_bytes:,}")
            with target.open("wb") as out, progress(description, length, "bytes") as bar:
                while block := stream.read(CHUNK):
                    received += len(block)
                    if received > max_bytes:
                        raise FetchError(f"the file is larger than the limit of {max_bytes:,} bytes")
                    digest.update(block)
                    out.write(block)
                    bar.advance(len(block))
        if length is not None and received < length:
            raise _InterruptedError(f"the connection closed after {received:,} of {length:,} bytes")
        return digest.hexdigest()

    @contextmanager
    def _answer(self, url: str, accept: str) -> Iterator[tuple[IO[bytes], int | None, str, str]]:
        """(stream, length if told, content type, final address); every failure becomes a FetchError."""
        if url.startswith("file:"):
            with _open_file(url) as stream:
                length = os.fstat(stream.fileno()).st_size
                yield stream, length, "application/json" if stream.name.endswith(".json") else "text/html", url
            return
        request, plain_url = self._request(url, accept)
        try:
            with self._opener(plain_url).open(request, timeout=self.settings.timeout) as response:
                length = response.headers.get("Content-Length")
                yield (
                    response,
                    int(length) if length and length.isdigit() else None,
                    response.headers.get("Content-Type") or "text/html",
                    response.geturl(),
                )
        except urllib.error.HTTPError as error:
            kind = _InterruptedError if error.code in (429, 500, 502, 503, 504) else FetchError
            raise kind(f"the server answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise FetchError(f"not reachable ({_reason(error.reason)})") from None
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise _InterruptedError(f"the connection broke ({_reason(error)})") from None

    def _request(self, url: str, accept: str) -> tuple[urllib.request.Request, str]:
        """The request with credentials moved from the address (or netrc) into a header."""
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("https", "http") or not host:
            raise FetchError(f"addresses of kind {parts.scheme!r} are not fetched")
        if parts.scheme == "http" and not self._trusted(parts):
            raise FetchError("refused: plain http; name the host in pip's trusted-host to allow it")
        plain = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1]))
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "rgcn"}
        request = urllib.request.Request(plain, headers=headers)
        login = (urllib.parse.unquote(parts.username or ""), urllib.parse.unquote(parts.password or ""))
        if not parts.username:
            login = _netrc_login(host)
        if login[0]:
            token = base64.b64encode(f"{login[0]}:{login[1]}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        return request, plain

    def _trusted(self, parts: urllib.parse.SplitResult) -> bool:
        host = parts.hostname or ""
        if host in ("localhost", "127.0.0.1", "::1"):
            return True
        return bool({host, f"{host}:{parts.port}"} & self.settings.trusted_hosts)

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        parts = urllib.parse.urlsplit(url)
        try:
            context = ssl.create_default_context(cafile=self.settings.cert)
            if self.settings.client_cert:
                context.load_cert_chain(self.settings.client_cert)
        except OSError as error:
            raise FetchError(f"pip's certificate file cannot be used ({_reason(error)})") from None
        if {parts.hostname, f"{parts.hostname}:{parts.port}"} & self.settings.trusted_hosts:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        proxies = {"http": self.settings.proxy, "https": self.settings.proxy} if self.settings.proxy else None
        return urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies),  # None: the usual environment variables
            urllib.request.HTTPSHandler(context=context),
            _Redirects(),
        )


def _path_of(url: str) -> str:
    return urllib.request.url2pathname(urllib.parse.urlsplit(url).path)


def _open_file(url: str) -> IO[bytes]:
    """A file, or the index page of a folder (HTML, else JSON)."""
    path = Path(_path_of(url))
    candidates = [path / "index.html", path / "index.json"] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.open("rb")
    raise FetchError("no such file or project in the index folder")


def _netrc_login(host: str) -> tuple[str, str]:
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return "", ""
    return (found[0], found[2] or "") if found else ("", "")


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
    return str(text)
