"""`rgcn explain`: the triples that decided an answer."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rgcn.cli.opening import opened_run
from rgcn.cli.options import AcceptChangedData, AsJson, Device, Mirror, NewFeatures, NewTriples, Run, Threads

if TYPE_CHECKING:
    from rgcn.explain import Explanation
    from rgcn.predict import OpenModel

KINDS = (".html", ".svg", ".json", ".txt")


class MethodName(str, Enum):
    """How importances are found."""

    integrated_gradients = "integrated-gradients"
    edge_mask = "edge-mask"


def explain(
    run: Run,
    node: Annotated[str | None, typer.Argument(help="A node, by name or title: why is it of its class?")] = None,
    class_: Annotated[
        str | None, typer.Option("--class", help="Explain this class instead of the predicted one.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="With --relation and --object: why this triple?")] = None,
    relation: Annotated[str | None, typer.Option(help="See --subject.")] = None,
    object: Annotated[str | None, typer.Option(help="See --subject.")] = None,
    method: Annotated[MethodName, typer.Option(help="How importances are found.")] = MethodName.integrated_gradients,
    edges: Annotated[int, typer.Option(min=1, max=1000, help="How many triples to name.")] = 10,
    draws: Annotated[
        int, typer.Option(min=1, max=1000, help="Random choices of as many triples, to compare with.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Decides these choices.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write it as a page, a picture or data: a name in .html, .svg, .json, .txt."),
    ] = None,
    with_: NewTriples = None,
    with_features: NewFeatures = None,
    mirror: Mirror = None,
    device: Device = None,
    threads: Threads = None,
    accept_changed_data: AcceptChangedData = False,
    as_json: AsJson = False,
) -> None:
    """Say which triples decided a node's class or make a triple likely, and whether that holds."""
    _check_question(node, class_, subject, relation, object)
    _check_out(out)
    opened = opened_run(run, mirror, device, accept_changed_data, with_, with_features)
    settings: dict[str, Any] = {"method": method.value, "edges": edges, "draws": draws, "seed": seed}
    found = _explained(opened, node, class_, (subject, relation, object), settings)
    if out is not None:
        _write(found, out)
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
        return
    typer.echo(found.as_text(), nl=False)
    if out is not None:
        typer.echo(f"\nWritten: {out}")


def _check_question(
    node: str | None, class_: str | None, subject: str | None, relation: str | None, object: str | None
) -> None:
    """Either a node or a whole triple."""
    from rgcn.errors import ConfigError

    triple = {"--subject": subject, "--relation": relation, "--object": object}
    missing = [name for name, value in triple.items() if value is None]
    if node is not None and len(missing) < 3:
        raise ConfigError(
            "explain either a node's class or a triple: leave out NODE, or --subject, --relation, --object"
        )
    if node is None and len(missing) == 3:
        raise ConfigError(
            "say what to explain: a NODE for its class, or a triple by --subject, --relation and --object"
        )
    if node is None and missing:
        raise ConfigError(
            f"a triple has three parts: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        )
    if node is None and class_ is not None:
        raise ConfigError("--class belongs to a NODE; a triple has no class")


def _check_out(out: Path | None) -> None:
    """Before anything is computed for it."""
    from rgcn.errors import ConfigError

    if out is None:
        return
    if out.suffix.lower() not in KINDS:
        raise ConfigError(f"--out {out}: the name says what to write, and ends in one of {', '.join(KINDS)}")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; --out takes the name of a file")


def _explained(
    opened: OpenModel,
    node: str | None,
    class_: str | None,
    triple: tuple[str | None, str | None, str | None],
    settings: dict[str, Any],
) -> Explanation:
    from rgcn.explain import explain_class, explain_link

    if node is not None:
        opened.must_answer("classes")  # the wrong kind of run is said before a name is found unknown
        number = None if class_ is None else opened.class_(class_)
        return explain_class(opened, opened.node(node), number, **settings)
    opened.must_answer("links")
    subject, relation, object_ = (part or "" for part in triple)
    ids = opened.node(subject), opened.relation(relation), opened.node(object_)
    return explain_link(opened, *ids, **settings)


def _write(found: Explanation, out: Path) -> None:
    from rgcn.atomic import write_atomically
    from rgcn.errors import DataError

    written = {
        ".html": found.as_page,
        ".svg": found.as_svg_file,
        ".json": lambda: json.dumps(found.as_dict(), indent=2) + "\n",
        ".txt": found.as_text,
    }[out.suffix.lower()]()
    try:
        write_atomically(out, written)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; choose another place with --out") from error
