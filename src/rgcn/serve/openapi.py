"""The OpenAPI document, from the shapes: with the limits this server has and examples that it really answers."""

from collections.abc import Sequence
from typing import Any

from msgspec.json import schema_components
from pydantic.json_schema import models_json_schema

from rgcn.serve.address import Limits
from rgcn.serve.batching import Desk
from rgcn.serve.requests import JSON
from rgcn.serve.schemas import BOUNDS, STATUSES, WRITER, Error
from rgcn.serve.served_model import Endpoint, Endpoints, Example
from rgcn.version import __version__

DESCRIPTION = """Ask trained models by name: search nodes, see their facts, predict classes and missing links, score
triples, and see why. Names are whole names, titles, or the last parts of IRIs, in any case. Every error is
`{"error": {"code", "message", "suggestions"}}`."""
EVERYWHERE, OF_MODELS, OF_BODIES = (400, 401, 403, 422), (404, 409, 503), (408, 413, 415)
TOKEN = {"type": "http", "scheme": "bearer", "description": "Needed where the server was started with a token."}
PLACE = "#/components/schemas/"
Schema = dict[str, Any]


def openapi(endpoints: Sequence[Endpoint], desk: Desk, own: Endpoints) -> bytes:
    """The document as JSON; `own` is what is asked of the server itself."""
    told = [endpoint for endpoint in endpoints if endpoint.path.startswith("/api/")]
    bodies = {endpoint.asked for endpoint in told if endpoint.asked is not None and endpoint.method == "POST"}
    answers = [Error, *(endpoint.answer for endpoint in told if endpoint.answer is not None)]
    of_bodies, defined = models_json_schema([(shape, "validation") for shape in bodies], ref_template=PLACE + "{model}")
    of_answers, components = schema_components(answers, ref_template=PLACE + "{name}")
    references: dict[Any, Schema] = {shape: schema for (shape, _), schema in of_bodies.items()}
    references.update(zip(answers, of_answers, strict=True))
    examples = {
        name: {key: example for group in (own, *served.groups) for key, example in group.examples(served.shown).items()}
        for name, served in desk.models.items()
    }
    paths: dict[str, Schema] = {}
    for endpoint in told:
        # Where no model is asked this, the example is refused, and the document says with what.
        names = [name for name, served in desk.models.items() if endpoint.key in served.handlers] or list(examples)
        example, words = examples[names[0]].get(endpoint.key, ({}, None)), desk.models[names[0]].shown.words
        operation = _operation(endpoint, references, example, names, words)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    document = {
        "openapi": "3.1.0",
        "info": {"title": "rgcn", "description": DESCRIPTION, "version": __version__},
        "paths": paths,
        "components": {"schemas": {**defined.get("$defs", {}), **components}, "securitySchemes": {"token": TOKEN}},
        "security": [{}, {"token": []}],
    }
    return WRITER.encode(filled(document, desk.limits))


def _operation(
    endpoint: Endpoint, references: dict[Any, Schema], example: Example, models: list[str], words: dict[str, str]
) -> Schema:
    asked, answer = example
    found: Schema = {
        "tags": [endpoint.tag],
        "summary": endpoint.handler.replace("_", " ").title(),
        "description": endpoint.words,
        "operationId": endpoint.handler,
        "parameters": _parameters(endpoint, asked, models, words),
    }
    if endpoint.asked is not None and endpoint.method == "POST":
        body = {"schema": references[endpoint.asked], **({"example": asked} if asked else {})}
        found["requestBody"] = {"required": True, "content": {JSON: body}}
    kind, schema = (JSON, references[endpoint.answer]) if endpoint.answer else ("text/markdown", {"type": "string"})
    content = {kind: {"schema": schema, **({} if answer is None else {"example": answer})}}
    refused = {JSON: {"schema": references[Error]}}
    statuses = EVERYWHERE + (OF_MODELS if "{model}" in endpoint.path else ())
    statuses += OF_BODIES if endpoint.method == "POST" else ()
    refusals = {str(one): {"description": STATUSES[one][1], "content": refused} for one in sorted(statuses)}
    return {**found, "responses": {"200": {"description": "The answer.", "content": content}, **refusals}}


def _parameters(endpoint: Endpoint, asked: Schema, models: list[str], words: dict[str, str]) -> list[Schema]:
    """What stands in the path and in the query, each with an example."""
    found: list[Schema] = []
    if "{model}" in endpoint.path:
        of_model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "enum": models}}
        about = "A served model; `/api/models` lists them."
        found.append({**of_model, "description": about, "example": words["model"]})
    if endpoint.asked is not None and endpoint.method == "GET":
        shape = endpoint.asked.model_json_schema()
        for name, schema in shape["properties"].items():
            if schema.get("default", "") is None:
                del schema["default"]
            parameter = {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": schema}
            parameter["description"] = schema.pop("description", "")
            given = {**words, **({name: schema["default"]} if "default" in schema else {}), **asked}
            found.append({**parameter, **({"example": given[name]} if name in given else {})})
    return found


def filled(schema: Any, limits: Limits) -> Any:
    """A JSON schema with the numbers of its limits.

    >>> filled({"type": "integer", "x-limit": "k"}, Limits(k=50))
    {'type': 'integer', 'maximum': 50}
    """
    if isinstance(schema, list):
        return [filled(part, limits) for part in schema]
    if not isinstance(schema, dict):
        return schema
    done = {key: filled(part, limits) for key, part in schema.items() if key != "x-limit"}
    if "x-limit" in schema:
        done[BOUNDS[schema["x-limit"]][0]] = getattr(limits, schema["x-limit"])
    return done
