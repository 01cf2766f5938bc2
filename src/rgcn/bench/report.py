"""Figures as words: the cells of a table, a plain table, a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rgcn.words import count, duration, memory, times

OURS = ("graph", "model", "device", "ours", "memory", "floor", "reached")
COLUMNS = (*OURS, "peer", "theirs", "times", "memory", "times")
LEFT = {"graph", "model", "device", "peer"}
LEGEND = (
    "ours, theirs: seconds of a training step, the median of the best round; times: theirs over ours. "
    "memory: peak over the process at rest, preparation included. "
    "floor: bytes that must move over measured bandwidth, or operations over measured rate, whichever takes longer."
)


def cells(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """A line for each graph, model and device, and one more for each further peer; columns as in COLUMNS."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        groups.setdefault((row["graph"], row["model"], row["device"]), []).append(row)
    lines: list[tuple[str, ...]] = []
    for key, rows in groups.items():
        ours, *peers = rows
        floor = ours.get("floor")
        first = (
            *key,
            _time(ours.get("seconds"), ours),
            _memory(ours.get("peak_bytes")),
            duration(floor["seconds"]) if floor else "",
            f"{floor['reached']:.0%}" if floor else "",
        )
        for number, peer in enumerate(peers):
            lines.append((*(first if number == 0 else ("",) * len(first)), *_peer_cells(peer)))
        if not peers:
            lines.append((*first, *("",) * 5))
    return lines


def _peer_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["side"],
        _time(row.get("seconds"), row),
        _times(row.get("times_slower")),
        _memory(row.get("peak_bytes")),
        _times(row.get("times_memory")),
    )


def _times(number: float | None) -> str:
    return "" if number is None else f"{times(number)}×"


def _time(seconds: float | None, row: dict[str, Any]) -> str:
    """The time, or a failure in two words.

    >>> _time(0.00123, {}), _time(None, {"failed": "ran out of memory: ..."})
    ('1.23 ms', 'out of memory')
    """
    if seconds is not None:
        return duration(seconds)
    why = str(row.get("failed", ""))
    if why.startswith("ran out of "):
        return why.split(":")[0].removeprefix("ran ")
    return "failed" if why else ""


def _memory(size: float | None) -> str:
    return "" if size is None else memory(size)


def machine_lines(result: dict[str, Any]) -> list[str]:
    """The machine, its speeds, what failed and what is missing, a line each."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "numba", "torch-geometric") if machine[name])
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    lines = [f"{machine['cpu']}, {count(machine['cores'], 'core')}{gpu}; Python {machine['python']}, {versions}"]
    for device, speeds in result["speeds"].items():
        lines.append(
            f"{device}: copies {speeds['bandwidth'] / 1e9:.3g} GB/s, "
            f"{speeds['rate'] / 1e9:,.3g} billion multiply-adds a second in a float32 product"
        )
    failed = [row for row in result["rows"] if "failed" in row]
    failures = [f"{row['graph']}, {row['side']}, {row['device']}: {row['failed']}" for row in failed]
    return [*lines, *result["notes"], *failures]


def plain_table(result: dict[str, Any]) -> str:
    """The table in plain text, for machines without a library to draw one."""
    lines = [COLUMNS, *cells(result)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    shown = [
        "  ".join(
            text.ljust(width) if name in LEFT else text.rjust(width)
            for text, width, name in zip(line, widths, COLUMNS, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*machine_lines(result), "", *shown, "", LEGEND])


def write_json(result: dict[str, Any], path: Path) -> None:
    """Everything that was found, for later and for others."""
    from rgcn.atomic import write_atomically

    write_atomically(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
