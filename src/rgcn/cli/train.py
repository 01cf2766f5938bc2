"""`rgcn train`: from a configuration to a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgcn.tasks.link_fitting import LinkEpoch
    from rgcn.tasks.node_training import Epoch


def train(
    configuration: Annotated[
        str, typer.Argument(help="A shipped configuration, such as rgcn/nc-aifb (see `rgcn configs`), or a YAML file.")
    ],
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: training.epochs=100. May be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to keep the run in: settings, metrics, model.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto.")] = None,
    mirror: Annotated[Path | None, typer.Option(help="Folder to take data sets from (else RGCN_MIRROR).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a model, measure it on every split, and show some of its predictions."""
    from rgcn.cli.data import report_skipped
    from rgcn.cli.outcome import print_outcome
    from rgcn.runs import load_configuration, load_data
    from rgcn.runs import train as run

    overrides = {"seed": seed, "training.device": device}
    given = {key: value for key, value in overrides.items() if value is not None}
    config = load_configuration(configuration, changes or [], given)
    graph = load_data(config.data, mirror)
    if not quiet:
        report_skipped(graph)
        typer.echo(f"{graph!r}", err=True)
    with _progress(config.training.epochs, quiet) as on_epoch:
        result = run(config, graph, out, on_epoch)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    print_outcome(result)
    if out is not None:
        typer.echo(f"\nKept in {out}: config.yaml, metrics.jsonl, result.json, model/")


def list_configurations() -> None:
    """List the configurations that come with rgcn."""
    from rgcn.runs import shipped_configurations

    for name, path in shipped_configurations().items():
        first = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
        typer.echo(f"{name:<22} {first}")


@contextmanager
def _progress(epochs: int, quiet: bool) -> Iterator[Callable[[Epoch | LinkEpoch], None]]:
    """A bar on a terminal; elsewhere a line now and then; all of it on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield lambda epoch: None
    elif console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task("", total=epochs)
            yield lambda epoch: bar.update(task, completed=epoch.number, description=_words(epoch))
    else:
        last = 0

        def line(epoch: Epoch | LinkEpoch) -> None:
            nonlocal last
            if epoch.number - last >= epochs / 5 or epoch.number == epochs:
                last = epoch.number
                typer.echo(f"epoch {epoch.number}/{epochs}  {_words(epoch)}", err=True)

        yield line


def _words(epoch: Epoch | LinkEpoch) -> str:
    from rgcn.tasks.node_training import Epoch

    words = f"loss {epoch.loss:.4f}"
    if isinstance(epoch, Epoch):
        words += f"  train {epoch.train_accuracy:6.1%}"
        return words if epoch.valid_accuracy is None else f"{words}  valid {epoch.valid_accuracy:6.1%}"
    return words if epoch.valid_mrr is None else f"{words}  valid MRR {epoch.valid_mrr:.3f}"
