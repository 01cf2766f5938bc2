"""Generate requests from the OpenAPI document by schemathesis; half of them violate it.

Used by test_schema.py with a few hundred cases and by benchmarks/serving.py with ten thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

pytest.importorskip("schemathesis", reason="schemathesis, which generates requests, is not installed")

import schemathesis
from schemathesis.checks import CHECKS, load_all_checks

# A well-formed request may be refused by a rule that OpenAPI cannot express: a link needs exactly one end.
RULES_BEYOND_OPENAPI = (
    "GET /api/models/{model}/links",
    "POST /api/models/{model}/links",
    "GET /api/models/{model}/explain",
)
NODE_FIELDS, RELATION_FIELDS = ("node", "subject", "object"), ("relation",)


def run_cases(app: Any, served: Sequence[Any], each: int, number: int = 0, skip: Sequence[str] = ()) -> Counter[str]:
    """`each` cases of every operation, well formed and not; raises where an answer is not as declared.

    number  seed of the generation
    skip    operations to leave out
    Returns how often each status was answered.
    """
    load_all_checks()
    checks = {name: CHECKS.get_one(name) for name in CHECKS.get_all_names()}
    statuses: Counter[str] = Counter()
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    names = _names(served)
    for place, found in enumerate(schema.get_all_operations()):
        operation = found.ok()
        if operation.label in skip:
            continue
        excluded = [checks["positive_data_acceptance"]] if operation.label in RULES_BEYOND_OPENAPI else []
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            if mode is schemathesis.GenerationMode.NEGATIVE and not _has_rules(operation):
                continue
            realistic = names if mode is schemathesis.GenerationMode.POSITIVE else None
            _run(operation.as_strategy(mode), realistic, excluded, each // 2, number + place, statuses)
    return statuses


def _has_rules(operation: Any) -> bool:
    """Return True if a request can violate the schema of the operation."""
    return bool(operation.query or operation.body)


def _run(
    strategy: Any,
    names: dict[str, st.SearchStrategy[str]] | None,
    excluded: list[Any],
    count: int,
    number: int,
    statuses: Counter[str],
) -> None:
    @seed(number)
    @settings(
        max_examples=max(count, 1),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, data=st.data())
    def ask(case: Any, data: Any) -> None:
        if names is not None and data.draw(st.booleans()):
            _name_things(case, lambda field: data.draw(names[field]))
        response = case.call()
        statuses[str(response.status_code)] += 1
        case.validate_response(response, excluded_checks=excluded)

    ask()


def _names(served: Sequence[Any]) -> dict[str, st.SearchStrategy[str]]:
    nodes = st.sampled_from([name for model in served for name in list(model.graph.nodes)[:200]])
    relations = st.sampled_from([name for model in served for name in model.graph.relations])
    return {**dict.fromkeys(NODE_FIELDS, nodes), **dict.fromkeys(RELATION_FIELDS, relations)}


def _name_things(case: Any, name: Callable[[str], str]) -> None:
    """Replace generated texts by existing names, since nearly all names would be unknown otherwise."""
    places = [case.query] if isinstance(case.query, dict) else []
    if isinstance(case.body, dict):
        for key in ("queries", "triples"):
            places += [row for row in case.body.get(key, ()) if isinstance(row, dict)]
        if isinstance(case.body.get("nodes"), list):
            case.body["nodes"] = [name("node") for _ in case.body["nodes"]]
    for place in places:
        for field in (*NODE_FIELDS, *RELATION_FIELDS):
            if isinstance(place.get(field), str):
                place[field] = name(field)
