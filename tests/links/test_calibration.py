"""Test the calibration curve of link predictions."""

import json

import numpy as np
import pytest
import torch

from rgcn.links.calibration import MIN_LOG_SHARE, Calibration, LinkCurve, LinkExamples, calibration_quality


def drawn(curve, size=8_000, places=4, seed=0):
    """Draw answers that are true with the probability of the curve."""
    rng = np.random.default_rng(seed)
    score, level = rng.normal(0, 2, size), rng.normal(3, 1, size)
    known, place = rng.integers(0, 9, size), rng.integers(0, places, size)
    examples = LinkExamples(score, level, known, place, np.zeros(size))
    return examples._replace(true=(rng.random(size) < curve.probabilities_of(examples)).astype(float))


TRUTH = LinkCurve([0.8, 1.5, -0.4], 1.0, [0.9, -0.9, 0.0, 0.4], [0.2, -0.2, 0.0, 0.1])


def test_a_probability_equals_the_formula():
    score, level, known, place = torch.tensor([[1.0, 5.0, -99.0]]), torch.tensor([2.0]), torch.tensor([3]), [3]
    found = TRUTH.probabilities(score, level, known, torch.tensor(place))
    for p, u in zip(found[0].tolist(), (-1.0, 0.0, MIN_LOG_SHARE), strict=True):  # no share is above one
        logit = 0.8 * u + 1.5 * np.exp(u) - 0.4 * np.log(4) + 1.0 + 0.4 + 0.1 * u
        assert p == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-5)


def test_the_true_calibration_curve_is_recovered():
    examples = drawn(TRUTH)
    found = LinkCurve.fit(examples, 4)
    fresh = drawn(TRUTH, seed=1)
    assert np.abs(found.probabilities_of(fresh) - TRUTH.probabilities_of(fresh)).mean() < 0.03
    assert calibration_quality(found.probabilities_of(fresh), fresh.true).calibration_error < 0.02
    for place in range(4):
        in_slot = fresh.slot == place
        assert found.probabilities_of(fresh)[in_slot].mean() == pytest.approx(fresh.true[in_slot].mean(), abs=0.04)


def test_a_slot_with_few_examples_uses_the_shared_curve():
    examples = drawn(TRUTH)
    few, none = 4, 5
    place = examples.slot.copy()
    place[:3], right = few, examples.true.copy()
    right[:3] = 0.0
    found = LinkCurve.fit(examples._replace(slot=place, true=right), 6)
    assert found.offset[none] == found.slope[none] == 0.0
    assert abs(found.offset[few]) < 1.0
    assert abs(found.offset[0]) > abs(found.offset[2])
    alone = LinkExamples(*(column[:3] for column in examples[:4]), np.zeros(3))
    assert (
        LinkCurve.fit(alone, 6).probabilities_of(alone) > 0
    ).all()  # the probability is above 0 even if no such answer is true


def test_a_saved_curve_is_read_again():
    examples = drawn(TRUTH, 500)
    made = Calibration("links", True, "words", curve=LinkCurve.fit(examples, 4))
    assert made.curve == LinkCurve.fit(examples, 4)
    kept = json.loads(json.dumps(made.as_dict()))
    assert Calibration.from_dict(kept) == made
    with pytest.raises(ValueError, match="no calibration"):
        Calibration.from_dict({**kept, "curve": None})


@pytest.mark.parametrize(
    "damage",
    [
        {"weights": [1.0, 2.0]},
        {"weights": [1.0, 2.0, "3"]},
        {"weights": {"0": 1.0, "1": 1.0, "2": 1.0}},
        {"offset": [0.0] * 3},
        {"offset": 4.0},
        {"slope": [0.0, 0.0, 0.0, float("nan")]},
        {"slope": [0.0, 0.0, 0.0, 10**400]},
        {"slope": [[0.0], 0.0, 0.0, 0.0]},
        {"bias": float("inf")},
        {"bias": None},
        {"more": 1.0},
    ],
    ids=str,
)
def test_damaged_curves_are_refused(damage):
    kept = json.loads(json.dumps(Calibration("links", True, "words", curve=TRUTH).as_dict()))
    with pytest.raises((ValueError, TypeError)):
        Calibration.from_dict({**kept, "curve": {**kept["curve"], **damage}})
    for wrong in ([], "curve", 3.0):
        with pytest.raises((ValueError, TypeError)):
            Calibration.from_dict({**kept, "curve": wrong})
