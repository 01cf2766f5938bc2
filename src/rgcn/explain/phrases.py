"""How an explanation says things: shares, triples and paths as people read them."""

from __future__ import annotations

from typing import Any

Named = dict[str, Any]
"""A node, relation or class as `OpenModel` describes it: at least its name and its title."""


def percent(share: float) -> str:
    """A probability or a share: never quite nothing and never quite everything.

    >>> [percent(share) for share in (0.9756, 0.314, 0.0123, 0.00004, 0.99987)]
    ['98 %', '31 %', '1.2 %', 'under 0.1 %', 'over 99.9 %']
    """
    if share >= 0.9995:
        return "over 99.9 %"
    if share < 0.0005:
        return "under 0.1 %"
    places = 1 if share < 0.0995 or share >= 0.9895 else 0
    return f"{100 * share:.{places}f} %"


def arrow(relation: Named, forward: bool) -> str:
    """A relation as an arrow in the direction of its triple.

    >>> arrow({"title": "author"}, False)
    '←author—'
    """
    return f"—{relation['title']}→" if forward else f"←{relation['title']}—"


def sentence(subject: Named, relation: Named, object: Named) -> str:
    """
    >>> sentence({"title": "Bern"}, {"title": "capital of"}, {"title": "Switzerland"})
    'Bern —capital of→ Switzerland'
    """
    return f"{subject['title']} {arrow(relation, True)} {object['title']}"
