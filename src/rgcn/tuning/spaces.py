"""Search spaces of a study: those declared with the settings and those given on the command line; drawing from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, cast, get_args

import yaml
from pydantic import ValidationError

from rgcn.config import RunConfig
from rgcn.config.fields import FIELDS_ONLY, SearchSpace, Section, find_problems, search_spaces
from rgcn.errors import ConfigError, UnknownNameError
from rgcn.runs.configuration import flat_settings, replace_settings, replaced_values

if TYPE_CHECKING:
    from optuna.trial import Trial

Spaces = dict[str, SearchSpace]
# Settings that change what is measured, or where, but not how good the model is.
NOT_SEARCHABLE = ("task", "seed", "data", "checkpoints", "trackers", "training.device", "training.validation")
# Settings that need not be drawn: the best length of each training is known from its validation metrics.
FOUND_BY_TRAINING = ("training.epochs", "training.steps")
USAGE = "--search takes key=low:high, key=low:high:log or key=a,b,c"


def choose_spaces(config: RunConfig, given: Sequence[str] = (), fixed: Sequence[str] = ()) -> Spaces:
    """Return the search spaces that apply to a configuration.

    Args:
        config: The configuration.
        given: Spaces such as "training.learning_rate=0.001:0.1:log" or "model.hidden=8,16,32". Each one adds a space
            or replaces the declared one.
        fixed: Settings that are not searched; "all" removes every declared space.

    Returns:
        The spaces by dotted key. A setting comes after those that it depends on.

    Raises:
        ConfigError: A space is not valid, or none is left.

    Examples:
        >>> from rgcn.runs.configuration import load_configuration
        >>> sorted(choose_spaces(load_configuration("rgcn/nc-aifb"), ["model.hidden=8,16"], ["all"]))
        ['model.hidden']
    """
    current, declared = flat_settings(config), search_spaces(type(config))
    for key in fixed:
        if key != "all" and key not in current:
            raise UnknownNameError("setting", key, current)
    parsed = dict(_parse(config, current, text) for text in given)
    excluded = {*FOUND_BY_TRAINING, *(declared if "all" in fixed else fixed)}
    spaces = {key: space for key, space in declared.items() if key not in excluded} | parsed
    # A condition must hold in the configuration, unless its setting is searched too and drawn before.
    conditions = {key: {k: v for k, v in space.when.items() if k not in spaces} for key, space in spaces.items()}
    spaces = {key: space for key, space in spaces.items() if replace(space, when=conditions[key]).applies(current)}
    if not spaces:
        raise ConfigError(f"no setting is left to search: {USAGE}")
    parents = {key: [parent for parent in space.when if parent in spaces] for key, space in spaces.items()}
    return {key: spaces[key] for key in TopologicalSorter(parents).static_order()}


def values_in_spaces(config: RunConfig, spaces: Spaces) -> dict[str, Any]:
    """Return the values of the configuration itself that lie in their spaces."""
    settings = flat_settings(config)
    return {key: settings[key] for key, each in spaces.items() if each.applies(settings) and _has(each, settings[key])}


def draw(trial: Trial, config: RunConfig, spaces: Spaces, unchanged: bool = False) -> RunConfig:
    """Return the configuration with the values that a trial draws.

    Args:
        trial: The Optuna trial.
        config: The configuration of the study.
        spaces: The search spaces.
        unchanged: Return the configuration as it is. The trial records those of its values that lie in their spaces.

    Raises:
        ConfigError: The values cannot be combined.
    """
    if unchanged:
        for key in values_in_spaces(config, spaces):
            _suggest(trial, key, spaces[key])
        return config
    settings = flat_settings(config)
    changes: dict[str, Any] = {}
    for key, space in spaces.items():
        if space.applies(settings):
            changes[key] = settings[key] = _suggest(trial, key, space)
        elif space.when:
            changes[key] = settings[key] = space.default
    return replace_settings(config, changes)


def describe_space(space: SearchSpace) -> str:
    """Describe a space in words.

    Examples:
        >>> describe_space(SearchSpace(low=0.001, high=0.1, log=True))
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


def _has(space: SearchSpace, value: Any) -> bool:
    if space.choices:
        return value in space.choices
    low, high = _ends(space)
    return isinstance(value, int | float) and low <= value <= high


def _ends(space: SearchSpace) -> tuple[float, float]:
    return cast(float, space.low), cast(float, space.high)


def _parse(config: RunConfig, settings: Mapping[str, Any], text: str) -> tuple[str, SearchSpace]:
    """Parse "key=low:high", "key=low:high:log" or "key=a,b,c"."""
    key, _, values = (part.strip() for part in text.partition("="))
    if not key or not values:
        raise ConfigError(f"--search {text}: not KEY=VALUES; {USAGE}")
    if key not in settings:
        raise UnknownNameError("setting", key, settings)
    if any(key == other or key.startswith(f"{other}.") for other in NOT_SEARCHABLE):
        raise ConfigError(f"{key} cannot be searched, because it does not make a model better: leave it out")
    if ":" in values:
        space = _interval(type(config), key, values)
    else:
        try:
            space = SearchSpace(choices=tuple(dict.fromkeys(yaml.safe_load(value) for value in values.split(","))))
        except (yaml.YAMLError, TypeError) as error:
            raise ConfigError(f"{values!r} is not a list of plain values; {USAGE}") from error
    declared = search_spaces(type(config)).get(key)
    if declared is not None:
        space = replace(space, when=declared.when, default=settings[key])
    for value in space.choices or _ends(space):
        _check(config, key, int(value) if space.integer else value)
    return key, space


def _interval(section: type[Section], key: str, values: str) -> SearchSpace:
    low_text, high_text, *rest = values.split(":")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise ConfigError(f"{values!r} does not start with two numbers; {USAGE}") from None
    if rest not in ([], ["log"]):
        raise ConfigError(f"only log may follow the two numbers, not {':'.join(rest)!r}; {USAGE}")
    if not low < high or (rest and low <= 0):
        raise ConfigError(f"--search {key}={values}: low must be below high, and above 0 with log")
    *path, name = key.split(".")
    for part in path:
        section = section.sections()[part]
    annotation = section.model_fields[name].annotation
    types = {annotation, *get_args(annotation)}
    if not types & {int, float}:
        raise ConfigError(f"{key} is not a number: give choices, {key}=a,b,c")
    if int in types and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"--search {key}={values}: {key} takes whole numbers only")
    return SearchSpace(low=low, high=high, log=bool(rest), integer=int in types)


def _check(config: RunConfig, key: str, value: Any) -> None:
    """Check that a setting accepts a value. Combinations with other settings are checked in each trial."""
    values = replaced_values(config, {key: value})
    try:
        type(config).model_validate(values, context=FIELDS_ONLY)
    except ValidationError:
        problems = [problem.message for problem in find_problems(type(config), values) if problem.key == key]
        raise ConfigError(f"--search {key}: {'; '.join(problems)}") from None
