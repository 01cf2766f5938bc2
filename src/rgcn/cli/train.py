"""`rgcn train`: from a configuration to a result."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rgcn.cli.options import MOST_RUNS, AsJson, Changes, Device, Jobs, Mirror, Quiet, Threads
from rgcn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rgcn.config import RunConfig
    from rgcn.runs import RunResult

DEFAULT_FOLDER = Path("runs")


def train(
    configuration: Annotated[
        str, typer.Argument(help="A shipped configuration, such as rgcn/nc-aifb (see `rgcn configs`), or a YAML file.")
    ],
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    changes: Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to keep the run in. By default a new one under runs/.", show_default=False),
    ] = None,
    no_keep: Annotated[bool, typer.Option("--no-keep", help="Keep nothing: no folder, no checkpoints.")] = False,
    runs: Annotated[
        int,
        typer.Option(min=1, max=MOST_RUNS, help="Train with so many seeds, a folder each; mean, deviation and error."),
    ] = 1,
    jobs: Jobs = 1,
    track: Annotated[
        list[str] | None,
        typer.Option(help="Also report to tensorboard, mlflow, wandb or package.module:Class. May be repeated."),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    mirror: Mirror = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a model, measure it on every split, and show some of its predictions.

    Ctrl-C saves and stops; `rgcn resume FOLDER` goes on, also after a crash or kill -9, and ends with the very same
    weights. How often a run is saved: --set checkpoints.every_minutes=1, checkpoints.every_steps=500.
    """
    from rgcn.runs import load_configuration

    if jobs > 1 and runs == 1:
        raise ConfigError("--jobs says how many of --runs go at a time: add --runs N")
    if out is not None and no_keep:
        raise ConfigError("--out says where to keep the run and --no-keep to keep none: choose one")
    overrides = {"seed": seed, "training.device": device, "trackers": track}
    given = {key: value for key, value in overrides.items() if value is not None}
    config = load_configuration(configuration, changes or [], given)
    folder = None if no_keep else out or free_folder(configuration)
    try:
        if runs > 1:
            from rgcn.cli.series import train_series

            train_series(config, runs, jobs, folder, mirror, as_json, quiet)
        else:
            show(_train_one(config, folder, mirror, quiet), folder, as_json)
    finally:
        if folder is not None and out is None:
            with suppress(OSError):  # a folder of our own choice in which nothing came to be
                folder.rmdir()


def show(result: RunResult, folder: Path | None, as_json: bool) -> None:
    """A finished run: one JSON object, or figures and examples."""
    from rgcn.cli.outcome import print_outcome

    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    print_outcome(result)
    if folder is not None:
        typer.echo(
            f"\nKept in {folder}: `rgcn report {folder}` draws it, `rgcn predict` and `rgcn explain` ask it, "
            f"`rgcn serve {folder}` opens it in a browser, `rgcn runs` lists all."
        )


def free_folder(configuration: str) -> Path:
    """A new folder under runs/, named after the configuration: runs/rgcn-nc-aifb, then runs/rgcn-nc-aifb-2, ..."""
    path = Path(configuration)
    name = path.stem if path.suffix in (".yaml", ".yml") else configuration
    name = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    for number in count(1):
        folder = DEFAULT_FOLDER / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)  # made at once, so that two who begin in the same moment get one each
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise DataError(f"cannot make {folder}: {error.strerror}; choose a place with --out") from error
    raise AssertionError("numbers do not end")


def _train_one(config: RunConfig, folder: Path | None, mirror: Path | None, quiet: bool) -> RunResult:
    from rgcn.cli.data import report_skipped
    from rgcn.cli.training_progress import training_progress
    from rgcn.runs import RunFolder, load_data
    from rgcn.runs import train as run
    from rgcn.runs.tracking import check_trackers
    from rgcn.tasks.task import task_of

    check_trackers(config.trackers)
    if folder is not None:
        RunFolder(folder).refuse_unless_free()
    graph = load_data(config.data, mirror)  # after all that can be refused without it
    if not quiet:
        report_skipped(graph)
        typer.echo(f"{graph!r}", err=True)
    with training_progress(config.training.epochs, quiet, task_of(config.task).headline) as progress:
        return run(config, graph, folder, progress.epoch, progress.step)


def list_configurations() -> None:
    """List the configurations that come with rgcn."""
    from rgcn.runs import shipped_configurations

    for name, path in shipped_configurations().items():
        first = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
        typer.echo(f"{name:<22} {first}")
