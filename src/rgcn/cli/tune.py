"""`rgcn tune`: look for better settings, on validation data alone."""

import signal
from pathlib import Path

import typer

from rgcn.cli.model_commands import TuneCommand
from rgcn.cli.output import busy, print_json
from rgcn.cli.train import configured, plain_name
from rgcn.errors import ConfigError, StoppedError
from rgcn.runs.configuration import with_whole_paths
from rgcn.tuning import StudyPlan, TrialRecord, TuneResult, check_objective, choose_spaces
from rgcn.tuning import tune as run
from rgcn.tuning.result import summary


def tune(asked: TuneCommand) -> None:
    if asked.minutes is not None and not asked.minutes > 0:
        raise ConfigError("--timeout is more than 0 minutes")
    config = with_whole_paths(configured(asked))
    plan = StudyPlan(
        name=asked.configuration,
        config=config,
        spaces=choose_spaces(config, asked.search or [], asked.fix or []),
        objective=check_objective(config, asked.metric, asked.folds, config.seed),
        folder=asked.out or Path("tune") / plain_name(asked.configuration),
        mirror=asked.mirror,
    )
    with busy("trials", asked.quiet, asked.trials) as say:

        def on_trial(trial: TrialRecord, result: TuneResult) -> None:
            say(f"{len(result.trials)}/{asked.trials}  {_words(trial, result)}")

        result = run(plan, asked.trials, jobs=asked.jobs, minutes=asked.minutes, on_trial=on_trial)
    if asked.as_json:
        print_json(result.as_dict())
    else:
        _print(result)
    if result.interrupted:
        raise StoppedError("interrupted", f"the same command goes on with {plan.folder}", signal.SIGINT)


def _print(result: TuneResult) -> None:
    best, own, folder = result.best, result.own, result.plan.folder
    typer.echo(f"{result.plan.name}, {summary(result)}")
    if best is None:
        typer.echo("No trial has finished yet.")
        return
    typer.echo(f"Best {result.metric}: {_value(best)} (trial {best.number}, epoch {best.epoch})")
    if own is not None and own.number != best.number:
        typer.echo(f"The configuration as it was: {_value(own)}")
    for key, value in best.values.items():
        typer.echo(f"  {key} = {value:.4g}" if isinstance(value, float) else f"  {key} = {value}")
    typer.echo(f"\nKept in {folder}: best.yaml, tune.html, trials.csv, study.db")
    typer.echo(f"Train with it: rgcn train {folder / 'best.yaml'}")


def _value(trial: TrialRecord) -> str:
    return f"{trial.value:.4f}" + (f" ± {trial.deviation:.4f}" if trial.deviation else "")


def _words(trial: TrialRecord, result: TuneResult) -> str:
    value = "" if trial.value is None else f" {trial.value:.4f}"
    best = result.best
    so_far = "" if best is None else f"  best {best.value:.4f} (trial {best.number})"
    why = f": {trial.error.splitlines()[0][:80]}" if trial.error else ""
    return f"trial {trial.number} {trial.state}{value}{why}{so_far}"
