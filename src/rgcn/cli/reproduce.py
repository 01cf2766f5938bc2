"""`rgcn reproduce`: the paper's figures beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="reproduce", help="The paper's figures beside ours.", no_args_is_help=True)


@app.callback()
def common() -> None:
    """The paper's figures beside ours."""


@app.command("tensor-statistics")
def show_tensor_statistics(
    seeds: Annotated[int, typer.Option(min=1, help="First forward passes to average over.")] = 10,
    mirror: Annotated[Path | None, typer.Option(help="Folder to take data sets from (else RGCN_MIRROR).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Intermediate tensors of the link predictor on FB-Toy: minimum, maximum, mean, standard deviation."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from rgcn.data import load
    from rgcn.runs.tensor_statistics import STATISTICS, tensor_statistics

    rows = tensor_statistics(load("fb-toy", mirror=mirror), seeds)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(title=f"FB-Toy, first forward pass; ours: mean of {seeds} seeds", title_justify="left", box=SIMPLE)
    for name in ("tensor", "", "TF-RGCN", "Torch-RGCN", "ours", ""):
        table.add_column(name, justify="right" if name not in ("tensor", "") else "left", no_wrap=True)
    for row in rows:
        color, word = ("green", "within") if row["within"] else ("red", "outside")
        verdict = f"[{color}]{row['std_deviation']:+.1%}, {word} {row['allowed']:.0%}[/]"
        for statistic, label in zip(STATISTICS, (row["tensor"], row["shape"], "", ""), strict=True):
            figures = [f"{row[side][statistic]:.4f}" for side in ("tf_rgcn", "torch_rgcn", "ours")]
            last = statistic == "std"
            table.add_row(label, statistic, *figures, verdict if last else "", end_section=last)
    console = Console(highlight=False)
    console.width = max(console.width, 100)  # the columns are figures: a narrow page would cut them off
    console.print(table)
