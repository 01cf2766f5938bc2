"""Options that several commands have, and that mean the same in each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rgcn.threads import use_threads

# Beyond these a slip of the finger is likelier than a wish.
MOST_JOBS, MOST_RUNS, MOST_THREADS = 256, 10_000, 256


def _use_threads(number: int | None) -> int | None:
    if number is not None:
        use_threads(number)
    return number


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Mirror = Annotated[Path | None, typer.Option(help="Folder to take data sets from (else RGCN_MIRROR).")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, or auto.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: training.epochs=100. May be repeated.")
]
# Obeyed while the command line is read, before anything loads PyTorch: a command takes it and has nothing to do.
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_THREADS,
        callback=_use_threads,
        help="Threads of each process; by default one a core, with --jobs a share of them.",
    ),
]
Jobs = Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="How many at a time, each in a process of its own.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PACKAGE",
        help="Trust classes of this package where a saved model or a run names them. May be repeated, also at the end.",
    ),
]
Run = Annotated[Path, typer.Argument(help="Folder of a run; `rgcn runs` lists them.")]
AcceptChangedData = Annotated[
    bool,
    typer.Option(
        "--accept-changed-data",
        help="Answer from the graph the model was trained on, even where its data have changed since.",
    ),
]
NewTriples = Annotated[
    Path | None,
    typer.Option(
        "--with",
        metavar="FILE",
        help="Triples of nodes that training never saw (any format `rgcn data stats` reads): they are computed from "
        "their neighbors.",
    ),
]
NewFeatures = Annotated[
    Path | None,
    typer.Option("--with-features", metavar="FILE", help="Table of the new nodes' features, where the model has some."),
]
