"""Settings of an estimator, given flat and kept by the section they belong to, in the manner of scikit-learn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import Self, TypedDict

from rgcn.config import Scheme, Section, validated
from rgcn.config.fields import choices, option_problems, refuse_problems
from rgcn.errors import ConfigError, close_matches
from rgcn.nn.decompositions import Decomposition
from rgcn.nn.encoders import Encoder
from rgcn.nn.relational_graph_conv import MessageFunction


class SharedSettings(TypedDict, total=False):
    """Keyword arguments of every estimator, so that a type checker knows them; `rgcn.config` says what each one means.

    A test holds them to the fields there.
    """

    encoder: str | type[Encoder]
    layers: int
    embedding: int
    decomposition: str | type[Decomposition]
    message_function: str | type[MessageFunction]
    convolution_options: dict[str, Any]
    bases: int | None
    blocks: int | None
    normalization: Literal["relation", "node", "direction", "none"]
    aggregation: Literal["sum", "mean"]
    inverse: bool
    self_loops: bool
    bias: bool
    init: Scheme
    gain: float
    options: dict[str, Any]
    epochs: int
    learning_rate: float
    weight_decay: float
    edge_dropout: float
    self_loop_dropout: float
    patience: int | None
    device: str
    deterministic: bool
    sharded: bool | None


class HasSettings(ABC):
    """An object with the settings of two sections, and some of its own.

    model_section, training_section   the sections its settings belong to
    own_settings                      further settings, which it takes itself, with their defaults
    """

    model_section: ClassVar[type[Section]]
    training_section: ClassVar[type[Section]]
    own_settings: ClassVar[Mapping[str, Any]] = {"seed": 0}

    model: Any
    training: Any

    @abstractmethod
    def _forget(self) -> None:
        """Forget everything that was fitted with other settings."""

    def _configure(self, settings: Mapping[str, Any], trusted: bool) -> None:
        """Take settings given flat, each into the section it belongs to; a name none has is refused.

        trusted  the settings are the user's own: classes they name by their dotted names may be imported
        """
        owner, sections = type(self).__name__, (self.model_section, self.training_section)
        given = {key: value for key, value in settings.items() if key != "model"}
        known = {*sections[0].model_fields, *sections[1].model_fields, *self.own_settings} - {"name"}
        unknown = next((key for key in given if key not in known), None)
        if unknown is not None:
            close = close_matches(unknown, sorted(known | {"model"}))
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known | {'model'}))}"
            raise ConfigError(f"{owner} has no setting {unknown!r}; {hint}")
        if settings.get("model") is not None:
            given["name"] = settings["model"]
        self.model, self.training = (
            validated(section, {key: value for key, value in given.items() if _takes(section, key, value)}, owner)
            for section in sections
        )
        if trusted:
            for _, axis, choice in (*choices(self.model), *choices(self.training)):
                axis.find(choice, trusted=True)
            refuse_problems(owner, [*option_problems(self.model), *option_problems(self.training)])
        for key, default in self.own_settings.items():
            setattr(self, key, given.get(key, default))
        self._forget()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """One with settings that a file brought; classes it names are imported only where that is allowed (`axes`)."""
        made = cls.__new__(cls)
        made._configure(settings, trusted=False)
        return made

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by name, as the constructor takes them."""
        own = {key: getattr(self, key) for key in self.own_settings}
        return {**own, **self.model.model_dump(), **self.training.model_dump()}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; the model must then be fitted again."""
        kept = self.get_params()
        if settings.get("model") is not None:  # a shorthand speaks for every axis that it stands for
            for meant in self.model_section.shorthands.values():
                kept = {key: value for key, value in kept.items() if key not in meant}
        self._configure({**kept, **settings}, trusted=True)
        return self


def _takes(section: type[Section], key: str, value: Any) -> bool:
    """Whether a setting is one of the section's, or a shorthand that stands for some."""
    return key in section.model_fields or (key == "name" and value in section.shorthands)
