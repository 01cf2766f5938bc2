"""`rgcn resume` and `rgcn evaluate`: what can be done with a run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rgcn.cli.options import AsJson, Mirror, Quiet, Run, Threads


def resume(
    folder: Run,
    no_track: Annotated[bool, typer.Option("--no-track", help="Report to no tracker this time.")] = False,
    threads: Threads = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped, killed or cut off, from its newest checkpoint.

    The end is that of an undisturbed run, to the last bit, on the same machine with the same versions (on a GPU with
    training.deterministic=true). A finished run is only shown. A folder of several seeds goes on with all of them.
    """
    from rgcn.runs import RunFolder

    if (folder / "series.json").exists():
        _resume_series(folder, mirror, as_json, quiet)
        return
    run = RunFolder(folder)
    run.check()  # before PyTorch is loaded: a mistyped name is answered at once
    from rgcn.cli.train import show
    from rgcn.cli.training_progress import training_progress
    from rgcn.runs import resume as go_on
    from rgcn.tasks.task import task_of

    if run.result() is not None and not quiet:
        typer.echo(f"{folder} is finished; nothing is left to do", err=True)
    about = run.about()
    with training_progress(about["epochs"], quiet, task_of(about["task"]).headline) as progress:
        result = go_on(folder, mirror, progress.epoch, progress.step, track=not no_track)
    show(result, folder, as_json)


def evaluate(
    folder: Run,
    split: Annotated[
        str | None,
        typer.Option(help="train, valid or test; by default test, or valid while the run is not finished."),
    ] = None,
    threads: Threads = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
) -> None:
    """Measure a run's model on one split: accuracy, or filtered ranks by direction and relation, as its task has it.

    Of a run that is not finished the best weights of its newest checkpoint are measured.
    """
    from rgcn.runs import RunFolder

    run = RunFolder(folder)
    run.check()
    from rgcn.runs.assembly import evaluate as measure

    if run.result() is None:
        typer.echo(f"{folder} is not finished ({run.status()}): this is its newest checkpoint", err=True)
    found = measure(run, split, mirror)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print(found)


def _resume_series(folder: Path, mirror: Path | None, as_json: bool, quiet: bool) -> None:
    from rgcn.cli.series import train_series
    from rgcn.runs.series import read_series

    config, runs, jobs = read_series(folder)
    train_series(config, runs, jobs, folder, mirror, as_json, quiet)


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    from rgcn.cli.outcome import Outcome
    from rgcn.tasks.task import task_of

    typer.echo(f"{found['model']} on {found['dataset']}, seed {found['seed']}, {found['split']} split")
    console = Console(highlight=False)
    console.width = max(console.width, 100)  # figures that are cut off tell nothing
    console.print(task_of(found["task"]).to(Outcome).evaluated(found["metrics"]))
