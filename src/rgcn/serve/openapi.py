"""The OpenAPI document: made from the schemas, with the limits of this server and examples that really work."""

from collections.abc import Sequence
from typing import Any

from msgspec.json import schema_components
from pydantic.json_schema import models_json_schema

from rgcn.serve.address import Limits
from rgcn.serve.batching import Dispatcher
from rgcn.serve.requests import JSON
from rgcn.serve.schemas import BOUNDS, ENCODER, STATUSES, Error
from rgcn.serve.served_model import Endpoint, Endpoints, Example
from rgcn.version import __version__

DESCRIPTION = """Questions to trained models, by name: search nodes, read their triples, predict classes and missing
links, score triples, and explain answers. Names are whole names, titles, or the last parts of IRIs, upper or lower
case. Every error is `{"error": {"code", "message", "suggestions"}}`."""
COMMON_STATUSES, MODEL_STATUSES, BODY_STATUSES = (400, 401, 403, 422), (404, 409, 503), (408, 413, 415)
TOKEN = {"type": "http", "scheme": "bearer", "description": "Required if the server was started with a token."}
REFERENCE = "#/components/schemas/"
Schema = dict[str, Any]


def openapi(endpoints: Sequence[Endpoint], dispatcher: Dispatcher, server_group: Endpoints) -> bytes:
    """Return the document as JSON.

    Args:
        endpoints: All endpoints; those below /api are described.
        dispatcher: The models, whose names and examples appear in the document.
        server_group: The endpoints of the server itself.
    """
    described = [endpoint for endpoint in endpoints if endpoint.path.startswith("/api/")]
    bodies = {endpoint.request for endpoint in described if endpoint.request is not None and endpoint.method == "POST"}
    responses = [Error, *(endpoint.response for endpoint in described if endpoint.response is not None)]
    body_schemas, body_components = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REFERENCE + "{model}"
    )
    response_schemas, components = schema_components(responses, ref_template=REFERENCE + "{name}")
    references: dict[Any, Schema] = {body: schema for (body, _), schema in body_schemas.items()}
    references.update(zip(responses, response_schemas, strict=True))
    examples: dict[str, dict[str, Example]] = {name: {} for name in dispatcher.models}
    for name, served in dispatcher.models.items():
        for group in (server_group, *served.groups):
            examples[name] |= group.examples(served.entities)
    paths: dict[str, Schema] = {}
    for endpoint in described:
        # If no model has the endpoint, the request of the example fails, and the document says how.
        names = [name for name, served in dispatcher.models.items() if endpoint.key in served.handlers]
        names = names or list(examples)
        example = examples[names[0]].get(endpoint.key, ({}, None))
        values = dispatcher.models[names[0]].entities.parameters
        operation = _operation(endpoint, references, example, names, values)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    schemas = {**body_components.get("$defs", {}), **components}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "rgcn", "description": DESCRIPTION, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": TOKEN}},
        "security": [{}, {"token": []}],
    }
    return ENCODER.encode(with_limits(document, dispatcher.limits))


def _operation(
    endpoint: Endpoint, references: dict[Any, Schema], example: Example, models: list[str], values: dict[str, str]
) -> Schema:
    (request, response), name = example, endpoint.function.__name__
    operation: Schema = {
        "tags": [endpoint.tag],
        "summary": name.replace("_", " ").title(),
        "description": endpoint.function.__doc__ or "",
        "operationId": name,
        "parameters": _parameters(endpoint, request, models, values),
    }
    if endpoint.request is not None and endpoint.method == "POST":
        body = {"schema": references[endpoint.request], **({"example": request} if request else {})}
        operation["requestBody"] = {"required": True, "content": {JSON: body}}
    kind, schema = "text/markdown", {"type": "string"}
    if endpoint.response:
        kind, schema = JSON, references[endpoint.response]
    content = {kind: {"schema": schema, **({} if response is None else {"example": response})}}
    statuses = COMMON_STATUSES + (MODEL_STATUSES if "{model}" in endpoint.path else ())
    statuses += BODY_STATUSES if endpoint.method == "POST" else ()
    error = {JSON: {"schema": references[Error]}}
    errors = {str(status): {"description": STATUSES[status][1], "content": error} for status in sorted(statuses)}
    return {**operation, "responses": {"200": {"description": "The answer.", "content": content}, **errors}}


def _parameters(endpoint: Endpoint, request: Schema, models: list[str], values: dict[str, str]) -> list[Schema]:
    """Return the parameters of the path and of the query, each with an example."""
    parameters: list[Schema] = []
    if "{model}" in endpoint.path:
        model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "enum": models}}
        description = "A served model; `/api/models` lists them."
        parameters.append({**model, "description": description, "example": values["model"]})
    if endpoint.request is not None and endpoint.method == "GET":
        schema = endpoint.request.model_json_schema()
        for name, field in schema["properties"].items():
            if field.get("default", "") is None:
                del field["default"]
            parameter = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
            parameter["description"] = field.pop("description", "")
            known = {**values, **({name: field["default"]} if "default" in field else {}), **request}
            parameters.append({**parameter, **({"example": known[name]} if name in known else {})})
    return parameters


def with_limits(schema: Any, limits: Limits) -> Any:
    """Return a JSON schema in which the names of limits are replaced by their values.

    >>> with_limits({"type": "integer", "x-limit": "max_k"}, Limits(max_k=50))
    {'type': 'integer', 'maximum': 50}
    """
    if isinstance(schema, list):
        return [with_limits(part, limits) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: with_limits(part, limits) for key, part in schema.items() if key != "x-limit"}
    if "x-limit" in schema:
        result[BOUNDS[schema["x-limit"]][0]] = getattr(limits, schema["x-limit"])
    return result
