"""The explorer page's files: read once from the package, held in memory, found by name in a dictionary."""

from __future__ import annotations

from hashlib import sha256
from importlib import resources
from typing import NamedTuple

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "webmanifest": "application/manifest+json",
}
PAGE = "index.html"


class Asset(NamedTuple):
    body: bytes
    media_type: str
    etag: str


def explorer_assets() -> dict[str, Asset]:
    """Every file of the explorer; no request reaches the file system."""
    folder = resources.files("rgcn.serve") / "explorer"
    found = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []:
        media_type = TYPES.get(file.name.rsplit(".", 1)[-1])
        if media_type is not None and file.is_file():
            body = file.read_bytes()
            found[file.name] = Asset(body, media_type, f'"{sha256(body).hexdigest()[:20]}"')
    return found
