"""Test that commands of the pages in docs/start/ print what the pages show, in an empty folder.

A comment `<!-- file: NAME -->` above a block says which file it is. Each `$ rgcn ...` of a console block runs, and must
print what the page shows; numbers may differ in their digits, because machines round differently.
`<!-- test: slow -->` above a block says that it is checked for its options only.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from rgcn.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [path for path in sorted((ROOT / "docs" / "start").glob("*.md")) if "```console" in path.read_text("utf-8")]
FILES = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.M | re.S)
CONSOLE = re.compile(r"^(<!-- test: slow -->\n)?```console\n(.*?)^```$", re.M | re.S)


def run(line: str, capfd: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> str:
    """Return what a line of the page prints: standard error, then standard output."""
    program, *words = shlex.split(line)
    if program == "cat":
        return Path(words[0]).read_text(encoding="utf-8")
    patch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capfd.readouterr()
    assert not ended.value.code, printed.err
    return f"{printed.err}\n{printed.out}"


def words_of(text: str) -> list[str]:
    """Return the words of a text, without lines of tables and without the digits of numbers."""
    return [re.sub(r"-?\d+\.\d+(e-?\d+)?", "0.0", word) for word in text.split() if not set(word) <= set("─—-.")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_of_the_page_print_its_outputs(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    for name, content in FILES.findall(text):
        Path(name).write_text(content, encoding="utf-8")
    for slow, block in CONSOLE.findall(text):
        for command in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, shown = command.replace("\\\n", "").partition("\n")
            if slow:
                line, shown = " ".join([*line.split()[:2], "--help"]), " ".join(re.findall(r"--[\w-]+", line))
            printed = words_of(run(line, capfd, monkeypatch))
            missing = [word for word in words_of(shown) if word not in printed]
            assert missing == [], line


def test_there_are_pages():
    assert [path.stem for path in PAGES] == ["rdf", "table"]
