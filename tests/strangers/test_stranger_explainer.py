"""Test an explanation method from another package: by class, dotted name, and entry point."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from outside import command, forgotten, installed, written_package

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.explain import Explainer, available_methods, explain_class
from rgcn.explain.attribution import Attribution
from rgcn.explain.question import Question
from rgcn.graph import KnowledgeGraph
from rgcn.predict import OpenModel, open_model


class LeaveOneOut(Explainer):
    """How much the strength falls without one triple, with the graph normalized as if it did not exist."""

    words = "leaving out one triple after the other"

    def attribute(self, question: Question, steps: int, on_step: Callable[[], Any] = lambda: None) -> Attribution:
        subgraph, lost = question.subgraph, []
        with torch.no_grad():
            for triple in range(len(subgraph)):
                keep = np.arange(len(subgraph)) != triple
                without = question.strength_with(subgraph.keep_triples(keep))
                lost.append(float(question.strength(question.full_output) - without))
        on_step()
        # The edges of a triple share its effect; self-loops, at the last index, have none.
        places = [place.cpu().numpy() for place in subgraph.edge_triples]
        count = np.bincount(np.concatenate(places), minlength=len(subgraph) + 1)
        return Attribution(subgraph, tuple(np.append(lost, 0.0)[place] / count[place] for place in places), None)

    @classmethod
    def unsupported_reason(cls, model: Any) -> str | None:
        return "answers by walking" if model.hooks_.hides_query else None


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenModel:
    """Readers whose class is the book that they read."""
    folder = tmp_path_factory.mktemp("readers")
    triples = [(f"p{i}", "reads", f"book{i % 2}") for i in range(20)]
    triples += [(f"p{i}", "knows", f"p{(i * 3 + 1) % 20}") for i in range(20)]
    kg = KnowledgeGraph.from_triples(triples, labels={f"p{i}": f"reader{i % 2}" for i in range(20)})
    settings: dict[str, Any] = {"embedding": 8, "hidden": 8, "epochs": 60, "learning_rate": 0.05, "device": "cpu"}
    rgcn.NodeClassifier("e-rgcn", **settings).fit(kg).save(str(folder / "model"))
    return open_model(folder / "model")


def test_a_class_is_a_method(opened: OpenModel) -> None:
    why = explain_class(opened, opened.node("p3"), method=LeaveOneOut, edges=2, draws=3)
    assert (why.method, why.edges[0].text) == (f"{__name__}:LeaveOneOut", "p3 —reads→ book1")
    # The reported importance equals the change of the score.
    alone = explain_class(opened, opened.node("p3"), method=LeaveOneOut, edges=1, draws=1)
    assert alone.edges[0].importance == pytest.approx(alone.fidelity.strength.without.named, rel=1e-4)
    assert "leaving out one triple after the other" in why.as_text()
    assert "leaving out one triple after the other" in why.as_page()
    with pytest.raises(ConfigError, match="is no explanation method"):
        explain_class(opened, 0, method=dict)


def test_it_states_the_models_it_supports() -> None:
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")], labels={"a": "x", "b": "y"})
    with pytest.raises(
        DataError, match="answers by walking: use the method paths or integrated-gradients or edge-mask"
    ):
        explain_class(open_model(graph, classes=True), 2, method=LeaveOneOut)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    written_package(tmp_path, "stranger_method", f"from {__name__} import LeaveOneOut", monkeypatch)
    yield tmp_path
    forgotten("stranger_method", monkeypatch)


def test_the_command_line_takes_a_dotted_name(opened: OpenModel, elsewhere: Path) -> None:
    arguments = ("explain", opened.path, "p3", "--draws", 2, "--json")
    found = command(*arguments, "--method", "stranger_method:LeaveOneOut", cwd=elsewhere)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["edges"][0]["object"]["name"] == "book1"
    refused = command(*arguments, "--method", "edge-mas", cwd=elsewhere)
    assert "unknown explanation method 'edge-mas'; did you mean 'edge-mask'?" in refused.stderr


def test_an_installed_one_is_listed(opened: OpenModel, elsewhere: Path) -> None:
    with installed(elsewhere, "rgcn.explanation_methods", "leave-one-out = stranger_method:LeaveOneOut"):
        assert available_methods(opened) == ("integrated-gradients", "edge-mask", "leave-one-out")
        assert explain_class(opened, opened.node("p3"), method="leave-one-out", draws=2).method == "leave-one-out"
