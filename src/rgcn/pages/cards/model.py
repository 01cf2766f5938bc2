"""What a report says of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgcn.pages.markup import definitions, details, join, table, tag
from rgcn.pages.page import Section
from rgcn.runs.run_record import RunRecord
from rgcn.words import count

if TYPE_CHECKING:
    from rgcn.tasks.estimator import Estimator


def model_card(run: RunRecord, model: Estimator | None) -> Section:
    """What the network is made of, and how many numbers it holds."""
    features = model is not None and model.graph_.features is not None
    rows: list[tuple[object, object]] = list(run.config.model.described(features).made_of.items())
    result = run.result or {}
    stored = result.get("stored_parameters") or (None if model is None else model.num_parameters_)
    counted = result.get("parameters")
    if stored is not None:
        rows.append(("Parameters held and trained", f"{stored:,}"))
    if counted is not None:
        words = "" if counted == stored else " (a row for every relation and node; those never reached are not stored)"
        rows.append(("Parameters as the paper counts", f"{counted:,}{words}"))
    body = [definitions(rows)]
    if model is not None:
        tensors = [
            [tag("code", name), " × ".join(map(str, tensor.shape)), f"{tensor.numel():,}"]
            for name, tensor in model.network_.named_parameters()
        ]
        body.append(details(count(len(tensors), "tensor"), table(["tensor", "shape", "numbers"], tensors, numeric=[2])))
    return Section("Model", "The network that was trained.", join(body))
