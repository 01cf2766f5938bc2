"""Pages are templates in one frame: a file each, style and script inside it, nothing loaded from anywhere.

A template in `templates/` says what stands where; a function collects the values it shows. Every value is escaped where
it is written, unless it is markup already (`markupsafe.Markup`), so that forgetting is harmless.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rgcn.errors import DataError
from rgcn.graph.titles import short_name
from rgcn.pages import text
from rgcn.pages.text import compact, decimal, percent
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import count, duration, memory, printable, setting
from rgcn.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import EvalContext


@dataclass(frozen=True)
class PageSection:
    """A card: a heading, a sentence that says what is seen, and the content."""

    heading: str
    explanation: str
    body: str


@dataclass(frozen=True)
class Tile:
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
        return value if context.autoescape or isinstance(value, Markup) else text.markdown_text(value)

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
    of_pages = [text.breakable, compact, decimal, text.moment, text.named, percent, text.prose, text.split_sizes]
    made.filters |= {function.__name__: function for function in (*of_pages, duration, memory, setting, short_name)}
    made.filters |= {"g": "{:g}".format, "number": "{:,}".format}
    made.globals |= {"bar": Bar, "bar_chart": bar_chart, "column_chart": column_chart, "count": count}
    made.globals |= {"in_percent": percent, "whole": "{:,.0f}".format, "split_words": text.SPLIT_WORDS}
    return made
