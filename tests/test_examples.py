"""Test that the examples run unchanged, are short, and print results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTS = {
    "ask_a_trained_model": ["Switzerland: Europe", "Supporting triples", "Fidelity"],
    "classes_from_rdf": ["countries.ttl: 33,290 triples", "accuracy on held-out labels", "South Asia"],
    "decoder_of_your_own": ["DistMult", "ComplEx", "Norway exports to Germany"],
    "layer_in_your_model": ["64 graphs", "accuracy on 500 new graphs"],
    "links_from_csv": ["mean reciprocal rank", "held out, correct"],
    "training_loop_of_your_own": ["the training labels need", "validation accuracy"],
}


def test_every_example_is_tested_and_fits_on_a_hundred_lines():
    lines = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert set(lines) == set(PRINTS)
    assert max(lines.values()) <= 100


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_example(name, tmp_path):
    source = Path(__file__).parents[1] / "src"
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    for words in PRINTS[name]:
        assert words in ran.stdout
    assert list(tmp_path.iterdir()) == []
