"""The JSON mirror, described: an OpenAPI document, made from the message descriptors, so that it
cannot differ from what is served."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from kongming import __version__
from kongming.rpc.v1 import predictor_pb2

__all__ = ["ERRORS", "document"]

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
ERRORS: Mapping[str, str] = {
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
"""Reasons of errors by status."""


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    schemas: dict[str, Any] = {"Error": _error_schema()}
    paths: dict[str, Any] = {}
    for path, name, about, request, response, example, answer in _MIRRORED:
        for message in (request, response):
            _add(message, schemas)
        responses = {"200": _response("The answer.", f"#/components/schemas/{response.name}")}
        responses["200"]["content"]["application/json"]["example"] = answer
        for status, reason in ERRORS.items():
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
