"""Configurations: shipped ones by name, files, run folders, and changes on the command line."""

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

from rgcn.config import RunConfig, Section, validated
from rgcn.config.fields import Origin, Problem, choices, find_problems, option_problems, origin_of, refuse_problems
from rgcn.data.catalog import CATALOG
from rgcn.data.registry import DATASET, path_or_dataset
from rgcn.errors import ConfigError, DataError, RgcnError, UnknownNameError, close_matches
from rgcn.models.task import task_of
from rgcn.plugins import TASKS, TRACKERS
from rgcn.runs.yaml_lines import MAX_BYTES, YamlError, parse_yaml

Config = TypeVar("Config", bound=RunConfig)

YAML = (".yaml", ".yml")
FLAGS = {"seed": "--seed", "training.device": "--device", "trackers": "--track"}
DRAFT = "https://json-schema.org/draft/2020-12/schema"
WITHOUT_EFFECT = ("checkpoints", "trackers")  # sections and knobs that no figure of a run depends on
DEFAULT_TASK = next(iter(TASKS.built_in))
# `model.name` stands for these: whoever says it on the command line means it instead of what a file says of them.
SHORTHAND, AXES = ("model", "name"), ("encoder", "decoder")
PATHS = ("path", "labels", "features")  # of the section `data`


def shipped_configurations() -> dict[str, Path]:
    """Every configuration that comes with the package: {"rgcn/nc-aifb": path, ...}, sorted."""
    root = Path(str(resources.files("rgcn"))) / "configs"
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(root.glob("*/*.yaml"))}


def load_configuration(name: str, changes: Iterable[str] = (), overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """A shipped configuration, a YAML file or a run's folder, with `section.key=value` changes, then flags' overrides.

    A graph, that is a file or folder of triples or a data set's name, stands for link prediction on it, or where labels
    are given for classes of nodes, with the training that suits `model.name`, which must be given. A class that is
    named by "package.module:Class" is imported, unless it is a run's folder that names it (`rgcn.plugins`).

    >>> load_configuration("rgcn/nc-aifb", ["training.epochs=100"]).training.epochs
    100
    """
    layers = _layered(name, changes, overrides)
    if not layers.problems and _open_choice(layers):
        raise ConfigError(
            f"{name} is a graph, and no model is named for it: `rgcn train {name}` tries several and keeps the best; "
            "to name one: --set model.name=rgcn (or c-rgcn, path, universal, distmult, popularity)"
        )
    return _judged(name, layers)


def candidate_configurations(
    name: str, changes: Sequence[str] = (), overrides: Mapping[str, Any] | None = None
) -> dict[str, RunConfig]:
    """The models to choose from for a graph, by name, where none is named for it; empty where there is no choice."""
    candidates = _open_choice(layers := _layered(name, changes, overrides))
    if candidates and ("training", "epochs") in layers.origins:
        raise ConfigError("training.epochs: how long each model trains follows from --minutes; or name a model, too")
    return {one: _judged(name, _layered(name, changes, overrides, said)) for one, said in candidates.items()}


def _layered(
    name: str, changes: Iterable[str], overrides: Mapping[str, Any] | None, sections: Mapping[str, Any] | None = None
) -> _Layers:
    """What was said, one after another; sections: of a candidate, before all changes."""
    layers = _read(name)
    layers.values |= {key: copy(value) for key, value in (sections or {}).items() if key != "plain"}
    for change in changes:
        layers.change(change)
    for key, value in (overrides or {}).items():
        layers.put(tuple(key.split(".")), value, Origin(FLAGS.get(key, f"{key}={value}")))
    data = layers.values.get("data")
    labelled = isinstance(data, dict) and (data.get("labels") or data.get("labels_from"))
    if layers.of_graph and labelled and sections is None and ("task",) not in layers.origins:
        layers.values["task"] = _task_of(labelled=True)
    return layers


def _open_choice(layers: _Layers) -> Mapping[str, Mapping[str, Any]]:
    """The candidates, where a graph is given and no model."""
    task = layers.values.get("task")
    is_open = layers.of_graph and "model" not in layers.values and isinstance(task, str) and TASKS.problem(task) is None
    return task_of(task).candidates() if is_open else {}


def _task_of(labelled: bool) -> str:
    """The task of a graph where none is named: the first that learns from labels, or from triples."""
    return next(task for task in TASKS.names() if task_of(task).kind.needs_labels == labelled)


def _judged(name: str, layers: _Layers) -> RunConfig:
    """The configuration, or a ConfigError with all that is wrong with it."""
    if (task := _task(layers)) is None:  # then nothing more can be judged
        refuse_problems(name, layers.problems, layers.origins)
    layers.values["task"], kind = task, task_of(str(task)).run_config
    model, training = layers.values.get("model"), layers.values.setdefault("training", {})
    if layers.of_graph and isinstance(model, dict) and isinstance(training, dict):  # as suits the model that is named
        suits = model.get("name") in kind.sections()["training"].shorthands
        layers.values["training"] = ({"name": model["name"]} if suits else {}) | training
    refuse_problems(name, [*layers.problems, *find_problems(kind, layers.values)], layers.origins)
    config = kind.model_validate(layers.values)
    refuse_problems(name, _found_missing(config, layers), layers.origins)
    return config


def kept_configuration(task: str, values: dict[str, Any], source: str) -> RunConfig:
    """A configuration that a folder kept, `source` the file."""
    values = _without_missing_trackers(values, source)
    return validated(task_of(task).run_config, values, source)  # type: ignore[no-any-return]


def dump_configuration(config: RunConfig, *, only_changed: bool = False, explain: bool = False) -> str:
    """A configuration as YAML: all of it, or what is not as by default; `explain`: above each setting what it is."""
    values = changed_settings(config) if only_changed else config.model_dump(mode="json")
    if explain:
        return "".join(_explained(type(config), values, indent=""))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """The task, and what differs from the defaults: the shortest configuration that loads as this one.

    >>> changed_settings(load_configuration("rgcn/nc-world", ["model.hidden=8"]))
    {'task': 'node-classification', 'data': {'dataset': 'world'}, 'model': {'hidden': 8}}
    """
    return {"task": config.task, **config.model_dump(mode="json", exclude_defaults=True)}


def without_folders(config: Config) -> Config:
    """The same for pages that others read: of an absolute path only its end, enough to tell two apart."""

    def end(path: str) -> str:
        return str(Path(*Path(path).parts[1:][-2:])) if Path(path).is_absolute() else path

    return type(config).model_validate(with_paths(config.model_dump(), end))


def with_whole_paths(config: Config) -> Config:
    """The same with absolute paths: a run is resumed from wherever its user happens to be."""
    return type(config).model_validate(with_paths(config.model_dump(), Path.cwd().joinpath))


def flat_settings(config: RunConfig | Mapping[str, Any], besides: Collection[str] = ()) -> dict[str, Any]:
    """Every setting by its key; `besides`: sections and knobs to leave out.

    >>> flat_settings({"seed": 0, "training": {"epochs": 50}})
    {'seed': 0, 'training.epochs': 50}
    """
    values = config if isinstance(config, Mapping) else config.model_dump(mode="json")
    settings: dict[str, Any] = {}
    for name, value in values.items():
        inner = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
        settings |= {} if name in besides else {key: v for key, v in inner.items() if key not in besides}
    return settings


def changed(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    return validated(type(config), with_changes(config, changes), "the changed settings")  # type: ignore[no-any-return]


def changed_training(config: RunConfig, **settings: Any) -> RunConfig:
    """The same with other settings of its training, of those that it has."""
    there = type(config.training).model_fields
    return changed(config, {f"training.{key}": value for key, value in settings.items() if key in there})


def with_changes(config: RunConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Its plain values with some others, by dotted key, whether they are possible or not."""
    values = config.model_dump(mode="json")
    for key, value in changes.items():
        *path, name = key.split(".")
        reduce(getitem, path, values)[name] = value
    return values


class Difference(NamedTuple):
    """A key whose value differs; `in_a` and `in_b` say which side has such a key at all."""

    key: str
    a: Any
    b: Any
    in_a: bool
    in_b: bool

    def __str__(self) -> str:
        return f"{self.key} was {self.a}, now {self.b}"


def differences(a: RunConfig, b: RunConfig, besides: Collection[str] = ()) -> list[Difference]:
    """Where two configurations differ, in the order of the knobs; `besides`: sections and knobs to pass over."""
    first, second = flat_settings(a, besides), flat_settings(b, besides)
    keys = list(dict.fromkeys([*first, *second]))
    sections = [key.split(".")[0] for key in keys]
    found = [Difference(key, first.get(key), second.get(key), key in first, key in second) for key in keys]
    found.sort(key=lambda each: sections.index(each.key.split(".")[0]))
    return [each for each in found if each.a != each.b or each.in_a != each.in_b]


def _explained(section: type[Section], values: Mapping[str, Any], indent: str) -> Iterator[str]:
    inner = section.sections()
    for name, value in values.items():
        about = section.model_fields[name].description or ""
        yield from (f"{indent}# {line}\n" for line in textwrap.wrap(about, 100, break_on_hyphens=False))
        if name in inner:
            yield f"{indent}{name}:\n"
            yield from _explained(inner[name], value, indent + "  ")
        else:
            yield textwrap.indent(yaml.safe_dump({name: value}, allow_unicode=True), indent)


def settings_called(name: str) -> list[str]:
    """The keys of every setting of this name, in the order of the tasks.

    >>> settings_called("epochs")
    ['training.epochs']
    """
    sections = [each for task in TASKS.names() for each in task_of(task).run_config.sections().items()]
    return list(dict.fromkeys(f"{section}.{name}" for section, inner in sections if name in inner.model_fields))


def run_schema(task: str | None = None) -> dict[str, Any]:
    """The JSON Schema of one task's runs, or of all, told apart by `task`: for editors that check and complete YAML.

    >>> sorted(run_schema("link-prediction")["properties"])
    ['checkpoints', 'data', 'model', 'seed', 'task', 'trackers', 'training']
    """
    if task is not None and task not in TASKS.names():
        raise UnknownNameError("task", task, TASKS.names())
    runs = {name: task_of(name).run_config for name in TASKS.names()}
    if task is None:
        references = {name: f"#/$defs/{run.__name__}" for name, run in runs.items()}
        schema = {
            "$schema": DRAFT,
            "title": "rgcn run",
            "description": "A run of any task: what `rgcn train` reads.",
            "type": "object",
            "discriminator": {"propertyName": "task", "mapping": references},
            "oneOf": [{"$ref": reference} for reference in references.values()],
            **models_json_schema([(run, "validation") for run in runs.values()])[1],
        }
    else:
        schema = {"$schema": DRAFT, **runs[task].model_json_schema()}
    for name, run in runs.items():
        part = schema if name == task else schema["$defs"].get(run.__name__, {})
        # A file without `task` is of the default task, and of no other.
        required = [key for key in part.get("required", []) if key != "task"]
        part["required"] = required if name == DEFAULT_TASK else ["task", *required]
    return schema


@dataclass
class _Layers:
    """Values on their way to a configuration, where each was given, and what is already known to be wrong."""

    values: dict[str, Any]
    origins: dict[tuple[str | int, ...], Origin]
    problems: list[Problem] = field(default_factory=list)
    of_run: str | None = None  # what the file is called in messages, where it is a run's
    of_graph: bool = False  # there is no file, only a graph

    def change(self, change: str) -> None:
        key, separator, text = change.partition("=")
        origin, path = Origin(f"--set {change}"), tuple(part.strip() for part in key.split("."))
        if not separator or not all(path):
            words = f"takes section.key=value, for example training.epochs=100; got {change!r}"
            self.problems.append(Problem("", words, Origin("--set")))
            return
        try:
            read = parse_yaml(text)
        except YamlError as error:
            self.problems.append(Problem("", f"the value is {error.words}", origin))
            return
        if read.duplicates:
            self.problems.append(Problem("", f"{read.duplicates[0].path[-1]!r} is given twice", origin))
        self.put(path, read.values, origin)

    def put(self, path: tuple[str, ...], value: Any, origin: Origin) -> None:
        values = self.values
        for depth, part in enumerate(path[:-1], start=1):
            if part not in values:
                self.origins[path[:depth]] = origin
            values = values.setdefault(part, {})
            if not isinstance(values, dict):
                words = f"{'.'.join(path[:depth])} is a value, not a section"
                self.problems.append(Problem(".".join(path), words, origin))
                return
        values[path[-1]] = value
        if path == SHORTHAND:  # what it stands for is said anew
            for axis in AXES:
                values.pop(axis, None)
        self.origins = {known: where for known, where in self.origins.items() if known[: len(path)] != path}
        self.origins[path] = origin

    def is_own(self, path: Any) -> bool:
        """Whether the user gave what is there, rather than a run."""
        origin = origin_of(path, self.origins)
        return origin is not None and origin.source != self.of_run


def _read(name: str) -> _Layers:
    if data := _graph(name):
        return _Layers({"task": _task_of(labelled=False), "data": data}, {("data",): Origin(name)}, of_graph=True)
    file, shown = _find(name)
    try:
        with file.open("rb") as content:
            read = parse_yaml(content.read(4 * MAX_BYTES + 4).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: not a text file: {error}") from error
    except YamlError as error:
        raise ConfigError(f"{Origin(shown, error.line)}: {error.words}") from error
    if not isinstance(read.values, dict):
        raise ConfigError(
            f"{shown}: {'empty' if read.values is None else 'no configuration'}: a configuration is a mapping of "
            "sections, such as data, model and training; a file of triples is told by its ending, such as .nt or .csv"
        )
    problems, origins = [], {place: Origin(shown, line) for place, line in read.lines.items()}
    for path, first, line in read.duplicates:
        key, words = ".".join(map(str, path)), f"already given on line {first}: keep one"
        problems.append(Problem(key, words, Origin(shown, line)))
    if (file.parent / "run.json").is_file():  # its paths were made whole when it began
        return _Layers(_without_missing_trackers(read.values, shown), origins, problems, of_run=shown)
    return _Layers(with_paths(read.values, file.parent.joinpath), origins, problems)


def with_paths(values: dict[str, Any], change: Callable[[str], str | Path]) -> dict[str, Any]:
    """The values of a configuration, each path in it changed.

    >>> with_paths({"data": {"path": "graph.nt", "format": "nt"}}, Path("mine").joinpath)
    {'data': {'path': 'mine/graph.nt', 'format': 'nt'}}
    """

    def seen(given: Any) -> Any:
        if isinstance(given, dict):
            return {split: seen(path) for split, path in given.items()}
        return str(change(given)) if isinstance(given, str) and given else given

    def graph(name: Any) -> Any:  # a path, or the name of a data set
        named, changed = str(name).removeprefix(DATASET).lower() in CATALOG, seen(name)
        return changed if not named and (Path(str(name)).is_absolute() or Path(str(changed)).exists()) else name

    found, data, training = dict(values), values.get("data"), values.get("training")
    if isinstance(data, dict):
        found["data"] = {key: seen(given) if key in PATHS else given for key, given in data.items()}
    if isinstance(training, dict) and isinstance(graphs := training.get("graphs"), dict):
        hidden = training.get("pairs_hidden_in")
        found["training"] = {**training, "graphs": {graph(name): share for name, share in graphs.items()}}
        if isinstance(hidden, list):
            found["training"]["pairs_hidden_in"] = list(map(graph, hidden))
    return found


def _found_missing(config: RunConfig, layers: _Layers) -> Iterator[Problem]:
    """Import what the user named themself, and say what cannot be had; what a run names is judged when it is used."""
    for path, axis, choice in choices(config):
        if ":" in choice and layers.is_own(path):
            try:
                axis.find(choice, trusted=True)
            except RgcnError as error:
                yield Problem(".".join(map(str, path)), str(error), path)
    yield from (problem for problem in option_problems(config) if layers.is_own(problem.place))
    for key in PATHS:
        placed, origin = getattr(config.data, key), origin_of(("data", key), layers.origins)
        if isinstance(placed, str) and origin is not None and origin.line and not Path(placed).exists():
            folder = Path(origin.source).parent
            if Path(given := os.path.relpath(placed, folder)).exists():  # where the user is
                there = os.path.relpath(given, folder)
                words = f"there is no {placed}: paths are seen from the file's folder; write {there}"
                yield Problem(f"data.{key}", words, origin)


def _without_missing_trackers(values: dict[str, Any], source: str) -> dict[str, Any]:
    """A run can be opened, and go on, where the package that brought a tracker's name is not installed."""
    named = values.get("trackers")
    if not isinstance(named, list):
        return values
    gone = [name for name in named if TRACKERS.problem(name) is not None]
    for name in gone:
        warnings.warn(f"{source}: the tracker {name!r} is not installed here, and hears nothing", stacklevel=4)
    return {**values, "trackers": [name for name in named if name not in gone]}


def _task(layers: _Layers) -> str | None:
    """The task; where it is wrong, the one that was likely meant, so that the rest can be judged too."""
    task = layers.values.get("task", DEFAULT_TASK)
    try:
        TASKS.find(task, trusted=layers.is_own(("task",)))
        return str(task)
    except RgcnError as error:
        layers.problems.append(Problem("task", str(error), ("task",)))
        return next(iter(close_matches(str(task), TASKS.names(), 1)), None)


def _graph(name: str) -> dict[str, str] | None:
    """The section `data` of a graph that is given in place of a configuration."""
    from rgcn.data.files import format_of

    path = Path(name)
    is_run = any((path / file).is_file() for file in ("config.yaml", "run.json"))
    if not name.strip() or path.suffix in YAML or name in shipped_configurations() or is_run:
        return None
    if not (name.removeprefix(DATASET).lower() in CATALOG or path.is_dir() or format_of(path)):
        return None
    try:
        found = path_or_dataset(name)
    except DataError as error:
        raise DataError(f"{error}, `rgcn configs` configurations") from error
    return {"path": str(found)} if isinstance(found, Path) else {"dataset": found.name}


def _find(name: str) -> tuple[Path, str]:
    if not name.strip():
        raise ConfigError("a configuration needs a name: a shipped one (`rgcn configs`), a YAML file or a run's folder")
    path = Path(name)
    if path.suffix in YAML or path.is_file():
        if not path.is_file():
            raise ConfigError(f"{name}: there is no such file")
        return path, name
    shipped = shipped_configurations()
    if name in shipped:
        return shipped[name], name
    if path.is_dir():
        if not (path / "config.yaml").is_file():
            raise ConfigError(f"{name}: this folder is no run, as it has no config.yaml")
        return path / "config.yaml", str(path / "config.yaml")
    parts = sorted((known for known in shipped if name.lower() in known), key=lambda known: not known.startswith(name))
    unknown = UnknownNameError("configuration", name, shipped, close_matches(name, shipped) or parts[:5])
    unknown.args = (
        f"{unknown} `rgcn configs` lists all; a YAML file, the folder of a run or a graph will do: a file or folder "
        "of triples, or a data set's name (`rgcn data list`)",
    )
    raise unknown
