"""What a section of a configuration is, and how everything wrong with one is said at once.

Fields say what they take by their types. What two fields cannot be together is said by rules, declared with
`@impossible`. A rule names the fields it reads, so that it can be judged wherever those are valid, whatever else is
wrong, and so that its problem can be shown where the value was written.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import Self

from rgcn.errors import ConfigError, close_matches

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
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Python, and with it pydantic, would take `epochs: yes` for 1.
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            if any(kind in (int, float) for kind in (annotation, *get_args(annotation))):
                raise PydanticCustomError("number_type", "must be a number")
        return value

    @model_validator(mode="after")
    def _possible(self, info: ValidationInfo) -> Self:
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


class Problem(NamedTuple):
    """What is wrong with a key, and how to put it right."""

    key: str
    words: str
    origin: Origin | None = None

    def __str__(self) -> str:
        return ": ".join(str(part) for part in (self.origin, self.key, self.words) if part)


def validated(
    section: type[Section],
    values: Mapping[Any, Any],
    source: str = "configuration",
    origins: Mapping[Path, Origin] | None = None,
    already: Iterable[Problem] = (),
) -> Any:
    """A section from plain values, or a ConfigError that lists every problem, those found `already` too, and its fix.

    origins  where each key was given, by its path; () is the whole
    """
    problems = [*already, *find_problems(section, values, origins or {})]
    if problems:
        raise ConfigError(listed(source, problems))
    return section.model_validate(dict(values))


def listed(source: str, problems: Iterable[Problem]) -> str:
    """Problems a line each, those in a file in the order of its lines."""
    ordered = sorted(problems, key=lambda p: float("inf") if p.origin is None or not p.origin.line else p.origin.line)
    count = f"{len(ordered)} problem{'s' if len(ordered) > 1 else ''}"
    return "\n".join([f"{source}: {count}", *(f"  {problem}" for problem in ordered)])


def find_problems(
    section: type[Section], values: Mapping[Any, Any], origins: Mapping[Path, Origin] | None = None
) -> list[Problem]:
    """Every field that is wrong, and every rule broken by fields that are right."""
    problems: dict[Path, Problem] = {}
    doubtful: set[Path] = set()  # what no rule may rely on
    valid = deepcopy(dict(values))
    try:
        whole = section.model_validate(valid, context=FIELDS_ONLY)
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            owner, path = _field_at(section, wrong["loc"])
            if wrong["type"] in ("extra_forbidden", "invalid_key"):
                words, meant = _unknown_key(section, owner, path)
                doubtful |= {meant} if meant else set()
            else:
                words = _wrong_value(owner, path, wrong)
            if path in problems:  # each item of a list complains, and each member of a union
                words = f"{problems[path].words}; {'' if isinstance(wrong['loc'][-1], int) else 'or '}{words}"
            problems[path] = Problem(_dotted(path), words, origin_of(wrong["loc"], origins or {}))
            _put_right(valid, owner, path)
        doubtful |= problems.keys()
        try:
            whole = section.model_validate(valid, context=FIELDS_ONLY)
        except ValidationError:  # something is missing that has no example to stand for it
            return list(problems.values())
    found = list(problems.values())
    for part_path, part in [*(((name,), getattr(whole, name)) for name in section.sections()), ((), whole)]:
        for rule in part.rules():
            keys = [(*part_path, *key.split(".")) for key in rule.keys]
            if not any(key[: len(bad)] == bad for key in keys for bad in doubtful):
                shown = next((key for key in keys if _is_given(key, values)), keys[0])
                origin = origin_of(shown, origins or {})
                found += [Problem(_dotted(shown), words, origin) for words in rule.judge(part)]
    return found


def _put_right(values: dict[Any, Any], owner: type[Section], path: Path) -> None:
    """Leave out what is wrong; an example stands for what must be there."""
    for part in path[:-1]:
        values = values[part]
    values.pop(path[-1], None)
    field = owner.model_fields.get(str(path[-1]))
    if field is not None and field.is_required() and field.examples:
        values[path[-1]] = field.examples[0]


def origin_of(path: Path, origins: Mapping[Path, Origin]) -> Origin | None:
    """Where a key was given, or else the section it is or should be in."""
    return next((origins[path[:end]] for end in range(len(path), -1, -1) if path[:end] in origins), None)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path)) or "as a whole"


def _is_given(path: Path, values: Any) -> bool:
    return not path or (isinstance(values, Mapping) and path[0] in values and _is_given(path[1:], values[path[0]]))


def _field_at(section: type[Section], where: Path) -> tuple[type[Section], Path]:
    """The section a problem lies in, and the path of its field: without items of lists and members of unions."""
    for depth, part in enumerate(where):
        inner = section.sections().get(str(part))
        if inner is None or depth + 1 == len(where):
            return section, where[: depth + 1]
        section = inner
    return section, where


def _unknown_key(whole: type[Section], owner: type[Section], path: Path) -> tuple[str, Path | None]:
    """The words for a key that is not known, and the one that was likely meant."""
    name, section = str(path[-1]), path[:-1]
    elsewhere = [inner for inner, kind in whole.sections().items() if name in kind.model_fields and (inner,) != section]
    if elsewhere:
        return f"unknown key; did you mean '{elsewhere[0]}.{name}'?", (elsewhere[0], name)
    close = close_matches(name, owner.model_fields)
    if close:
        return f"unknown key; did you mean {close[0]!r}?", (*section, close[0])
    return f"unknown key; known here: {', '.join(owner.model_fields)}", None


def _wrong_value(owner: type[Section], path: Path, error: ErrorDetails) -> str:
    """What pydantic says of a value, with the value, and the choice that was likely meant."""
    name, given = str(path[-1]), error["input"]
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        examples = owner.model_fields[name].examples or [{}]
        example = ", ".join(f"{key}: {value}" for key, value in examples[0].items())
        return f"missing; give it, for example `{name}: {{{example}}}`"
    if name in owner.sections():
        if given is None:
            return "a section without keys: remove the line, or write its keys below it, indented"
        return f"must be a section: its keys on lines of their own, indented (got {_as_yaml(given)})"
    choices = re.findall("'([^']+)'", error.get("ctx", {}).get("expected", ""))
    close = close_matches(given, choices) if isinstance(given, str) and given else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    words = error["msg"].replace("Input should", "must").partition(", unable to parse")[0]
    return f"{words} (got {_as_yaml(given)}){hint}"


def _as_yaml(value: Any) -> str:
    """A value as it would be written, shortened."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else reprlib.repr(value)
