"""Pages from templates: one HTML file each with its styles and scripts, which loads nothing from anywhere.

A template in `templates/` contains the text and the layout. A function collects the values. Every value is escaped when
it is written, unless it is markup (`markupsafe.Markup`). The filters at the end of this file turn numbers, times and
names into text for pages. See also `rgcn.system.formatting`.
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
from rgcn.system.formatting import format_bytes, format_count, format_duration, format_setting, replace_unprintable
from rgcn.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.nodes import EvalContext

SPLIT_TITLES = {"train": "training", "valid": "validation", "test": "test"}
MAX_TITLE_LENGTH = 600
# Characters that Markdown does not read as text, or that a page would turn into a link or a mention.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$]|(?<=www)\.|:(?=//)|@(?=\w))")


class PageSection(NamedTuple):
    """A section of a page: its heading, a sentence that explains what it shows, and its content."""

    heading: str
    explanation: str
    body: str


class Tile(NamedTuple):
    """An important number at the top of a page."""

    name: str
    value: str
    note: str = ""


@dataclass
class PageParts:
    """The content of a page between its title and its footer.

    A template adds parts with:

    {% call introduction() %} content {% endcall %}
    {{ tile(name, value, note) }}
    {% call section(heading, explanation) %} content {% endcall %}
    """

    sections: list[PageSection] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    introduction: str = ""

    def introduce(self, *, caller: Callable[[], str]) -> str:
        """Set the introduction."""
        self.introduction = caller()
        return ""

    def add_tile(self, name: str, value: str, note: str = "") -> str:
        """Add a tile."""
        self.tiles.append(Tile(name, value, note))
        return ""

    def add_section(self, heading: str, explanation: str = "", *, caller: Callable[[], str]) -> str:
        """Add a section."""
        self.sections.append(PageSection(heading, explanation, caller()))
        return ""


def render(template: str, **values: object) -> Markup:
    """Render a template with some values.

    Examples:
        >>> print(render("empty.html", message="Nothing & no one."), end="")
        <p class="empty">Nothing &amp; no one.</p>
    """
    return Markup(replace_unprintable(_environment().get_template(template).render(values)))


def parts(template: str, **values: object) -> PageParts:
    """Render a template that adds parts to a page, and return the parts."""
    content = PageParts()
    callbacks = {"introduction": content.introduce, "tile": content.add_tile, "section": content.add_section}
    render(template, **callbacks, **values)
    return content


def page(
    title: str,
    content: PageParts,
    footer: str = f"Written by rgcn {__version__}. This page loads nothing from anywhere.",
    extras: Sequence[str] = (),
) -> str:
    """Return a whole page.

    The content security policy in its head allows only the page's own script. So even a name from the data that is not
    escaped could not run code.

    Args:
        title: The title.
        content: The parts of the page.
        footer: The text at the end.
        extras: Names of templates whose .css and .js this page needs.

    Examples:
        >>> text = page("A page", PageParts([PageSection("First", "An example.", "Content")]))
        >>> text.startswith("<!DOCTYPE html>"), "http://" in text
        (True, False)
    """
    folder = resources.files("rgcn.pages") / "templates"
    styles, scripts = (
        [Markup((folder / f"{name}.{kind}").read_text(encoding="utf-8")) for name in ("page", *extras)]
        for kind in ("css", "js")
    )
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    texts = {"title": title, "content": content, "footer": footer}
    return str(render("layout.html", styles=styles, scripts=scripts, digests=digests, **texts))


def save_page(target: Path, text: str) -> None:
    """Write a page to a file.

    Raises:
        DataError: The file cannot be written.
    """
    if target.is_dir():
        raise DataError(f"{target} is a folder; --out takes the name of a file")
    try:
        write_atomically(target, text)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}; choose another place with --out") from error


@cache
def _environment() -> Environment:
    """Return the Jinja environment. Templates in .html and .svg escape values for these, those in .md for Markdown."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, pass_eval_context, select_autoescape

    from rgcn.pages.charts import Bar, bar_chart, column_chart  # which import this module

    @pass_eval_context
    def finalize(context: EvalContext, value: Any) -> Any:
        return value if context.autoescape or isinstance(value, Markup) else markdown_text(value)

    environment = Environment(
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
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    functions = [breakable, compact, decimal, moment, name_markup, percent, prose, short_name, split_sizes]
    environment.filters |= {function.__name__: function for function in functions}
    environment.filters |= {"duration": format_duration, "memory": format_bytes, "setting": format_setting}
    environment.filters |= {"g": "{:g}".format, "number": "{:,}".format}
    environment.globals |= {"bar": Bar, "bar_chart": bar_chart, "column_chart": column_chart, "count": format_count}
    environment.globals |= {"in_percent": percent, "whole": "{:,.0f}".format, "split_titles": SPLIT_TITLES}
    return environment


# -- numbers, times and names as text ----------------------------------------------------------------------


def decimal(value: float) -> str:
    """Return a number with three significant digits.

    Examples:
        >>> decimal(0.38249), decimal(12.345), decimal(40943.0), decimal(0.00012345)
        ('0.382', '12.3', '40,943', '0.000123')
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == 0 or abs(value) >= 99.95:
        return f"{value or 0:,.0f}"
    return f"{value:#.3g}"


def percent(value: float) -> str:
    """Return a share in percent.

    Examples:
        >>> percent(0.88235)
        '88.2 %'
    """
    return f"{100 * value:.1f} %"


def compact(value: float) -> str:
    """Return a short form of a number, for axes.

    Examples:
        >>> compact(0.25), compact(1500), compact(20000), compact(2_000_000), compact(0)
        ('0.25', '1.5k', '20k', '2M', '0')
    """
    size, letter = next((one for one in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= one[0]), (1, ""))
    return f"{value / size:.4g}{letter}"


def split_sizes(sizes: Mapping[str, int]) -> str:
    """Return the sizes of splits as text.

    Examples:
        >>> split_sizes({"train": 4000, "valid": 0, "test": 12})
        'training 4,000, test 12'
    """
    return ", ".join(f"{SPLIT_TITLES[split]} {size:,}" for split, size in sizes.items() if size) or "none"


def moment(written: object) -> str:
    """Return a time from a run's files without fractions of a second. Anything else is returned as it is.

    Examples:
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
    """Return text that may be wrapped after an underscore, a dot, a colon or a slash.

    Examples:
        >>> print(breakable("has_part"))
        has_<wbr>part
    """
    return Markup("<wbr>").join(re.split(r"(?<=[_./:])(?=\w)", text))


def name_markup(name: str, title: str | None = None) -> Markup:
    """Return a name from the data as markup that isolates its writing direction, and shows the full name on hovering.

    Args:
        name: The name.
        title: What to show; None for the short form of the name.

    Examples:
        >>> print(name_markup("http://example.org/people#ada"))
        <bdi title="http://example.org/people#ada">ada</bdi>
    """
    shown = short_name(name) if title is None else title
    full = name if len(name) <= MAX_TITLE_LENGTH else name[:MAX_TITLE_LENGTH] + "…"
    hover = "" if full == shown else Markup(' title="{}"').format(full)
    return Markup("<bdi{}>{}</bdi>").format(hover, breakable(shown))


def prose(text: str) -> Markup:
    """Return text as markup; parts in backticks become code.

    Examples:
        >>> print(prose("see `rgcn data`"))
        see <code>rgcn data</code>
    """
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(text))))


def markdown_text(text: object) -> Markup:
    r"""Return text from the data or from a file as one line of Markdown that is displayed literally.

    Examples:
        >>> print(markdown_text("a*b_c <b>|\nwww.example.org"))
        a\*b\_c &lt;b&gt;\| www\.example.org
    """
    plain = html.escape(replace_unprintable(" ".join(str(text).split())), quote=False)
    return Markup(_MARKDOWN.sub(r"\\\1", plain))
