"""The plan of a run is made once and immutable; its resource estimate, and settings that fit."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

import rgcn
from rgcn import runs
from rgcn.cli import main
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph, NodeLabels
from rgcn.models.estimator import Estimator
from rgcn.runs import load_configuration
from rgcn.runs.assembly import check_resources, make_model, plan_run
from rgcn.runs.configuration import replace_settings
from rgcn.system.memory import MEMORY_VARIABLE, available_bytes, limit_memory, resident_bytes


def drawn(triples=20_000, nodes=5_000):
    rng = np.random.default_rng(0)
    rows = [(f"n{s}", f"r{r}", f"n{o}") for s, r, o in rng.integers(0, (nodes, 5, nodes), (triples, 3)).tolist()]
    graph = KnowledgeGraph.from_triples(rows)
    return graph.with_labels({"train": {name: f"c{i % 3}" for i, name in enumerate(list(graph.nodes)[:300])}})


@pytest.fixture
def limited(monkeypatch):
    def to(size):
        monkeypatch.setenv(MEMORY_VARIABLE, str(resident_bytes() + size))

    return to


@pytest.mark.parametrize("name", ["e-rgcn/nc-world", "rgcn/nc-world", "distmult/lp-world", "c-rgcn/lp-world"])
def test_larger_graphs_and_models_need_more(name):
    graph, larger = drawn(), drawn(40_000, 10_000)
    plan = plan_run(load_configuration(name), graph).resources
    assert plan_run(load_configuration(name), larger).resources.needed > plan.needed > 0
    width = "model.hidden" if name == "rgcn/nc-world" else "model.embedding"
    wider = plan_run(replace_settings(load_configuration(name), {width: 512}), graph).resources
    assert wider.parts["weights"] > plan.parts["weights"]
    assert wider.disk > plan.disk


@pytest.mark.parametrize(
    ("name", "change"),
    [("e-rgcn/nc-world", {"model.embedding": 4096}), ("distmult/lp-world", {"model.embedding": 4096})],
)
def test_a_run_that_does_not_fit_is_refused_with_settings_that_fit(name, change, limited):
    graph = drawn()
    plan = plan_run(replace_settings(load_configuration(name), change), graph)
    check_resources(plan, None)
    limited(plan.resources.needed - 1)
    with pytest.raises(ConfigError, match=r"Planned: .* of memory .*may be used: these fit: --set .*=") as refused:
        check_resources(plan, None)
    suggestion = str(refused.value).split("these fit: ")[1].split(";")[0]
    settings = dict(one.split("=") for one in suggestion.replace("--set ", "").split(" (")[0].split())
    smaller = replace_settings(
        plan.config, {key: int(value) if value.isdigit() else value for key, value in settings.items()}
    )
    check_resources(plan_run(smaller, graph), None)
    limited(1)
    with pytest.raises(ConfigError, match="no setting of this model fits"):
        check_resources(plan, None)


def test_a_full_disk_is_reported_before_the_run(tmp_path, monkeypatch):
    graph = drawn()
    plan = plan_run(load_configuration("distmult/lp-world"), graph)
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("usage", (), {"free": 1000}))
    with pytest.raises(ConfigError, match=r"of disk in .*, and .* are free"):
        check_resources(plan, Path(tmp_path) / "new" / "run")


def test_a_limit_is_what_is_left_of_it(monkeypatch):
    monkeypatch.delenv(MEMORY_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="'much' is not a size; write one like 8GiB"):
        limit_memory("much")
    monkeypatch.setenv(MEMORY_VARIABLE, str(resident_bytes() + (1 << 20)))
    assert available_bytes() <= 65 << 20
    monkeypatch.setenv(MEMORY_VARIABLE, "1")
    assert available_bytes() == 0


def test_a_plan_cannot_be_changed():
    plan = plan_run(load_configuration("rgcn/nc-world"), drawn())
    for target, name in ((plan, "config"), (plan.training, "training"), (plan.training, "graph")):
        with pytest.raises(FrozenInstanceError):
            setattr(target, name, None)
    shorter = plan.with_training(epochs=3)
    assert (shorter.config.training.epochs, shorter.training.training.epochs) == (3, 3)
    assert plan.config.training.epochs != 3


@pytest.mark.parametrize("name", ["e-rgcn/nc-world", "distmult/lp-world", "c-rgcn/cl-world", "rgcn/lp-world"])
def test_everything_is_decided_once_in_a_run(name, tmp_path, monkeypatch):
    """A training, its resumption, and fit in Python each plan once; the estimator holds nothing out by itself."""
    config = replace_settings(load_configuration(name), {"training.epochs": 2, "training.validation": 0.2})
    graph, planned = rgcn.load("world"), []
    plan_of_estimator = Estimator.plan
    monkeypatch.setattr(Estimator, "plan", lambda model, kg: planned.append(model) or plan_of_estimator(model, kg))
    held_out = {"nodes": 0, "links": 0}
    for owner, method, kind in ((NodeLabels, "hold_out", "nodes"), (KnowledgeGraph, "split", "links")):
        real = getattr(owner, method)

        def counted(*given, real=real, kind=kind, **named):
            held_out[kind] += 1
            return real(*given, **named)

        monkeypatch.setattr(owner, method, counted)
    result = runs.train(config, graph, tmp_path / "run")
    assert len(planned) == 1
    assert sum(held_out.values()) <= 1
    (tmp_path / "run" / "result.json").unlink()
    resumed = runs.resume(tmp_path / "run", graph=graph)
    assert len(planned) == 2
    model = make_model(config).fit(graph)
    assert len(planned) == 3
    assert result.model.fingerprint_ == resumed.model.fingerprint_ == model.fingerprint_


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["rgcn", "train", "e-rgcn/nc-world", "--dry-run", "--json"])
    with pytest.raises(SystemExit):
        main()
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == "50 epochs, each a step on all labels"
    assert result["configuration"]["model"]["encoder"] == "e-rgcn"
    assert list(tmp_path.iterdir()) == []
