"""`rgcn report`, `card`, `compare`, `embed` and `export`: runs and trained models as pages and files."""

from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from rgcn.cli.commands import refuse_if
from rgcn.cli.options import CardOptions, CompareOptions, EmbedOptions, ExportOptions, ReportOptions
from rgcn.cli.output import late_progress, output, print_json, print_opened, print_result, table
from rgcn.cli.predict import listed_nodes
from rgcn.errors import DataError
from rgcn.models.export import save_encoder
from rgcn.pages import Comparison, compare_runs, comparison_page, make_report, save_page
from rgcn.pages.charts import text_plot
from rgcn.pages.run_report import model_card
from rgcn.predict import open_model
from rgcn.predict.opened_model import open_trained
from rgcn.runs.folder import RunFolder
from rgcn.system.formatting import format_bytes, format_count, format_setting
from rgcn.system.progress import progress
from rgcn.visualization.map_page import evaluation_split, map_page
from rgcn.visualization.node_map import NodeMap
from rgcn.visualization.projection import STEPS, check_method
from rgcn.visualization.vectors import NodeVectors, check_table_path, node_table, relation_table, write_table

COLORS = ("blue", "dark_orange", "green", "magenta", "bright_black", "yellow", "cyan", "red")
MAX_PLOT_WIDTH, PLOT_HEIGHT = 100, 12


def write_report(options: ReportOptions) -> None:
    """Write a report of a run."""
    path = options.out or options.run / "report.html"
    with late_progress("ranking", "questions", options.show_progress) as advance:
        report = make_report(options.run, options.split, advance, options.mirror)
    save_page(path, report.html)
    print_result(options.as_json, {"report": str(path), **report.values}, f"Written: {path}")


def write_card(options: CardOptions) -> None:
    """Write or print a model card."""
    text, out = model_card(RunFolder(options.run)), options.out
    if out is not None:
        save_page(out, text)
    typer.echo(text if out is None else f"Written: {out}\n", nl=False)


def print_comparison(options: CompareOptions) -> None:
    """Print a comparison of runs, and write it as a page."""
    comparison, out = compare_runs(options.runs), options.out
    if out is not None:
        save_page(out, comparison_page(comparison))
    if options.as_json:
        print_json({**({} if out is None else {"page": str(out)}), **comparison.as_dict()})
        return
    console, entries = output(), comparison.entries
    for number, entry in enumerate(entries):
        description = f"[dim]{escape(entry.first.title)}, {entry.state}[/]"
        console.print(f"[bold {_color(number)}]{entry.letter}[/]  {escape(entry.name)}  {description}")
    letters = [f"[{_color(number)}]{entry.letter}[/]" for number, entry in enumerate(entries)]
    different = []
    for name, values in comparison.settings().items():
        pairs = zip(entries, values, strict=True)
        different.append((name, *(format_setting(value) if each.has_setting(name) else "" for each, value in pairs)))
    if different:
        console.print("\n[bold]settings that differ[/]", table(("", *letters), different, box=SIMPLE_HEAD))
    else:
        console.print("\nAll settings are the same.")
    metrics = comparison.metric_rows()
    rows: list[tuple[str | Text, ...]] = []
    for row in metrics:
        cells = (Text(f"{row.text(i)} *", "bold") if i in row.best else row.text(i) for i in range(len(row.spreads)))
        rows.append((f"{row.split} {row.metric.title}", *cells))
    if rows:
        best = " (* best)" if any(row.best for row in metrics) else ""
        console.print(f"[bold]metrics[/]{best}", table(("", *letters), rows, letters, box=SIMPLE_HEAD))
    else:
        console.print("\nNo run is finished yet, so there are no metrics.")
    for each in comparison.differences():
        console.print(f"{each.second} - {each.first}  {each.split} {each.metric.title}: {each.text}")
    _print_curves(console, comparison)
    for warning in comparison.warnings():
        console.print(f"[yellow]Note:[/] {escape(warning)}")
    if out is not None:
        typer.echo(f"Written: {out}")


def _color(number: int | None) -> str:
    return "dim" if number is None else COLORS[number % len(COLORS)]


def _print_curves(console: Console, comparison: Comparison) -> None:
    """Plot the most important metric of each task."""
    if not (console.encoding or "").lower().startswith("utf"):
        return  # the plots are made of Braille characters
    for picture in (picture for task in comparison.tasks for picture in comparison.charts(task)[:1]):
        curves, width = list(picture.curves.items()), min(console.width, MAX_PLOT_WIDTH)
        console.print(f"[bold]{picture.title}[/] during training")
        for row in text_plot(curves, width=width, height=PLOT_HEIGHT, y_format=picture.panel.y_format):
            colors = (_color(None if cell.series is None else curves[cell.series][1].color) for cell in row)
            texts = (cell.text for cell in row)
            console.print(Text.assemble(*zip(texts, colors, strict=True), no_wrap=True))
        console.print()


def write_embeddings(options: EmbedOptions) -> None:
    """Write vectors of nodes and relations, and a map."""
    _check_outputs(options)
    opened = open_model(options.run, **options.open_arguments())
    print_opened(opened, options.quiet or options.as_json)
    vectors = NodeVectors.of(opened, options.layer)
    if options.split is not None:
        conflict = f"--split is for classifiers, and {opened.name} has no classes: leave it out"
        refuse_if({conflict: not opened.classes})
        evaluation_split(opened, options.split)
    nodes, skipped = np.arange(opened.graph.num_nodes), 0
    if options.nodes is not None:
        listed, skipped = listed_nodes(opened, options.nodes, options.skip_unknown)
        nodes = np.array(list(dict.fromkeys(listed.tolist())), dtype=np.int64)  # each once
    values: dict[str, Any] = {**opened.source, "task": opened.task.name, "nodes": len(nodes)}
    if options.out is not None or options.plot is not None:  # a model without node vectors may have relation vectors
        values["width"] = vectors.width
    files, lines = dict[str, str](), list[str]()
    if options.out is not None:
        with progress("vectors", len(nodes), "nodes", show=options.show_progress) as meter:
            parts = node_table(vectors, nodes, meter.advance)
            write_table(options.out, len(nodes), parts, keep_formulas=options.keep_formulas)
        files["out"] = str(options.out)
        lines.append(f"Written: {options.out} ({format_count(len(nodes), 'node')}, {vectors.width} numbers each)")
    if options.relations is not None:
        relations = relation_table(opened)
        write_table(options.relations, len(relations), [relations], "--relations", options.keep_formulas)
        values["relations"], files["relations"] = len(relations), str(options.relations)
        lines.append(f"Written: {options.relations} ({len(relations)} rows)")
    if options.plot is not None:
        with progress("map", STEPS.get(options.map_), "steps", show=options.show_progress) as meter:
            settings: dict[str, Any] = {key: getattr(options, key) for key in ("seed", "most", "split")}
            node_map = NodeMap(vectors, nodes, on_step=lambda: meter.advance(1), method=options.map_, **settings)
        save_page(options.plot, map_page(node_map, options.split))
        about = values["map"] = node_map.as_dict()
        files["plot"] = str(options.plot)
        shown = f"{about['nodes']:,} of {about['candidates']:,} nodes, {options.map_}"
        lines.append(f"Written: {options.plot} ({shown}, trustworthiness {about['trustworthiness']:.2f})")
    if skipped and not options.as_json:
        typer.echo(f"{format_count(skipped, 'unknown name')} left out", err=True)
    print_result(options.as_json, {**values, "skipped": skipped, "files": files}, *lines)


def _check_outputs(options: EmbedOptions) -> None:
    """Refuse files that cannot be written, before anything is read."""
    tables, plot = {"--out": options.out, "--relations": options.relations}, options.plot
    paths = [path.resolve() for path in (*tables.values(), plot) if path is not None]
    is_page = plot is None or plot.suffix.lower() in (".html", ".htm")
    refuse_if(
        {
            "nothing to write: give --out nodes.parquet, --relations relations.parquet or --plot map.html": not paths,
            f"--plot {plot and plot.name}: the map is a web page; give it a name in .html": not is_page,
            f"--plot {plot} is a folder; give the name of a file": plot is not None and plot.is_dir(),
            "--out, --relations and --plot name the same file twice": len(set(paths)) < len(paths),
        }
    )
    for option, path in tables.items():
        if path is not None:
            check_table_path(path, option)
    if plot is not None:
        check_method(options.map_)


def export_encoder(options: ExportOptions) -> None:
    """Export the encoder of a trained model."""
    out, accepts = options.out, options.accept_changed_data
    if out.is_dir():
        raise DataError(f"{out} is a folder; --out takes the name of a file")
    opened = open_trained(options.run, mirror=options.mirror, device="cpu", accept_changed_data=accepts)
    try:
        about = save_encoder(opened.model, out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; choose another place with --out") from error
    print_result(
        options.as_json,
        {"encoder": str(out), **about},
        f"Written: {out} ({format_bytes(out.stat().st_size)})",
        f"{about['nodes']:,} nodes; {about['output']}. Its extra files have the names: nodes.jsonl and others.",
    )
