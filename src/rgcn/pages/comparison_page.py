"""A comparison as one page, in the manner of a report."""

from __future__ import annotations

from rgcn.pages.cards.settings import shown
from rgcn.pages.charts import line_chart
from rgcn.pages.comparison import Comparison, FigureRow, Picture
from rgcn.pages.figures import SPLIT_WORDS
from rgcn.pages.markup import Html, breakable, paragraph, prose, table, tag
from rgcn.pages.page import Section, page
from rgcn.version import __version__
from rgcn.words import duration


def comparison_page(comparison: Comparison) -> str:
    """Runs side by side: caveats, figures, curves, settings."""
    sections = [
        Section("The runs", "What is compared, and under which letter.", _runs(comparison)),
        Section(
            "Figures",
            "The best of each row is in bold and starred, where the figures can be compared. Choose by validation; "
            "the test split is for telling the outcome, once. ± is the standard error over seeds.",
            _figures(comparison),
        ),
        Section(
            "Learning curves",
            "The same measurement of each run in one picture. Of a series, the curve is the mean over its seeds and "
            "the band one standard error around it.",
            _curves(comparison),
        ),
        Section("Settings that differ", "Everything else is set the same.", _settings(comparison)),
    ]
    warnings = comparison.warnings()
    if warnings:
        care = tag("ul", *(tag("li", prose(one)) for one in warnings), class_="care")
        sections.insert(0, Section("Read with care", "", care))
    title = "Comparison of " + ", ".join(entry.name for entry in comparison.entries[:4])
    title += f" and {len(comparison.entries) - 4} more" if len(comparison.entries) > 4 else ""
    footer = f"Written by rgcn {__version__} from the runs' own files. This page loads nothing from anywhere."
    return page(title, sections, footer=footer)


def _runs(comparison: Comparison) -> Html:
    rows = []
    for entry in comparison.entries:
        times = [run.seconds for run in entry.runs if run.seconds is not None]
        rows.append(
            [
                tag("strong", entry.letter),
                tag("bdi", breakable(entry.name)),
                entry.first.title,
                entry.first.task.title,
                entry.state,
                f"{max(run.epochs for run in entry.runs):,}",
                duration(sum(times) / len(times)) if times else "",
            ]
        )
    return table(["", "folder", "model and data", "task", "state", "epochs", "time a run"], rows, numeric=[5, 6])


def _figures(comparison: Comparison) -> Html:
    rows = [
        [
            SPLIT_WORDS[row.split],
            row.metric.title + ("" if row.metric.higher else " (lower is better)"),
            *(_figure(row, i) for i in range(len(row.spreads))),
        ]
        for row in comparison.figures()
    ]
    if not rows:
        return paragraph("No run is finished yet.", class_="empty")
    heads = [
        tag("th", f"{entry.letter} · ", tag("bdi", breakable(entry.name)), scope="col", class_="number")
        for entry in comparison.entries
    ]
    return table(["split", "metric", *heads], rows)


def _figure(row: FigureRow, column: int) -> Html:
    words = row.words(column)
    if not words:
        return tag("td", tag("span", "none", class_="muted"), class_="number")
    return tag(
        "td", f"★ {words}" if column in row.best else words, class_="number best" if column in row.best else "number"
    )


def _curves(comparison: Comparison) -> Html:
    pictures = [_picture(picture) for task in comparison.tasks for picture in comparison.pictures(task)]
    if not pictures:
        return paragraph("No epoch has been reported yet.", class_="empty")
    return tag("div", *pictures, class_="beside")


def _picture(picture: Picture) -> Html:
    panel = picture.panel
    chart = line_chart(
        list(picture.curves.values()),
        title=picture.title,
        x_label="epoch",
        y_label=panel.metric.title,
        y_range=panel.y_range,
        y_format=panel.y_format,
        value_format=panel.value_format,
    )
    return tag("div", tag("h3", picture.title), chart)


def _settings(comparison: Comparison) -> Html:
    different = comparison.settings()
    if not different:
        return paragraph("All settings are the same.", class_="empty")
    rows = [
        [
            tag("code", breakable(name)),
            *(
                shown(value) if entry.knows(name) else ""
                for entry, value in zip(comparison.entries, values, strict=True)
            ),
        ]
        for name, values in different.items()
    ]
    return table(["setting", *(entry.letter for entry in comparison.entries)], rows)
