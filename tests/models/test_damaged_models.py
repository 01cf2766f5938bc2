"""Test damaged and malicious model folders: an error about the file, without a traceback, a wait or much memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import rgcn
from rgcn.errors import RgcnError
from rgcn.models import storage
from rgcn.models.storage import AllocationLimit
from rgcn.predict import open_model

DEEP = 200_000


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    kg = rgcn.KnowledgeGraph.from_triples([(f"n{i}", f"r{i % 2}", f"n{(i * 7 + 1) % 9}") for i in range(9)])
    folder = tmp_path_factory.mktemp("saved")
    for encoder in ("none", "rgcn", "c-rgcn", "path"):
        settings = {"encoder": encoder} if encoder == "path" else {"encoder": encoder, "decoder": "distmult"}
        rgcn.LinkPredictor(**settings).prepare(kg).save(folder / encoder)
    labeled = kg.with_labels({"train": {"n0": "a", "n1": "b"}})
    rgcn.NodeClassifier().prepare(labeled).save(folder / "classes")
    return folder


def changed(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def setting(folder: Path, **values: object) -> None:
    about = json.loads((folder / "model.json").read_text())
    changed(folder / "model.json", settings={**about["settings"], **values})


def without(path: Path, key: str) -> None:
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != key}))


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def overwritten(path: Path, content: bytes, at: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


def saved_array(path: Path, array: np.ndarray) -> None:
    """Replace an array by another of the size recorded in graph.json."""
    np.save(path, array)
    about = json.loads((path.parent / "graph.json").read_text())
    changed(path.parent / "graph.json", parts={**about["parts"], path.name: path.stat().st_size})


def promising(path: Path, rows: int) -> None:
    with path.open("r+b") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (rows, 3)})


DAMAGE = {
    "names cut short": lambda f: (f / "graph/nodes.text").write_bytes(b"n0"),
    "names are no text": lambda f: overwritten(f / "graph/nodes.text", b"\xff" * 18),
    "ends are an object": lambda f: np.save(f / "graph/nodes.ends.npy", np.array([None] * 9), allow_pickle=True),
    "ends run backwards": lambda f: overwritten(f / "graph/nodes.ends.npy", b"\xff" * 16, at=128),
    "slots are no power of two": lambda f: saved_array(f / "graph/nodes.slots.npy", np.full(12, -1, dtype=np.int32)),
    "triples promise too much": lambda f: promising(f / "graph/triples.npy", 10**13),
    "triples out of range": lambda f: overwritten(f / "graph/triples.npy", b"\x7f" * 12, at=128),
    "triples are numbers with a point": lambda f: saved_array(f / "graph/triples.npy", np.zeros((9, 3))),
    "no index of triples": lambda f: (f / "graph/incidence.pointer.npy").unlink(),
    "parts are a list": lambda f: changed(f / "graph/graph.json", parts=["nodes.text"]),
    "parts are text": lambda f: changed(f / "graph/graph.json", parts={"nodes.text": "18"}),
    "settings are a list": lambda f: changed(f / "model.json", settings=[1, 2]),
    "version is text": lambda f: changed(f / "model.json", version="2"),
    "version of the graph is a list": lambda f: changed(f / "graph/graph.json", version=[1]),
    "model.json nested": lambda f: (f / "model.json").write_text("[" * DEEP + "]" * DEEP),
    "task is a mapping": lambda f: changed(f / "model.json", task={"a": 1}),
    "graph's name is a mapping": lambda f: changed(f / "graph/graph.json", name={"a": 1}),
    "model's name is a mapping": lambda f: setting(f, name={"a": 1}),
    "encoder is a mapping": lambda f: setting(f, encoder={"a": 1}),
    "metadata are a list": lambda f: changed(f / "graph/graph.json", metadata=["prefixes"]),
    "prefixes are numbers": lambda f: changed(f / "graph/graph.json", metadata={"prefixes": {"a": [1]}}),
    "no fingerprint of the graph": lambda f: without(f / "graph/graph.json", "fingerprint"),
    "no fingerprint in the model": lambda f: without(f / "model.json", "graph"),
    "embedding": lambda f: setting(f, embedding=10**9),
    "embedding beyond all numbers": lambda f: setting(f, embedding=10**30),
    "many layers": lambda f: setting(f, layers=10**9),
    "seed is text": lambda f: setting(f, seed="seven"),
    "seed beyond all numbers": lambda f: setting(f, seed=10**30),
    "weights are a FIFO": lambda f: fifo(f / "weights.safetensors"),
    "arrays are a FIFO": lambda f: fifo(f / "graph/arrays.safetensors"),
    "names are a FIFO": lambda f: fifo(f / "graph/nodes.text"),
    "model.json is a FIFO": lambda f: fifo(f / "model.json"),
    "weights are a folder": lambda f: ((f / "weights.safetensors").unlink(), (f / "weights.safetensors").mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_raises_a_package_error(damage, saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(saved / "rgcn", folder)
    DAMAGE[damage](folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RgcnError) as raised:
        rgcn.load_model(folder)
    assert str(raised.value)
    assert len(str(raised.value)) < 2_000
    if damage != "model.json is a FIFO":  # without this file the folder is not a model, and is read as a graph
        with pytest.raises(RgcnError):
            open_model(folder, device="cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024  # KiB


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("none", {"embedding": 10**9}),
        ("rgcn", {"embedding": 50_000}),
        ("rgcn", {"bases": 10**9, "decomposition": "basis", "blocks": None}),
        ("c-rgcn", {"embedding": 10**9}),
        ("c-rgcn", {"bottleneck": 10**9}),
        ("path", {"width": 10**9}),
        ("path", {"width": 30_000}),
        ("classes", {"hidden": 10**9, "layers": 3}),
        ("classes", {"layers": 10**9}),
    ],
    ids=str,
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(model, settings, saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(saved / model, folder)
    setting(folder, **settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RgcnError, match=r"far larger than its weights|layers|divide|another model"):
        rgcn.load_model(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024


def test_the_bound_counts_every_tensor_that_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "MAX_TENSORS", 100)
    with AllocationLimit(tmp_path):
        torch.zeros(1 << 20).new_empty(3, 3)
        with pytest.raises(RgcnError, match=r"a table of 3\.73 GiB"):
            torch.empty(10**9)
    with AllocationLimit(tmp_path):
        made = [torch.empty(1) for _ in range(100)]
        with pytest.raises(RgcnError, match="far larger"):
            torch.empty(len(made))
