"""Sections of a configuration: validation with all problems at once, rules between fields, components, search spaces.

The type of a field says what values it takes. A rule (`@rule`) says which values of several fields cannot be combined.
It names the fields it reads, so that it can be checked when other fields are wrong, and so that its problem is shown
where the value was written.

A field that selects a component is declared as `Annotated[str, ComponentOf(TRACKERS)]`. In a file it is a name; Python
code may also use a class, which is stored as its dotted name. Components may have settings of their own (`HasOptions`),
which are checked when the components are known. A field worth tuning declares where to search (`tuned`).
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema
from typing_extensions import Self

from rgcn.errors import ConfigError, RgcnError, close_matches
from rgcn.plugins import ENCODERS, Registry, dotted_name
from rgcn.system.formatting import format_count

Path = tuple[str | int, ...]
FIELDS_ONLY = {"fields_only": True}  # validation context: do not check rules


@dataclass(frozen=True)
class Rule:
    """A combination of settings that is not allowed.

    Args:
        keys: The fields that it reads.
        check: Yields a message for each problem of a section.
    """

    keys: tuple[str, ...]
    check: Callable[[Any], Iterator[str]]


def rule(*keys: str) -> Callable[[Callable[[Any], Iterator[str]]], Rule]:
    """Declare a rule of a section.

    Args:
        *keys: The fields that the rule reads. Its problem is shown at the first of them that is given.
    """
    return lambda check: Rule(keys, check)


class Section(BaseModel):
    """A part of a configuration: immutable, without unknown keys, and with its rules satisfied.

    The docstring below a field describes it; `--explain` and the JSON Schema show it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, ignored_types=(Rule,), use_attribute_docstrings=True
    )
    shorthands: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # value of `name` -> defaults of other settings

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, values: Any) -> Any:
        name = values.get("name") if isinstance(values, Mapping) else None
        if not isinstance(name, str) or name not in cls.shorthands:
            return values
        return {**cls.shorthands[name], **{key: value for key, value in values.items() if key != "name"}}

    @classmethod
    def rules(cls) -> list[Rule]:
        """List the rules of the section and of its base classes."""
        return [value for owner in reversed(cls.__mro__) for value in vars(owner).values() if isinstance(value, Rule)]

    @classmethod
    def sections(cls) -> dict[str, type[Section]]:
        """Return the sections inside this one, by key."""
        inner = {name: field.annotation for name, field in cls.model_fields.items()}
        return {name: kind for name, kind in inner.items() if isinstance(kind, type) and issubclass(kind, Section)}

    @field_validator("*", mode="before")
    @classmethod
    def _reject_booleans_as_numbers(cls, value: Any, info: Any) -> Any:
        # Python, and so pydantic, accepts `epochs: yes` as 1.
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            if any(kind in (int, float) for kind in (annotation, *get_args(annotation))):
                raise PydanticCustomError("number_type", "must be a number")
        return value

    @model_validator(mode="after")
    def _check_rules(self, info: Any) -> Self:
        if info.context is not FIELDS_ONLY:
            problems = [message for rule in self.rules() for message in rule.check(self)]
            if problems:
                raise ValueError("; ".join(problems))
        return self


class Origin(NamedTuple):
    """Where a value was given: a line of a file, or an argument."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}, line {self.line}"


Origins = Mapping[Path, Origin]
"""Where each key was given, by its path; () is the whole configuration."""


class Problem(NamedTuple):
    """What is wrong with a key, and how to fix it; `location` is its origin, or the path whose origin is looked up."""

    key: str
    message: str
    location: Path | Origin = ()

    def origin(self, origins: Origins) -> Origin | None:
        """Return where the key was given."""
        return self.location if isinstance(self.location, Origin) else origin_of(self.location, origins)


def origin_of(path: Path, origins: Origins) -> Origin | None:
    """Return where a key was given, or else the closest section around it."""
    return next((origins[path[:end]] for end in range(len(path), -1, -1) if path[:end] in origins), None)


def validate_section(section: type[Section], values: Mapping[Any, Any], source: str = "configuration") -> Any:
    """Make a section from plain values.

    Args:
        section: The class of the section.
        values: Its values by key.
        source: Where the values are from, for messages.

    Raises:
        ConfigError: Something is wrong; the message lists every problem and how to fix it.
    """
    raise_problems(source, find_problems(section, values))
    return section.model_validate(dict(values))


def raise_problems(source: str, problems: Iterable[Problem], origins: Origins | None = None) -> None:
    """Raise ConfigError if there are problems, one per line, in the order of lines of the file."""
    located = [(problem.origin(origins or {}), problem) for problem in problems]
    located.sort(key=lambda pair: (pair[0] and pair[0].line) or float("inf"))
    lines = [": ".join(str(part) for part in (origin, key, text) if part) for origin, (key, text, _) in located]
    if lines:
        raise ConfigError("\n  ".join([f"{source}: {format_count(len(lines), 'problem')}", *lines]))


def find_problems(section: type[Section], values: Mapping[Any, Any]) -> list[Problem]:
    """Find every invalid field, and every rule that valid fields break."""
    invalid: dict[Path, Problem] = {}
    unreliable: set[Path] = set()  # fields that no rule may rely on
    valid = deepcopy(dict(values))
    try:
        whole = section.model_validate(valid, context=FIELDS_ONLY)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            owner, path = _field_at(section, details["loc"])
            if details["type"] in ("extra_forbidden", "invalid_key"):
                message, likely_key = _unknown_key(section, owner, path)
                unreliable |= {likely_key}
            else:
                message = _wrong_value(owner, path, details)
            if path in invalid:  # several items of a list, or several members of a union
                message = f"{invalid[path].message}; {'' if isinstance(details['loc'][-1], int) else 'or '}{message}"
            invalid[path] = Problem(".".join(map(str, path)), message, details["loc"])
            part = valid
            for key in path[:-1]:
                part = part[key]
            part.pop(path[-1], None)
            setting = owner.model_fields.get(str(path[-1]))
            if setting is not None and setting.is_required() and setting.examples:  # an example in its place
                part[path[-1]] = setting.examples[0]
        unreliable |= invalid.keys()
        try:
            whole = section.model_validate(valid, context=FIELDS_ONLY)
        except ValidationError:  # a required field is missing that has no example
            return list(invalid.values())
    problems = list(invalid.values())
    for start, inner in [*(((name,), getattr(whole, name)) for name in section.sections()), ((), whole)]:
        for rule in inner.rules():
            keys = [(*start, *key.split(".")) for key in rule.keys]
            if not any(key[: len(bad)] == bad for key in keys for bad in unreliable):
                shown = next((key for key in keys if _is_given(key, values)), keys[0])
                problems += [Problem(".".join(shown), message, shown) for message in rule.check(inner)]
    return problems


def _is_given(path: Path, values: Any) -> bool:
    return not path or (isinstance(values, Mapping) and path[0] in values and _is_given(path[1:], values[path[0]]))


def _field_at(section: type[Section], where: Path) -> tuple[type[Section], Path]:
    """Return the section of an error, and the path of its field without items of lists and members of unions."""
    depth = 1
    while depth < len(where) and (inner := section.sections().get(str(where[depth - 1]))):
        section, depth = inner, depth + 1
    return section, where[:depth]


def _unknown_key(whole: type[Section], owner: type[Section], path: Path) -> tuple[str, Path]:
    """Return the message for an unknown key, and the path of the key that was probably intended."""
    name, section = str(path[-1]), path[:-1]
    for other, kind in whole.sections().items():
        if name in kind.model_fields and (other,) != section:
            return f"unknown key; did you mean '{other}.{name}'?", (other, name)
    if close := close_matches(name, owner.model_fields):
        return f"unknown key; did you mean {close[0]!r}?", (*section, close[0])
    return f"unknown key; known here: {', '.join(owner.model_fields)}", path


def _wrong_value(owner: type[Section], path: Path, error: ErrorDetails) -> str:
    """Return pydantic's message with the value, and the choice that was probably intended."""
    name, value = str(path[-1]), error["input"]
    shown = str(value).lower() if isinstance(value, bool) else "null" if value is None else reprlib.repr(value)
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        example = ", ".join(f"{key}: {value}" for key, value in (owner.model_fields[name].examples or [{}])[0].items())
        return f"missing; give it, for example `{name}: {{{example}}}`"
    if name in owner.sections():
        if value is None:
            return "a section without keys: remove the line, or write its keys below it, indented"
        return f"must be a section: its keys on lines of their own, indented (got {shown})"
    close = close_matches(str(value), re.findall("'([^']+)'", error.get("ctx", {}).get("expected", "")))
    message = error["msg"].replace("Input should", "must").partition(", unable to parse")[0]
    return f"{message} (got {shown})" + (f"; did you mean {close[0]!r}?" if close else "")


@dataclass(frozen=True)
class ComponentOf:
    """Marks a field, or a list of values, that selects components of a registry.

    Args:
        registry: The registry.
        is_closed: True to refuse unknown names here; False if the code that uses the field knows further names.
    """

    registry: Registry
    is_closed: bool = True

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_name, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        other: dict[str, Any] = {"type": "string", "examples": ["package.module:Class"]}
        if self.is_closed:
            other["pattern"] = r"^[\w.]+:[\w.]+$"
        return {"anyOf": [{"type": "string", "enum": list(self.registry.names())}, other]}

    def _as_name(self, value: Any) -> Any:
        if self.is_closed if isinstance(value, str) else isinstance(value, type):
            problem = self.registry.problem(value)
            if problem is not None:
                raise ValueError(problem)
        return self.registry.name_of(value) if isinstance(value, type) else value


def _settings(section: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[Path, Section, FieldInfo]]:
    """Yield each setting of a section and of the sections in it: (path, section that has it, field)."""
    for name, setting in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _settings(value, (*path, name))
        else:
            yield (*path, name), section, setting


def chosen_components(section: Section) -> Iterator[tuple[Path, Registry, str]]:
    """Yield the components that a configuration selects: (path of the setting, registry, name)."""
    for path, owner, setting in _settings(section):
        value = getattr(owner, str(path[-1]))
        named = [((*path, i), name) for i, name in enumerate(value)] if isinstance(value, list) else [(path, value)]
        for mark in _component_marks(setting.annotation, *setting.metadata):
            yield from ((location, mark.registry, name) for location, name in named if name is not None)


def _component_marks(*annotations: Any) -> Iterator[ComponentOf]:
    for annotation in annotations:
        if isinstance(annotation, ComponentOf):
            yield annotation
        yield from _component_marks(*get_args(annotation))


class HasOptions:
    """Base of components that may have settings of their own, which a configuration gives in `model.options` and such.

    `Options` declares them as fields with defaults; there are none by default.

    >>> class MyOptions(Section):
    ...     margin: float = 1.0
    >>> class MyDecoder(HasOptions):
    ...     Options = MyOptions
    >>> MyDecoder.read_options({"margin": 2.0, "of_the_encoder": 3}).margin
    2.0
    """

    Options: ClassVar[type[Section]] = Section

    @classmethod
    def read_options(cls, options: Mapping[str, Any]) -> Any:
        """Make `Options` from those of the given options that belong to this component."""
        return cls.Options(**{name: value for name, value in options.items() if name in cls.Options.model_fields})


@dataclass(frozen=True)
class OptionsOf:
    """Marks a field with the options of components that other fields of the same section select."""

    fields: tuple[str, ...]


def find_option_problems(section: Section) -> Iterator[Problem]:
    """Find options that no selected component declares, and wrong values of options, in a valid section."""
    for path, owner, setting in _settings(section):
        for mark in setting.metadata:
            if isinstance(mark, OptionsOf) and (options := getattr(owner, str(path[-1]))):
                chosen = [(registry, name) for at, registry, name in chosen_components(owner) if at[0] in mark.fields]
                try:
                    declared = dict.fromkeys(registry.resolve(name).Options for registry, name in chosen)
                except RgcnError:  # a component cannot be imported: that is reported when it is used
                    continue
                bases = tuple(kind for kind in declared if kind is not Section)
                owners = " and ".join(f"the {registry.kind} {name}" for registry, name in chosen)
                no_options = f"{owners} declare no options: remove it, or declare it in the class's `Options`"
                for key, message, _ in find_problems(create_model("Options", __base__=bases or Section), options):
                    text = f"{message} (options of {owners})" if bases else f"unknown key; {no_options}"
                    yield Problem(f"{'.'.join(map(str, path))}.{key}", text, (*path, *key.split(".")))


class Description(NamedTuple):
    """The parts of a model, by heading, and what it cannot do because of them, a sentence each."""

    parts: Mapping[str, str]
    limits: tuple[str, ...] = ()


def describe_encoder(encoder: str, describe: Callable[[type[Any]], Description]) -> Description:
    """Return the description of an encoder, or its name if it cannot be imported here."""
    try:
        return describe(ENCODERS.resolve(encoder))
    except RgcnError:
        return Description({"Architecture": component_title(encoder)})


def component_title(component: str | type) -> str:
    """Return the name of a class, and its package unless that is rgcn.

    >>> component_title("mypackage.encoders:Mine"), component_title(Description)
    ('Mine, from mypackage', 'Description')
    """
    module, _, name = (component if isinstance(component, str) else dotted_name(component)).rpartition(":")
    package = module.partition(".")[0]
    return name if package in ("", "rgcn") else f"{name.rpartition('.')[2]}, from {package}"


@dataclass(frozen=True)
class SearchSpace:
    """Where tuning searches for good values of a setting: an interval or some choices.

    Args:
        low: The lower end of the interval, which belongs to it.
        high: The upper end, which belongs to it.
        log: True to draw uniformly in the logarithm.
        integer: True for whole numbers.
        choices: The values to choose from, instead of an interval.
        when: Key -> value, or tuple of values, of other settings. The setting has an effect only if they hold, e.g.
            {"model.decomposition": "basis"}.
        default: The value to set where `when` does not hold.

    >>> SearchSpace(low=2, high=64, when={"model.decomposition": "basis"}).applies({"model.decomposition": "none"})
    False
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    integer: bool = False
    choices: tuple[Any, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict)
    default: Any = None

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if bool(self.choices) == (low is not None and high is not None):
            raise ValueError("a search space is an interval (low and high) or choices")
        if low is not None and high is not None and not (low < high and (low > 0 or not self.log)):
            raise ValueError("low must be below high, and above 0 with log")

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add the search space to the JSON Schema of its field."""
        plain = {"choices": [*self.choices]} if self.choices else {"low": self.low, "high": self.high, "log": self.log}
        schema["search"] = plain | ({"when": dict(self.when)} if self.when else {})

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Return True if the setting has an effect with these settings, e.g. {"model.encoder": "rgcn", ...}."""
        return all(
            settings.get(key) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for key, wanted in self.when.items()
        )


def tuned(default: Any, choices: Sequence[Any] = (), **arguments: Any) -> Any:
    """Declare a field worth tuning.

    Args:
        default: The default of the field.
        choices: The values to choose from, if the search space is not an interval.
        **arguments: low, high, log and when of `SearchSpace`, and arguments of pydantic's `Field`.

    >>> tuned(0.01, low=0.001, high=0.1, log=True, gt=0).json_schema_extra.high
    0.1
    """
    where = {key: arguments.pop(key) for key in ("low", "high", "log", "when") if key in arguments}
    return Field(default, json_schema_extra=SearchSpace(**where, choices=tuple(choices)), **arguments)


def search_spaces(section: type[Section], prefix: str = "") -> dict[str, SearchSpace]:
    """Return the search spaces of a run by key. A setting comes after those that its `when` refers to.

    >>> from rgcn.config import NodeClassificationRun
    >>> search_spaces(NodeClassificationRun)["training.learning_rate"]
    SearchSpace(low=0.001, high=0.1, log=True, integer=False, choices=(), when={}, default=0.01)
    """
    spaces: dict[str, SearchSpace] = {}
    for name, setting in section.model_fields.items():
        if name in section.sections():
            spaces |= search_spaces(section.sections()[name], f"{prefix}{name}.")
        elif isinstance(space := setting.json_schema_extra, SearchSpace):
            is_integer = not space.choices and int in (setting.annotation, *get_args(setting.annotation))
            spaces[prefix + name] = replace(space, integer=is_integer, default=setting.default)
    return spaces
