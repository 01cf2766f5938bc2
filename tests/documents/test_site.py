"""Test that the documentation site builds, loads nothing from other hosts, and that its build fails on mistakes.

The checks are shown on a small site. The real one is built once, with every chapter executed.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the site needs Python 3.11 or newer: pyproject.toml, extra `docs`", allow_module_level=True)

import nbformat
from built_site import EXTENSIONS, NOTEBOOK, ROOT, build, small_site

sys.path.insert(0, str(EXTENSIONS))
import notebooks
import reference

UNDOCUMENTED = '''
"""A package of the reader's."""
import typer
from rgcn.config import Section

__all__ = ["described", "silent"]
app = typer.Typer(help="Do something.")

def described():
    """Say what it does."""

def silent(): ...

class Settings(Section):
    rate: float = 0.1
    size: int = 3
    """How large."""

@app.command()
def shout(loud: bool = False): ...

@app.command()
def ask(name: str = typer.Option("you", help="Whom.")):
    """Ask."""
'''
MISTAKES = {
    "[a page](missing.md)": "missing.md",
    "[a heading](other.md#no-such-heading)": "no-such-heading",
    "{py:func}`rgcn.no_such_function`": "rgcn.no_such_function",
    "{doc}`nowhere`": "nowhere",
    "![](missing.png)": "missing.png",
    "<!-- generated: names undocumented -->": "`undocumented.silent` has no docstring",
}


def test_the_build_fails_on_mistakes_in_pages(tmp_path):
    (tmp_path / "undocumented.py").write_text(UNDOCUMENTED)
    done = small_site(tmp_path, {"wrong": "# Wrong\n\n" + "\n\n".join(MISTAKES), "other": "# Other"})
    assert done.returncode != 0
    assert [message for message in MISTAKES.values() if message not in done.stderr] == []


def test_the_build_fails_where_code_of_a_page_fails(tmp_path):
    done = small_site(tmp_path, {"chapter": f"{NOTEBOOK}# Chapter\n\n```{{code-cell}}\n1 / 0\n```\n"})
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


def test_a_page_without_mistakes_builds(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "extra.py").write_text("print('hello')\n")
    text = "# Fine\n\n[a file](../package/extra.py), [a folder](../package/), $x^2$, [a heading](other.md#other)"
    done = small_site(tmp_path, {"fine": text, "other": "# Other"})
    assert done.returncode == 0, done.stderr
    assert "hello" in (tmp_path / "html" / "repository" / "package" / "extra.py.html").read_text()
    page = (tmp_path / "html" / "fine.html").read_text()
    assert 'href="repository/package/extra.py.html"' in page
    assert 'href="repository/package.html"' in page
    assert "<msup>" in page


def test_commands_keys_and_names_without_a_description_are_reported(tmp_path, monkeypatch):
    (tmp_path / "undocumented.py").write_text(UNDOCUMENTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    import undocumented

    found: list[str] = []
    text = reference.commands(found.append, "undocumented:app")
    assert "Whom." in text
    reference.configuration(found.append, [undocumented.Settings])
    reference.names(found.append, "undocumented")
    endpoint = {"get": {"description": "", "parameters": [], "responses": {"200": {}}}}
    reference.http(found.append, {"paths": {"/ask": endpoint}, "components": {"schemas": {}}})
    assert [re.findall("`(.*?)`", problem)[0] for problem in found] == [
        "rgcn shout",
        "rgcn shout",
        "rate",
        "undocumented.silent",
        "GET /ask",
    ]


def test_every_command_key_and_public_name_has_a_description():
    """Return the problems that the build reports, without building the site."""
    found: list[str] = []
    reference.commands(found.append)
    reference.configuration(found.append)
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "reference").rglob("*.md"))
    named = [words.split() for kind, words in reference.MARK.findall(pages) if kind == "names"]
    for module, *names in named:
        reference.names(found.append, module, *names)
    assert found == []
    import rgcn

    listed = {name for module, *names in named if module == "rgcn" for name in names}
    assert listed == set(rgcn.__all__) - {"__version__", "nn"}


def test_notebooks_are_portable():
    text = "(here)=\nSee {doc}`the guide <guide>` and [layers](../x.py).\n\n"
    text += ":::{dropdown} Answer\nTwo, {py:obj}`rgcn.load`.\n:::\n"
    assert notebooks.portable(text) == (
        "See the guide and layers.\n\n<details><summary>Answer</summary>\n\nTwo, `rgcn.load`.\n\n</details>\n"
    )
    code = "```python\nx = [1](2)\n```\n"
    assert notebooks.portable(code) == code


def test_a_notebook_writes_the_files_that_its_page_offers(tmp_path):
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    (tmp_path / "result.json").write_text("[1]")
    assert notebooks.offered("{download}`helper.py`, {download}`a file <result.json>`") == ["helper.py", "result.json"]
    cells = list(notebooks.writing([tmp_path / "helper.py", tmp_path / "result.json"]))
    cells += [nbformat.v4.new_code_cell('import helper, rgcn\nopen("result.json"), open(f"{1}.csv")\nimport nowhere')]
    assert not_brought(cells) == ["nowhere", r".*\.csv"]
    alone = tmp_path / "alone"
    alone.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells[:-1]), alone / "page.ipynb")
    execute(alone / "page.ipynb")
    assert (alone / "helper.py").read_text() == "VALUE = 1\n"
    assert json.loads((alone / "result.json").read_text()) == [1]


# -- the real site -----------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collect the links, resources, anchors and undescribed pictures of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.silent: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "author", "next", "prev", "index", "search"):
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])
        if tag == "img" and not values.get("alt"):
            self.silent.append(values.get("src", ""))


def is_elsewhere(address: str) -> bool:
    return re.match(r"(?!data:)[a-z]+:|//", address) is not None


def broken_links(site: Path, pages: dict[Path, Page]) -> list[str]:
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            address, anchor = urldefrag(link)
            if is_elsewhere(link) or link.startswith("data:"):
                continue
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            is_there = target.is_file() and (
                not anchor or target not in pages or unquote(anchor) in pages[target].anchors
            )
            broken += [] if is_there else [f"{path.relative_to(site)}: {link}"]
    return broken


def test_the_site(tmp_path):
    site = tmp_path / "html"
    done = build(ROOT / "docs", site)
    assert done.returncode == 0, done.stderr
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}

    loaded = [address for page in pages.values() for address in page.loaded]
    loaded += [
        url for path in site.rglob("*.css") for url in re.findall(r"url\(['\"]?(.*?)['\"]?\)", path.read_text("utf-8"))
    ]
    assert [address for address in loaded if is_elsewhere(address)] == []
    assert broken_links(site, pages) == []
    assert [picture for page in pages.values() for picture in page.silent] == []

    index = (site / "searchindex.js").read_text(encoding="utf-8")
    chapters = sorted((ROOT / "docs" / "understand").glob("[0-9]*.md"))
    assert len(chapters) == 8
    assert [chapter.stem for chapter in chapters if f'"understand/{chapter.stem}"' not in index] == []

    downloads = {path.stem: path for path in site.glob("_downloads/*/*.ipynb")}
    assert [chapter.stem for chapter in chapters if chapter.stem not in downloads] == []
    for path in downloads.values():
        cells = nbformat.read(path, as_version=4).cells
        for cell in cells:
            if cell.cell_type == "markdown":
                assert not re.search(r"\{[\w-]+\}`|^:::", cell.source, re.M), path
        assert not_brought(cells) == [], path


def not_brought(cells: list[Any]) -> list[str]:
    """Return the modules and data files that cells use, and that neither they nor an installed package bring."""
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    written = {source.split()[1] for source in code if source.startswith("%%writefile")}
    written |= {name for source in code for name in re.findall(r"^    '([\w.-]+)': \($", source, re.M)}
    modules, files = set(), set()
    for source in code:
        nodes = list(ast.walk(ast.parse("" if source.startswith("%%") else source)))
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                files.add(re.escape(node.value.rpartition("/")[2]))
            elif isinstance(node, ast.JoinedStr):
                files.add("".join(re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in node.values))
    files = {name for name in files if re.fullmatch(r"[^\s]+\.(json|csv|tsv|nt|ttl|yaml|parquet)", name)}
    missing = [name for name in modules if f"{name}.py" not in written and importlib.util.find_spec(name) is None]
    return sorted(missing) + sorted(name for name in files if not any(re.fullmatch(name, each) for each in written))


def execute(notebook: Path) -> None:
    """Execute a notebook in its folder, which has nothing else."""
    command = [sys.executable, "-c", EXECUTE, notebook.name]
    done = subprocess.run(command, cwd=notebook.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


EXECUTE = """
import sys, nbformat, nbclient
nbclient.NotebookClient(nbformat.read(sys.argv[1], as_version=4), timeout=120).execute()
"""
