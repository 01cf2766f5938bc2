"""Tables on disk: files without names, and tensors written without a copy."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.nn import row_tables
from rgcn.nn.row_tables import (
    DTYPE_NAMES,
    copy_stored_like,
    is_on_disk,
    write_tensors,
    zeros_on_disk,
    zeros_stored_like,
)

SETTINGS = {"embedding": 8, "batch_edges": 100, "steps": 6, "evaluate_every": 2, "seed": 1}


def test_a_table_on_disk_is_a_file_that_has_no_name(tmp_path):
    table = zeros_on_disk((3, 4), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not table.any()
    assert is_on_disk(table)
    assert is_on_disk(torch.nn.Parameter(table).detach())
    table.normal_()
    moments, copied = zeros_stored_like(table), copy_stored_like(table, table)
    assert is_on_disk(moments)
    assert is_on_disk(copied)
    assert torch.equal(copied, table)
    copied.zero_()
    assert table.any()
    assert not is_on_disk(copy_stored_like(table, torch.ones(3)))
    assert not is_on_disk(zeros_stored_like(torch.ones(2)))


def test_a_full_disk_is_reported_before_work_begins(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"No space left.*RGCN_CACHE"):
        zeros_on_disk((3, 4), tmp_path)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(max_size=5), st.tuples(st.sampled_from(list(DTYPE_NAMES)), st.integers(0, 3)), max_size=6)
)
def test_tensors_are_read_back_as_they_were_written(tmp_path_factory, kinds):
    tensors = {
        name: torch.arange(2 * 3**size).view(2, *[3] * size).to(kind) for name, (kind, size) in kinds.items()
    } | {"none": torch.empty(0, 3), "one": torch.tensor(2.5), "turned": torch.arange(6.0).view(2, 3).T}
    path = tmp_path_factory.mktemp("written") / "tensors.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_tables, "CHUNK_SIZE", 4)
        write_tensors(tensors, path)
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("optimizer", ["lazy-adam", "row-adagrad"])
def test_a_table_on_disk_trains_to_the_same_bits(optimizer, tmp_path, monkeypatch):
    monkeypatch.setenv("RGCN_CACHE", str(tmp_path))
    world = rgcn.load("world")
    models = []
    for tables in ("memory", "disk"):
        model = rgcn.LinkPredictor(encoder="none", optimizer=optimizer, tables=tables, **SETTINGS)
        model.fit(world)
        models.append(model)
    weights = [model.network_.state_dict() for model in models]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert is_on_disk(models[1].network_.source.rows.trained)
    assert not is_on_disk(models[0].network_.source.rows.trained)
    models[1].save(tmp_path / "model")
    again = rgcn.load_model(tmp_path / "model")
    assert torch.equal(
        again.network_.state_dict()["encoder.source.rows.trained"], weights[0]["encoder.source.rows.trained"]
    )


def test_a_table_on_disk_is_for_a_cpu():
    if torch.cuda.is_available():
        with pytest.raises(ConfigError, match="for a CPU"):
            rgcn.LinkPredictor(encoder="none", tables="disk", device="cuda").fit(rgcn.load("world"))
