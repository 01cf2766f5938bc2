"""The frame of every page: one file, style and script inside it, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from rgcn.pages.markup import Html, escaped, join, paragraph, tag


@dataclass(frozen=True)
class Section:
    """A card: a heading, a sentence that says what is seen, and the content."""

    heading: str
    explanation: Html | str
    body: Html


@dataclass(frozen=True)
class Tile:
    """A number worth reading first."""

    name: str
    value: str
    note: Html | str = ""


def page(
    title: str,
    sections: Sequence[Section],
    *,
    introduction: Html | str = "",
    tiles: Sequence[Tile] = (),
    footer: Html | str = "",
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
) -> str:
    """A whole page.

    styles, scripts  what only this page needs, after what all have; each a text of ours, never from data

    The policy in its head lets a browser run the page's own script and nothing else, so that even a name from the data
    that got through the escaping could not do anything.

    >>> text = page("A page", [Section("First", "What is seen here.", tag("p", "Content"))])
    >>> text.startswith("<!DOCTYPE html>"), "http://" in text
    (True, False)
    """
    every_style, every_script = [_own("page.css"), *styles], [_own("page.js"), *scripts]
    allowed = " ".join(map(_digest, every_script))
    policy = f"default-src 'none'; base-uri 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        *(Html(f"<style>\n{style}</style>") for style in every_style),
    )
    anchors = [f"part-{number}" for number in range(1, len(sections) + 1)]
    links = [tag("li", tag("a", one.heading, href=f"#{to}")) for one, to in zip(sections, anchors, strict=True)]
    top = tag(
        "header",
        tag("h1", title),
        introduction,
        tag("nav", tag("ul", *links), aria_label="Sections") if len(sections) > 2 else "",
    )
    cards = (_card(one, to) for one, to in zip(sections, anchors, strict=True))
    main = tag("main", top, _tiles(tiles), *cards, tag("footer", footer))
    body = tag("body", main, *(Html(f"<script>{script}</script>") for script in every_script))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def embedded(name: str, values: object) -> Html:
    """Values as JSON that a page's script reads: an element of this id, which nothing inside can end.

    >>> embedded("names", ["</script>"])
    '<script type="application/json" id="names">["\\\\u003c/script\\\\u003e"]</script>'
    """
    text = json.dumps(values, separators=(",", ":"))  # in ASCII: no separator of lines, no half of a character
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{escaped(name)}">{text}</script>')


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _own(name: str) -> str:
    return (resources.files("rgcn.pages") / name).read_text(encoding="utf-8")


def _card(section: Section, anchor: str) -> Html:
    lead = paragraph(section.explanation, class_="lead") if section.explanation else ""
    return tag("section", tag("h2", section.heading), lead, section.body, id=anchor)


def _tiles(tiles: Sequence[Tile]) -> Html:
    if not tiles:
        return Html("")
    boxes = [
        tag(
            "div",
            tag("div", one.name, class_="name"),
            tag("div", one.value, class_="value"),
            tag("div", one.note, class_="note"),
            class_="tile first" if number == 0 else "tile",
        )
        for number, one in enumerate(tiles)
    ]
    return tag("div", join(boxes), class_="tiles")
