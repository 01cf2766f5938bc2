"""`rgcn train`: from a configuration to a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgcn.graph import KnowledgeGraph
    from rgcn.runs import RunResult
    from rgcn.tasks import NodePrediction
    from rgcn.tasks.node_classifier import Epoch


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
    from rgcn.runs import load_configuration, load_data
    from rgcn.runs import train as run

    overrides = {"seed": seed, "training.device": device}
    given = {key: value for key, value in overrides.items() if value is not None}
    config = load_configuration(configuration, changes or [], given)
    graph = load_data(config.data, mirror)
    if not quiet:
        typer.echo(f"{graph!r}", err=True)
    with _progress(config.training.epochs, quiet) as on_epoch:
        result = run(config, graph, out, on_epoch)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    _print_result(result)
    _print_examples(result, graph)
    if out is not None:
        typer.echo(f"\nKept in {out}: config.yaml, metrics.jsonl, result.json, model/")


def list_configurations() -> None:
    """List the configurations that come with rgcn."""
    from rgcn.runs import shipped_configurations

    for name, path in shipped_configurations().items():
        first = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
        typer.echo(f"{name:<18} {first}")


@contextmanager
def _progress(epochs: int, quiet: bool) -> Iterator[Callable[[Epoch], None]]:
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
            yield lambda epoch: bar.update(task, advance=1, description=_epoch_words(epoch))
    else:
        every = max(1, epochs // 5)

        def line(epoch: Epoch) -> None:
            if epoch.number % every == 0 or epoch.number == epochs:
                typer.echo(f"epoch {epoch.number}/{epochs}  {_epoch_words(epoch)}", err=True)

        yield line


def _epoch_words(epoch: Epoch) -> str:
    words = f"loss {epoch.loss:.4f}  train {epoch.train_accuracy:6.1%}"
    return words if epoch.valid_accuracy is None else f"{words}  valid {epoch.valid_accuracy:6.1%}"


def _print_result(result: RunResult) -> None:
    from rich.console import Console

    values = result.as_dict()
    accuracies = "  ".join(f"{split} {m['accuracy']:.2%}" for split, m in values["metrics"].items())
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{values['model']}[/] on [bold]{values['dataset']}[/], seed {values['seed']}: "
        f"{values['epochs']} epochs in {values['seconds']:.2f} s, {values['parameters']:,} parameters "
        f"({values['stored_parameters']:,} of them stored and trained)"
    )
    console.print(f"accuracy  {accuracies}{_majority(result)}")


def _majority(result: RunResult) -> str:
    """What always guessing the most frequent training class would get on the test split."""
    import numpy as np

    labels = result.classifier.graph_.labels
    assert labels is not None
    _, test = labels.of("test")
    if not len(test):
        return ""
    most = np.bincount(labels.of("train")[1]).argmax()
    return f"   (always {_short(labels.names[int(most)])!r}: test {float((test == most).mean()):.2%})"


def _print_examples(result: RunResult, graph: KnowledgeGraph, count: int = 10) -> None:
    """A few test nodes, spread over the split, with the class predicted and the true one."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    labels = result.classifier.graph_.labels
    assert labels is not None
    split = next((s for s in ("test", "valid", "train") if len(labels.of(s)[0])), "train")
    nodes, classes = labels.of(split)
    chosen = np.unique(np.linspace(0, len(nodes) - 1, min(count, len(nodes))).astype(int))
    predictions: list[NodePrediction] = result.classifier.predict(nodes[chosen].tolist())
    table = Table(title=f"{len(chosen)} of {len(nodes)} {split} nodes", title_justify="left")
    columns: list[tuple[str, Any]] = [("node", "left"), ("predicted", "left"), ("sure", "right"), ("true", "left")]
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    for prediction, true_class in zip(predictions, classes[chosen].tolist(), strict=True):
        truth = labels.names[true_class]
        right = prediction.label == truth
        table.add_row(
            _short(prediction.node),
            f"[{'green' if right else 'red'}]{_short(prediction.label)}[/]",
            f"{prediction.probability:.0%}",
            "" if right else _short(truth),
        )
    Console(highlight=False).print(table)


def _short(name: str) -> str:
    from rgcn.errors import local_name

    return local_name(name)
