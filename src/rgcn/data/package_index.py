"""Where on pip's package indexes an archive lies, read from their pages in HTML (PEP 503) or JSON (PEP 691)."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from rgcn.data.fetching import Client, FetchError

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
MAX_PAGE_BYTES = 64 << 20


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
    """What an index has of a project."""
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
        parser = _Links(page_url)
        parser.feed(text)
        return parser.files
    try:
        found = json.loads(text)["files"]
        return [IndexFile(f["filename"], urljoin(page_url, f["url"]), dict(f.get("hashes") or {})) for f in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"the index's answer is no simple API page ({type(error).__name__})") from error


class _Links(html.parser.HTMLParser):
    def __init__(self, page_url: str) -> None:
        super().__init__()
        self.base, self.files = page_url, list[IndexFile]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if href and tag == "base":
            self.base = urljoin(self.base, href)
        elif href and tag == "a":
            url, fragment = urldefrag(urljoin(self.base, href))
            algorithm, _, digest = fragment.partition("=")
            name = unquote(urlsplit(url).path.rpartition("/")[2])
            self.files.append(IndexFile(name, url, {algorithm: digest} if digest else {}))


def _with_credentials_of(index: str, url: str) -> str:
    """An index given with a user name and password usually keeps its files behind the same door."""
    source, target = urlsplit(index), urlsplit(url)
    same_door = (source.scheme, source.hostname, source.port) == (target.scheme, target.hostname, target.port)
    if not same_door or "@" in target.netloc or "@" not in source.netloc:
        return url
    return urlunsplit(target._replace(netloc=source.netloc))


def _path_of(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path))
