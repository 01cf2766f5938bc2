"""Models and runs written by earlier versions, converted while they are read. rgcn 0.2.0 is the oldest that is read.

Folders of earlier versions are refused where they are opened, with the version that reads them. What changed since:

    0.3.0   decoder.node_bias is a table, decoder.node_bias.trained; a checkpoint's optimizer state is stored under the
            names of parameters, not under their numbers
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

Value = TypeVar("Value")

RENAMED = {"decoder.node_bias": "decoder.node_bias.trained"}
NUMBERED = re.compile(r"optimizer/(\d+)/(.+)")


def converted_names(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """Weights of rgcn 0.2.0 under the names they have now, whatever stands before these (`network/`, `best/`).

    >>> converted_names({"best/decoder.node_bias": 1, "decoder.relation": 2})
    {'best/decoder.node_bias.trained': 1, 'decoder.relation': 2}
    """
    return {_renamed(name): tensor for name, tensor in tensors.items()}


def _renamed(name: str) -> str:
    return next((f"{name.removesuffix(old)}{new}" for old, new in RENAMED.items() if name.endswith(old)), name)


def converted_optimizer_state(tensors: Mapping[str, Value], parameters: Sequence[str]) -> dict[str, Value]:
    """Tensors of a checkpoint whose optimizer state is numbered, with the names of parameters in their place.

    parameters  the optimizer's, by name, in its order today; in 0.2.0 biases of nodes came before those of relations

    >>> converted_optimizer_state({"optimizer/1/exp_avg": 1}, ["relation", "relation_bias", "node_bias.trained"])
    {'optimizer/node_bias.trained/exp_avg': 1}
    """
    order, found = _order_of_0_2_0(parameters), {}
    for key, tensor in tensors.items():
        match = NUMBERED.fullmatch(key)
        if match and int(match[1]) < len(order):
            found[f"optimizer/{order[int(match[1])]}/{match[2]}"] = tensor
        else:
            found[key] = tensor
    return found


def _order_of_0_2_0(parameters: Sequence[str]) -> list[str]:
    order = list(parameters)
    for name in parameters:
        if name.endswith("node_bias.trained"):
            relation = name.removesuffix("node_bias.trained") + "relation_bias"
            if relation in order and order.index(relation) < order.index(name):
                order.remove(name)
                order.insert(order.index(relation), name)
    return order
