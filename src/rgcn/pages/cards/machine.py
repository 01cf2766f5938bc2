"""What a report says of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rgcn.pages.markup import Html, definitions, join, paragraph, tag
from rgcn.pages.page import Section
from rgcn.runs.environment import decisive_differences
from rgcn.runs.run_record import RunRecord
from rgcn.words import memory


def environment_card(run: RunRecord) -> Section:
    """Versions, hardware, git and command of the last session; what changed between sessions."""
    if not run.environment:
        body = paragraph("Nothing was written down about the machine.", class_="empty")
        return Section("Environment", "", body)
    last = run.environment[-1]
    rows: list[tuple[object, object]] = []
    if last.get("command"):
        rows.append(("Command", tag("code", last["command"])))
    rows += [(_heading(key), _plain(key, value)) for key, value in (last.get("hardware") or {}).items()]
    rows.append(("Git, where the command ran", _git(last.get("git"))))
    versions = last.get("versions") or {}
    rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    known = {"command", "hardware", "git", "versions"}
    rows += [(_heading(key), _plain(key, value)) for key, value in last.items() if key not in known]
    parts = [definitions(rows)]
    changes = [
        f"session {number + 1}: {'; '.join(different)}"
        for number, (before, now) in enumerate(zip(run.environment, run.environment[1:], strict=False), start=1)
        if (different := decisive_differences(before, {"versions": {}, "hardware": {}, **now}))
    ]
    if changes:
        parts.append(paragraph(f"Changed between sessions: {'. '.join(changes)}. Last digits may depend on this."))
    return Section(
        "Environment", "What the last session ran on, to tell why another machine gives other digits.", join(parts)
    )


def _git(state: Mapping[str, Any] | None) -> Html | str:
    if not state:
        return "not under git"
    changed = ", with uncommitted changes" if state.get("changed") else ""
    return join([tag("code", str(state.get("commit", ""))[:12]), f" on {state.get('branch', '?')}{changed}"])


def _heading(key: object) -> str:
    """memory_bytes → Memory, cpu → CPU."""
    words = str(key).removesuffix("_bytes").replace("_", " ")
    return words.upper() if len(words) <= 3 else words.capitalize()


def _plain(key: object, value: object) -> str:
    if value is None:
        return "none"
    if str(key).endswith("bytes") and isinstance(value, (int, float)):
        return memory(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return str(value)
