"""Settings that choose on an axis, `list[Annotated[str, OnAxis(TRACKERS)]]`, and what people are told of the chosen.

Written in a file they are names; from Python a class will do, and is kept by its dotted name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from rgcn.axes import Axis, dotted_name
from rgcn.axis_tables import ENCODERS
from rgcn.config.section import Path, Section
from rgcn.errors import RgcnError


@dataclass(frozen=True)
class OnAxis:
    """The choices a field, or each item of a list, has.

    closed  a name that is not there is refused here; else by whoever uses it, who may know other names for the same
    """

    axis: Axis
    closed: bool = True

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


class Choice(NamedTuple):
    """What a configuration chose on an axis, and the path of the setting."""

    path: Path
    axis: Axis
    name: str


def choices(section: Section, path: Path = ()) -> Iterator[Choice]:
    """Everything a configuration chooses on an axis."""
    for name, field in type(section).model_fields.items():
        value, place = getattr(section, name), (*path, name)
        if isinstance(value, Section):
            yield from choices(value, place)
        for mark in _marks(field.annotation, *field.metadata):
            named = enumerate(value) if isinstance(value, list) else [(None, value)]
            for number, choice in named:
                if choice is not None:
                    yield Choice(place if number is None else (*place, number), mark.axis, choice)


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
