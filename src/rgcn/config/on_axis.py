"""Settings that choose on an axis: `trackers: list[Annotated[str, OnAxis(TRACKERS)]]`.

Written in a file they are names; from Python a class will do, and is kept by its dotted name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from rgcn.axes import Axis
from rgcn.config.section import Path, Section


@dataclass(frozen=True)
class OnAxis:
    """The choices a field, or each item of a list, has.

    closed  a name that is not there is refused here; else by whoever uses it, who may know other names for the same
    """

    axis: Axis[Any]
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
    axis: Axis[Any]
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
