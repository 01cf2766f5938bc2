"""Test that the Python blocks of README.md and docs/ run, and that the names they mention exist.

The blocks of a document run one after another, in one namespace and an empty folder. A comment on the line above a
block, which readers do not see, says what else it needs, separated by commas:

    <!-- test: aifb -->                         what `provided.py` calls so
    <!-- test: needs pandas torch_geometric --> packages; where one is not installed, the block is left out
    <!-- test: file mypackage/decoders.py -->   the block is the content of this file
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from provided import PROVIDED, Here

import rgcn
from rgcn import plugins
from rgcn.plugins import ALLOW_VARIABLE, Registry

ROOT = Path(__file__).parents[2]
# The chapters of docs/understand/ are notebooks: the build of the site runs them (test_site.py).
SITE = [path for path in sorted(ROOT.glob("docs/**/*.md")) if not {"_build", "understand"} & set(path.parts)]
DOCUMENTS = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *SITE)}
BLOCK = re.compile(r"^(?:<!-- test: (?P<needs>[^\n]*?) -->\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    line: int
    needs: list[str]
    code: str


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start("code")), (found["needs"] or "").split(", "), found["code"])
        for found in BLOCK.finditer(text)
    ]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(ALLOW_VARIABLE, os.environ.get(ALLOW_VARIABLE, ""))  # a block may allow packages
    yield Here(tmp_path, {"__name__": "document"}, monkeypatch)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mypackage"]:
        del sys.modules[name]


def run(block: Block, document: str, here: Here) -> str | None:
    """Run a block; return the reason if it was skipped."""
    for need in filter(None, block.needs):
        kind, _, rest = need.partition(" ")
        if kind == "needs" and (missing := [name for name in rest.split() if find_spec(name) is None]):
            return f"{document}, line {block.line}: {', '.join(missing)} not installed"
        if kind == "file":
            here.write(rest, block.code)
            importlib.invalidate_caches()
            return None
        if kind != "needs":
            PROVIDED[need](here)
    # As many lines above it as in the document, so that a traceback has the document's line.
    exec(compile("\n" * block.line + block.code, document, "exec"), here.names)
    return None


@pytest.mark.parametrize("document", [name for name, path in DOCUMENTS.items() if blocks(path)])
def test_the_blocks_of_a_document_run(document, here):
    left_out = [run(block, document, here) for block in blocks(DOCUMENTS[document])]
    if any(left_out):
        pytest.skip("; ".join(filter(None, left_out)))


def test_every_block_is_found():
    for name, path in DOCUMENTS.items():
        assert len(blocks(path)) == path.read_text("utf-8").count("```py"), name


ENTRY_POINTS = {registry.group for registry in vars(plugins).values() if isinstance(registry, Registry)}
MENTIONED = {
    name
    for path in DOCUMENTS.values()
    for name in re.findall(r"(?<!-m )(?<![\w/-])rgcn(?:\.[A-Za-z_]\w*)+", path.read_text("utf-8"))
    if not name.endswith((".json", ".md"))
}


@pytest.mark.parametrize("name", sorted(MENTIONED - ENTRY_POINTS))
def test_a_name_that_a_document_mentions_is_there_after_import_rgcn(name, monkeypatch):
    if name.startswith("rgcn.serve"):
        pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    found = rgcn
    for part in name.split(".")[1:]:
        if isinstance(vars(found).get(part), ModuleType):  # another test may have imported it
            monkeypatch.delattr(found, part)
        found = getattr(found, part)
