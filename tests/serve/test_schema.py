"""Test that the server follows its OpenAPI document, with generated requests."""

from __future__ import annotations

from generated import run_cases

from rgcn.serve import create_app

CASES = 25


def test_answers_match_their_schema_for_any_request(models):
    statuses = run_cases(create_app(models), models, each=CASES)
    assert not [status for status in statuses if status.startswith("5")]
    assert statuses["200"] > 60
    assert statuses["422"] > 30
    assert sum(statuses.values()) > 200
