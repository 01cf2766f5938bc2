"""What a classifier takes for what, on a page; on validation nodes, or on those it learned from."""

from __future__ import annotations

import numpy as np

from rgcn.errors import DataError
from rgcn.pages.charts import heat_map
from rgcn.pages.figures import percent
from rgcn.pages.markup import Html, join, paragraph
from rgcn.pages.node_evaluation import NodeEvaluation, evaluate_nodes
from rgcn.pages.page import Section
from rgcn.predict import OpenModel
from rgcn.words import count

MOST_CLASSES = 40
SPLIT_WORDS = {"test": "test", "valid": "validation", "train": "training"}


def split_looked_at(opened: OpenModel, wanted: str | None) -> str:
    """The split a page may show: the one asked for, else validation where there is some, else training; never test."""
    labels = opened.graph.labels
    counts = {} if labels is None else labels.counts()
    if wanted is None:
        return "valid" if "valid" in counts else "train"
    if wanted not in counts:
        raise DataError(f"the graph has no labels in split {wanted!r}; it has {', '.join(counts)}")
    return wanted


def confusion_section(opened: OpenModel, wanted: str | None = None) -> Section:
    split = split_looked_at(opened, wanted)
    measured = evaluate_nodes(opened.model, split)
    words = (
        f"Each row holds the {SPLIT_WORDS[split]} nodes of one true class, each column what the model said; outlined "
        "fields are right answers. The stronger the color, the larger the share of the row. "
        f"{measured.right:,} of {count(measured.count, SPLIT_WORDS[split] + ' node')} are right: "
        f"{percent(measured.accuracy)}."
    )
    if split == "train":
        words += " These are the nodes the model learned from, so that this says little about others; the run held out "
        words += "no validation nodes."
    return Section("What is taken for what", words, _matrix(opened, measured))


def _matrix(opened: OpenModel, measured: NodeEvaluation) -> Html:
    size = measured.confusion.sum(axis=0) + measured.confusion.sum(axis=1)
    shown = np.sort(np.argsort(-size, kind="stable")[:MOST_CLASSES])
    names = [opened.titles.class_(number) for number in shown.tolist()]
    counts = measured.confusion[np.ix_(shown, shown)].tolist()
    picture = heat_map(
        names, names, counts, corner="true class", said="{count} of {total} “{row}” taken for “{column}”"
    )
    if len(shown) == len(measured.classes):
        return picture
    note = f"The {MOST_CLASSES} classes with the most nodes, of {len(measured.classes):,}; the others are left out."
    return join([paragraph(note, class_="muted"), picture])
