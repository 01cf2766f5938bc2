"""Write result files: the command, the date and the hardware, followed by the results.

Import this module before PyTorch: it prepares the process like an rgcn command, so that idle threads sleep.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from rgcn.system.threads import prepare_process

prepare_process()


def about() -> dict[str, Any]:
    """Return {"command", "date", "hardware": {"cpu", "cores", "gpu", "python", "torch", ...}} of the running script."""
    import torch

    import rgcn
    from rgcn.runs.folder import environment

    here = environment()
    versions = {"python": here["versions"]["python"], "torch": torch.__version__, "rgcn": rgcn.__version__}
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": {**here["hardware"], **versions},
    }


def write_result(path: Path, results: dict[str, Any], runs: list[dict[str, Any]] | None = None) -> None:
    """Write a JSON file with the output of `about`, the results and the runs.

    Args:
        path: The file to write.
        results: Results by name.
        runs: Results of each run, written on a line each.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**about(), **results}, indent=1, ensure_ascii=False)
    if runs is not None:
        lines = ",\n  ".join(json.dumps(run, ensure_ascii=False) for run in runs)
        text = f'{text.removesuffix("}").rstrip()},\n "runs": [\n  {lines}\n ]\n}}'
    path.write_text(text + "\n", encoding="utf-8")
