"""What a training will take, and what fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.memory import LIMIT, available_bytes, held_bytes, limit_memory
from rgcn.runs import load_configuration
from rgcn.runs.configuration import changed
from rgcn.runs.planning import plan_of, refuse_what_does_not_fit
from rgcn.runs.training import settled


def drawn(triples=20_000, nodes=5_000):
    rng = np.random.default_rng(0)
    rows = [(f"n{s}", f"r{r}", f"n{o}") for s, r, o in rng.integers(0, (nodes, 5, nodes), (triples, 3)).tolist()]
    graph = KnowledgeGraph.from_triples(rows)
    return graph.with_labels({"train": {name: f"c{i % 3}" for i, name in enumerate(list(graph.nodes)[:300])}})


@pytest.fixture
def limited(monkeypatch):
    def to(size):
        monkeypatch.setenv(LIMIT, str(held_bytes() + size))

    return to


@pytest.mark.parametrize("name", ["e-rgcn/nc-world", "rgcn/nc-world", "distmult/lp-world", "c-rgcn/lp-world"])
def test_more_of_anything_takes_more(name):
    graph, larger = drawn(), drawn(40_000, 10_000)
    config = settled(load_configuration(name), graph)
    parts = plan_of(config, graph).parts
    assert sum(plan_of(config, larger).parts.values()) > sum(parts.values()) > 0
    width = "model.hidden" if name == "rgcn/nc-world" else "model.embedding"
    wider = changed(config, {width: 256})
    assert plan_of(wider, graph).parts["weights"] > parts["weights"]
    assert plan_of(wider, graph).disk > plan_of(config, graph).disk


@pytest.mark.parametrize(
    ("name", "change"),
    [("e-rgcn/nc-world", {"model.embedding": 4096}), ("distmult/lp-world", {"model.embedding": 4096})],
)
def test_what_does_not_fit_is_refused_with_settings_that_do(name, change, limited):
    graph = drawn()
    config = settled(changed(load_configuration(name), change), graph)
    plan = plan_of(config, graph)
    refuse_what_does_not_fit(plan, config, graph, None)
    limited(sum(plan.parts.values()) - 1)
    with pytest.raises(ConfigError, match=r"Planned: .* of memory .*may be used: these fit: --set .*=") as refused:
        refuse_what_does_not_fit(plan, config, graph, None)
    said = str(refused.value).split("these fit: ")[1].split(";")[0]
    settings = dict(one.split("=") for one in said.replace("--set ", "").split(" (")[0].split())
    smaller = changed(config, {key: int(value) if value.isdigit() else value for key, value in settings.items()})
    refuse_what_does_not_fit(plan_of(smaller, graph), smaller, graph, None)
    limited(1)
    with pytest.raises(ConfigError, match="no setting of this model fits"):
        refuse_what_does_not_fit(plan, config, graph, None)


def test_a_full_disk_is_told_beforehand(tmp_path, monkeypatch):
    graph = drawn()
    config = settled(load_configuration("distmult/lp-world"), graph)
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("usage", (), {"free": 1000}))
    with pytest.raises(ConfigError, match=r"of disk in .*, and .* are free"):
        refuse_what_does_not_fit(plan_of(config, graph), config, graph, Path(tmp_path) / "new" / "run")


def test_a_limit_is_what_is_left_of_it(monkeypatch):
    monkeypatch.delenv(LIMIT, raising=False)
    with pytest.raises(ConfigError, match="'much' is no size, such as 8GiB"):
        limit_memory("much")
    monkeypatch.setenv(LIMIT, str(held_bytes() + (1 << 20)))
    assert available_bytes() <= 65 << 20
    monkeypatch.setenv(LIMIT, "1")
    assert available_bytes() == 0
