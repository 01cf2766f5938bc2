"""`rgcn explain`: the triples that decided an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from rgcn.atomic import write_atomically
from rgcn.cli.model_commands import ExplainCommand
from rgcn.cli.predict import opened_run
from rgcn.cli.printing import print_json, writing
from rgcn.errors import ConfigError
from rgcn.explain import Explanation, explain_class, explain_link
from rgcn.predict import OpenModel

KINDS = (".html", ".svg", ".json", ".txt")


def explain(asked: ExplainCommand) -> None:
    _check(asked)
    found = _explained(opened_run(asked.run, asked), asked)
    if asked.out is not None:
        _write(found, asked.out)
    if asked.as_json:
        print_json(found.as_dict())
        return
    typer.echo(found.as_text(), nl=False)
    if asked.out is not None:
        typer.echo(f"\nWritten: {asked.out}")


def _check(asked: ExplainCommand) -> None:
    """Either a node or a whole triple, and a file that can be written; before anything is computed for it."""
    triple = {"--subject": asked.subject, "--relation": asked.relation, "--object": asked.object}
    missing = [name for name, value in triple.items() if value is None]
    if asked.node is not None and len(missing) < 3:
        raise ConfigError(
            "explain either a node's class or a triple: leave out NODE, or --subject, --relation, --object"
        )
    if asked.node is None and len(missing) == 3:
        raise ConfigError(
            "say what to explain: a NODE for its class, or a triple by --subject, --relation and --object"
        )
    if asked.node is None and missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(f"a triple has three parts: {' and '.join(missing)} {verb} missing")
    if asked.node is None and asked.class_ is not None:
        raise ConfigError("--class belongs to a NODE; a triple has no class")
    out = asked.out
    if out is not None and out.suffix.lower() not in KINDS:
        raise ConfigError(f"--out {out}: the name says what to write, and ends in one of {', '.join(KINDS)}")
    if out is not None and out.is_dir():
        raise ConfigError(f"{out} is a folder; --out takes the name of a file")


def _explained(opened: OpenModel, asked: ExplainCommand) -> Explanation:
    how: dict[str, Any] = {"method": asked.method.value, "edges": asked.edges, "draws": asked.draws, "seed": asked.seed}
    if asked.node is not None:
        opened.must_answer("classes")  # the wrong kind of run is said before a name is found unknown
        number = None if asked.class_ is None else opened.class_(asked.class_)
        return explain_class(opened, opened.node(asked.node), number, **how)
    opened.must_answer("links")
    subject, relation, object_ = (part or "" for part in (asked.subject, asked.relation, asked.object))
    return explain_link(opened, opened.node(subject), opened.relation(relation), opened.node(object_), **how)


def _write(found: Explanation, out: Path) -> None:
    written = {
        ".html": found.as_page,
        ".svg": found.as_svg_file,
        ".json": lambda: json.dumps(found.as_dict(), indent=2) + "\n",
        ".txt": found.as_text,
    }[out.suffix.lower()]()
    with writing(out):
        write_atomically(out, written)
