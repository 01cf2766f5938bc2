"""`rgcn report`, `card`, `compare`, `embed` and `export`: runs and what their models learned, as pages and as files."""

from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from rgcn.cli.commands import refuse_if
from rgcn.cli.model_commands import CardCommand, CompareCommand, EmbedCommand, ExportCommand, ReportCommand
from rgcn.cli.output import late_progress, output, print_json, table, tell, tell_opened
from rgcn.cli.predict import listed_nodes
from rgcn.errors import DataError
from rgcn.models.export import save_encoder
from rgcn.pages import Comparison, compare_runs, comparison_page, make_report, save_page
from rgcn.pages.charts import text_plot
from rgcn.pages.run_report import model_card
from rgcn.predict import open_model
from rgcn.predict.opened_model import open_trained
from rgcn.runs.folder import RunFolder
from rgcn.system.formatting import count, memory, setting
from rgcn.system.progress import progress
from rgcn.visualization.map_page import map_page, split_looked_at
from rgcn.visualization.node_map import NodeMap
from rgcn.visualization.projection import STEPS, check_method
from rgcn.visualization.vectors import NodeVectors, check_ending, node_table, relation_table, write_table

COLORS = ("blue", "dark_orange", "green", "magenta", "bright_black", "yellow", "cyan", "red")
WIDEST_PLOT, PLOT_HEIGHT = 100, 12


def report(asked: ReportCommand) -> None:
    path = asked.out or asked.run / "report.html"
    with late_progress("ranking", "questions", asked.bars) as meter:
        made = make_report(asked.run, asked.split, meter, asked.mirror)
    save_page(path, made.html)
    tell(asked.as_json, {"report": str(path), **made.values}, f"Written: {path}")


def card(asked: CardCommand) -> None:
    text = model_card(RunFolder(asked.run))
    if asked.out is not None:
        save_page(asked.out, text)
    typer.echo(text if asked.out is None else f"Written: {asked.out}\n", nl=False)


def compare(asked: CompareCommand) -> None:
    comparison = compare_runs(asked.runs)
    if asked.out is not None:
        save_page(asked.out, comparison_page(comparison))
    if asked.as_json:
        print_json({**({} if asked.out is None else {"page": str(asked.out)}), **comparison.as_dict()})
        return
    console = output()
    for number, entry in enumerate(comparison.entries):
        about = f"[dim]{escape(entry.first.title)}, {entry.state}[/]"
        console.print(f"[bold {_color(number)}]{entry.letter}[/]  {escape(entry.name)}  {about}")
    letters = [f"[{_color(number)}]{entry.letter}[/]" for number, entry in enumerate(comparison.entries)]
    knowing = {name: [entry.knows(name) for entry in comparison.entries] for name in comparison.settings()}
    different = [
        (name, *(setting(value) if known else "" for known, value in zip(knowing[name], values, strict=True)))
        for name, values in comparison.settings().items()
    ]
    if different:
        console.print("\n[bold]settings that differ[/]", table(("", *letters), different, box=SIMPLE_HEAD))
    else:
        console.print("\nAll settings are the same.")
    figures = [
        (
            f"{row.split} {row.metric.title}",
            *(Text(f"{row.words(i)} *", "bold") if i in row.best else row.words(i) for i in range(len(row.spreads))),
        )
        for row in comparison.figures()
    ]
    if figures:
        best = " (* best)" if any(row.best for row in comparison.figures()) else ""
        console.print(f"[bold]figures[/]{best}", table(("", *letters), figures, letters, box=SIMPLE_HEAD))
    else:
        console.print("\nNo run is finished yet: there are no figures.")
    _print_curves(console, comparison)
    for warning in comparison.warnings():
        console.print(f"[yellow]Note:[/] {escape(warning)}")
    if asked.out is not None:
        typer.echo(f"Written: {asked.out}")


def _color(number: int | None) -> str:
    return "dim" if number is None else COLORS[number % len(COLORS)]


def _print_curves(console: Console, comparison: Comparison) -> None:
    """One picture for each task: the measurement that matters most of those there are."""
    if not (console.encoding or "").lower().startswith("utf"):
        return  # no Braille where it cannot be written
    for picture in (picture for task in comparison.tasks for picture in comparison.pictures(task)[:1]):
        curves, width = list(picture.curves.items()), min(console.width, WIDEST_PLOT)
        console.print(f"[bold]{picture.title}[/] over epochs")
        for row in text_plot(curves, width=width, height=PLOT_HEIGHT, y_format=picture.panel.y_format):
            colors = (_color(None if cell.series is None else curves[cell.series][1].color) for cell in row)
            texts = (cell.text for cell in row)
            console.print(Text.assemble(*zip(texts, colors, strict=True), no_wrap=True))
        console.print()


def embed(asked: EmbedCommand) -> None:
    _check(asked)
    opened = open_model(asked.run, **asked.opening())
    tell_opened(opened, asked.quiet or asked.as_json)
    vectors = NodeVectors.of(opened, asked.layer)
    if asked.split is not None:
        no_classes = (
            f"--split says which nodes a classifier's mistakes are shown on; {opened.name} has no classes to mistake: "
            "leave it out"
        )
        refuse_if({no_classes: not opened.classes})
        split_looked_at(opened, asked.split)
    nodes, skipped = np.arange(opened.graph.num_nodes), 0
    if asked.nodes is not None:
        listed, skipped = listed_nodes(opened, asked.nodes, asked.skip_unknown)
        nodes = np.array(list(dict.fromkeys(listed.tolist())), dtype=np.int64)  # each once
    said: dict[str, Any] = {**opened.source, "task": opened.task.name, "nodes": len(nodes)}
    if asked.out is not None or asked.plot is not None:  # a model without vectors of nodes may have some of relations
        said["width"] = vectors.width
    files, lines = dict[str, str](), list[str]()
    if asked.out is not None:
        with progress("vectors", len(nodes), "nodes", show=asked.bars) as meter:
            parts = node_table(vectors, nodes, meter.advance)
            write_table(asked.out, len(nodes), parts, keep_formulas=asked.keep_formulas)
        files["out"] = str(asked.out)
        lines.append(f"Written: {asked.out} ({count(len(nodes), 'node')}, {vectors.width} numbers each)")
    if asked.relations is not None:
        relations = relation_table(opened)
        write_table(asked.relations, len(relations), [relations], "--relations", asked.keep_formulas)
        said["relations"], files["relations"] = len(relations), str(asked.relations)
        lines.append(f"Written: {asked.relations} ({len(relations)} rows)")
    if asked.plot is not None:
        with progress("map", STEPS.get(asked.map_), "steps", show=asked.bars) as meter:
            settings: dict[str, Any] = {
                "method": asked.map_,
                **{key: getattr(asked, key) for key in ("seed", "most", "split")},
            }
            drawn = NodeMap(vectors, nodes, on_step=lambda: meter.advance(1), **settings)
        save_page(asked.plot, map_page(drawn, asked.split))
        made = said["map"] = drawn.as_dict()
        files["plot"] = str(asked.plot)
        shown = f"{made['nodes']:,} of {made['candidates']:,} nodes, {asked.map_}"
        lines.append(f"Written: {asked.plot} ({shown}, trustworthiness {made['trustworthiness']:.2f})")
    if skipped and not asked.as_json:
        typer.echo(f"{count(skipped, 'name')} not known, left out", err=True)
    tell(asked.as_json, {**said, "skipped": skipped, "files": files}, *lines)


def _check(asked: EmbedCommand) -> None:
    """Refuse before anything is read what could not be written in the end."""
    tables, plot = {"--out": asked.out, "--relations": asked.relations}, asked.plot
    given = [path.resolve() for path in (*tables.values(), plot) if path is not None]
    name = None if plot is None else plot.name
    refuse_if(
        {
            "say what to write: --out nodes.parquet, --relations relations.parquet or --plot map.html": not given,
            f"--plot {name}: the map is a web page; give it a name in .html": plot is not None
            and plot.suffix.lower() not in (".html", ".htm"),
            f"--plot {plot} is a folder; give the name of a file": plot is not None and plot.is_dir(),
            "--out, --relations and --plot name the same file twice": len(set(given)) < len(given),
        }
    )
    for option, path in tables.items():
        if path is not None:
            check_ending(path, option)
    if plot is not None:
        check_method(asked.map_)


def export(asked: ExportCommand) -> None:
    out = asked.out
    if out.is_dir():
        raise DataError(f"{out} is a folder; --out takes the name of a file")
    opened = open_trained(asked.run, mirror=asked.mirror, device="cpu", accept_changed_data=asked.accept_changed_data)
    try:
        about = save_encoder(opened.model, out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; choose another place with --out") from error
    tell(
        asked.as_json,
        {"encoder": str(out), **about},
        f"Written: {out} ({memory(out.stat().st_size)})",
        f"{about['nodes']:,} nodes; {about['output']}. Names are in its extra files: nodes.jsonl and others.",
    )
