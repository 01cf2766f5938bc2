"""The OpenAPI document, with the limits this server has and examples that it really answers."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI

from rgcn.predict.opened import CLASSIFIES, PREDICTS_LINKS
from rgcn.serve.api import Api
from rgcn.serve.examples import Shown
from rgcn.serve.limits import filled

# Which endpoints are of which task; the others take any model.
TASKS = {"links": PREDICTS_LINKS, "score": PREDICTS_LINKS, "class": CLASSIFIES, "classes": CLASSIFIES}
SECURITY = {"type": "http", "scheme": "bearer", "description": "Needed where the server was started with a token."}


def openapi(app: FastAPI, api: Api) -> bytes:
    """The document as JSON."""
    document = filled(app.openapi(), api.limits)
    shown = {name: Shown(served) for name, served in api.models.items()}
    for path, methods in document["paths"].items():
        end = path.rsplit("/", 1)[-1]
        task = TASKS.get(end)
        # Where no model is of the task the examples are refused, and the document says with what.
        names = [name for name in api.models if task in (None, api.models[name].opened.task)] or list(api.models)
        for method, operation in methods.items():
            _fill(operation, f"{method.upper()} {end}", names, shown[names[0]])
    document["components"]["securitySchemes"] = {"token": SECURITY}
    document["security"] = [{}, {"token": []}]
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def _fill(operation: dict[str, Any], endpoint: str, names: list[str], shown: Shown) -> None:
    """Write examples, and the names of the models, into one operation."""
    example = shown.of(endpoint)
    for parameter in operation.get("parameters", ()):
        name, schema = parameter["name"], parameter["schema"]
        if name == "model":
            schema["enum"] = names
        given = {"model": names[0], **shown.words, **_default(schema, name), **example.query}
        parameter["example"] = given[name]
    if example.body is not None:
        operation["requestBody"]["content"]["application/json"]["example"] = example.body
    for status, answer in operation["responses"].items():
        content = next(reversed(answer["content"].values()))
        if status != "200":
            content["example"] = shown.refused(int(status))
        elif example.answer is not None:
            content["example"] = example.answer


def _default(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: schema["default"]} if schema.get("default") is not None else {}
