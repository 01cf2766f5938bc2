"""Sections of a configuration: what their fields take, which settings cannot be together, and where to search for good
ones.

Fields say what they take by their types. What two fields cannot be together is said by rules, declared with
`@impossible`. A rule names the fields it reads, so that it can be judged wherever those are valid, whatever else is
wrong, and so that its problem can be shown where the value was written.

A field that chooses a component names the registry, `Annotated[str, OnAxis(TRACKERS)]`. Choices are names in a file;
from Python a class will do, and is kept by its dotted name. Components have settings of their own (`HasOptions`), which
are checked once it is known which components were chosen. A field worth tuning says where to search (`tuned`).
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
from rgcn.plugins import ENCODERS, Axis, dotted_name
from rgcn.system.formatting import count

Path = tuple[str | int, ...]
FIELDS_ONLY = {"fields_only": True}  # validation context: leave the rules for later


@dataclass(frozen=True)
class Rule:
    """Something that cannot be: `judge` yields the words for it, with the fix; nothing where all is well."""

    keys: tuple[str, ...]
    judge: Callable[[Any], Iterator[str]]


def impossible(*keys: str) -> Callable[[Callable[[Any], Iterator[str]]], Rule]:
    """Declare a rule of a section. It may read only the named fields; its problem is shown at the first one given."""
    return lambda judge: Rule(keys, judge)


class Section(BaseModel):
    """A part of a configuration: frozen, strict about names, and never in an impossible state.

    What a field does is said by the text below it, which `--explain` and the JSON Schema show.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, ignored_types=(Rule,), use_attribute_docstrings=True
    )
    shorthands: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # {value of `name`: settings, unless given themselves}

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, values: Any) -> Any:
        name = values.get("name") if isinstance(values, Mapping) else None
        if not isinstance(name, str) or name not in cls.shorthands:
            return values
        return {**cls.shorthands[name], **{key: value for key, value in values.items() if key != "name"}}

    @classmethod
    def rules(cls) -> list[Rule]:
        return [value for owner in reversed(cls.__mro__) for value in vars(owner).values() if isinstance(value, Rule)]

    @classmethod
    def sections(cls) -> dict[str, type[Section]]:
        inner = {name: field.annotation for name, field in cls.model_fields.items()}
        return {name: kind for name, kind in inner.items() if isinstance(kind, type) and issubclass(kind, Section)}

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: Any) -> Any:
        # Python, and with it pydantic, would take `epochs: yes` for 1.
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            if any(kind in (int, float) for kind in (annotation, *get_args(annotation))):
                raise PydanticCustomError("number_type", "must be a number")
        return value

    @model_validator(mode="after")
    def _possible(self, info: Any) -> Self:
        if info.context is not FIELDS_ONLY:
            found = "; ".join(words for rule in self.rules() for words in rule.judge(self))
            if found:
                raise ValueError(found)
        return self


class Origin(NamedTuple):
    """Where a value was given: a line of a file, or an argument."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}, line {self.line}"


Origins = Mapping[Path, Origin]
"""Where each key was given, by its path; () is the whole."""


class Problem(NamedTuple):
    """What is wrong with a key, and how to put it right; `place` is the path by which its origin is found, or that."""

    key: str
    words: str
    place: Path | Origin = ()

    def origin(self, origins: Origins) -> Origin | None:
        return self.place if isinstance(self.place, Origin) else origin_of(self.place, origins)


def origin_of(path: Path, origins: Origins) -> Origin | None:
    """Where a key was given, or else the section it is or should be in."""
    return next((origins[path[:end]] for end in range(len(path), -1, -1) if path[:end] in origins), None)


def validated(section: type[Section], values: Mapping[Any, Any], source: str = "configuration") -> Any:
    """A section from plain values, or a ConfigError that lists every problem and its fix."""
    refuse_problems(source, find_problems(section, values))
    return section.model_validate(dict(values))


def refuse_problems(source: str, problems: Iterable[Problem], origins: Origins | None = None) -> None:
    """Raise ConfigError where there are problems: a line each, those in a file in the order of its lines."""
    placed = [(problem.origin(origins or {}), problem) for problem in problems]
    placed.sort(key=lambda pair: (pair[0] and pair[0].line) or float("inf"))
    lines = [": ".join(str(part) for part in (origin, key, words) if part) for origin, (key, words, _) in placed]
    if lines:
        raise ConfigError("\n  ".join([f"{source}: {count(len(lines), 'problem')}", *lines]))


def find_problems(section: type[Section], values: Mapping[Any, Any]) -> list[Problem]:
    """Every field that is wrong, and every rule broken by fields that are right."""
    found: dict[Path, Problem] = {}
    doubtful: set[Path] = set()  # what no rule may rely on
    valid = deepcopy(dict(values))
    try:
        whole = section.model_validate(valid, context=FIELDS_ONLY)
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            owner, path = _field_at(section, wrong["loc"])
            if wrong["type"] in ("extra_forbidden", "invalid_key"):
                words, meant = _unknown_key(section, owner, path)
                doubtful |= {meant}
            else:
                words = _wrong_value(owner, path, wrong)
            if path in found:  # each item of a list complains, and each member of a union
                words = f"{found[path].words}; {'' if isinstance(wrong['loc'][-1], int) else 'or '}{words}"
            found[path] = Problem(".".join(map(str, path)), words, wrong["loc"])
            _put_right(valid, owner, path)
        doubtful |= found.keys()
        try:
            whole = section.model_validate(valid, context=FIELDS_ONLY)
        except ValidationError:  # something is missing that has no example to stand for it
            return list(found.values())
    problems = list(found.values())
    for start, part in [*(((name,), getattr(whole, name)) for name in section.sections()), ((), whole)]:
        for rule in part.rules():
            keys = [(*start, *key.split(".")) for key in rule.keys]
            if not any(key[: len(bad)] == bad for key in keys for bad in doubtful):
                shown = next((key for key in keys if _is_given(key, values)), keys[0])
                problems += [Problem(".".join(shown), words, shown) for words in rule.judge(part)]
    return problems


def _put_right(values: dict[Any, Any], owner: type[Section], path: Path) -> None:
    """Leave out what is wrong; an example stands for what must be there."""
    for part in path[:-1]:
        values = values[part]
    values.pop(path[-1], None)
    field = owner.model_fields.get(str(path[-1]))
    if field is not None and field.is_required() and field.examples:
        values[path[-1]] = field.examples[0]


def _is_given(path: Path, values: Any) -> bool:
    return not path or (isinstance(values, Mapping) and path[0] in values and _is_given(path[1:], values[path[0]]))


def _field_at(section: type[Section], where: Path) -> tuple[type[Section], Path]:
    """The section a problem lies in, and the path of its field: without items of lists and members of unions."""
    depth = 1
    while depth < len(where) and (inner := section.sections().get(str(where[depth - 1]))):
        section, depth = inner, depth + 1
    return section, where[:depth]


def _unknown_key(whole: type[Section], owner: type[Section], path: Path) -> tuple[str, Path]:
    """The words for a key that is not known, and the one that was likely meant."""
    name, section = str(path[-1]), path[:-1]
    for other, kind in whole.sections().items():
        if name in kind.model_fields and (other,) != section:
            return f"unknown key; did you mean '{other}.{name}'?", (other, name)
    if close := close_matches(name, owner.model_fields):
        return f"unknown key; did you mean {close[0]!r}?", (*section, close[0])
    return f"unknown key; known here: {', '.join(owner.model_fields)}", path


def _wrong_value(owner: type[Section], path: Path, error: ErrorDetails) -> str:
    """What pydantic says of a value, with the value, and the choice that was likely meant."""
    name, given = str(path[-1]), error["input"]
    shown = str(given).lower() if isinstance(given, bool) else "null" if given is None else reprlib.repr(given)
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        example = ", ".join(f"{key}: {value}" for key, value in (owner.model_fields[name].examples or [{}])[0].items())
        return f"missing; give it, for example `{name}: {{{example}}}`"
    if name in owner.sections():
        if given is None:
            return "a section without keys: remove the line, or write its keys below it, indented"
        return f"must be a section: its keys on lines of their own, indented (got {shown})"
    close = close_matches(str(given), re.findall("'([^']+)'", error.get("ctx", {}).get("expected", "")))
    words = error["msg"].replace("Input should", "must").partition(", unable to parse")[0]
    return f"{words} (got {shown})" + (f"; did you mean {close[0]!r}?" if close else "")


@dataclass(frozen=True)
class OnAxis:
    """The choices a field, or each item of a list, has."""

    axis: Axis
    closed: bool = True  # a name that is not there is refused here; else by whoever uses it, who may know other names

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_name, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        other: dict[str, Any] = {"type": "string", "examples": ["package.module:Class"]}
        if self.closed:
            other["pattern"] = r"^[\w.]+:[\w.]+$"
        return {"anyOf": [{"type": "string", "enum": list(self.axis.names())}, other]}

    def _as_name(self, given: Any) -> Any:
        if self.closed if isinstance(given, str) else isinstance(given, type):
            words = self.axis.problem(given)
            if words is not None:
                raise ValueError(words)
        return self.axis.name_of(given) if isinstance(given, type) else given


def settings_of(section: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[Path, Section, FieldInfo]]:
    """Every setting of a section and of the sections in it: (its path, the section that has it, its field)."""
    for name, setting in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from settings_of(value, (*path, name))
        else:
            yield (*path, name), section, setting


def choices(section: Section) -> Iterator[tuple[Path, Axis, str]]:
    """What a configuration chooses on an axis: (path of the setting, axis, name)."""
    for path, owner, setting in settings_of(section):
        value = getattr(owner, str(path[-1]))
        named = [((*path, i), one) for i, one in enumerate(value)] if isinstance(value, list) else [(path, value)]
        for mark in _marks(setting.annotation, *setting.metadata):
            yield from ((place, mark.axis, choice) for place, choice in named if choice is not None)


def _marks(*annotations: Any) -> Iterator[OnAxis]:
    for annotation in annotations:
        if isinstance(annotation, OnAxis):
            yield annotation
        yield from _marks(*get_args(annotation))


class HasOptions:
    """A component that may have settings of its own, which a configuration gives by name (`model.options`).

    Options: Declares them as fields with defaults; none by default.

    >>> class MyOptions(Section):
    ...     margin: float = 1.0
    >>> class MyDecoder(HasOptions):
    ...     Options = MyOptions
    >>> MyDecoder.read_options({"margin": 2.0, "of_the_encoder": 3}).margin
    2.0
    """

    Options: ClassVar[type[Section]] = Section

    @classmethod
    def read_options(cls, given: Mapping[str, Any]) -> Any:
        """Make `Options` of those settings that are this component's."""
        return cls.Options(**{name: value for name, value in given.items() if name in cls.Options.model_fields})


@dataclass(frozen=True)
class OptionsOf:
    """Marks the field that holds the options of components, which other fields of the same section choose."""

    fields: tuple[str, ...]


def option_problems(section: Section) -> Iterator[Problem]:
    """Find options that no chosen component declares, and values that are wrong, in a valid section and those in it."""
    for path, owner, setting in settings_of(section):
        for mark in setting.metadata:
            if isinstance(mark, OptionsOf) and (given := getattr(owner, str(path[-1]))):
                chosen = [(axis, choice) for at, axis, choice in choices(owner) if at[0] in mark.fields]
                for key, words in _undeclared(chosen, given):
                    yield Problem(f"{'.'.join(map(str, path))}.{key}", words, (*path, *key.split(".")))


def _undeclared(chosen: Sequence[tuple[Axis, str]], options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        declared = dict.fromkeys(axis.find(choice).Options for axis, choice in chosen)
    except RgcnError:  # a component that may not be imported, or is not installed: said when it is used
        return
    bases = tuple(kind for kind in declared if kind is not Section)
    owners = " and ".join(f"the {axis.kind} {choice}" for axis, choice in chosen)
    nowhere = f"unknown key; {owners} declare no options: remove it, or declare it in the class's `Options`"
    for problem in find_problems(create_model("Options", __base__=bases or Section), options):
        yield problem.key, f"{problem.words} (options of {owners})" if bases else nowhere


class Description(NamedTuple):
    """What a model is made of, by heading, and what it cannot do because it is made so, a sentence each."""

    made_of: Mapping[str, str]
    limits: tuple[str, ...] = ()


def described(encoder: str, describe: Callable[[type[Any]], Description]) -> Description:
    """What an encoder says; its name alone where it may not be imported, or is not installed here."""
    try:
        return describe(ENCODERS.find(encoder))
    except RgcnError:
        return Description({"Architecture": introduced(encoder)})


def introduced(member: str | type) -> str:
    """A class by its name, and where it is from if not from here.

    >>> introduced("mypackage.encoders:Mine"), introduced(Description)
    ('Mine, from mypackage', 'Description')
    """
    module, _, name = (member if isinstance(member, str) else dotted_name(member)).rpartition(":")
    package = module.partition(".")[0]
    return name if package in ("", "rgcn") else f"{name.rpartition('.')[2]}, from {package}"


@dataclass(frozen=True)
class SearchSpace:
    """Where good values of a setting are likely to lie: an interval, or some choices.

    It means something only where the settings of `when` hold, e.g. {"model.decomposition": "basis"}; a tuple stands for
    any of its values. Judged on the whole configuration, tuned settings included.

    >>> SearchSpace(low=2, high=64, when={"model.decomposition": "basis"}).applies({"model.decomposition": "none"})
    False
    """

    low: float | None = None  # both ends included; None with choices
    high: float | None = None
    log: bool = False  # draw evenly in the logarithm
    integer: bool = False
    choices: tuple[Any, ...] = ()  # empty with an interval
    when: Mapping[str, Any] = field(default_factory=dict)
    default: Any = None  # what to set where `when` does not hold

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if bool(self.choices) == (low is not None and high is not None):
            raise ValueError("a search space is an interval, low and high, or choices")
        if low is not None and high is not None and not (low < high and (low > 0 or not self.log)):
            raise ValueError("low lies below high, and above 0 where the logarithm is taken")

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add what the JSON Schema tells of it."""
        plain = {"choices": [*self.choices]} if self.choices else {"low": self.low, "high": self.high, "log": self.log}
        schema["search"] = plain | ({"when": dict(self.when)} if self.when else {})

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Whether the setting means anything beside these, given as {"model.encoder": "rgcn", ...}."""
        return all(
            settings.get(key) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for key, wanted in self.when.items()
        )


def tuned(default: Any, choices: Sequence[Any] = (), **given: Any) -> Any:
    """A field worth tuning: its default, where to search (arguments of `SearchSpace`), and what a `Field` takes.

    >>> tuned(0.01, low=0.001, high=0.1, log=True, gt=0).json_schema_extra.high
    0.1
    """
    where = {key: given.pop(key) for key in ("low", "high", "log", "when") if key in given}
    return Field(default, json_schema_extra=SearchSpace(**where, choices=tuple(choices)), **given)


def search_spaces(section: type[Section], prefix: str = "") -> dict[str, SearchSpace]:
    """The declared search spaces of a run, by key; what `when` refers to comes before what refers to it.

    >>> from rgcn.config import NodeClassificationRun
    >>> search_spaces(NodeClassificationRun)["training.learning_rate"]
    SearchSpace(low=0.001, high=0.1, log=True, integer=False, choices=(), when={}, default=0.01)
    """
    spaces: dict[str, SearchSpace] = {}
    for name, setting in section.model_fields.items():
        if name in section.sections():
            spaces |= search_spaces(section.sections()[name], f"{prefix}{name}.")
        elif isinstance(space := setting.json_schema_extra, SearchSpace):
            whole = not space.choices and int in (setting.annotation, *get_args(setting.annotation))
            spaces[prefix + name] = replace(space, integer=whole, default=setting.default)
    return spaces
