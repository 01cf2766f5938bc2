"""The weights that come with the package: trained on many graphs, for any graph."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rgcn.config import LinkModelConfig
from rgcn.errors import ConfigError

FOLDER = Path(__file__).parent / "weights"
WEIGHTS, CARD = FOLDER / "universal.safetensors", FOLDER / "universal.json"


@cache
def shipped_weights() -> dict[str, Tensor]:
    """By name; they are shared, so that nobody may write to them."""
    from safetensors.torch import load_file

    return load_file(WEIGHTS)


@cache
def shipped_card() -> dict[str, Any]:
    """What is known of them: the settings they need (`settings`), the graphs they learned from, how, and how well."""
    return json.loads(CARD.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def load_shipped(network: nn.Module, model: LinkModelConfig) -> None:
    """Let a network begin where the shipped weights are; ConfigError where it is another than they were made for.

    Settings decide, not shapes: weights fit, too, where messages are added that were multiplied, and mean nothing.
    """
    needs = shipped_card()["settings"]
    wrong = ", ".join(f"{name} {value}" for name, value in needs.items() if getattr(model, name) != value)
    if wrong:
        raise ConfigError(f"the weights that come with rgcn need {wrong}: set so, or model.start to random")
    network.load_state_dict(shipped_weights())
