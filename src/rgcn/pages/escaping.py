"""Names and prose as markup that nothing in them can break. Templates escape every other value themselves."""

import html
import re

from markupsafe import Markup, escape

from rgcn.graph.titles import short_name
from rgcn.system.formatting import printable

LONGEST_TITLE = 600
# What Markdown reads as more than text, what a page would make a link or a mention of.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$]|(?<=www)\.|:(?=//)|@(?=\w))")


def breakable(text: str) -> Markup:
    """Text that may go on in the next line after an underscore, a dot or a slash, not in the middle of a word.

    >>> print(breakable("has_part"))
    has_<wbr>part
    """
    return Markup("<wbr>").join(re.split(r"(?<=[_./:])(?=\w)", text))


def named(name: str, title: str | None = None) -> Markup:
    """A name from the data: its title (None: its short form), the whole of it on hovering; its writing direction
    stays inside it.

    >>> print(named("http://example.org/people#ada"))
    <bdi title="http://example.org/people#ada">ada</bdi>
    """
    shown = short_name(name) if title is None else title
    whole = name if len(name) <= LONGEST_TITLE else name[:LONGEST_TITLE] + "…"
    hover = "" if whole == shown else Markup(' title="{}"').format(whole)
    return Markup("<bdi{}>{}</bdi>").format(hover, breakable(shown))


def prose(text: str) -> Markup:
    """Text in which `words in backticks` are code.

    >>> print(prose("see `rgcn data`"))
    see <code>rgcn data</code>
    """
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(text))))


def markdown_text(words: object) -> Markup:
    """Words from the data or from a file as Markdown that is read as they are, in one line.

    >>> print(markdown_text("a*b_c <b>|\\nwww.example.org"))
    a\\*b\\_c &lt;b&gt;\\| www\\.example.org
    """
    plain = html.escape(printable(" ".join(str(words).split())), quote=False)
    return Markup(_MARKDOWN.sub(r"\\\1", plain))
