"""Run `rgcn bench` on machines without the dependencies of the command line.

python -m rgcn.bench am-shaped aifb.npz --model rgcn --device cuda --json out.json
python -m rgcn.bench --write-npz aifb aifb.npz      # on a machine that can read the data set
"""

import argparse
import sys
from dataclasses import fields
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import get_args, get_type_hints

from rgcn.bench import BenchPlan
from rgcn.bench.bench_report import plain_table, write_json
from rgcn.bench.comparison import run_bench
from rgcn.bench.floor import measure_speeds
from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.bench.measurement import measure_in_process
from rgcn.errors import RgcnError
from rgcn.system.threads import prepare_process


def main(arguments: list[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process; return the exit code."""
    description, layout = f"{__doc__}\n{cleandoc(BenchPlan.__doc__ or '')}", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m rgcn.bench", description=description, formatter_class=layout)
    hints = get_type_hints(BenchPlan)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH")
    for name in ("model", "device", "peer"):
        parser.add_argument(f"--{name}", action="append")
    for name in ("steps", "rounds", "budget", "hidden", "bases", "json", "plot"):
        kind = next(iter(get_args(hints[name])), hints[name])
        parser.add_argument(f"--{name}", type=kind, default=getattr(BenchPlan, name))
    parser.add_argument("--same-process", action="store_true", help="no new process for each measurement (GPU only)")
    parser.add_argument("--write-npz", nargs=2, metavar=("GRAPH", "FILE"), help="write a graph to a file and stop")
    options = parser.parse_args(arguments)
    prepare_process()  # sets variables for the measuring processes, which load PyTorch themselves
    try:
        if options.write_npz:
            graph_to_npz(find_graph(options.write_npz[0]), Path(options.write_npz[1]))
            return 0
        command = ["python", "-m", "rgcn.bench", *(sys.argv[1:] if arguments is None else arguments)]
        report = partial(print, file=sys.stderr, flush=True)
        functions = (measure_in_process, measure_speeds) if options.same_process else ()
        plan = BenchPlan(**{field.name: getattr(options, field.name) for field in fields(BenchPlan)})
        result = run_bench(plan, report, command, *functions)
        if plan.json:
            write_json(result, plan.json)
    except RgcnError as error:
        print(f"rgcn: {error}", file=sys.stderr)
        return 1
    print(plain_table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
