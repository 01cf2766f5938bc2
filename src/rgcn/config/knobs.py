"""What a knob says beside its type: the axis it chooses on, `Annotated[str, OnAxis(TRACKERS)]`, and where to search.

Choices are names in a file; from Python a class will do, and is kept by its dotted name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from rgcn.axes import Axis, dotted_name
from rgcn.axis_tables import ENCODERS
from rgcn.config.section import Path, Section
from rgcn.errors import RgcnError


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


def choices(section: Section, path: Path = ()) -> Iterator[tuple[Path, Axis, str]]:
    """What a configuration chooses on an axis: (path of the setting, axis, name)."""
    for name, setting in type(section).model_fields.items():
        value, place = getattr(section, name), (*path, name)
        if isinstance(value, Section):
            yield from choices(value, place)
        for mark in _marks(setting.annotation, *setting.metadata):
            named = enumerate(value) if isinstance(value, list) else [(None, value)]
            for number, choice in named:
                if choice is not None:
                    yield place if number is None else (*place, number), mark.axis, choice


def _marks(*annotations: Any) -> Iterator[OnAxis]:
    for annotation in annotations:
        if isinstance(annotation, OnAxis):
            yield annotation
        yield from _marks(*get_args(annotation))


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
        if name in inner:
            spaces |= search_spaces(inner[name], f"{prefix}{name}.")
            continue
        extra = setting.json_schema_extra
        declared: Any = extra.get("search") if isinstance(extra, dict) else None
        if declared is not None:
            when = {key: tuple(v) if isinstance(v, list) else v for key, v in declared.get("when", {}).items()}
            whole = "low" in declared and int in (setting.annotation, *get_args(setting.annotation))
            default = setting.get_default(call_default_factory=True)
            given = {**declared, "choices": tuple(declared.get("choices", ())), "when": when}
            spaces[prefix + name] = SearchSpace(**given, integer=whole, default=default)
    return spaces
