"""Settings given flat, as keyword arguments, sorted into the sections they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rgcn.config import Section
from rgcn.errors import ConfigError, close_matches


def split_settings(
    owner: str, settings: Mapping[str, Any], model: type[Section], training: type[Section], own: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings of the model, settings of the training); a name neither has is refused with the closest one.

    own: names the owner takes itself, for the suggestions.
    """
    in_model = model.model_fields.keys() - {"name"}  # which goes by `model` here
    in_training = training.model_fields.keys()
    unknown = [key for key in settings if key not in in_model and key not in in_training]
    if unknown:
        known = sorted([*in_model, *in_training, *own])
        close = close_matches(unknown[0], known)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        raise ConfigError(f"{owner} has no setting {unknown[0]!r}; {hint}")
    return (
        {key: value for key, value in settings.items() if key in in_model},
        {key: value for key, value in settings.items() if key in in_training},
    )
