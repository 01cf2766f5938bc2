"""Test that the exported encoder equals the model, with plain operations, and without rgcn installed."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rgcn
from rgcn.errors import ConfigError, NotFittedError
from rgcn.graph import KnowledgeGraph
from rgcn.kernels import reference
from rgcn.kernels.ahead import compile_ahead
from rgcn.kernels.dispatch import reference_kernels
from rgcn.models import export
from rgcn.models.export import WholeGraphEncoder, export_encoder, save_encoder
from small_models import named_rows

NODE_MODELS = {
    "full": {},
    "basis": {"decomposition": "basis", "bases": 3},
    "block": {"decomposition": "block", "blocks": 2},
    "diagonal": {"model": "e-rgcn", "embedding": 4},
    "three layers": {"model": "e-rgcn", "embedding": 4, "layers": 3, "decomposition": "basis", "bases": 2},
    "features": {"input": "features"},
    "features, basis": {"input": "features", "decomposition": "basis", "bases": 2},
    "features, diagonal between": {"input": "features", "layers": 3, "decomposition": "diagonal", "hidden": 3},
    "one layer": {"layers": 1},
    "along triples": {"inverse": False, "self_loops": False, "bias": False},
    "mean over relations": {"normalization": "node", "aggregation": "mean"},
    "a linear head": {"head": "linear", "layers": 1},
    "features, block": {"input": "features", "layers": 3, "decomposition": "block", "blocks": 3, "hidden": 6},
}
LINK_MODELS = {
    "rgcn": {"embedding": 6},
    "rgcn, basis apart": {
        "embedding": 6,
        "decomposition": "basis",
        "bases": 2,
        "self_loop_apart": True,
        "separate_inverse_bases": True,
    },
    "rgcn, basis within": {"embedding": 6, "decomposition": "basis", "bases": 2, "self_loop_apart": False},
    "rgcn, block": {"embedding": 6, "decomposition": "block", "blocks": 3, "layers": 2, "decoder_biases": True},
    "rgcn, one-hot": {"embedding": 6, "input": "one-hot"},
    "rgcn, one-hot, block": {"embedding": 6, "input": "one-hot", "decomposition": "block", "blocks": 2},
    "rgcn, activated": {"embedding": 6, "activated_input": True},
    "rgcn, one-hot, basis": {"embedding": 6, "input": "one-hot", "decomposition": "basis", "bases": 2, "layers": 2},
    "c-rgcn": {"model": "c-rgcn", "embedding": 6, "bottleneck": 3, "layers": 2},
    "c-rgcn, basis": {"model": "c-rgcn", "embedding": 6, "bottleneck": 3, "decomposition": "basis", "bases": 2},
    "distmult": {"encoder": "none", "embedding": 6, "decoder_biases": True},
    "complex": {"model": "complex", "embedding": 6},
    "rgcn, rotate": {"embedding": 6, "decoder": "rotate"},
}


def some_graph(seed: int = 0, num_nodes: int = 9, num_triples: int = 25, weighted: bool = False) -> KnowledgeGraph:
    rng = np.random.default_rng(seed)
    nodes, relations = [f"n{i}" for i in range(num_nodes)], ["r", "never used", "s"]
    triples = rng.integers(0, (num_nodes, 2, num_nodes), (num_triples, 3)) * (1, 2, 1)
    graph = KnowledgeGraph(
        triples,
        rgcn.graph.Vocabulary(nodes, kind="node"),
        rgcn.graph.Vocabulary(relations, kind="relation"),
        features=rng.normal(size=(num_nodes, 3)),
        edge_weights=rng.random(num_triples) if weighted else None,
    )
    return graph.with_labels({"train": {"n0": "a", "n1": "b"}, "test": {"n2": "c", "n3": "a"}})


def with_random_weights(model, graph):
    """Randomize weights as after a training: no bias is zero, and untrained rows differ from trained ones."""
    model.prepare(graph)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.network_.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return model


def make(kind, name, graph):
    if kind == "node":
        settings_ = {"model": "rgcn", "input": "auto", "hidden": 4, **NODE_MODELS[name]}
        if settings_["input"] == "auto":
            graph = rgcn.graph.KnowledgeGraph(
                graph.triples, graph.nodes, graph.relations, labels=graph.labels, edge_weights=graph.edge_weights
            )
        return with_random_weights(rgcn.NodeClassifier(**settings_), graph)
    estimator = rgcn.LinkPredictor if kind == "link" else rgcn.LinkClassifier
    return with_random_weights(estimator(**{"model": "rgcn", "batch_edges": None, **LINK_MODELS[name]}), graph)


def expected(model):
    if isinstance(model, rgcn.NodeClassifier):
        return model.logits(range(model.graph_.num_nodes))
    return model.scorer().nodes


CASES = [("node", name) for name in NODE_MODELS] + [("link", name) for name in LINK_MODELS]
CASES += [("classes by links", "c-rgcn"), ("classes by links", "distmult")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_program_gives_the_numbers_of_the_model_in_plain_operations_for_any_number_of_nodes(kind, name):
    for seed, weighted in ((0, False), (1, True)):
        model = make(kind, name, some_graph(seed, weighted=weighted))
        before = expected(model).clone()
        program = export_encoder(model)
        called = {node.target for node in program.graph.nodes if node.op == "call_function"} - {operator.getitem}
        assert called
        assert all(str(target).startswith("aten.") for target in called), called
        run = program.module()
        for nodes in ([], [4], [3, 0, 3, 8], list(range(9)) * 3):
            wanted = torch.tensor(nodes, dtype=torch.int64)
            out = run(wanted)
            torch.testing.assert_close(out, before[wanted], rtol=1e-5, atol=1e-5)
            assert not out.requires_grad
        assert torch.equal(expected(model), before)  # the model keeps nothing from the tracing
        assert all(parameter.requires_grad for parameter in model.network_.parameters())


@given(st.integers(0, 1000), st.integers(4, 12), st.integers(1, 40), st.sampled_from(CASES))
@settings(max_examples=25)
def test_any_graph(seed, num_nodes, num_triples, case):
    model = make(*case, some_graph(seed, num_nodes, num_triples))
    encoder, wanted = WholeGraphEncoder(model), torch.arange(num_nodes)
    with torch.no_grad(), reference_kernels():
        torch.testing.assert_close(encoder(wanted), expected(model)[:num_nodes], rtol=1e-4, atol=1e-5)


def test_edges_in_many_small_steps_give_the_same(monkeypatch):
    model = make("node", "diagonal", some_graph())
    monkeypatch.setattr(reference, "MAX_GATHERED", 7)
    run = export_encoder(model).module()
    torch.testing.assert_close(run(torch.arange(9)), expected(model), rtol=1e-5, atol=1e-5)


def test_graphs_that_are_too_large_are_refused_with_what_to_do_instead(monkeypatch):
    model = make("link", "rgcn", some_graph())
    monkeypatch.setattr(export, "MAX_PRODUCTS", 6)
    with pytest.raises(ConfigError, match=r"7 matrices.*at most 6.*decomposition=basis"):
        export_encoder(model)
    export_encoder(make("link", "rgcn, basis within", some_graph()))
    monkeypatch.setattr(export, "MAX_EDGES", 58)
    with pytest.raises(ConfigError, match=r"59 edges.*at most 58.*prune=True"):
        export_encoder(model)


def test_memory_grows_with_edges_not_with_relations_times_nodes():
    relations, nodes = 100, 500
    triples = np.stack([np.arange(relations) % nodes, np.arange(relations), np.arange(relations)[::-1] % nodes], 1)
    graph = KnowledgeGraph(
        triples,
        rgcn.graph.Vocabulary([f"n{i}" for i in range(nodes)], kind="node"),
        rgcn.graph.Vocabulary([f"r{i}" for i in range(relations)], kind="relation"),
    )
    model = with_random_weights(rgcn.LinkPredictor(embedding=4, batch_edges=None), graph)
    program = export_encoder(model)
    largest = max(
        node.meta["val"].numel() for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    )
    assert largest <= 2 * (2 * relations + nodes) * 4 * 4 < relations * nodes  # twice the pairs, a matrix of 4 x 4 each


def test_tracing_starts_no_background_compilation(monkeypatch):
    model = make("node", "basis", some_graph())
    compile_ahead("gather_sum", "combine_bases")
    traced = torch.export.export

    def trace(*given, **more):
        assert not [thread for thread in threading.enumerate() if thread.name == "rgcn-compile"]
        return traced(*given, **more)

    monkeypatch.setattr(torch.export, "export", trace)
    export_encoder(model)


WITHOUT_RGCN = """
import json, sys
sys.modules["rgcn"] = None  # importing it fails, installed or not
import torch
def read(path, other):
    extra = {"about.json": "", "nodes.jsonl": "", other: ""}
    run = torch.export.load(path, extra_files=extra).module()
    names, others = ([json.loads(line) for line in extra[name].splitlines()] for name in ("nodes.jsonl", other))
    return {"names": names, "out": run(torch.arange(len(names))).tolist(), "other": others,
            "about": json.loads(extra["about.json"])}
print(json.dumps([read("classifier.pt2", "classes.jsonl"), read("predictor.pt2", "relations.jsonl")]))
"""


def test_files_are_read_and_run_where_there_is_no_rgcn(tmp_path):
    classifier, predictor = make("node", "full", some_graph()), make("link", "rgcn, block", some_graph())
    about = save_encoder(classifier, tmp_path / "classifier.pt2")
    save_encoder(predictor, tmp_path / "predictor.pt2")
    assert {path.name for path in tmp_path.iterdir()} == {"classifier.pt2", "predictor.pt2"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RGCN],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    classes, links = json.loads(done.stdout)

    torch.testing.assert_close(torch.tensor(classes["out"]), expected(classifier), rtol=1e-5, atol=1e-5)
    assert classes["names"] == list(classifier.graph_.nodes)
    assert classes["other"] == classifier.classes_
    assert classes["about"] == about
    assert about["graph"] == classifier.graph_.fingerprint

    vectors, relations = torch.tensor(links["out"]), links["other"]
    torch.testing.assert_close(vectors, expected(predictor), rtol=1e-5, atol=1e-5)
    subject, object_, relation = vectors[2], vectors[5], torch.tensor(relations[0]["vector"])
    by_hand = (subject[:-2] * relation * object_[:-2]).sum() + subject[-2] + object_[-1] + relations[0]["bias"]
    assert float(by_hand) == pytest.approx(named_rows(predictor.triples_frame([("n2", "r", "n5")]))[0].score, abs=1e-4)
    assert [each["name"] for each in relations] == ["r", "never used", "s"]


def test_invalid_names_are_refused(tmp_path):
    model = make("node", "full", some_graph())
    with pytest.raises(ConfigError, match=r"suffix \.pt2; use encoder\.pt2"):
        save_encoder(model, tmp_path / "encoder.bin")
    with pytest.raises(NotFittedError):
        export_encoder(rgcn.NodeClassifier())
    assert not list(tmp_path.iterdir())


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "encoder.pt2"
    path.write_bytes(b"old")
    monkeypatch.setattr(torch.export, "save", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_encoder(make("node", "one layer", some_graph()), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
