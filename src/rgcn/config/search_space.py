"""Search spaces for tuning, declared beside the fields they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from rgcn.config.section import Section


@dataclass(frozen=True)
class SearchSpace:
    """Where good values of a setting are likely to lie: an interval, or some choices.

    low, high  the interval, both ends included; None with choices
    log        draw evenly in the logarithm
    integer    draw whole numbers
    choices    the values to choose from; empty with an interval
    when       the setting means something only where these settings hold, e.g. {"model.decomposition": "basis"};
               a tuple stands for any of its values. Judged on the whole configuration, tuned settings included
    default    what to set where `when` does not hold

    >>> SearchSpace(low=2, high=64, when={"model.decomposition": "basis"}).applies({"model.decomposition": "none"})
    False
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    integer: bool = False
    choices: tuple[Any, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict)
    default: Any = None

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Whether the setting means anything beside these, given as {"model.encoder": "rgcn", ...}."""
        return all(
            settings.get(key) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for key, wanted in self.when.items()
        )


def search(
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    choices: Sequence[Any] = (),
    when: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A field's search space, for its `json_schema_extra`; so that it stands in the JSON Schema too.

    >>> search(low=0.001, high=0.1, log=True)
    {'search': {'low': 0.001, 'high': 0.1, 'log': True}}
    >>> search(choices=[8, 16], when={"model.encoder": "rgcn"})
    {'search': {'choices': [8, 16], 'when': {'model.encoder': 'rgcn'}}}
    """
    if bool(choices) == (low is not None and high is not None):
        raise ValueError("a search space is an interval, low and high, or choices")
    if low is not None and high is not None and not (low < high and (low > 0 or not log)):
        raise ValueError(f"low = {low} lies below high = {high}, and above 0 where the logarithm is taken")
    space: dict[str, Any] = {"choices": list(choices)} if choices else {"low": low, "high": high, "log": log}
    return {"search": {**space, "when": dict(when)} if when else space}


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
