"""The files under results/, for the tools that make pages of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rgcn.system.formatting import count

ROOT = Path(__file__).resolve().parent.parent


def result_file(name: str) -> str:
    """Where the results of a configuration, or of a benchmark, are: "rgcn/nc-aifb" in results/rgcn-nc-aifb.json."""
    return f"results/{name.replace('/', '-')}.json"


def result(name: str) -> dict[str, Any] | None:
    """What was measured; None where nobody has. What is said once of every run is said of each."""
    path = ROOT / result_file(name)
    if not path.exists():
        return None
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "every_run" in data:
        data["runs"] = [{**data["every_run"], **run} for run in data["runs"]]
    return data


def place(data: dict[str, Any]) -> str:
    """What it was measured on, in a word or two."""
    hardware = data["hardware"]
    return str(hardware["gpu"] or count(hardware["cores"], "core"))
