"""The paper's table of intermediate tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rgcn.data import load
from rgcn.graph import KnowledgeGraph
from rgcn.paper.published import PAPER, STATISTICS
from rgcn.paper.published import TENSORS as PUBLISHED
from rgcn.paper.quick_tables import measured_tensors, tensor_statistics, tensors_table


@pytest.fixture(scope="module")
def stand_in():
    """A graph of FB-Toy's sizes; every triple random."""
    rng = np.random.default_rng(0)
    rows = [(f"n{s}", f"r{r}", f"n{o}") for r in range(112) for s, o in rng.integers(0, 280, (30, 2))]
    named = [(f"n{i}", "r0", f"n{(i + 1) % 280}") for i in range(280)] + rows
    unique = list(dict.fromkeys(named))
    splits = [2 if i % 50 == 49 else 1 if i % 50 == 48 else 0 for i in range(len(unique))]
    return KnowledgeGraph.from_triples(unique, triple_splits=splits)


def test_seven_tensors_of_the_published_shapes(stand_in):
    tensors = measured_tensors(stand_in, seed=0)
    assert len(tensors) == len(PUBLISHED) == 7
    for tensor, published in zip(tensors, PUBLISHED, strict=True):
        assert " × ".join(map(str, tensor.shape)) == published.shape
        assert not tensor.requires_grad


def judged_deviations(rows, seeds):
    """Return the rows that compare a standard deviation, one for each tensor."""
    return [row for row in tensors_table(rows, seeds).rows if row.quantity == "std"]


def test_rows_have_all_statistics_and_compare_the_standard_deviation(stand_in):
    rows = tensor_statistics(stand_in, seeds=1)
    for row, judged, published in zip(rows, judged_deviations(rows, 1), PUBLISHED, strict=True):
        assert judged.subject == published.name
        assert all(math.isfinite(value) for value in row)
        assert all(len(side) == len(STATISTICS) for side in (row, *published.statistics.values()))
        deviation = row[3] / published.statistics[PAPER][3] - 1
        allowed = 0.10 if "output" in published.name else 0.02
        word = "within" if abs(deviation) <= allowed else "outside"
        assert judged.published[0].verdict == f"{deviation:+.1%}, {word} {allowed:.0%}"
        if "initial" in published.name:  # initial tensors do not depend on the triples
            assert word == "within", judged


def test_the_same_seed_gives_the_same_tensors_and_another_seed_others(stand_in):
    first, same, other = (measured_tensors(stand_in, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(first, same, strict=True))
    assert not any((a == b).all() for a, b in zip(first, other, strict=True))


@pytest.mark.needs_data("fb-toy")
def test_every_standard_deviation_on_fb_toy_is_within_what_is_allowed(real_mirror):
    for judged in judged_deviations(tensor_statistics(load("fb-toy", mirror=real_mirror), seeds=3), 3):
        assert "within" in judged.published[0].verdict, judged


def test_the_table_holds_every_published_result(stand_in):
    table = tensors_table(tensor_statistics(stand_in, seeds=1), 1)
    assert len(table.rows) == 28
    published_values = [judged.figure.value for row in table.rows for judged in row.published]
    assert (
        len(published_values) == 60
    )  # seven tensors, four statistics, two codes; four more for the original's inverses
    for published in PUBLISHED:
        assert {value for side in published.statistics.values() for value in side} <= set(published_values)
    judged = [row for row in table.rows if row.published[0].verdict]
    assert [row.quantity for row in judged] == ["std"] * 7
