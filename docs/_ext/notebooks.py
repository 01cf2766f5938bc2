"""Downloaded notebooks are plain Jupyter files that run alone, in any folder.

`{nb-download}` offers the executed notebook of a page. Its cells of text may have directives, roles and links to other
pages. Here directives become HTML or quotes, and roles and links become their text. The files that the page offers
with `{download}`, its helper modules and results, become cells that write them beside the notebook.
"""

from __future__ import annotations

import base64
import re
import textwrap
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from sphinx.application import Sphinx

FENCE = re.compile(
    r"^(?P<fence>:{3,}|`{3,})\{(?P<name>[\w-]+)\} ?(?P<title>.*?)\n(?P<body>.*?)^(?P=fence)$\n?", re.M | re.S
)
OPTION = re.compile(r"\A(?::[\w-]+:.*\n)+")
ROLE = re.compile(r"\{[\w:-]+\}`([^`<]+?)(?: ?<[^`>]*>)?`")
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!https?:)[^)\s]*\)")
DOWNLOAD = re.compile(r"\{download\}`(?:[^`<]*<)?([^`<>]+?)>?`")
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


def offered(text: str) -> list[str]:
    """Return the files that a text offers with `{download}`, as paths relative to the page.

    >>> offered("{download}`a.py` and {download}`b <../results/b.json>`")
    ['a.py', '../results/b.json']
    """
    return DOWNLOAD.findall(text)


def writing(paths: Iterable[Path]) -> Iterator[Any]:
    """Yield the cells that write files beside the notebook: modules as they are, results compressed."""
    modules = [path for path in paths if path.suffix == ".py"]
    others = [path for path in paths if path.suffix != ".py"]
    names = " and ".join([*(f"`{path.name}`" for path in modules), *(["the results"] if others else [])])
    yield nbformat.v4.new_markdown_cell(f"First, this notebook writes {names} that it uses into its folder.")
    for path in modules:
        yield _hidden(f"%%writefile {path.name}\n{path.read_text(encoding='utf-8')}")
    if others:
        packed = {path.name: base64.b85encode(zlib.compress(path.read_bytes(), 9)).decode() for path in others}
        lines = ["import base64, pathlib, zlib", "", "packed = {"]
        for name, text in packed.items():
            wrapped = "\n".join(f"        {part!r}" for part in textwrap.wrap(text, 100))
            lines.append(f"    {name!r}: (\n{wrapped}\n    ),")
        lines += ["}", "for name, text in packed.items():"]
        lines += ["    pathlib.Path(name).write_bytes(zlib.decompress(base64.b85decode(text)))"]
        yield _hidden("\n".join(lines))


def _hidden(source: str) -> Any:
    """Return a cell of code that Jupyter shows collapsed."""
    return nbformat.v4.new_code_cell(source, metadata={"jupyter": {"source_hidden": True}, "tags": ["files"]})


def _rewrite(app: Sphinx, error: Exception | None) -> None:
    folders = {Path(name).name: Path(app.srcdir, name).parent for name in app.env.found_docs}
    for path in Path(app.outdir).glob("_downloads/*/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        texts = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
        needed = dict.fromkeys(name for cell in texts for name in offered(cell.source))
        if needed and path.stem in folders:
            first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
            notebook.cells[first:first] = writing([(folders[path.stem] / name).resolve() for name in needed])
        for cell in texts:
            cell.source = portable(cell.source)
        nbformat.write(notebook, path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite the notebooks when the build is done."""
    app.connect("build-finished", _rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
