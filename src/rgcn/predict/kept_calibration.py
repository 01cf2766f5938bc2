"""A model's calibration kept beside it: fitted once, and used again while weights and graph are the same."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn

from rgcn.answers.calibration import Calibration
from rgcn.atomic import write_atomically
from rgcn.graph import KnowledgeGraph
from rgcn.tasks.estimator import Estimator

FILE = "calibration.json"
VERSION = 3


def calibration_of(model: Estimator, folder: Path) -> Calibration:
    """The calibration of a model: from its folder, or fitted and kept there where the folder can be written."""
    key = _key(model.network_, model.graph_)
    found = _kept(folder / FILE, key)
    if found is None:
        found = model.calibration_
        _keep(folder / FILE, key, found)
    model.calibration_ = found
    return found


def _key(network: nn.Module, graph: KnowledgeGraph) -> str:
    """Of the weights and the graph: a calibration of others is not used."""
    digest = sha256(f"{VERSION} {graph.fingerprint}".encode())
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _kept(path: Path, key: str) -> Calibration | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Calibration.from_dict(values) if values.get("of") == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _keep(path: Path, key: str, calibration: Calibration) -> None:
    if not path.parent.is_dir():  # a model that was never saved has no folder to keep it in
        return
    try:
        write_atomically(path, json.dumps({"of": key, **calibration.as_dict()}, indent=2) + "\n")
    except OSError:  # a folder that may only be read is none the worse
        return
