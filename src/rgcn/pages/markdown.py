"""Markdown that cannot be broken by what is written into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rgcn.pages.markup import escaped

# What Markdown reads as more than text, what a page would make a link or a mention of.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$]|(?<=www)\.|:(?=//)|@(?=\w))")


def text(words: object) -> str:
    """Words from the data or from a file, so that they are read as they are, in one line.

    >>> print(text("a*b_c <b>|\\nwww.example.org"))
    a\\*b\\_c &lt;b&gt;\\| www\\.example.org
    """
    plain = " ".join(str(words).split())
    return _MARKDOWN.sub(r"\\\1", escaped(plain).replace("&quot;", '"').replace("&#x27;", "'"))


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column holds words, and the others figures."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(lines: Iterable[str], language: str = "") -> str:
    """A block of code; a line that could end it is of no kind that we write."""
    return "\n".join([f"```{language}", *lines, "```"])
