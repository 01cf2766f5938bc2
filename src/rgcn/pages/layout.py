"""Pages are templates in one frame: a file each, style and script inside it, nothing loaded from anywhere.

A template in `templates/` says what stands where; a function collects the values it shows. Every value is escaped where
it is written, unless it is markup already (`markupsafe.Markup`), so that forgetting is harmless. At the end of the file
are the filters: numbers, moments and names as text on pages. See also `rgcn.system.formatting`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from rgcn.errors import DataError
from rgcn.graph.titles import short_name
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import count, duration, memory, printable, setting
from rgcn.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import EvalContext

SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}
LONGEST_TITLE = 600
# What Markdown reads as more than text, what a page would make a link or a mention of.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$]|(?<=www)\.|:(?=//)|@(?=\w))")


class PageSection(NamedTuple):
    """A card: a heading, a sentence that says what is seen, and the content."""

    heading: str
    explanation: str
    body: str


class Tile(NamedTuple):
    """A number worth reading first."""

    name: str
    value: str
    note: str = ""


@dataclass
class PageParts:
    """What stands between the title and the footer of a page, put there by a template:

    {% call introduction() %} content {% endcall %}
    {{ tile(name, value, note) }}
    {% call section(heading, explanation) %} content {% endcall %}
    """

    sections: list[PageSection] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    introduction: str = ""

    def introduce(self, *, caller: Callable[[], str]) -> str:
        self.introduction = caller()
        return ""

    def add_tile(self, name: str, value: str, note: str = "") -> str:
        self.tiles.append(Tile(name, value, note))
        return ""

    def add_section(self, heading: str, explanation: str = "", *, caller: Callable[[], str]) -> str:
        self.sections.append(PageSection(heading, explanation, caller()))
        return ""


def render(template: str, **values: object) -> Markup:
    """What a template makes of some values.

    >>> print(render("empty.html", words="Nothing & nobody."), end="")
    <p class="empty">Nothing &amp; nobody.</p>
    """
    return Markup(printable(_environment().get_template(template).render(values)))


def parts(template: str, **values: object) -> PageParts:
    """What a template puts on a page."""
    made = PageParts()
    render(template, introduction=made.introduce, tile=made.add_tile, section=made.add_section, **values)
    return made


def page(
    title: str,
    content: PageParts,
    footer: str = f"Written by rgcn {__version__}. This page loads nothing from anywhere.",
    extras: Sequence[str] = (),
) -> str:
    """A whole page; extras: names of templates whose .css and .js only this page needs.

    The policy in its head lets a browser run the page's own script and nothing else, so that even a name from the data
    that got through the escaping could not do anything.

    >>> text = page("A page", PageParts([PageSection("First", "What is seen here.", "Content")]))
    >>> text.startswith("<!DOCTYPE html>"), "http://" in text
    (True, False)
    """
    own = resources.files("rgcn.pages") / "templates"
    styles, scripts = (
        [Markup((own / f"{name}.{kind}").read_text(encoding="utf-8")) for name in ("page", *extras)]
        for kind in ("css", "js")
    )
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    shown = {"title": title, "content": content, "footer": footer}
    return str(render("layout.html", styles=styles, scripts=scripts, digests=digests, **shown))


def save_page(target: Path, text: str) -> None:
    if target.is_dir():
        raise DataError(f"{target} is a folder; --out takes the name of a file")
    try:
        write_atomically(target, text)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}; choose another place with --out") from error


@cache
def _environment() -> Environment:
    """Templates of .html and .svg escape what they show for these, those of .md for Markdown."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, pass_eval_context, select_autoescape

    from rgcn.pages.charts import Bar, bar_chart, column_chart  # which are templates themselves

    @pass_eval_context
    def finalize(context: EvalContext, value: Any) -> Any:
        return value if context.autoescape or isinstance(value, Markup) else markdown_text(value)

    made = Environment(
        loader=PackageLoader("rgcn.pages"),
        autoescape=select_autoescape(["html", "svg"]),
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        extensions=["jinja2.ext.do"],
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    of_pages = [breakable, compact, decimal, moment, named, percent, prose, split_sizes]
    made.filters |= {function.__name__: function for function in (*of_pages, duration, memory, setting, short_name)}
    made.filters |= {"g": "{:g}".format, "number": "{:,}".format}
    made.globals |= {"bar": Bar, "bar_chart": bar_chart, "column_chart": column_chart, "count": count}
    made.globals |= {"in_percent": percent, "whole": "{:,.0f}".format, "split_words": SPLIT_WORDS}
    return made


# -- numbers, moments and names as text --------------------------------------------------------------------


def decimal(value: float) -> str:
    """Three figures that matter.

    >>> decimal(0.38249), decimal(12.345), decimal(40943.0), decimal(0.00012345)
    ('0.382', '12.3', '40,943', '0.000123')
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}" if places <= 6 else f"{value:.2e}"


def percent(value: float) -> str:
    """
    >>> percent(0.88235)
    '88.2 %'
    """
    return f"{100 * value:.1f} %"


def compact(value: float) -> str:
    """For axes, where there is little room.

    >>> compact(0.25), compact(1500), compact(20000), compact(2_000_000), compact(0)
    ('0.25', '1.5k', '20k', '2M', '0')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def split_sizes(sizes: Mapping[str, int]) -> str:
    """
    >>> split_sizes({"train": 4000, "valid": 0, "test": 12})
    'training 4,000, test 12'
    """
    return ", ".join(f"{SPLIT_WORDS[split]} {size:,}" for split, size in sizes.items() if size) or "none"


def moment(written: object) -> str:
    """A time as a run writes it, without fractions of a second; anything else as it is.

    >>> moment("2026-11-20T09:30:12.123456+00:00")
    '2026-11-20 09:30:12 UTC'
    """
    try:
        when = datetime.fromisoformat(str(written).replace("Z", "+00:00"))
    except ValueError:
        return str(written)
    zone = "" if when.tzinfo is None else " UTC" if not when.utcoffset() else f" UTC{when:%z}"
    return f"{when:%Y-%m-%d %H:%M:%S}{zone}"


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
