"""What a section of a configuration is, and how everything wrong with one is said at once.

Fields say what they take by their types. What two fields cannot be together is said by rules, declared with
`@impossible`. A rule names the fields it reads, so that it can be judged wherever those are valid, whatever else is
wrong, and so that its problem can be shown where the value was written.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    problems: list[Problem] = []
    doubtful: set[Path] = set()  # what no rule may rely on
    try:
        section.model_validate(dict(values), context=FIELDS_ONLY)
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            owner, path = _field_at(section, wrong["loc"])
            if path in doubtful:  # each member of a union complains, and each item of a list
                continue
            doubtful.add(path)
            if wrong["type"] in ("extra_forbidden", "invalid_key"):
                words, meant = _unknown_key(section, owner, path)
                doubtful |= {meant} if meant else set()
            else:
                words = _wrong_value(owner, path, wrong)
            problems.append(Problem(_dotted(path), words, origin_of(wrong["loc"], origins or {})))
    for path, part in _judgeable(section, values, doubtful):
        for rule in part.rules():
            keys = [(*path, *key.split(".")) for key in rule.keys]
            if not any(key[: len(bad)] == bad for key in keys for bad in doubtful):
                shown = next((key for key in keys if _is_given(key, values)), keys[0])
                origin = origin_of(shown, origins or {})
                problems += [Problem(_dotted(shown), words, origin) for words in rule.judge(part)]
    return problems


def origin_of(path: Path, origins: Mapping[Path, Origin]) -> Origin | None:
    """Where a key was given, or else the section it is or should be in."""
    return next((origins[path[:end]] for end in range(len(path), -1, -1) if path[:end] in origins), None)


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path) or "as a whole"


def _judgeable(
    section: type[Section], values: Mapping[Any, Any], doubtful: set[Path], path: Path = ()
) -> Iterator[tuple[Path, Section]]:
    """The sections that are given, the whole last, each of what is valid in it: no rule may read what is not there."""
    inner, kept = section.sections(), {}
    for name in section.model_fields:
        if name in values and (*path, name) not in doubtful:
            kept[name] = values[name]
            if name in inner:
                for place, part in _judgeable(inner[name], values[name], doubtful, (*path, name)):
                    yield place, part
                    kept[name] = part
    yield path, section.model_construct(None, **kept) if inner else section.model_validate(kept, context=FIELDS_ONLY)


def _is_given(path: Path, values: Any) -> bool:
    for part in path:
        if not (isinstance(values, Mapping) and part in values):
            return False
        values = values[part]
    return True


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
    schema = owner.model_json_schema()["properties"][name]
    choices = [choice for choice in _choices(schema) if isinstance(choice, str)]
    close = close_matches(given, choices) if isinstance(given, str) and given else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"must be {accepted(schema)} (got {_as_yaml(given)}){hint}"


def _as_yaml(value: Any) -> str:
    """A value as it would be written, shortened."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return reprlib.repr(value)


def accepted(schema: Mapping[str, Any]) -> str:
    """In words, what a field of this JSON Schema takes.

    >>> accepted({"type": "number", "minimum": 0, "exclusiveMaximum": 1})
    'a number, at least 0 and below 1'
    >>> accepted({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
    'a whole number, at least 1; or null'
    """
    if "anyOf" in schema:
        parts = [accepted(part) for part in schema["anyOf"]]
        return f"{', '.join(parts[:-1])}; or {parts[-1]}"
    if "const" in schema or "enum" in schema:
        names = [repr(choice) for choice in _choices(schema)]
        return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
    if "examples" in schema:
        return f"text such as {schema['examples'][0]!r}"
    kind = schema.get("type")
    if kind == "array":
        return f"a list of {accepted(schema.get('items', {}))}"
    kinds = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}
    words = {**kinds, "string": "text", "object": "names with a text each"}.get(str(kind), "a value")
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = [f"{bound} {schema[key]}" for key, bound in bounds.items() if key in schema]
    return f"{words}, {' and '.join(limits)}" if limits else words


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    """The values a schema names: its own, its items', or those of one of its kinds."""
    if "const" in schema:
        return [schema["const"]]
    inner = [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]
    return [*schema.get("enum", []), *(choice for part in inner for choice in _choices(part))]
