"""What a study varies: the spaces declared beside the settings, those given by hand, and a trial's draw from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import ValidationError

from rgcn.config import RunConfig
from rgcn.config.fields import FIELDS_ONLY, SearchSpace, Section, find_problems, search_spaces
from rgcn.errors import ConfigError, UnknownNameError
from rgcn.runs.configuration import changed, flat_settings, with_changes

if TYPE_CHECKING:
    from optuna.trial import Trial

Spaces = dict[str, SearchSpace]
# Settings that change what is measured or where it runs, not how well the model does.
NEVER = ("task", "seed", "data", "checkpoints", "trackers", "training.device", "training.validation")
# The best epoch of each trial is found by looking, at no cost, so that there is no need to draw it.
FOUND_BY_LOOKING = ("training.epochs",)
HOW = "--search takes key=low:high, key=low:high:log or key=a,b,c"


def choose_spaces(config: RunConfig, given: Sequence[str] = (), fixed: Sequence[str] = ()) -> Spaces:
    """The spaces that mean something for a configuration.

    given  "training.learning_rate=0.001:0.1:log" or "model.hidden=8,16,32": adds a space, or replaces the declared one
    fixed  settings that stay as they are; "all" takes every declared space away

    >>> from rgcn.runs.configuration import load_configuration
    >>> sorted(choose_spaces(load_configuration("rgcn/nc-aifb"), ["model.hidden=8,16"], ["all"]))
    ['model.hidden']
    """
    own, declared = flat_settings(config), search_spaces(type(config))
    for key in fixed:
        if key != "all" and key not in own:
            raise UnknownNameError("setting", key, own)
    by_hand = dict(_parse(config, own, text) for text in given)
    stay = {*FOUND_BY_LOOKING, *(declared if "all" in fixed else fixed)}
    spaces = {key: space for key, space in declared.items() if key not in stay} | by_hand
    # Every condition holds in the configuration, or is itself searched, and then drawn before what depends on it.
    given_by = {key: {k: v for k, v in space.when.items() if k not in spaces} for key, space in spaces.items()}
    spaces = {key: space for key, space in spaces.items() if replace(space, when=given_by[key]).applies(own)}
    if not spaces:
        raise ConfigError(f"nothing is left to search: {HOW}")
    parents = {key: [parent for parent in space.when if parent in spaces] for key, space in spaces.items()}
    return {key: spaces[key] for key in TopologicalSorter(parents).static_order()}


def own_values(config: RunConfig, spaces: Spaces) -> dict[str, Any]:
    """The configuration's own values, of those settings where they lie in the space."""
    own = flat_settings(config)
    return {key: own[key] for key, space in spaces.items() if space.applies(own) and _contains(space, own[key])}


def draw(trial: Trial, config: RunConfig, spaces: Spaces, own: bool = False) -> RunConfig:
    """The configuration with a trial's values; a ConfigError where they cannot be together.

    own  the configuration as it is; the trial learns its values, as far as they lie in their spaces
    """
    if own:
        for key in own_values(config, spaces):
            _suggest(trial, key, spaces[key])
        return config
    settings = flat_settings(config)
    changes: dict[str, Any] = {}
    for key, space in spaces.items():
        if space.applies(settings):
            changes[key] = settings[key] = _suggest(trial, key, space)
        elif space.when:
            changes[key] = settings[key] = space.default
    return changed(config, changes)


def described(space: SearchSpace) -> str:
    """A space in words.

    >>> described(SearchSpace(low=0.001, high=0.1, log=True))
    '0.001 to 0.1, logarithmic'
    """
    if space.choices:
        return ", ".join(map(str, space.choices))
    return f"{space.low:g} to {space.high:g}{', logarithmic' if space.log else ''}"


def _suggest(trial: Trial, key: str, space: SearchSpace) -> Any:
    if space.choices:
        return trial.suggest_categorical(key, list(space.choices))
    low, high = _ends(space)
    if space.integer:
        return trial.suggest_int(key, int(low), int(high), log=space.log)
    return trial.suggest_float(key, low, high, log=space.log)


def _contains(space: SearchSpace, value: Any) -> bool:
    if space.choices:
        return value in space.choices
    low, high = _ends(space)
    return isinstance(value, int | float) and low <= value <= high


def _ends(space: SearchSpace) -> tuple[float, float]:
    assert space.low is not None
    assert space.high is not None
    return space.low, space.high


def _parse(config: RunConfig, own: Mapping[str, Any], text: str) -> tuple[str, SearchSpace]:
    key, _, values = (part.strip() for part in text.partition("="))
    if not key or not values:
        raise ConfigError(f"{HOW}; got {text!r}")
    if key not in own:
        raise UnknownNameError("setting", key, own)
    if any(key == never or key.startswith(f"{never}.") for never in NEVER):
        raise ConfigError(f"{key} is no setting to search: it does not make a model better")
    space = _interval(type(config), key, values) if ":" in values else SearchSpace(choices=_choices(values))
    declared = search_spaces(type(config)).get(key)
    if declared is not None:
        space = replace(space, when=declared.when, default=own[key])
    for value in space.choices or _ends(space):
        _check(config, key, int(value) if space.integer else value)
    return key, space


def _choices(values: str) -> tuple[Any, ...]:
    try:
        return tuple(dict.fromkeys(yaml.safe_load(value) for value in values.split(",")))
    except (yaml.YAMLError, TypeError) as error:
        raise ConfigError(f"{HOW}; {values!r} is no list of plain values") from error


def _interval(section: type[Section], key: str, values: str) -> SearchSpace:
    low_text, high_text, *rest = values.split(":")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise ConfigError(f"{HOW}; {values!r} does not begin with two numbers") from None
    if rest not in ([], ["log"]):
        raise ConfigError(f"{HOW}; after the two numbers there is only log, not {':'.join(rest)!r}")
    if not low < high or (rest and low <= 0):
        raise ConfigError(f"--search {key}={values}: low lies below high, and above 0 with log")
    *path, name = key.split(".")
    for part in path:
        section = section.sections()[part]
    kind = section.model_fields[name].annotation
    kinds = {kind, *get_args(kind)}
    if not kinds & {int, float}:
        raise ConfigError(f"{key} is not a number: give choices, {key}=a,b,c")
    if int in kinds and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"{key} takes whole numbers; got {values}")
    return SearchSpace(low=low, high=high, log=bool(rest), integer=int in kinds)


def _check(config: RunConfig, key: str, value: Any) -> None:
    """Whether a setting takes a value at all; whether it goes with others is seen in each trial."""
    values = with_changes(config, {key: value})
    try:
        type(config).model_validate(values, context=FIELDS_ONLY)
    except ValidationError:
        words = [problem.words for problem in find_problems(type(config), values) if problem.key == key]
        raise ConfigError(f"--search {key}: {'; '.join(words)}") from None
