"""`rgcn bench` for machines without the command line's libraries.

python -m rgcn.bench am-shaped aifb.npz --model rgcn --device cuda --json out.json
python -m rgcn.bench --write-npz aifb aifb.npz      # on a machine that can read the data set
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from rgcn.bench.floor import measure_speeds
from rgcn.bench.graphs import find_graph, graph_to_npz
from rgcn.bench.measuring import MODELS, PEERS, measure_here
from rgcn.bench.showing import plain_table, write_json
from rgcn.bench.turns import measured
from rgcn.errors import RgcnError
from rgcn.system.threads import prepare_process


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rgcn.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help="name, random-N, .npz file or saved folder")
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--device", action="append", help="cpu, cuda, cuda:N, auto")
    parser.add_argument("--peer", action="append", choices=[*PEERS, "none"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="turns each side takes; the best one counts")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for the timed steps of one measurement")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--bases", type=int, help="0 for none")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument("--plot", type=Path, help="also draw the step times (needs matplotlib)")
    parser.add_argument("--same-process", action="store_true", help="no new process for each measurement (GPU only)")
    parser.add_argument("--write-npz", nargs=2, metavar=("GRAPH", "FILE"), help="write a graph to a file and stop")
    given = parser.parse_args(arguments)
    prepare_process()  # for the processes that measure: they load PyTorch themselves
    try:
        if given.write_npz:
            graph_to_npz(find_graph(given.write_npz[0]), Path(given.write_npz[1]))
            return 0
        command = ["python", "-m", "rgcn.bench", *(sys.argv[1:] if arguments is None else arguments)]
        say = partial(print, file=sys.stderr, flush=True)
        result = measured(given, say, command, *((measure_here, measure_speeds) if given.same_process else ()))
        if given.json:
            write_json(result, given.json)
    except RgcnError as error:
        print(f"rgcn: {error}", file=sys.stderr)
        return 1
    print(plain_table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
