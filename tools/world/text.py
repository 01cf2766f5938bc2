"""Convert the prose of the factbook to lists of phrases."""

from __future__ import annotations

import html
import re
import unicodedata

# Phrases that stand in the lists but name nothing.
EMPTY = re.compile(
    r"^(?:na|n/a|negl|negligible|none|nil|note|etc|and|or|only|some|various|several|many|all|unknown|undeclared"
    r"|foreign(?:ers?)?"
    r"|less than|no (?:response|answer|religion)|not (?:stated|specified|declared)|refused.*|mixed|.*\b(?:other"
    r"|others)\b.*"
    r"|.*\bun(?:specified|available|declared|known)\b.*)$",
    re.IGNORECASE,
)
_NOTE = re.compile(r"\bnotes?\s*(?:\d+\s*)?(?:-|:|–).*", re.IGNORECASE | re.DOTALL)
_AMOUNT = re.compile(
    r"(?:(?:less|more) than\s*|approximately\s*|about\s*|[<>~]\s*)?[\d][\d.,/ -]*(?:%|percent)", re.IGNORECASE
)


def plain(text: str) -> str:
    """Text without HTML, entities, accents and surplus spaces.

    Accents go because the factbook itself writes most names both ways (Bogotá and Bogota).

    >>> plain("<p>C&ocirc;te d&rsquo;Ivoire&nbsp; </p>")
    "Cote d'Ivoire"
    """
    text = html.unescape(re.sub(r"<[^>]*>", " ", html.unescape(text)))
    text = text.replace("’", "'").replace("‘", "'").replace("–", "-")
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(text.split())


def without_notes(text: str) -> str:
    """Text up to its first `note -` or `note:`.

    >>> without_notes("Arabic (official); note - 60 dialects")
    'Arabic (official);'
    """
    return _NOTE.sub("", text).strip()


def without_parentheses(text: str) -> str:
    """Text without parentheses and what they hold, however deep; an unmatched one opens nothing.

    >>> without_parentheses("Spanish (official) 67.6%, other (includes Fang, Portuguese (official)) 32%")
    'Spanish 67.6%, other 32%'
    """
    previous = ""
    while previous != text:
        previous, text = text, re.sub(r"\s*[(\[][^()\[\]]*[)\]]", "", text)
    return " ".join(re.sub(r"[()\[\]]", " ", text).split())


def split_list(text: str) -> list[str]:
    """Items of a prose list, cut at commas and semicolons outside parentheses.

    >>> split_list("a (b, c), d; e")
    ['a (b, c)', 'd', 'e']
    """
    items, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth = max(0, depth + (c in "([") - (c in ")]"))
        if depth == 0 and c in ",;" and not text[i + 1 : i + 2].isdigit():  # "1,359 km" is one number
            items.append(text[start:i])
            start = i + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def phrase(item: str) -> str:
    """One item as a bare phrase, or an empty string when it names nothing.

    >>> phrase("and Kissi (in the north) 4.3%")
    'Kissi'
    >>> phrase("other/unspecified 0.2%")
    ''
    """
    item = without_parentheses(item)
    item = re.sub(r"^.*?less than 1\s*%\s*:", "", item)
    item = re.sub(r"^[^,;]*:\s*", "", item)  # "metropolitan France: coal"
    item = _AMOUNT.sub("", item)
    item = re.sub(r"(?:\s+est\.?)?\s*$", "", item)
    item = re.sub(r"^(?:and|or|also|but also|as well as)\s+", "", item.strip(" .,;:-*"), flags=re.IGNORECASE)
    item = re.sub(r"\s+(?:and|or)$", "", item)
    item = " ".join(item.strip(" .,;:-*\"'").split())
    if EMPTY.match(item) or re.search(r"\d", item) or len(item) < 2:
        return ""
    return item


def phrases(text: str) -> list[str]:
    """The phrases of a prose list, in its order, each once.

    >>> phrases("gold, packaged medicine, NA, base metal watches, gold (2023)")
    ['gold', 'packaged medicine', 'base metal watches']
    """
    found = (phrase(item) for item in split_list(without_notes(plain(text))))
    return list(dict.fromkeys(p for p in found if p))
