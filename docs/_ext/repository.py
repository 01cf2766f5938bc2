"""Links from a page to files of the repository that are no pages: each becomes a page that shows the file.

In Markdown such a link is relative, `[layer](../../src/rgcn/nn/relational_graph_conv.py)`, so that it also works where
the file is read in the repository itself. A folder's page lists its files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

FOLDER = "repository"  # of the pages
SHOWN = {"", ".cff", ".csv", ".html", ".json", ".md", ".py", ".toml", ".tsv", ".txt", ".yaml", ".yml"}
MAX_BYTES = 200_000
PAGES = {"CHANGELOG.md": "reference/changelog", "README.md": "index"}


class RepositoryLinks(SphinxTransform):
    """Mark links to files and folders that are outside of the documentation."""

    default_priority = 300

    def apply(self, **options: Any) -> None:
        """Replace the nodes that MyST made of these links."""
        root = Path(self.app.confdir).resolve().parent
        folder = Path(self.env.doc2path(self.env.docname)).resolve().parent
        for node in [
            *self.document.findall(addnodes.download_reference),
            *self.document.findall(addnodes.pending_xref),
        ]:
            target = str(node.get("reftarget", ""))
            path = Path(os.path.normpath(folder / target.partition("#")[0])) if target else root
            if not path.is_relative_to(root) or not path.exists() or path.is_relative_to(root / "docs"):
                continue
            if path.is_dir() or (path.suffix in SHOWN and path.stat().st_size <= MAX_BYTES):
                name = path.relative_to(root).as_posix()
                link = nodes.reference("", "", *node.children, internal=True, refuri="#", repository=name)
                node.replace_self(link)


def _resolve(app: Sphinx, document: nodes.document, page: str) -> None:
    """Set the address of the marked links, and note which pages they need."""
    needed: set[str] = getattr(app.env, "repository_files", set())
    here = app.builder.get_target_uri(page)
    for node in document.findall(nodes.reference):
        if name := node.get("repository"):
            target = PAGES.get(name, f"{FOLDER}/{name}")
            node["refuri"] = relative_uri(here, app.builder.get_target_uri(target))
            needed.add(name)
    app.env.repository_files = needed  # type: ignore[attr-defined]


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    root, todo = Path(app.confdir).resolve().parent, sorted(getattr(app.env, "repository_files", ()))
    done = set(PAGES)
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        path = root / name
        if path.is_dir():
            names = [child.name for child in sorted(path.iterdir()) if child.suffix in SHOWN and child.is_file()]
            links = (f'<li><a href="{path.name}/{escape(child)}.html">{escape(child)}</a></li>' for child in names)
            body = f"<ul>{''.join(links)}</ul>"
            todo += [f"{name}/{child}" for child in names]
        else:
            body = _highlighted(path)
        yield f"{FOLDER}/{name}", {"title": name, "body": f"<h1>{escape(name)}</h1>{body}"}, "page.html"


def _highlighted(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    return str(highlight(text, lexer, HtmlFormatter(cssclass="highlight")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the resolution of links and the writing of pages."""
    app.add_transform(RepositoryLinks)
    app.connect("doctree-resolved", _resolve)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
