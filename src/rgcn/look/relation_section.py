"""Which relations a model treats alike, on a page: a picture and the likest pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rgcn.look.naming import relation_title
from rgcn.look.similarity import clustered_order, cosines, likest_pairs
from rgcn.look.tables import relation_counts
from rgcn.look.vectors import relation_vectors
from rgcn.pages.markup import Html, join, paragraph, scrolling, table, tag
from rgcn.pages.page import Section
from rgcn.predict import OpenModel

# More rows than these are no picture any more; more relations than these are not all compared.
MOST_DRAWN, MOST_COMPARED = 40, 2000
PAIRS = 20
# Where the shades change: relations have little in common as a rule, and differences near 0 should be seen.
STEPS = (0.1, 0.2, 0.4, 0.6)


def relation_section(opened: OpenModel) -> Section:
    vectors = relation_vectors(opened)
    counts = relation_counts(opened)
    frequent = np.argsort(-counts, kind="stable")
    compared = frequent[:MOST_COMPARED]
    similarity = cosines(vectors.whole[compared])
    drawn = similarity[:MOST_DRAWN, :MOST_DRAWN]
    order = clustered_order(drawn)
    both = "" if vectors.inverse is None else ", in both directions"
    words = (
        f"How alike two relations are to the model: the cosine between {vectors.words}{both}. 1 means that they do the "
        "same to a node, 0 that they have nothing in common, below 0 that they do the opposite. Relations that are "
        "alike stand side by side. Rare ones have learned little."
    )
    titles = [
        tag("bdi", relation_title(opened, number), title=opened.graph.relations[number]) for number in compared.tolist()
    ]
    parts = [_picture(drawn, order, titles), _pairs(similarity, titles, counts[compared])]
    if len(compared) > MOST_DRAWN:
        note = f"Drawn are the {MOST_DRAWN} most frequent relations of {len(counts):,}; the pairs are taken from "
        parts.insert(
            0, paragraph(note + ("all." if len(compared) == len(counts) else f"{len(compared):,}."), class_="muted")
        )
    return Section("Relations that are alike", words, join(parts))


def _picture(similarity: NDArray[np.float64], order: NDArray[np.int64], titles: list[Html]) -> Html:
    numbers = [tag("th", str(column), scope="col") for column in range(1, len(order) + 1)]
    rows = [tag("tr", tag("th", scope="col"), *numbers)]
    for number, i in enumerate(order.tolist(), start=1):
        cells = [tag("td", class_=_shade(float(similarity[i, j]), i == j)) for j in order.tolist()]
        rows.append(tag("tr", tag("th", f"{number} · ", titles[i], scope="row"), *cells))
    drawing = tag("table", tag("thead", rows[0]), tag("tbody", *rows[1:]), class_="alike")
    values = ";".join(",".join(f"{100 * similarity[i, j]:.0f}" for j in order) for i in order)
    return join(
        [
            tag("div", scrolling(drawing), id="alike", data_hundredths=values),
            tag("p", "Hover over a field, or tap it, to read it.", id="alike-readout", class_="muted", role="status"),
            _scale(),
        ]
    )


def _scale() -> Html:
    """What the shades mean."""
    shades = range(len(STEPS) + 1)
    classes = [*(f"cold-{shade}" for shade in reversed(shades)), *(f"warm-{shade}" for shade in shades)]
    boxes = tag("span", *(tag("span", class_=one) for one in classes), class_="steps")
    steps = ", ".join(map(str, STEPS))
    return tag("p", "−1 ", boxes, f" 1 (the color changes at 0, ±{steps})", class_="scale muted")


def _shade(cosine: float, is_own: bool) -> str:
    if is_own:
        return "own"
    return f"{'warm' if cosine >= 0 else 'cold'}-{sum(abs(cosine) >= step for step in STEPS)}"


def _pairs(similarity: NDArray[np.float64], titles: list[Html], counts: NDArray[np.int64]) -> Html:
    rows = [
        [
            tag("td", titles[one], class_="name"),
            tag("td", titles[other], class_="name"),
            f"{cosine:.2f}",
            f"{counts[one]:,}",
            f"{counts[other]:,}",
        ]
        for one, other, cosine in likest_pairs(similarity, PAIRS)
    ]
    if not rows:
        return paragraph("There is only one relation.", class_="empty")
    head = ["relation", "and", "cosine", "triples of the one", "of the other"]
    return join([tag("h3", "The likest pairs"), table(head, rows, numeric=[2, 3, 4], sortable=True)])
