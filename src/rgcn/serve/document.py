"""The OpenAPI document, with the limits this server has and examples that it really answers."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI

from rgcn.serve.about import Shown
from rgcn.serve.api import server_examples
from rgcn.serve.desk import Desk
from rgcn.serve.limits import filled
from rgcn.serve.route import OF_A_MODEL

SECURITY = {"type": "http", "scheme": "bearer", "description": "Needed where the server was started with a token."}


def openapi(app: FastAPI, desk: Desk) -> bytes:
    """The document as JSON."""
    document = filled(app.openapi(), desk.limits)
    shown = {name: Shown(served) for name, served in desk.models.items()}
    examples = {
        name: {key: example for group in served.groups for key, example in group.examples(shown[name]).items()}
        for name, served in desk.models.items()
    }
    of_server = server_examples(desk)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            key = f"{method.upper()} {f'{path}/'.removeprefix(OF_A_MODEL).removesuffix('/')}"
            # Where no model is asked this, the example is refused, and the document says with what.
            names = [name for name, served in desk.models.items() if key in served.handlers] or list(desk.models)
            asked, answer = of_server.get(path) or examples[names[0]].get(key, ({}, None))
            _fill(operation, asked, answer, names, shown[names[0]])
    document["components"]["securitySchemes"] = {"token": SECURITY}
    document["security"] = [{}, {"token": []}]
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def _fill(operation: dict[str, Any], asked: dict[str, Any], answer: Any, names: list[str], shown: Shown) -> None:
    """Write examples, and the names of the models, into one operation."""
    for parameter in operation.get("parameters", ()):
        name, schema = parameter["name"], parameter["schema"]
        if name == "model":
            schema["enum"] = names
        default = {} if schema.get("default") is None else {name: schema["default"]}
        given = {**shown.words, **default, **asked}
        if name in given:
            parameter["example"] = given[name]
    if "requestBody" in operation and asked:
        operation["requestBody"]["content"]["application/json"]["example"] = asked
    if answer is not None:
        next(reversed(operation["responses"]["200"]["content"].values()))["example"] = answer
