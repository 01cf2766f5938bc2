"""Read the files under results/, for the tools that write tables and pages from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rgcn.system.formatting import format_count

ROOT = Path(__file__).resolve().parent.parent


def result_file(name: str) -> str:
    """Return the path of a configuration's or benchmark's results: results/rgcn-nc-aifb.json for "rgcn/nc-aifb"."""
    return f"results/{name.replace('/', '-')}.json"


def result(name: str) -> dict[str, Any] | None:
    """Return the content of a result file with `every_run` merged into each run; None if there is no file."""
    path = ROOT / result_file(name)
    if not path.exists():
        return None
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "every_run" in data:
        data["runs"] = [{**data["every_run"], **run} for run in data["runs"]]
    return data


def place(data: dict[str, Any]) -> str:
    """Return a short description of the hardware."""
    hardware = data["hardware"]
    return str(hardware["gpu"] or format_count(hardware["cores"], "core"))
