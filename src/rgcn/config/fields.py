"""What a knob says beside its type: the axis it chooses on, `Annotated[str, OnAxis(TRACKERS)]`, and where to search.

Choices are names in a file; from Python a class will do, and is kept by its dotted name. Components have settings of
their own (`HasOptions`), which are checked once it is known which components were chosen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from rgcn.config.base_section import Origin, Path, Problem, Section, find_problems, origin_of
from rgcn.errors import RgcnError
from rgcn.plugins import ENCODERS, Axis, dotted_name


@dataclass(frozen=True)
class OnAxis:
    """The choices a field, or each item of a list, has."""

    axis: Axis
    closed: bool = True  # a name that is not there is refused here; else by whoever uses it, who may know other names

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_name, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
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


def settings_of(section: Section, path: Path = ()) -> Iterator[tuple[Path, Section, FieldInfo]]:
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


def option_problems(section: Section, origins: Mapping[Path, Origin] | None = None) -> Iterator[Problem]:
    """Find options that no chosen component declares, and values that are wrong.

    Args:
        section: A valid section; the sections in it are checked, too.
        origins: Where each key of the whole configuration was given.
    """
    for path, owner, setting in settings_of(section):
        given = getattr(owner, str(path[-1]))
        for mark in setting.metadata:
            if isinstance(mark, OptionsOf) and given:
                for problem in _undeclared(owner, mark, given):
                    where = (*path, *problem.key.split("."))
                    yield problem._replace(key=".".join(map(str, where)), origin=origin_of(where, origins or {}))


def _undeclared(section: Section, mark: OptionsOf, options: Mapping[str, Any]) -> Iterator[Problem]:
    chosen = [(axis, choice) for path, axis, choice in choices(section) if path[0] in mark.fields]
    try:
        declared = dict.fromkeys(axis.find(choice).Options for axis, choice in chosen)
    except RgcnError:  # a component that may not be imported, or is not installed: said when it is used
        return
    bases = tuple(kind for kind in declared if kind is not Section)
    owners = " and ".join(f"the {axis.kind} {choice}" for axis, choice in chosen)
    for problem in find_problems(create_model("Options", __base__=bases or Section), options):
        nowhere = f"unknown key; {owners} declare no options: remove it, or declare it in the class's `Options`"
        words = f"{problem.words} (options of {owners})" if bases else nowhere
        yield problem._replace(words=words)


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

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Whether the setting means anything beside these, given as {"model.encoder": "rgcn", ...}."""
        return all(
            settings.get(key) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for key, wanted in self.when.items()
        )


def tuned(
    default: Any,
    choices: Sequence[Any] = (),
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    when: Mapping[str, Any] | None = None,
    **bounds: Any,
) -> Any:
    """A field worth tuning: its default, where to search, which the JSON Schema tells too, and what a `Field` takes.

    >>> tuned(0.01, low=0.001, high=0.1, log=True, gt=0).json_schema_extra
    {'search': {'low': 0.001, 'high': 0.1, 'log': True}}
    """
    if bool(choices) == (low is not None and high is not None):
        raise ValueError("a search space is an interval, low and high, or choices")
    if low is not None and high is not None and not (low < high and (low > 0 or not log)):
        raise ValueError(f"low = {low} lies below high = {high}, and above 0 where the logarithm is taken")
    space: dict[str, Any] = {"choices": list(choices)} if choices else {"low": low, "high": high, "log": log}
    return Field(default, json_schema_extra={"search": {**space, "when": dict(when)} if when else space}, **bounds)


def search_spaces(section: type[Section], prefix: str = "") -> dict[str, SearchSpace]:
    """The declared search spaces of a run, by key; what `when` refers to comes before what refers to it.

    >>> from rgcn.config import NodeClassificationRun
    >>> search_spaces(NodeClassificationRun)["training.learning_rate"]
    SearchSpace(low=0.001, high=0.1, log=True, integer=False, choices=(), when={}, default=0.01)
    """
    spaces: dict[str, SearchSpace] = {}
    inner = section.sections()
    for name, setting in section.model_fields.items():
        extra = setting.json_schema_extra
        if name in inner:
            spaces |= search_spaces(inner[name], f"{prefix}{name}.")
        elif isinstance(extra, dict) and (declared := extra.get("search")):
            given: dict[str, Any] = {"choices": (), **declared}  # type: ignore[dict-item]
            whole = "low" in given and int in (setting.annotation, *get_args(setting.annotation))
            given |= {"choices": tuple(given["choices"]), "default": setting.get_default(call_default_factory=True)}
            spaces[prefix + name] = SearchSpace(**given, integer=whole)
    return spaces
