"""Test `rgcn bench`: its graphs, its floor, and its measurements. No test asserts a time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

import rgcn
from rgcn.bench import BenchPlan, bench_report, comparison
from rgcn.bench.bench_report import COLUMNS, plain_table, table_rows, write_json
from rgcn.bench.comparison import compare, comparison_rows, measure_in_rounds, resolve_devices
from rgcn.bench.floor import Speeds, Work, floor_seconds, layer_work, measure_speeds, step_work
from rgcn.bench.graphs import SHAPES, Shape, find_graph, graph_from_npz, graph_to_npz, random_graph, random_shape
from rgcn.bench.measurement import (
    NO_PEERS,
    HostMemory,
    StepJob,
    Workload,
    _failure_reason,
    default_workload,
    measure,
    peer_training_step,
    rgcn_training_step,
)
from rgcn.errors import ConfigError, DataError
from rgcn.system.memory import available_bytes

SLOW_MACHINE = Speeds(bandwidth=1e9, rate=1e9)


def here(job: StepJob):
    """Measure in this process, without a memory limit."""
    return measure(replace(job, max_bytes=None))


# -- graphs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [SHAPES["bgs-shaped"], random_shape(100), random_shape(20_000)])
def test_a_random_graph_has_the_requested_size(shape):
    kg = random_graph(shape)
    assert (kg.num_nodes, kg.num_relations, len(kg)) == (shape.nodes, shape.relations, shape.edges)
    assert dict(kg.labels.counts()) == {"train": shape.train, "test": shape.labeled - shape.train}
    assert kg.labels.num_classes == shape.classes
    assert len(np.unique(kg.labels.of("train")[1])) == shape.classes
    assert len(np.unique(kg.triples, axis=0)) == shape.edges
    assert len(np.unique(kg.triples[:, 1])) == shape.relations


def test_every_node_of_a_random_graph_is_within_two_hops_of_a_labeled_one():
    kg = random_graph(random_shape(20_000))
    assert kg.within_hops(kg.labels.nodes.tolist(), 2).all()
    assert not kg.within_hops(kg.labels.nodes.tolist(), 1).all()


def test_relations_and_objects_of_a_random_graph_have_skewed_frequencies():
    kg = random_graph(random_shape(50_000))
    for column in (1, 2):
        counts = np.sort(np.bincount(kg.triples[:, column]))[::-1]
        assert counts[0] > 10 * np.median(counts)
        assert counts[: len(counts) // 10].sum() > 0.3 * len(kg)


def test_a_random_graph_depends_on_its_shape_only():
    assert find_graph("random-1e3").fingerprint == find_graph("random-1000").fingerprint
    assert find_graph("random-1000").fingerprint != find_graph("random-1001").fingerprint


def test_impossible_shapes_raise_an_error():
    with pytest.raises(ConfigError, match="give it more edges"):
        random_graph(Shape(nodes=100, relations=2, edges=50, labeled=5, train=4, classes=2))
    with pytest.raises(ConfigError, match="must have 100 to"):
        find_graph("random-7")


def test_a_graph_is_the_same_after_writing_and_reading(tmp_path):
    kg = find_graph("random-500")
    graph_to_npz(kg, tmp_path / "random-500.npz")
    again = find_graph(str(tmp_path / "random-500.npz"))
    assert again.fingerprint == kg.fingerprint
    assert again.name == "random-500"


def test_files_without_a_graph_raise_an_error(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        graph_from_npz(tmp_path / "nothing.npz")
    np.savez(tmp_path / "other.npz", numbers=np.arange(3))
    with pytest.raises(DataError, match="triples"):
        graph_from_npz(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(DataError, match=r"not an \.npz file"):
        graph_from_npz(tmp_path / "text.npz")


def test_a_saved_graph_is_found_by_its_folder_and_must_have_labels(tmp_path):
    from rgcn.data.graph_store import save_graph

    labeled = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
    save_graph(labeled, tmp_path / "with")
    save_graph(replace(labeled, labels=None), tmp_path / "without")
    assert find_graph(str(tmp_path / "with")).fingerprint == labeled.fingerprint
    with pytest.raises(DataError, match="labeled nodes"):
        find_graph(str(tmp_path / "without"))


def test_an_unknown_name_raises_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"aifb.*am-shaped.*random-N"):
        find_graph("aifbb")


# -- settings ----------------------------------------------------------------------------------------------


def test_published_settings_and_guesses():
    assert default_workload("mutag", "rgcn", 23_644, 23) == Workload("rgcn", hidden=16, bases=30, l2_penalty=5e-4)
    assert default_workload("am-full-shaped", "rgcn", 1_666_764, 133).hidden == 10
    assert default_workload("am-shaped", "e-rgcn", 246_728, 122).weight_decay == 0.005
    assert default_workload("mine", "rgcn", 1_000, 10).bases is None
    assert default_workload("mine", "rgcn", 1_000_000, 10).bases == 40
    assert default_workload("mutag", "rgcn", 23_644, 23, hidden=8, bases=0) == Workload("rgcn", 8, None, 5e-4)
    with pytest.raises(ConfigError, match="e-rgcn"):
        default_workload("aifb", "gcn", 10, 2)


def test_plans_and_devices_are_checked(monkeypatch):
    with pytest.raises(ConfigError, match="fast, plain"):
        BenchPlan(["aifb"], peer=["dgl"])
    with pytest.raises(ConfigError, match="rounds"):
        BenchPlan(["aifb"], rounds=0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert resolve_devices(None) == ("cpu",)
    assert resolve_devices(("auto", "cpu")) == ("cpu",)
    with pytest.raises(ConfigError, match="no GPU"):
        resolve_devices(("cuda",))
    with pytest.raises(ConfigError, match="unknown device"):
        resolve_devices(("tpu",))


# -- the floor ---------------------------------------------------------------------------------------------

# One triple (a, r, b): four edges (a → b, its inverse, two self-loops), 3 edge relations, 2 targets, 2 sources, and
# four (relation, source) pairs as well as (relation, target) pairs. Numbers counted by hand, 4 bytes each.
COUNTED = {
    # parameters   4 rows · 3 + 3, 3 relations · 3 · 2 + 2 = 35, six numbers each
    # layer 1      forward: 2·4 + 3 structure, 12 + 3 weights, 2·3 out; backward: 11 structure, 6 gradient
    #              4 edges · 3, forward and backward
    # layer 2      forward: 2·4 + 3 + 4 structure, 18 + 2 weights, 6 in, 4 out; backward: 15, 18, 6, 4, and 6 written
    #              4 pairs · 6 thrice, 4 edges · 2 twice
    "none": (
        {"model": "rgcn", "hidden": 3},
        Work(4 * (6 * 35 + (32 + 17) + (45 + 49)), 2 * 12 + (3 * 24 + 2 * 8)),
    ),
    # parameters   2 nodes · 2 bases · 3 + 6 coefficients + 3, 2 · 3 · 2 + 6 + 2 = 41
    # layer 1      forward: 15 structure, 18 + 3 weights, 6 out; backward: 15, 18, 6; 4 pairs · 2 · 3 thrice, 12 twice
    # layer 2      as above with 18 weights; 2 nodes · 2 · 6 + 4 pairs · 2 · 2 = 40 thrice, 8 twice
    "basis": (
        {"model": "rgcn", "hidden": 3, "decomposition": "basis", "bases": 2},
        Work(4 * (6 * 41 + (42 + 39) + (45 + 49)), (3 * 24 + 2 * 12) + (3 * 40 + 2 * 8)),
    ),
    # parameters   2 · 2 embeddings, 3 · 2, 3 · 2 · 2 + 2 = 24
    # layer 1      forward: 15, 6, 4 in, 4 out; backward: 15, 6, 4, 4, the embedding's gradient is the optimizer's
    # layer 2      forward: 15, 12 + 2, 4, 4; backward: 15, 12, 4, 4, and 4 written
    "e-rgcn": (
        {"model": "e-rgcn", "embedding": 2},
        Work(4 * (6 * 24 + (29 + 29) + (37 + 39)), (3 * 8 + 2 * 8) + (3 * 16 + 2 * 8)),
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_floor_of_a_graph_counted_by_hand(name):
    settings, expected = COUNTED[name]
    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b")], labels={"a": "x", "b": "y"})
    assert step_work(rgcn.NodeClassifier(device="cpu", **settings).prepare(kg)) == expected


def test_a_layer_of_unknown_kind_has_no_floor():
    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b")])
    adjacency = rgcn.RelationalAdjacency.from_graph(kg)
    layer = rgcn.nn.RelationalGraphConv(4, 4, 1, decomposition=rgcn.nn.BlockDiagonal(2))
    with pytest.raises(ConfigError, match="separate weights"):
        layer_work(layer, adjacency, first=False)


def test_the_floor_is_the_larger_of_both_times():
    assert floor_seconds(Work(10, 40), Speeds(10.0, 10.0)) == (4.0, "operations")
    assert floor_seconds(Work(50, 40), Speeds(10.0, 10.0)) == (5.0, "bytes")


def test_speeds_are_positive():
    speeds = measure_speeds("cpu", copied_bytes=2**16, size=32)
    assert speeds.bandwidth > 0
    assert speeds.rate > 0


# -- memory ------------------------------------------------------------------------------------------------


def test_peak_memory_is_measured_and_reset():
    memory = HostMemory()
    if memory.method != "VmHWM":
        pytest.skip("this system does not tell the peak since a moment")
    size = 64 * 2**20
    held = np.ones(size, dtype=np.uint8)
    assert held.sum() == size
    assert memory.peak() > 0.9 * size
    del held
    memory.restart()
    assert memory.peak() < 0.5 * size
    assert (available_bytes() or 1) > 0


# -- measuring ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_result():
    plan = BenchPlan(["random-300"], device=["cpu"], peer=["none"], steps=2, rounds=2)
    return compare(plan, command=["rgcn", "bench", "a b"], measure=here, speeds_of=lambda device: SLOW_MACHINE)


def test_a_comparison_end_to_end(tiny_result, tmp_path):
    write_json(tiny_result, tmp_path / "out" / "result.json")
    read = json.loads((tmp_path / "out" / "result.json").read_text())
    assert read == tiny_result
    assert read["command"] == "rgcn bench 'a b'"
    assert {"cpu", "cores", "gpu", "python", "torch", "numba", "triton", "torch-geometric"} <= read["machine"].keys()
    assert read["speeds"] == {"cpu": {"bandwidth": 1e9, "rate": 1e9}}
    assert [(row["model"], row["side"]) for row in read["rows"]] == [("rgcn", "rgcn"), ("e-rgcn", "e-rgcn")]
    for row in read["rows"]:
        assert row["edges"] == 300
        assert row["times_slower"] == 1.0
        assert len(row["rounds"]) == 2
        assert row["seconds"] == min(turn["seconds"] for turn in row["rounds"]) > 0
        assert row["peak_bytes"] >= 0
        assert row["floor"]["reached"] == pytest.approx(row["floor"]["seconds"] / row["seconds"])


def test_the_plain_table_has_a_line_for_each_network(tiny_result):
    lines = plain_table(tiny_result).splitlines()
    assert sum(line.startswith("random-300") for line in lines) == 2
    assert {len(line) for line in table_rows(tiny_result)} == {len(COLUMNS)}


def test_our_step_and_that_of_peers_reduce_the_loss():
    pytest.importorskip("torch_geometric")
    kg = find_graph("random-200")
    for bases in (None, 3):
        workload = Workload("rgcn", hidden=4, bases=bases, l2_penalty=1e-4)
        for peer in ("fast", "plain"):
            peer_training_step(kg, workload, "cpu", peer)()
    step, classifier = rgcn_training_step(kg, Workload("rgcn", hidden=4), "cpu")
    before = [p.detach().clone() for p in classifier.network_.parameters()]
    step()
    assert any((p != old).any() for p, old in zip(classifier.network_.parameters(), before, strict=True))
    with pytest.raises(ConfigError, match="no layer for the model e-rgcn"):
        peer_training_step(kg, Workload("e-rgcn"), "cpu", "fast")


def test_without_torch_geometric_only_our_side_is_measured_with_a_note(monkeypatch):
    monkeypatch.setattr(comparison, "has_peers", lambda: False)
    notes = []
    plan = BenchPlan(["random-200"], model=["rgcn"], device=["cpu"], steps=1, rounds=1)
    measurement = {"seconds": 1.0, "peak_bytes": 5}
    result = compare(plan, notes.append, measure=lambda job: measurement, speeds_of=lambda device: SLOW_MACHINE)
    assert [row["side"] for row in result["rows"]] == ["rgcn"]
    assert result["notes"] == notes[:1] == [NO_PEERS]
    assert "rgcn[bench]" in plain_table(result)


def test_sides_alternate_and_a_failed_one_is_not_repeated():
    order, notes = [], []

    def scripted(job):
        order.append(job.side)
        if job.side == "plain":
            return {"failed": "ran out of memory: 8 GiB"}
        return {"seconds": 4.0 / len(order), "peak_bytes": 10 if job.side == "ours" else 30}

    jobs = [StepJob("g.npz", side, Workload("rgcn")) for side in ("ours", "fast", "plain")]
    rounds = measure_in_rounds(jobs, 2, scripted, notes.append, "g")
    assert order == ["ours", "fast", "plain", "ours", "fast"]
    assert [words.split(", ")[1] for words in notes] == [*["round 1 of 2"] * 3, *["round 2 of 2"] * 2]
    common = {"graph": "g", "model": "rgcn", "device": "cpu"}
    ours, fast, plain = comparison_rows(common, rounds, SLOW_MACHINE)
    assert (ours["seconds"], fast["seconds"]) == (1.0, 0.8)
    assert fast["times_memory"] == 3.0
    assert plain["failed"].startswith("ran out of memory")
    nothing = dict.fromkeys(("gpu", "torch", "numba", "torch-geometric"))
    machine = {"cpu": "c", "cores": 2, "python": "3", **nothing}
    result = {"rows": [ours, fast, plain], "machine": machine, "speeds": {}, "notes": []}
    assert "out of memory" in table_rows(result)[1]


def test_timeouts_and_lack_of_memory_are_reported_as_results(monkeypatch, tmp_path):
    graph_to_npz(find_graph("random-200"), tmp_path / "g.npz")
    job = StepJob(str(tmp_path / "g.npz"), "ours", Workload("rgcn"), steps=1)
    assert measure(replace(job, max_seconds=1e-9))["failed"].startswith("ran out of time")

    def greedy(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("rgcn.bench.measurement.rgcn_training_step", greedy)
    assert measure(job)["failed"].startswith("ran out of memory")
    assert TypeAdapter(StepJob).validate_python(json.loads(json.dumps(asdict(job)))) == job
    assert "out of memory" in _failure_reason(-6, "terminate called\nstd::bad_alloc")
    assert _failure_reason(1, "Traceback\nValueError: no") == "ValueError: no"


def test_plots(tmp_path, tiny_result, monkeypatch):
    pytest.importorskip("matplotlib")
    bench_report.plot_steps(tiny_result, tmp_path / "steps.svg")
    points = [
        {"edges": 10, "side": "rgcn", "device": "cpu", "seconds": 0.1, "peak_bytes": 2**20},
        {"edges": 100, "side": "rgcn", "device": "cpu", "seconds": 0.5, "peak_bytes": 2**23},
        {"edges": 10, "side": "FastRGCNConv", "device": "cpu", "seconds": 0.4, "peak_bytes": 2**22},
        {"edges": 100, "side": "FastRGCNConv", "device": "cpu", "failed": "ran out of time"},
    ]
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import_module("scaling").plot_scaling({"points": points}, tmp_path / "scaling.svg")
    assert "random-300" in (tmp_path / "steps.svg").read_text()
    assert "FastRGCNConv" in (tmp_path / "scaling.svg").read_text()
    first = (tmp_path / "steps.svg").read_bytes()
    bench_report.plot_steps(tiny_result, tmp_path / "steps.svg")
    assert (tmp_path / "steps.svg").read_bytes() == first


def test_a_plot_needs_matplotlib_and_a_known_file_type(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="svg"):
        bench_report.check_plot_path(tmp_path / "steps.doc")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"rgcn\[bench\]"):
        bench_report.check_plot_path(tmp_path / "steps.svg")


BARE = """
import sys
for name in ("typer", "rich", "polars", "pyoxigraph", "safetensors", "matplotlib", "zstandard"):
    sys.modules[name] = None
from dataclasses import asdict, replace
import rgcn.bench.__main__ as command
from rgcn.bench import comparison
from rgcn.bench.measurement import measure
from rgcn.bench.floor import Speeds
file, out = sys.argv[1:]
assert command.main(["--write-npz", "random-200", file]) == 0
here = lambda job: measure(replace(job, max_bytes=None))
compare = comparison.compare
comparison.compare = lambda *rest: compare(*rest, measure=here, speeds_of=lambda device: Speeds(1e9, 1e9))
assert command.main([file, "--peer", "none", "--steps", "1", "--rounds", "1", "--device", "cpu", "--json", out]) == 0
assert command.main([file, "--plot", "steps.svg"]) == 1
"""


def test_bench_runs_without_the_other_dependencies(tmp_path):
    file, out = tmp_path / "tiny.npz", tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(file), str(out)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "tiny" in done.stdout
    assert "matplotlib" in done.stderr
    assert [row["graph"] for row in json.loads(out.read_text())["rows"]] == ["tiny", "tiny"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": 10**12}, "count is wrong"),
        ({"nodes": 0}, "count is wrong"),
        ({"nodes": np.array([5, 6])}, "one integer each"),
        ({"nodes": 5.5}, "one integer each"),
        ({"triples": np.zeros((0, 3), np.int64)}, "no triples"),
        ({"triples": np.full((4, 3), 99)}, "outside the counts"),
        ({"triples": np.zeros((4, 2), np.int64)}, "integers .edges, 3."),
        ({"label": np.zeros(1, np.int64)}, "labeled nodes, but 1 labels"),
    ],
)
def test_invalid_arrays_in_a_graph_file_raise_an_error(tmp_path, change, words):
    path = tmp_path / "graph.npz"
    graph_to_npz(random_graph(random_shape(200)), path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, **change})
    with pytest.raises(DataError, match=words):
        graph_from_npz(path)


def test_the_size_of_a_random_graph_is_checked():
    for name in ("random-1e12", "random-1e30", "random-5"):
        with pytest.raises(ConfigError, match="100 to 1,000,000,000 edges"):
            find_graph(name)
    with pytest.raises(ConfigError, match="positive and finite"):
        BenchPlan(["world"], budget=float("nan"))
