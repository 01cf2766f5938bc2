"""Numbers, moments and names as text on pages, as markup that nothing in them can break.

Templates escape every other value themselves. See also `rgcn.system.formatting`.
"""

import html
import math
import re
from collections.abc import Mapping
from datetime import datetime

from markupsafe import Markup, escape

from rgcn.graph.titles import short_name
from rgcn.system.formatting import printable

SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}
LONGEST_TITLE = 600
# What Markdown reads as more than text, what a page would make a link or a mention of.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$]|(?<=www)\.|:(?=//)|@(?=\w))")


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
