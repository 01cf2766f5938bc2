"""`rgcn resume` and `rgcn evaluate`: what can be done with a run's folder."""

from __future__ import annotations

import typer

from rgcn import runs
from rgcn.cli.model_commands import EvaluateCommand, ResumeCommand
from rgcn.cli.outcome import Outcome
from rgcn.cli.printing import output, print_json
from rgcn.cli.train import show, train_series
from rgcn.cli.training_progress import training_progress
from rgcn.runs.folder import RunFolder
from rgcn.runs.series import read_series
from rgcn.tasks.task import task_of


def resume(asked: ResumeCommand) -> None:
    folder, telling = asked.folder, asked.telling
    if (folder / "series.json").exists():
        train_series(*read_series(folder), folder, asked.mirror, telling)
        return
    run = RunFolder(folder)
    run.check()
    if run.result() is not None and not telling.quiet:
        typer.echo(f"{folder} is finished; nothing is left to do", err=True)
    about = run.about()
    with training_progress(about["epochs"], telling.quiet, task_of(about["task"]).headline) as progress:
        result = runs.resume(folder, asked.mirror, progress.epoch, progress.step, track=not asked.no_track)
    show(result, folder, telling.as_json)


def evaluate(asked: EvaluateCommand) -> None:
    run = RunFolder(asked.folder)
    run.check()
    if run.result() is None:
        typer.echo(f"{asked.folder} is not finished ({run.status()}): this is its newest checkpoint", err=True)
    found = runs.evaluate(run, asked.split, asked.mirror)
    if asked.as_json:
        print_json(found)
        return
    typer.echo(f"{found['model']} on {found['dataset']}, seed {found['seed']}, {found['split']} split")
    output(least=100).print(task_of(found["task"]).to(Outcome).evaluated(found["metrics"]))
