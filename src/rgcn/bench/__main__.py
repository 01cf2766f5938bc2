"""Run `rgcn bench` on machines without the dependencies of the command line.

python -m rgcn.bench am-shaped aifb.npz --model rgcn --device cuda --json out.json
python -m rgcn.bench --write-npz aifb aifb.npz      # on a machine that can read the data set
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from rgcn.bench.bench_report import plain_table, write_json
from rgcn.bench.comparison import run_bench
from rgcn.bench.floor import measure_speeds
from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.bench.measurement import MODELS, PEERS, measure_in_process
from rgcn.errors import RgcnError
from rgcn.system.threads import prepare_process


def main(arguments: list[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rgcn.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help="name, random-N, .npz file or saved folder")
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--device", action="append", help="cpu, cuda, cuda:N, auto")
    parser.add_argument("--peer", action="append", choices=[*PEERS, "none"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per side; the best one counts")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for the timed steps of one measurement")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--bases", type=int, help="0 for none")
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    parser.add_argument("--plot", type=Path, help="also plot the step times (needs matplotlib)")
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
        result = run_bench(options, report, command, *functions)
        if options.json:
            write_json(result, options.json)
    except RgcnError as error:
        print(f"rgcn: {error}", file=sys.stderr)
        return 1
    print(plain_table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
