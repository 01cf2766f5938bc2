"""What every result file begins with: the command, the day, the machine.

Importing it before PyTorch prepares the process as a command's: threads without work sleep.
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
    """{"command", "date", "hardware": {"cpu", "cores", "gpu", "python", "torch", ...}} of the running script."""
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


def write_result(path: Path, figures: dict[str, Any], runs: list[dict[str, Any]] | None = None) -> None:
    """The figures, and before them what they were measured with; last the runs, where they are many, a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**about(), **figures}, indent=1, ensure_ascii=False)
    if runs is not None:
        lines = ",\n  ".join(json.dumps(run, ensure_ascii=False) for run in runs)
        text = f'{text.removesuffix("}").rstrip()},\n "runs": [\n  {lines}\n ]\n}}'
    path.write_text(text + "\n", encoding="utf-8")
