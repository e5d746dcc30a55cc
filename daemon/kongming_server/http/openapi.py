"""The JSON mirror, described: an OpenAPI document for programs and a page for people, both made
from the message descriptors, so that they cannot differ from what is served."""

from __future__ import annotations

import html
import importlib.resources
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from kongming import __version__
from kongming.rpc.v1 import predictor_pb2

__all__ = ["URL", "document", "page"]

_F = FieldDescriptor
_INTEGERS = {_F.CPPTYPE_INT32, _F.CPPTYPE_UINT32}
_LONG_INTEGERS = {_F.CPPTYPE_INT64, _F.CPPTYPE_UINT64}
_NUMBERS = {_F.CPPTYPE_DOUBLE, _F.CPPTYPE_FLOAT}
_WELL_KNOWN: Mapping[str, dict[str, Any]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": "^-?[0-9.]+s$"},
    "google.protobuf.Struct": {"type": "object"},
}

_SURE = {
    "level": 0.9,
    "calibrated": True,
    "calibrated_by": "applications",
    "calibrated_groups": 19,
}
_SLOWDOWN = {"median": 1.21, "lower": 1.08, "upper": 1.39, **_SURE}
_ANSWERED = {
    "app": "APP",
    "node_id": "NODE",
    "runtime": {"median": 14.5, "lower": 13.0, "upper": 16.7, **_SURE},
    "slowdown": _SLOWDOWN,
    "fingerprint_age": "4.2s",
}

_MIRRORED = (
    (
        "/v1/predict",
        "predict",
        "The runtime of applications on nodes as they are now. Each question is answered or "
        "refused on its own.",
        predictor_pb2.PredictRequest.DESCRIPTOR,
        predictor_pb2.PredictResponse.DESCRIPTOR,
        {"questions": [{"app": "APP", "node": "NODE"}]},
        {"answers": [{"prediction": _ANSWERED}]},
    ),
    (
        "/v1/rank",
        "rank",
        "Nodes in the order in which an application should be placed.",
        predictor_pb2.RankNodesRequest.DESCRIPTOR,
        predictor_pb2.RankNodesResponse.DESCRIPTOR,
        {"app": "APP", "limit": 3},
        {
            "nodes": [{"name": "NODE", "score": 1.21, "slowdown": _SLOWDOWN, "residents": 1}],
            "candidates": 1,
            "basis": "BASIS_MODEL",
        },
    ),
)
_PLAIN = (
    ("/metrics", "metrics", "All metrics in Prometheus' text format.", "text/plain", False),
    (
        "/healthz",
        "healthz",
        "200 while it is sound, else 503.",
        "application/json",
        True,
    ),
    ("/readyz", "readyz", "200 once it can predict, else 503.", "application/json", True),
    (
        "/watcher",
        "watcher",
        "How loaded nodes are, as Trimaran's load watcher tells it; host=NAME for one node.",
        "application/json",
        False,
    ),
    (
        "/watcher/health",
        "watcherHealth",
        "200 once it can predict, else 503.",
        "application/json",
        True,
    ),
    ("/openapi.json", "openapi", "This document.", "application/json", True),
    ("/docs", "docs", "This document for people.", "text/html", True),
)
_STATUSES = {
    "400": "The body is not JSON of this message, or a value is not allowed.",
    "401": "The server must know who calls.",
    "403": "The role may not ask this.",
    "404": "A name that nothing has.",
    "413": "The body is too large.",
    "415": "The Content-Type is not application/json.",
    "422": "There is no honest answer: untrained, stale or extrapolating.",
    "429": "A limit is reached; try again later.",
    "500": "The server failed; its log has the request id.",
    "503": "The server is not ready.",
    "504": "No answer in time.",
}


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    schemas: dict[str, Any] = {"Error": _error_schema()}
    paths: dict[str, Any] = {}
    for path, name, about, request, response, example, answer in _MIRRORED:
        for message in (request, response):
            _add(message, schemas)
        responses = {"200": _response("The answer.", f"#/components/schemas/{response.name}")}
        responses["200"]["content"]["application/json"]["example"] = answer
        for status, reason in _STATUSES.items():
            responses[status] = _response(reason, "#/components/schemas/Error")
        body = {"schema": {"$ref": f"#/components/schemas/{request.name}"}, "example": example}
        paths[path] = {
            "post": {
                "operationId": name,
                "summary": about,
                "requestBody": {"required": True, "content": {"application/json": body}},
                "responses": responses,
            }
        }
    for path, name, about, content_type, public in _PLAIN:
        kind = "object" if content_type == "application/json" else "string"
        success = {"description": about, "content": {content_type: {"schema": {"type": kind}}}}
        operation: dict[str, Any] = {
            "operationId": name,
            "summary": about,
            "responses": {"200": success},
        }
        if public:
            operation["security"] = []
        if name == "readyz":
            operation["responses"]["503"] = success | {"description": "Not ready, and why."}
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "KONGMING",
            "version": __version__,
            "description": "The runtime of programs on shared machines, before they are placed. "
            "The messages are those of gRPC; names may be written as here or in camelCase.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
        # Either; or neither, where the server asks nobody who they are.
        "security": [{"token": []}, {"certificate": []}, {}],
    }


URL = "http://SERVER"
"""Where the page's examples ask; the reader's own address takes its place."""


def page() -> str:
    """The same as HTML, without a script and without anything from elsewhere."""
    described = document()
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>KONGMING over HTTP</title>",
        "<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "pre{background:#eee;padding:.7em;overflow:auto}td,th{text-align:left;"
        "vertical-align:top;padding:.1em 1em .1em 0}</style>",
        f"<h1>KONGMING {html.escape(__version__)} over HTTP</h1>",
        f"<p>{html.escape(described['info']['description'])} "
        '<a href="openapi.json">openapi.json</a> says the same to programs.</p>',
    ]
    for path, _, about, request, response, example, answer in _MIRRORED:
        curl = f"curl -H 'Content-Type: application/json' -d '{json.dumps(example)}' {URL}{path}"
        parts.append(
            f"<h2>POST {path}</h2><p>{html.escape(about)}</p><pre>{html.escape(curl)}</pre>"
            f"<pre>{html.escape(json.dumps(answer, indent=2))}</pre>"
            f"<p>{_link(request.name)} &rarr; {_link(response.name)}</p>"
        )
    for path, _, about, _, _ in _PLAIN:
        parts.append(f"<h2>GET {path}</h2><p>{html.escape(about)}</p>")
    parts.append("<h2>Messages</h2>")
    for name, schema in described["components"]["schemas"].items():
        parts.append(f'<h3 id="{name}">{name}</h3><p>{_about(schema)}</p>')
        if "enum" in schema:
            rows = "".join(
                f"<tr><td><code>{value}</code><td>{html.escape(about)}"
                for value, about in zip(schema["enum"], schema["x-about"], strict=True)
            )
            parts.append(f"<table>{rows}</table>")
            continue
        rows = "".join(
            f"<tr><td><code>{field}</code><td>{_kind(kind)}<td>{_about(kind)}"
            for field, kind in schema.get("properties", {}).items()
        )
        parts.append(f"<table>{rows}</table>")
    return "\n".join(parts) + "</html>\n"


def _link(name: str) -> str:
    return f'<a href="#{name}">{name}</a>'


def _about(schema: Mapping[str, Any]) -> str:
    return html.escape(schema.get("description", ""))


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in a few words of HTML."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}"
    if "additionalProperties" in schema:
        return f"{_kind(schema['additionalProperties'])} by name"
    return html.escape(f"{schema['type']} {schema.get('format', '')}".strip())


def _response(about: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": {"$ref": schema}}}}


def _error_schema() -> dict[str, Any]:
    texts = ("code", "message", "field", "hint", "reason", "request_id")
    return {
        "type": "object",
        "properties": {
            "error": {"type": "object", "properties": {name: {"type": "string"} for name in texts}}
        },
    }


def _add(message: Descriptor, schemas: dict[str, Any]) -> None:
    """Put a message into ``schemas``, and what it holds."""
    if message.name in schemas:
        return
    properties: dict[str, Any] = {}
    schemas[message.name] = _described(message.name, {"type": "object", "properties": properties})
    for field in message.fields:
        name = f"{message.name}.{field.name}"
        properties[field.name] = _described(name, _field(field, schemas))


def _field(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        return {
            "type": "object",
            "additionalProperties": _single(nested.fields_by_name["value"], schemas),
        }
    if field.is_repeated:
        return {"type": "array", "items": _single(field, schemas)}
    return _single(field, schemas)


def _single(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        known = _WELL_KNOWN.get(field.message_type.full_name)
        if known is not None:
            return dict(known)
        _add(field.message_type, schemas)
        return {"$ref": f"#/components/schemas/{field.message_type.name}"}
    if field.enum_type is not None:
        _add_enum(field.enum_type, schemas)
        return {"$ref": f"#/components/schemas/{field.enum_type.name}"}
    kind = field.cpp_type
    if kind in _INTEGERS:
        return {"type": "integer", "format": "int32"}
    if kind in _LONG_INTEGERS:
        # 64 bits do not fit into every JSON number.
        return {"type": "string", "format": "int64"}
    if kind in _NUMBERS:
        return {"type": "number", "format": "double"}
    return {"type": "boolean" if kind == _F.CPPTYPE_BOOL else "string"}


def _add_enum(kind: EnumDescriptor, schemas: dict[str, Any]) -> None:
    names = [value.name for value in kind.values]
    about = [_comments().get(f"{kind.name}.{name}", "Not said.") for name in names]
    schemas[kind.name] = _described(kind.name, {"type": "string", "enum": names, "x-about": about})


def _described(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what the contract says of ``name``."""
    text = _comments().get(name)
    return schema if text is None else schema | {"description": text}


@cache
def _comments() -> Mapping[str, str]:
    file = importlib.resources.files("kongming.rpc.v1") / "comments.json"
    comments: Mapping[str, str] = json.loads(file.read_text("utf-8"))
    return comments
