"""`rgcn bench`: our training step beside PyG's, and beside what this machine could do at best."""

import sys
from pathlib import Path

import typer

from rgcn.bench.__main__ import measured
from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.bench.showing import plain_table, write_json
from rgcn.cli.output import busy, print_json
from rgcn.cli.study_commands import BenchCommand
from rgcn.errors import ConfigError


def bench(asked: BenchCommand) -> None:
    if asked.write_npz is not None:
        if not asked.graphs or len(asked.graphs) != 1:
            raise ConfigError("--write-npz takes one graph: rgcn bench aifb --write-npz aifb.npz")
        graph_to_npz(find_graph(asked.graphs[0]), asked.write_npz)
        return
    with busy("measuring", asked.quiet) as say:
        result = measured(asked, say, ["rgcn", *sys.argv[1:]])
    if asked.json == Path("-"):
        print_json(result, indent=2)
        return
    if asked.json is not None:
        write_json(result, asked.json)
    typer.echo(plain_table(result))
