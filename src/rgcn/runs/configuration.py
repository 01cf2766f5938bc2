"""Load run configurations: built-in ones by name, YAML files, run folders and graphs, with command-line changes."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from importlib import resources
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic.json_schema import models_json_schema

from rgcn.config import RunConfig, Section, fields, validate_section
from rgcn.config.fields import Origin, Problem, origin_of, raise_problems
from rgcn.conversion import converted_training
from rgcn.data.catalog import CATALOG
from rgcn.data.registry import DATASET_PREFIX, path_or_dataset
from rgcn.errors import ConfigError, DataError, RgcnError, UnknownNameError, close_matches
from rgcn.models.task import task_of
from rgcn.plugins import TASKS, TRACKERS
from rgcn.runs.yaml_lines import MAX_BYTES, YamlError, parse_yaml

Config = TypeVar("Config", bound=RunConfig)

YAML = (".yaml", ".yml")
FLAGS = {
    "seed": "--seed",
    "training.device": "--device",
    "training.steps": "--steps",
    "training.epochs": "--epochs",
    "trackers": "--track",
}
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SETTINGS_WITHOUT_EFFECT = ("checkpoints", "trackers")  # sections and settings that influence no metric
DEFAULT_TASK = next(iter(TASKS.built_in))
# If the command line sets the first key, the other keys of the same section in a configuration file are ignored.
REPLACED = {"model.name": ("encoder", "decoder"), "training.steps": ("epochs",)}
PATHS = ("path", "labels", "features")  # keys of the section `data`


def builtin_configurations() -> dict[str, Path]:
    """Return the file of every configuration in the package, sorted by name: `{"rgcn/nc-aifb": path, ...}`."""
    root = Path(str(resources.files("rgcn"))) / "configs"
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(root.glob("*/*.yaml"))}


def load_configuration(name: str, changes: Iterable[str] = (), overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Load a configuration and check it.

    A graph can be named instead of a configuration. It stands for link prediction on the graph, or for node
    classification if labels are given, with the training settings that suit `model.name`, which must then be set.

    A component named "package.module:Class" is imported, unless a run folder names it (see `rgcn.plugins`).

    Args:
        name: The name of a built-in configuration, a YAML file, a run folder, a file or folder of triples, or the name
            of a data set.
        changes: Changes in the form "section.key=value".
        overrides: Values of command-line flags by dotted key. They are applied last.

    Returns:
        The checked configuration.

    Raises:
        ConfigError: The message lists every problem with the file and line, or the argument, that caused it.

    Examples:
        >>> load_configuration("rgcn/nc-aifb", ["training.epochs=100"]).training.epochs
        100
    """
    layers = _layered(name, changes, overrides)
    if not layers.problems and _candidates(layers):
        raise ConfigError(
            f"{name} is a graph, and no model is named for it: `rgcn train {name}` tries several and keeps the best; "
            "to name one: --set model.name=rgcn (or c-rgcn, path, universal, distmult, popularity)"
        )
    return _checked(name, layers)


def candidate_configurations(
    name: str, changes: Sequence[str] = (), overrides: Mapping[str, Any] | None = None
) -> dict[str, RunConfig]:
    """Return the configurations to select from, by model name. Empty unless `name` is a graph and no model is set."""
    candidates = _candidates(layers := _layered(name, changes, overrides))
    length = next((key for key in ("steps", "epochs") if ("training", key) in layers.origins), None)
    if candidates and length is not None:
        raise ConfigError(f"training.{length}: model selection sets it from --minutes; leave it out, or set model.name")
    return {
        model: _checked(name, _layered(name, changes, overrides, sections)) for model, sections in candidates.items()
    }


def _layered(
    name: str, changes: Iterable[str], overrides: Mapping[str, Any] | None, sections: Mapping[str, Any] | None = None
) -> _Layers:
    """Collect the values of a file, then the sections of a candidate, then changes, then overrides."""
    layers = _read(name)
    layers.values |= {key: copy(value) for key, value in (sections or {}).items() if key != "plain"}
    for change in changes:
        layers.change(change)
    for key, value in (overrides or {}).items():
        layers.put(tuple(key.split(".")), value, Origin(FLAGS.get(key, f"{key}={value}")))
    data = layers.values.get("data")
    has_labels = isinstance(data, dict) and (data.get("labels") or data.get("labels_from"))
    if layers.is_graph and has_labels and sections is None and ("task",) not in layers.origins:
        layers.values["task"] = _default_task(needs_labels=True)
    return layers


def _candidates(layers: _Layers) -> Mapping[str, Mapping[str, Any]]:
    """Return the candidate models of a graph for which no model is set."""
    task = layers.values.get("task")
    is_open = layers.is_graph and "model" not in layers.values and isinstance(task, str) and TASKS.problem(task) is None
    return task_of(task).candidates() if is_open else {}


def _default_task(needs_labels: bool) -> str:
    return next(task for task in TASKS.names() if task_of(task).kind.needs_labels == needs_labels)


def _checked(name: str, layers: _Layers) -> RunConfig:
    """Return the configuration, or raise a ConfigError that lists all problems."""
    if (task := _task(layers)) is None:  # without a task nothing else can be checked
        raise_problems(name, layers.problems, layers.origins)
    layers.values["task"], kind = task, task_of(str(task)).run_config
    model, training = layers.values.get("model"), layers.values.setdefault("training", {})
    if layers.is_graph and isinstance(model, dict) and isinstance(training, dict):
        is_preset = model.get("name") in kind.sections()["training"].shorthands
        layers.values["training"] = ({"name": model["name"]} if is_preset else {}) | training
    raise_problems(name, [*layers.problems, *fields.find_problems(kind, layers.values)], layers.origins)
    config = kind.model_validate(layers.values)
    raise_problems(name, _missing_parts(config, layers), layers.origins)
    return config


def stored_configuration(task: str, values: dict[str, Any], source: str) -> RunConfig:
    """Return a configuration that a run or series stored as JSON in the file `source`."""
    values = _converted(task, _without_missing_trackers(values, source))
    return validate_section(task_of(task).run_config, values, source)  # type: ignore[no-any-return]


def _converted(task: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run of rgcn 0.2.0 with the settings of today."""
    if not isinstance(task, str) or TASKS.problem(task) or not isinstance(values.get("training"), dict):
        return values
    known = task_of(task).run_config.sections()["training"].model_fields
    return {**values, "training": converted_training(values["training"], known)}


def dump_configuration(config: RunConfig, *, only_changed: bool = False, explain: bool = False) -> str:
    """Return a configuration as YAML.

    Args:
        config: The configuration.
        only_changed: Leave out settings that have their default.
        explain: Put the description of each setting above it.
    """
    values = non_default_settings(config) if only_changed else config.model_dump(mode="json")
    if explain:
        return "".join(_explained(type(config), values, indent=""))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def non_default_settings(config: RunConfig) -> dict[str, Any]:
    """Return the task and the settings that differ from the defaults: the shortest equivalent configuration.

    Examples:
        >>> non_default_settings(load_configuration("rgcn/nc-world", ["model.hidden=8"]))
        {'task': 'node-classification', 'data': {'dataset': 'world'}, 'model': {'hidden': 8}}
    """
    return {"task": config.task, **config.model_dump(mode="json", exclude_defaults=True)}


def with_short_paths(config: Config) -> Config:
    """Return the configuration for pages that others read: of an absolute path only the last two parts."""

    def shorten(path: str) -> str | Path:
        return Path(*Path(path).parts[1:][-2:]) if Path(path).is_absolute() else path

    return type(config).model_validate(with_paths(config.model_dump(), shorten))


def with_absolute_paths(config: Config) -> Config:
    """Return the configuration with absolute paths, so that a run can be resumed from any folder."""
    return type(config).model_validate(with_paths(config.model_dump(), Path.cwd().joinpath))


def flat_settings(config: RunConfig | Mapping[str, Any], exclude: Collection[str] = ()) -> dict[str, Any]:
    """Return every setting by its dotted key.

    Args:
        config: A configuration, or its values.
        exclude: Names of sections and settings to leave out.

    Examples:
        >>> flat_settings({"seed": 0, "training": {"epochs": 50}})
        {'seed': 0, 'training.epochs': 50}
    """
    values = config if isinstance(config, Mapping) else config.model_dump(mode="json")
    settings: dict[str, Any] = {}
    for name, value in values.items():
        inner = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
        settings |= {} if name in exclude else {key: v for key, v in inner.items() if key not in exclude}
    return settings


def replace_settings(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return a checked copy of a configuration with other values for some dotted keys."""
    return validate_section(type(config), replaced_values(config, changes), "the changed settings")  # type: ignore[no-any-return]


def replace_training_settings(config: RunConfig, **settings: Any) -> RunConfig:
    """Return a copy with other training settings. Settings that this kind of training does not have are ignored."""
    known = type(config.training).model_fields
    return replace_settings(config, {f"training.{key}": value for key, value in settings.items() if key in known})


def replaced_values(config: RunConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration with some dotted keys replaced, without a check."""
    values = config.model_dump(mode="json")
    for key, value in changes.items():
        *path, name = key.split(".")
        reduce(getitem, path, values)[name] = value
    return values


class Difference(NamedTuple):
    """A setting that differs between two configurations; `is_in_a` and `is_in_b` say which of them have the key."""

    key: str
    a: Any
    b: Any
    is_in_a: bool
    is_in_b: bool

    def __str__(self) -> str:
        return f"{self.key} was {self.a}, now {self.b}"


def differences(a: RunConfig, b: RunConfig, exclude: Collection[str] = ()) -> list[Difference]:
    """Return the settings in which two configurations differ, grouped by section.

    Args:
        a: A configuration.
        b: Another one.
        exclude: Names of sections and settings to ignore.
    """
    first, second = flat_settings(a, exclude), flat_settings(b, exclude)
    keys = list(dict.fromkeys([*first, *second]))
    sections = [key.split(".")[0] for key in keys]
    keys.sort(key=lambda key: sections.index(key.split(".")[0]))
    found = [Difference(key, first.get(key), second.get(key), key in first, key in second) for key in keys]
    return [each for each in found if each.a != each.b or each.is_in_a != each.is_in_b]


def _explained(section: type[Section], values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of a section with the description of each setting as a comment above it."""
    for name, value in values.items():
        description = section.model_fields[name].description or ""
        yield from (f"{indent}# {line}\n" for line in textwrap.wrap(description, 100, break_on_hyphens=False))
        if inner := section.sections().get(name):
            yield f"{indent}{name}:\n"
            yield from _explained(inner, value, indent + "  ")
        else:
            yield textwrap.indent(yaml.safe_dump({name: value}, allow_unicode=True), indent)


def settings_named(name: str) -> list[str]:
    """Return the dotted keys of every setting with this name, in the order of the tasks.

    Examples:
        >>> settings_named("epochs")
        ['training.epochs']
    """
    sections = [each for task in TASKS.names() for each in task_of(task).run_config.sections().items()]
    return list(dict.fromkeys(f"{section}.{name}" for section, inner in sections if name in inner.model_fields))


def run_schema(task: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of configurations, for editors that check and complete YAML.

    Args:
        task: The task whose configurations are described; None for all tasks, distinguished by the key `task`.

    Examples:
        >>> sorted(run_schema("link-prediction")["properties"])
        ['checkpoints', 'data', 'model', 'seed', 'task', 'trackers', 'training']
    """
    if task is not None and task not in TASKS.names():
        raise UnknownNameError("task", task, TASKS.names())
    runs = {name: task_of(name).run_config for name in TASKS.names()}
    schema: dict[str, Any] = {"$schema": DRAFT}
    if task is None:
        references = {name: f"#/$defs/{run.__name__}" for name, run in runs.items()}
        schema |= {"title": "rgcn run", "description": "A run of any task: what `rgcn train` reads.", "type": "object"}
        schema["discriminator"] = {"propertyName": "task", "mapping": references}
        schema["oneOf"] = [{"$ref": reference} for reference in references.values()]
        schema |= models_json_schema([(run, "validation") for run in runs.values()])[1]
    else:
        schema |= runs[task].model_json_schema()
    for name, run in runs.items():
        part = schema if name == task else schema["$defs"].get(run.__name__, {})
        # A file without `task` has the default task; every other task must be named.
        required = [key for key in part.get("required", []) if key != "task"]
        part["required"] = required if name == DEFAULT_TASK else ["task", *required]
    return schema


@dataclass
class _Layers:
    """The values of a configuration while it is put together.

    Attributes:
        values: The values, nested by section.
        origins: Where each key was given, by its path.
        problems: Problems found so far.
        run_file: The name of the file in messages, if a run wrote it.
        is_graph: True if only a graph is given and no file.
    """

    values: dict[str, Any]
    origins: dict[tuple[str | int, ...], Origin]
    problems: list[Problem] = field(default_factory=list)
    run_file: str | None = None
    is_graph: bool = False

    def change(self, change: str) -> None:
        """Apply a change "section.key=value"."""
        key, separator, text = change.partition("=")
        origin, path = Origin(f"--set {change}"), tuple(part.strip() for part in key.split("."))
        if not separator or not all(path):
            message = f"takes section.key=value, for example training.epochs=100; got {change!r}"
            self.problems.append(Problem("", message, Origin("--set")))
            return
        try:
            read = parse_yaml(text)
        except YamlError as error:
            self.problems.append(Problem("", f"the value is {error.reason}", origin))
            return
        if read.duplicates:
            self.problems.append(Problem("", f"{read.duplicates[0].path[-1]!r} is given twice", origin))
        self.put(path, read.values, origin)

    def put(self, path: tuple[str, ...], value: Any, origin: Origin) -> None:
        """Set a value, and remember where it came from."""
        values = self.values
        for depth, part in enumerate(path[:-1], start=1):
            if part not in values:
                self.origins[path[:depth]] = origin
            values = values.setdefault(part, {})
            if not isinstance(values, dict):
                message = f"{'.'.join(path[:depth])} is a value, not a section"
                self.problems.append(Problem(".".join(path), message, origin))
                return
        values[path[-1]] = value
        for key in REPLACED.get(".".join(path), ()):
            values.pop(key, None)
        self.origins = {known: where for known, where in self.origins.items() if known[: len(path)] != path}
        self.origins[path] = origin

    def is_from_user(self, path: Any) -> bool:
        """Return True if the user gave the value at this path, False if a run stored it."""
        origin = origin_of(path, self.origins)
        return origin is not None and origin.source != self.run_file


def _read(name: str) -> _Layers:
    """Read the values of the configuration, run or graph called `name`."""
    if data := _graph(name):
        task = _default_task(needs_labels=False)
        return _Layers({"task": task, "data": data}, {("data",): Origin(name)}, is_graph=True)
    file, shown = _find(name)
    try:
        with file.open("rb") as content:
            read = parse_yaml(content.read(4 * MAX_BYTES + 4).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: not a text file: {error}") from error
    except YamlError as error:
        raise ConfigError(f"{Origin(shown, error.line)}: {error.reason}") from error
    if not isinstance(read.values, dict):
        raise ConfigError(
            f"{shown}: {'empty' if read.values is None else 'not a configuration'}: a configuration is a mapping of "
            "sections, such as data, model and training; a file of triples needs an ending such as .nt or .csv"
        )
    origins = {path: Origin(shown, line) for path, line in read.lines.items()}
    problems = [
        Problem(".".join(map(str, path)), f"already given on line {first}: keep one", Origin(shown, line))
        for path, first, line in read.duplicates
    ]
    if (file.parent / "run.json").is_file():  # a run stores absolute paths
        values = _without_missing_trackers(read.values, shown)
        return _Layers(_converted(values.get("task"), values), origins, problems, run_file=shown)
    return _Layers(with_paths(read.values, file.parent.joinpath), origins, problems)


def with_paths(values: dict[str, Any], change: Callable[[str], str | Path]) -> dict[str, Any]:
    """Return the values of a configuration with `change` applied to each path.

    Examples:
        >>> with_paths({"data": {"path": "graph.nt", "format": "nt"}}, Path("mine").joinpath)
        {'data': {'path': 'mine/graph.nt', 'format': 'nt'}}
    """

    def changed(path: Any) -> Any:
        if isinstance(path, dict):
            return {split: changed(one) for split, one in path.items()}
        return str(change(path)) if isinstance(path, str) and path else path

    def graph(name: Any) -> Any:  # a path, or the name of a data set
        if str(name).removeprefix(DATASET_PREFIX).lower() in CATALOG:
            return name
        path = changed(name)
        return path if Path(str(name)).is_absolute() or Path(str(path)).exists() else name

    result, data, training = dict(values), values.get("data"), values.get("training")
    if isinstance(data, dict):
        result["data"] = {key: changed(value) if key in PATHS else value for key, value in data.items()}
    if isinstance(training, dict) and isinstance(graphs := training.get("graphs"), dict):
        hidden = training.get("pairs_hidden_in")
        result["training"] = {**training, "graphs": {graph(name): share for name, share in graphs.items()}}
        if isinstance(hidden, list):
            result["training"]["pairs_hidden_in"] = list(map(graph, hidden))
    return result


def _missing_parts(config: RunConfig, layers: _Layers) -> Iterator[Problem]:
    """Import the components that the user named, and yield a problem for each one or each file that is missing.

    Components that a run names are imported when they are used.
    """
    for path, registry, choice in fields.chosen_components(config):
        if ":" in choice and layers.is_from_user(path):
            try:
                registry.resolve(choice, trusted=True)
            except RgcnError as error:
                yield Problem(".".join(map(str, path)), str(error), path)
    yield from (problem for problem in fields.find_option_problems(config) if layers.is_from_user(problem.location))
    for key in PATHS:
        file, origin = getattr(config.data, key), origin_of(("data", key), layers.origins)
        if isinstance(file, str) and origin is not None and origin.line and not Path(file).exists():
            folder = Path(origin.source).parent
            if Path(original := os.path.relpath(file, folder)).exists():  # relative to the working folder it exists
                advice = f"paths are relative to the file's folder; write {os.path.relpath(original, folder)}"
                yield Problem(f"data.{key}", f"there is no {file}: {advice}", origin)


def _without_missing_trackers(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Remove trackers of packages that are not installed, so that the run can be opened and resumed without them."""
    trackers = values.get("trackers")
    if not isinstance(trackers, list):
        return values
    missing = [name for name in trackers if TRACKERS.problem(name) is not None]
    for name in missing:
        warnings.warn(f"{source}: the tracker {name!r} is not installed here, and is left out", stacklevel=4)
    return {**values, "trackers": [name for name in trackers if name not in missing]}


def _task(layers: _Layers) -> str | None:
    """Return the task. If it is wrong, add a problem and return the closest one, so that the rest can be checked."""
    task = layers.values.get("task", DEFAULT_TASK)
    try:
        TASKS.resolve(task, trusted=layers.is_from_user(("task",)))
        return str(task)
    except RgcnError as error:
        layers.problems.append(Problem("task", str(error), ("task",)))
        return next(iter(close_matches(str(task), TASKS.names(), 1)), None)


def _graph(name: str) -> dict[str, str] | None:
    """Return the section `data` if `name` is a graph, else None."""
    from rgcn.data.files import format_from_name

    path = Path(name)
    is_run = any((path / file).is_file() for file in ("config.yaml", "run.json"))
    if not name.strip() or path.suffix in YAML or name in builtin_configurations() or is_run:
        return None
    if not (name.removeprefix(DATASET_PREFIX).lower() in CATALOG or path.is_dir() or format_from_name(path)):
        return None
    try:
        graph = path_or_dataset(name)
    except DataError as error:
        raise DataError(f"{error}, `rgcn configs` configurations") from error
    return {"path": str(graph)} if isinstance(graph, Path) else {"dataset": graph.name}


def _find(name: str) -> tuple[Path, str]:
    """Return the file of a configuration, and what to call it in messages."""
    if not name.strip():
        raise ConfigError("a configuration needs a name: a built-in one (`rgcn configs`), a YAML file or a run folder")
    path, builtin = Path(name), builtin_configurations()
    if path.suffix in YAML or path.is_file():
        if not path.is_file():
            raise ConfigError(f"{name}: there is no such file")
        return path, name
    if name in builtin:
        return builtin[name], name
    if path.is_dir():
        if not (path / "config.yaml").is_file():
            raise ConfigError(f"{name}: not a run folder, as it has no config.yaml")
        return path / "config.yaml", str(path / "config.yaml")
    parts = sorted((known for known in builtin if name.lower() in known), key=lambda known: not known.startswith(name))
    unknown = UnknownNameError("configuration", name, builtin, close_matches(name, builtin) or parts[:5])
    unknown.args = (
        f"{unknown} `rgcn configs` lists all. Instead of a name you can give a YAML file, a run folder or a graph: a "
        "file or folder of triples, or a data set's name (`rgcn data list`)",
    )
    raise unknown
