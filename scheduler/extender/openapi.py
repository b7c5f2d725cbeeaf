# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the extender, made from the types that requests are decoded with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import msgspec

from kube.objects.typed_object import TypedObject
from scheduler.extender import extender_messages as messages
from scheduler.extender.extender_messages import ExtenderArgs, HostPriority
from scheduler.extender.node_detail import NodeDetail
from scheduler.score_explanation import Explanation

_REF: Final = "#/components/schemas/{name}"
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_REFUSALS: Final[Mapping[str, str]] = {
    "400": "The request is malformed; the text names the key.",
    "403": "A client certificate is needed, or another one.",
    "408": "The body took too long.",
    "411": "The body has no Content-Length.",
    "413": f"The body is larger than {messages.MOST_BYTES} bytes, or has more than"
    f" {messages.MOST_NODES} whole Nodes in it.",
    "415": "The body is encoded.",
}


@cache
def openapi_document() -> bytes:
    """The extender's OpenAPI 3.1 document, as JSON."""
    return msgspec.json.encode(_document())


def _document() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        [ExtenderArgs, HostPriority, Explanation, NodeDetail], ref_template=_REF
    )
    for kind in _typed_objects(TypedObject):
        _allow_null(schemas.get(kind.__name__, {}))
    priorities = {"type": "array", "items": {"$ref": _REF.format(name="HostPriority")}}
    some_nodes = {
        "allOf": [
            {"$ref": _REF.format(name="ExtenderArgs")},
            {"anyOf": [_filled("NodeNames", "array"), _filled("Nodes", "object")]},
        ]
    }
    any_nodes = {"$ref": _REF.format(name="ExtenderArgs")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuscape scheduler",
            "version": version("gpuscape"),
            "description": "An extender of kube-scheduler that prefers nodes whose free GPUs are"
            " linked. It scores and never filters.",
        },
        "paths": {
            "/v1/prioritize": {"post": _post("Ranks nodes for a pod.", some_nodes, priorities)},
            "/v1/explain": {
                "post": _post(
                    "Explains why nodes are ranked as they are; without nodes, all that are known."
                    " No filter of kube-scheduler is applied: name the nodes that pass.",
                    any_nodes,
                    {"$ref": _REF.format(name="Explanation")},
                )
            },
            "/debug/nodes/{name}": {"get": _node()},
            "/livez": {"get": _probe("Whether the program works.")},
            "/readyz": {"get": _probe("Whether all of the cluster that counts was read.")},
            "/metrics": {"get": {"summary": "Metrics.", "responses": {"200": _answer(_TEXT)}}},
            "/openapi.json": {
                "get": {
                    "summary": "This document.",
                    "responses": {"200": _answer(_json({"type": "object"}))},
                }
            },
        },
        "components": {"schemas": schemas},
    }


def _typed_objects(base: type[TypedObject]) -> Iterator[type[TypedObject]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _typed_objects(kind)


def _allow_null(schema: dict[str, Any]) -> None:
    """Let each property that need not be there be null too, as Go's encoder writes it."""
    for key, value in schema.get("properties", {}).items():
        if key not in schema.get("required", ()):
            schema["properties"][key] = {"anyOf": [value, {"type": "null"}]}


def _filled(key: str, kind: str) -> dict[str, Any]:
    return {"required": [key], "properties": {key: {"type": kind}}}


def _post(summary: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {"200": _answer(_json(answer))} | _refusals(*_REFUSALS),
    }


def _node() -> dict[str, Any]:
    return {
        "summary": "What is believed of a node.",
        "parameters": [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ],
        "responses": {
            "200": _answer(_json({"$ref": _REF.format(name="NodeDetail")})),
            "404": _answer(_TEXT, "The node is unknown."),
        }
        | _refusals("403"),
    }


def _probe(summary: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "responses": {"200": _answer(_TEXT), "503": _answer(_TEXT, "It does not, or not yet.")},
    }


def _refusals(*codes: str) -> dict[str, Any]:
    return {code: _answer(_TEXT, _REFUSALS[code]) for code in codes}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answer(content: Mapping[str, Any], description: str = "The answer.") -> dict[str, Any]:
    return {"description": description, "content": content}
