"""What a person sees of several runs with different seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.config import RunConfig
    from rgcn.runs.series import SeriesResult


def train_series(
    config: RunConfig, runs: int, jobs: int, folder: Path | None, mirror: Path | None, as_json: bool, quiet: bool
) -> None:
    """Train with several seeds, or go on with those that are not finished, and show what they say together."""
    from rgcn.cli.series_progress import series_progress
    from rgcn.runs.series import run_series

    with series_progress(quiet) as progress:
        progress.begin(config.model.title, runs, config.training.epochs)
        result = run_series(config, runs, folder=folder, jobs=jobs, mirror=mirror, listener=progress)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    else:
        _print(result)
        if folder is not None:
            typer.echo(f"Kept in {folder}, a folder for each seed; every figure is in {folder / 'series.json'}.")
    if result.failures:
        raise typer.Exit(1)


def _print(result: SeriesResult) -> None:
    """Mean, standard deviation and standard error of every metric."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    title = f"{result.config.model.title} on {result.config.data.title}: {count(len(result.results), 'run')}"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column("split")
    table.add_column("metric")
    for name in ("mean", "standard deviation", "standard error"):
        table.add_column(name, justify="right")
    for split, metrics in result.summary().items():
        for metric, spread in metrics.items():
            figures = spread.mean, spread.standard_deviation, spread.standard_error
            table.add_row(split, metric, *("" if figure is None else f"{figure:.4f}" for figure in figures))
    Console(highlight=False).print(table)
    for row in result.failures:
        typer.echo(f"seed {row.seed} failed: {row.error}", err=True)
