"""Configurations: shipped ones by name, files, and changes on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rgcn.config import RUNS, RunConfig, validated
from rgcn.errors import ConfigError, UnknownNameError


def shipped_configurations() -> dict[str, Path]:
    """Every configuration that comes with the package: {"rgcn/nc-aifb": path, ...}, sorted."""
    root = Path(str(resources.files("rgcn"))) / "configs"
    files = sorted(root.glob("*/*.yaml"))
    return {f"{path.parent.name}/{path.stem}": path for path in files}


def load_configuration(name: str, changes: Iterable[str] = (), overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """A shipped configuration or a YAML file, with `section.key=value` changes, then overrides from flags.

    >>> load_configuration("rgcn/nc-aifb", ["training.epochs=100"]).training.epochs
    100
    """
    path = _find(name)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration is a mapping of sections, such as data, model and training")
    for change in changes:
        _apply(values, change)
    for key, value in (overrides or {}).items():
        _set(values, key.split("."), value)
    task = values.get("task", "node-classification")
    if task not in RUNS:
        raise ConfigError(f"{name}: unknown task {task!r}; there are {', '.join(RUNS)}")
    config: RunConfig = validated(RUNS[task], values, source=name)
    return config


def dump_configuration(config: RunConfig) -> str:
    """A configuration as YAML, every default written out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _find(name: str) -> Path:
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if not path.is_file():
            raise ConfigError(f"{name}: there is no such file")
        return path
    shipped = shipped_configurations()
    if name not in shipped:
        raise UnknownNameError("configuration", name, shipped)
    return shipped[name]


def _apply(values: dict[str, Any], change: str) -> None:
    key, separator, text = change.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set takes section.key=value, for example training.epochs=100; got {change!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {change}: the value is not valid YAML: {error}") from error
    _set(values, key.strip().split("."), value)


def _set(values: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{'.'.join(path)}: {part} is a value, not a section")
        values = inner
    values[path[-1]] = value
