"""HTML that cannot be broken by what is written into it: plain text is escaped unless it is already markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from rgcn.graph.titles import local_name

VOID = frozenset({"meta", "br", "hr", "col", "input", "wbr"})
LONGEST_SHOWN, LONGEST_TITLE = 64, 600
# Characters that HTML forbids, and halves of characters that cannot be written to a file at all.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is markup already. Any other text is escaped by `tag`, so that forgetting is harmless."""

    __slots__ = ()


def escaped(content: object) -> Html:
    """Markup as it is, anything else as text.

    >>> escaped("<b>")
    '&lt;b&gt;'
    >>> escaped(Html("<b>"))
    '<b>'
    """
    if isinstance(content, Html):
        return content
    return Html(html.escape(_UNPRINTABLE.sub("\ufffd", str(content))))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` stands for class, `aria_label` for aria-label; None leaves an attribute out.

    >>> tag("td", "a < b", class_="name", title='"quoted"')
    '<td class="name" title="&quot;quoted&quot;">a &lt; b</td>'
    """
    words = [
        f'{key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    opening = " ".join([name, *words])
    if name in VOID:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{join(children)}</{name}>")


def join(parts: Iterable[object], separator: str = "") -> Html:
    """Parts one after the other, each escaped where it is plain text."""
    return Html(escaped(separator).join(escaped(part) for part in parts))


def short_name(name: str) -> str:
    """What a person reads of a name: an IRI's last part, a literal's text; never longer than a line.

    >>> short_name("http://example.org/people#ada"), short_name('"42"^^<http://www.w3.org/2001/XMLSchema#integer>')
    ('ada', '42')
    """
    if name.startswith('"') and '"' in name[1:]:
        shown = name[1 : name.rindex('"')]
    else:
        shown = local_name(name)
    shown = " ".join(shown.split()) or name
    return shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 1] + "…"


def named(name: str) -> Html:
    """A name from the data: its short form, the whole of it on hovering; its writing direction stays inside it.

    >>> named("http://example.org/people#ada")
    '<bdi title="http://example.org/people#ada">ada</bdi>'
    """
    shown = short_name(name)
    whole = name if len(name) <= LONGEST_TITLE else name[:LONGEST_TITLE] + "…"
    return tag("bdi", breakable(shown), title=whole if whole != shown else None)


def breakable(text: str) -> Html:
    """Text that may go on in the next line after an underscore, a dot or a slash, not in the middle of a word.

    >>> breakable("has_part")
    'has_<wbr>part'
    """
    return join(re.split(r"(?<=[_./:])(?=\w)", text), tag("wbr"))


def prose(text: str) -> Html:
    """Text in which `words in backticks` are code.

    >>> prose("see `rgcn data`")
    'see <code>rgcn data</code>'
    """
    parts = text.split("`")
    return join(tag("code", part) if number % 2 else part for number, part in enumerate(parts))


def table(
    head: Iterable[object], rows: Iterable[Iterable[object]], *, numeric: Iterable[int] = (), sortable: bool = False
) -> Html:
    """A table in a box of its own that scrolls where it is too wide; `numeric` columns are right-aligned."""
    right = set(numeric)

    def cell(kind: str, column: int, content: object, **attributes: object) -> Html:
        if isinstance(content, Html) and content.startswith(("<td", "<th")):
            return content
        return tag(kind, content, class_="number" if column in right else None, **attributes)

    header = tag("thead", tag("tr", *(cell("th", i, content, scope="col") for i, content in enumerate(head))))
    body = tag("tbody", *(tag("tr", *(cell("td", i, content) for i, content in enumerate(row))) for row in rows))
    return scrolling(tag("table", header, body, class_="sortable" if sortable else None))


def scrolling(content: Html, tall: bool = False) -> Html:
    """A box that scrolls sideways, also by keyboard, so that the page never does; `tall`: up and down too."""
    return tag("div", content, class_="scroll tall" if tall else "scroll", tabindex="0")


def definitions(pairs: Iterable[tuple[object, object]]) -> Html:
    """Names and what they stand for, in two columns (one on a phone)."""
    items = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs)
    return tag("dl", *items)


def details(summary: object, *content: object) -> Html:
    """Something a reader opens on demand."""
    return tag("details", tag("summary", summary), *content)


def paragraph(*content: object, class_: str | None = None) -> Html:
    return tag("p", *content, class_=class_)
