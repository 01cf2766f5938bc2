"""`rgcn bench`: our training step beside PyG's, and beside what this machine could do at best."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.options import Quiet, Threads

if TYPE_CHECKING:
    from rich.status import Status

    from rgcn.bench.comparison import Listener

WIDTH = 120


def bench(
    graphs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Data sets (aifb, mutag, ...), bgs-shaped, am-shaped, am-full-shaped, random-N for N drawn edges, "
            ".npz files, or folders of saved graphs. By default aifb and mutag, or world if they are not at hand.",
            metavar="GRAPH",
        ),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="rgcn or e-rgcn; may be repeated. By default both.")
    ] = None,
    devices: Annotated[
        list[str] | None,
        typer.Option("--device", help="cpu, cuda, cuda:N or auto; may be repeated. By default cpu, and cuda if there."),
    ] = None,
    peers: Annotated[
        list[str] | None,
        typer.Option("--peer", help="fast (FastRGCNConv), plain (RGCNConv) or none; may be repeated. By default both."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to time in each round, fewer where they are slow.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Turns each side takes; the best one counts.")] = 3,
    budget: Annotated[float, typer.Option(help="Seconds for the timed steps of one measurement.")] = 20.0,
    threads: Threads = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Width of rgcn's hidden states.")] = None,
    bases: Annotated[int | None, typer.Option(min=0, help="Bases of rgcn's weights; 0 for full matrices.")] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write every figure to this file; - for standard output, and nothing else."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the step times: FILE.svg, .pdf or .png.")] = None,
    write_npz: Annotated[
        Path | None,
        typer.Option(help="Measure nothing; write the one GRAPH to this .npz file, to carry it to another machine."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure a training step here and now: time, peak memory, PyG's layers beside ours, the machine's own limit."""
    from rgcn.bench.__main__ import chosen_peers
    from rgcn.bench.comparison import Plan, compare
    from rgcn.bench.graphs import default_graphs, find_graph, graph_to_npz
    from rgcn.bench.plotting import check_plottable, plot_steps
    from rgcn.bench.report import write_json
    from rgcn.bench.workloads import MODELS
    from rgcn.errors import ConfigError

    if write_npz is not None:
        if not graphs or len(graphs) != 1:
            raise ConfigError("--write-npz takes one graph: rgcn bench aifb --write-npz aifb.npz")
        graph_to_npz(find_graph(graphs[0]), write_npz)
        return
    if plot is not None:
        check_plottable(plot)
    plan = Plan(
        tuple(graphs or default_graphs()),
        models=tuple(models or MODELS),
        devices=tuple(devices) if devices else None,
        peers=chosen_peers(peers),
        steps=steps,
        rounds=rounds,
        budget=budget,
        hidden=hidden,
        bases=bases,
    )
    with _listener(quiet) as listener:
        result = compare(plan, listener, ["rgcn", *sys.argv[1:]])
    if plot is not None:
        plot_steps(result, plot)
    if json_file == Path("-"):
        typer.echo(json.dumps(result, indent=2))
        return
    if json_file is not None:
        write_json(result, json_file)
    _print(result)


def _print(result: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rgcn.bench.report import COLUMNS, LEFT, LEGEND, cells, machine_lines

    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)  # the columns are figures: a narrow page would cut them off
    for line in machine_lines(result):
        console.print(escape(line), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=number > 0, overflow="fold")
    for figures in cells(result):
        table.add_row(*map(escape, figures))
    console.print(table)
    console.print(LEGEND, width=WIDTH)


@contextmanager
def _listener(quiet: bool) -> Iterator[Listener]:
    """A changing line on a terminal, else a line for each measurement; on standard error."""
    from rich.console import Console

    from rgcn.bench.__main__ import Lines
    from rgcn.bench.comparison import Listener

    console = Console(stderr=True)
    if quiet:
        yield Listener()
    elif not console.is_terminal:
        yield Lines()
    else:
        with console.status("loading graphs") as status:
            yield _status_listener(status)


def _status_listener(status: Status) -> Listener:
    from rich.markup import escape

    from rgcn.bench.comparison import Listener

    class StatusLine(Listener):
        """Says how many measurements are done and which one runs."""

        total, done = 0, 0

        def begin(self, total: int) -> None:
            self.total = total

        def measuring(self, what: str) -> None:
            status.update(f"{self.done}/{self.total}  {escape(what)}")

        def measured(self, skipped: int = 0) -> None:
            self.done += 1 + skipped

        def note(self, words: str) -> None:
            status.console.print(words, markup=False)

    return StatusLine()
