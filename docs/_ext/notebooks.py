"""Downloaded notebooks are plain Jupyter files: MyST's own syntax, which Jupyter would show as it stands, is replaced.

`{nb-download}` offers the executed notebook of a page. Its cells of text may have directives, roles and links to other
pages. Here directives become HTML or quotes, and roles and links become their text.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from sphinx.application import Sphinx

FENCE = re.compile(
    r"^(?P<fence>:{3,}|`{3,})\{(?P<name>[\w-]+)\} ?(?P<title>.*?)\n(?P<body>.*?)^(?P=fence)$\n?", re.M | re.S
)
OPTION = re.compile(r"\A(?::[\w-]+:.*\n)+")
ROLE = re.compile(r"\{[\w:-]+\}`([^`<]+?)(?: ?<[^`>]*>)?`")
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!https?:)[^)\s]*\)")
TARGET = re.compile(r"^\([\w-]+\)=\n", re.M)


def portable(text: str) -> str:
    """Return a cell of text without MyST's syntax.

    >>> portable("Use {py:obj}`rgcn.load` ([more](guide.md)).")
    'Use `rgcn.load` (more).'
    """
    parts = re.split(r"(^```\w*\n.*?^```$)", text, flags=re.M | re.S)  # code stays as it is
    return "".join(part if i % 2 else _without_syntax(part) for i, part in enumerate(parts))


def _without_syntax(text: str) -> str:
    text = TARGET.sub("", FENCE.sub(_directive, text))
    return LINK.sub(r"\1", ROLE.sub(lambda found: f"`{found[1].strip()}`" if _is_code(found[0]) else found[1], text))


def _is_code(role: str) -> bool:
    return not role.startswith(("{nb-download}", "{doc}", "{ref}", "{math}"))


def _directive(found: re.Match[str]) -> str:
    body = portable(OPTION.sub("", found["body"])).strip("\n")
    if found["name"] == "dropdown":
        return f"<details><summary>{found['title']}</summary>\n\n{body}\n\n</details>\n"
    if found["name"] in ("code", "code-block"):
        return f"```{found['title']}\n{body}\n```\n"
    title = found["title"] or found["name"].capitalize()
    return "".join(f"> {line}\n" if line else ">\n" for line in [f"**{title}**", "", *body.split("\n")])


def _rewrite(app: Sphinx, error: Exception | None) -> None:
    for path in Path(app.outdir).glob("_downloads/*/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = portable(cell.source)
        nbformat.write(notebook, path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite the notebooks when the build is done."""
    app.connect("build-finished", _rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
