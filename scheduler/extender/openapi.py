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
_NOT_YET: Final = {"503": "It does not, or not yet."}
_REFUSALS: Final[Mapping[str, str]] = {
    "400": "The request is malformed; the text names the key.",
    "403": "A client certificate is needed, or another one.",
    "408": "The body took too long.",
    "411": "The body has no Content-Length.",
    "413": f"The body is larger than {messages.MOST_BYTES} bytes, or has more than"
    f" {messages.MOST_NODES} whole Nodes in it.",
    "415": "The body is encoded.",
}

_Schema = Mapping[str, Any]


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
    args = _ref("ExtenderArgs")
    has_nodes = {"anyOf": [_filled("NodeNames", "array"), _filled("Nodes", "object")]}
    priorities = {"type": "array", "items": _ref("HostPriority")}
    forbidden = {"403": _REFUSALS["403"]}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuscape scheduler",
            "version": version("gpuscape"),
            "description": "An extender of kube-scheduler that prefers nodes whose free GPUs are"
            " linked. It scores and never filters.",
        },
        "paths": {
            "/v1/prioritize": _post(
                "Ranks nodes for a pod.", {"allOf": [args, has_nodes]}, priorities
            ),
            "/v1/explain": _post(
                "Explains why nodes are ranked as they are; without nodes, all that are known."
                " No filter of kube-scheduler is applied: name the nodes that pass.",
                args,
                _ref("Explanation"),
            ),
            "/debug/nodes/{name}": _get(
                "What is believed of a node.",
                _json(_ref("NodeDetail")),
                {"404": "The node is unknown."} | forbidden,
                parameters=[name],
            ),
            "/livez": _get("Whether the program works.", _TEXT, _NOT_YET),
            "/readyz": _get("Whether all of the cluster that counts was read.", _TEXT, _NOT_YET),
            "/metrics": _get("Metrics.", _TEXT),
            "/openapi.json": _get("This document.", _json({"type": "object"})),
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


def _post(summary: str, request: _Schema, answer: _Schema) -> dict[str, Any]:
    body = {"required": True, "content": _json(request)}
    return {"post": _operation(summary, _json(answer), _REFUSALS, requestBody=body)}


def _get(
    summary: str, content: _Schema, refusals: Mapping[str, str] = {}, **more: Any
) -> dict[str, Any]:
    return {"get": _operation(summary, content, refusals, **more)}


def _operation(
    summary: str, content: _Schema, refusals: Mapping[str, str], **more: Any
) -> dict[str, Any]:
    """One method of a path; ``refusals``: what statuses with a sentence mean."""
    answers = {"200": {"description": "The answer.", "content": content}}
    texts = {code: {"description": text, "content": _TEXT} for code, text in refusals.items()}
    return {"summary": summary, **more, "responses": answers | texts}


def _json(schema: _Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}
