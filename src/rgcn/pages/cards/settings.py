"""What a report says of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rgcn.config import RunConfig
from rgcn.config import Section as ConfigSection
from rgcn.pages.markup import Html, breakable, details, join, named, paragraph, prose, table, tag
from rgcn.pages.page import Section
from rgcn.words import setting


def settings_card(config: RunConfig) -> Section:
    """Settings that differ from the defaults first, then every one."""
    every = _settings(config)
    changed = [row for row in every if row[1] != row[2]]
    head = ["setting", "value", "default", "what it does"]
    parts = [
        table(head, [_setting_cells(*row) for row in changed])
        if changed
        else paragraph("Every setting has its default.", class_="empty"),
        details(f"All {len(every)} settings", table(head, [_setting_cells(*row) for row in every])),
    ]
    words = "What was chosen otherwise than by default. Every random choice follows from the seed."
    return Section("Settings", words, join(parts))


def _settings(config: ConfigSection, prefix: str = "") -> list[tuple[str, Any, Any, str]]:
    """(key, value, default, description) of every setting."""
    rows: list[tuple[str, Any, Any, str]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, ConfigSection):
            rows += _settings(value, f"{prefix}{name}.")
        elif name != "task" and not field.exclude:
            rows.append((prefix + name, value, field.get_default(call_default_factory=True), field.description or ""))
    return rows


def _setting_cells(key: str, value: Any, default: Any, description: str) -> list[object]:
    words = tag("td", prose(description), class_="words")
    return [
        tag("code", breakable(key)),
        tag("strong", shown(value)) if value != default else shown(value),
        shown(default),
        words,
    ]


def shown(value: Any) -> Html:
    """A setting as a configuration file has it; long names in short, the whole of them on hovering.

    >>> shown(None), shown(0.01)
    ('<span class="muted">null</span>', '<span>0.01</span>')
    """
    if isinstance(value, str):
        return named(value)
    if isinstance(value, Mapping) and value:
        return join([join([f"{key}: ", named(str(inner))]) for key, inner in value.items()], "; ")
    if isinstance(value, list) and value:
        return join([named(str(inner)) for inner in value], ", ")
    return tag("span", setting(value), class_="muted" if value is None else None)
