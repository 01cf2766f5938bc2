"""`rgcn tune`: look for better settings, on validation data alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rgcn.cli.options import MOST_RUNS, AsJson, Changes, Device, Jobs, Mirror, Quiet, Threads

if TYPE_CHECKING:
    from rgcn.tuning import TrialRecord, TuneResult

    OnTrial = Callable[[TrialRecord, TuneResult], None]


def tune(
    configuration: Annotated[
        str, typer.Argument(help="A shipped configuration, such as rgcn/nc-aifb (see `rgcn configs`), or a YAML file.")
    ],
    trials: Annotated[
        int, typer.Option(min=1, max=MOST_RUNS, help="Trials the study shall have; more can be added later.")
    ] = 50,
    jobs: Jobs = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the study. The same command goes on with it.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="A validation figure that trainings report: accuracy, loss, mrr, hits@10, ..."),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(help="Trainings a trial, with different seeds and hold-outs. By default what the task needs."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="Search a setting: training.learning_rate=0.001:0.1:log or model.hidden=8,16. Repeatable."),
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="Leave a setting as it is; `all`: every one without --search. Repeatable.")
    ] = None,
    changes: Changes = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    minutes: Annotated[float | None, typer.Option("--timeout", help="Begin no trial after so many minutes.")] = None,
    device: Device = None,
    threads: Threads = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Look for better settings. The test split is taken out before the first trial.

    Writes best.yaml, which `rgcn train` takes, tune.html, trials.csv, and study.db: the same command goes on from it.
    """
    from rgcn.errors import ConfigError, StoppedError
    from rgcn.runs import load_configuration
    from rgcn.runs.folder import with_whole_paths

    if minutes is not None and not minutes > 0:
        raise ConfigError("--timeout is more than 0 minutes")
    overrides = {"seed": seed, "training.device": device}
    given = {key: value for key, value in overrides.items() if value is not None}
    config = with_whole_paths(load_configuration(configuration, changes or [], given))

    from rgcn.tuning import StudyPlan, check_objective, choose_spaces
    from rgcn.tuning import tune as run

    plan = StudyPlan(
        name=configuration,
        config=config,
        spaces=choose_spaces(config, search or [], fix or []),
        objective=check_objective(config, metric, folds, config.seed),
        folder=out or Path("tune") / _plain_name(configuration),
        mirror=mirror,
    )
    with _progress(trials, quiet) as on_trial:
        result = run(plan, trials, jobs=jobs, minutes=minutes, on_trial=on_trial)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    else:
        _print(result)
    if result.interrupted:
        raise StoppedError("interrupted", f"the same command goes on with {plan.folder}", signal.SIGINT)


def _plain_name(configuration: str) -> str:
    """A folder's name: rgcn-nc-aifb for rgcn/nc-aifb, mine for some/where/mine.yaml."""
    path = Path(configuration)
    return path.stem if path.suffix in (".yaml", ".yml") else "-".join(part for part in path.parts if part.strip("./"))


def _print(result: TuneResult) -> None:
    from rgcn.tuning.result import summary

    best, own, folder = result.best, result.own, result.plan.folder
    typer.echo(f"{result.plan.name}, {summary(result)}")
    if best is None:
        typer.echo("No trial has finished yet.")
        return
    spread = f" ± {best.deviation:.4f}" if best.deviation else ""
    typer.echo(f"Best {result.metric}: {best.value:.4f}{spread} (trial {best.number}, epoch {best.epoch})")
    if own is not None and own.number != best.number:
        spread = f" ± {own.deviation:.4f}" if own.deviation else ""
        typer.echo(f"The configuration as it was: {own.value:.4f}{spread}")
    for key, value in best.values.items():
        typer.echo(f"  {key} = {value:.4g}" if isinstance(value, float) else f"  {key} = {value}")
    typer.echo(f"\nKept in {folder}: best.yaml, tune.html, trials.csv, study.db")
    typer.echo(f"Train with it: rgcn train {folder / 'best.yaml'}")


@contextmanager
def _progress(trials: int, quiet: bool) -> Iterator[OnTrial]:
    """A bar on a terminal, a line for each trial elsewhere; all of it on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield lambda trial, result: None
    elif console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("trial"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task("", total=trials)
            yield lambda trial, result: bar.update(
                task, completed=len(result.trials), description=_words(trial, result).replace("[", r"\[")
            )
    else:
        yield lambda trial, result: typer.echo(f"{len(result.trials)}/{trials}  {_words(trial, result)}", err=True)


def _words(trial: TrialRecord, result: TuneResult) -> str:
    value = "" if trial.value is None else f" {trial.value:.4f}"
    best = result.best
    so_far = "" if best is None else f"  best {best.value:.4f} (trial {best.number})"
    why = f": {trial.error.splitlines()[0][:80]}" if trial.error else ""
    return f"trial {trial.number} {trial.state}{value}{why}{so_far}"
