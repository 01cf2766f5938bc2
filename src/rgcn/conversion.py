"""Convert models and runs that rgcn 0.2.0 wrote, while they are read. Folders of older versions are refused.

Changes since 0.2.0:

    0.3.0   The table decoder.node_bias is named decoder.node_bias.trained. The optimizer state in a checkpoint is
            stored under the names of parameters instead of their numbers. `training.epochs` of link prediction is
            `training.steps`, and `training.labelled` of pretraining is `training.labeled`. The optimizer `adagrad`,
            with an accumulator for each row, is `row-adagrad`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")


def converted_training(training: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return the training settings of rgcn 0.2.0 under the names of today.

    In 0.2.0, `steps` of link prediction was `epochs`, `labeled` of pretraining was `labelled`, and the optimizer
    `row-adagrad` was `adagrad`.

    Args:
        training: All training settings of the model or run. If `steps` is missing, rgcn 0.2.0 wrote them.
        fields: The names of the settings that this training has today.

    >>> converted_training({"epochs": 7000}, ["steps", "epochs"])
    {'steps': 7000}
    >>> converted_training({"epochs": 9, "optimizer": "adagrad"}, ["steps", "epochs", "optimizer"])
    {'steps': 9, 'optimizer': 'row-adagrad'}
    """
    counts_steps = "steps" in fields and "steps" not in training
    names = {"labelled": "labeled", "epochs": "steps" if counts_steps else "epochs"}
    changed = {"optimizer": "row-adagrad"} if counts_steps and training.get("optimizer") == "adagrad" else {}
    return {names.get(key, key): changed.get(key, value) for key, value in training.items()}


def convert_weight_names(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """Rename the weights of rgcn 0.2.0, which may have a prefix such as `network/` or `best/`.

    >>> convert_weight_names({"best/decoder.node_bias": 1, "decoder.relation": 2})
    {'best/decoder.node_bias.trained': 1, 'decoder.relation': 2}
    """
    return {re.sub(r"decoder\.node_bias$", r"\g<0>.trained", name): tensor for name, tensor in tensors.items()}


def convert_optimizer_state(tensors: Mapping[str, Value], parameters: Sequence[str]) -> dict[str, Value]:
    """Rename the optimizer state of rgcn 0.2.0 from the numbers of parameters to their names.

    Args:
        tensors: The tensors of a checkpoint.
        parameters: The names of the optimizer's parameters in today's order. In 0.2.0 the bias of nodes came before
            the bias of relations.

    >>> convert_optimizer_state({"optimizer/1/exp_avg": 1}, ["relation", "relation_bias", "node_bias.trained"])
    {'optimizer/node_bias.trained/exp_avg': 1}
    """
    order = list(parameters)
    for name in parameters:
        relation_bias = name.replace("node_bias.trained", "relation_bias")
        if name.endswith("node_bias.trained") and relation_bias in order[: order.index(name)]:
            order.remove(name)
            order.insert(order.index(relation_bias), name)

    def renamed(key: str) -> str:
        match = re.fullmatch(r"optimizer/(\d+)/(.+)", key)
        return f"optimizer/{order[int(match[1])]}/{match[2]}" if match and int(match[1]) < len(order) else key

    return {renamed(key): tensor for key, tensor in tensors.items()}
