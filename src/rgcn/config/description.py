"""What people are told of a network: in the words of its own classes, or by name where they have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rgcn.axes import dotted_name
from rgcn.axis_tables import ENCODERS
from rgcn.errors import RgcnError


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
