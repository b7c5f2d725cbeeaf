# SPDX-License-Identifier: Apache-2.0
"""The description of the extender's API, compared with what is served and read."""

from __future__ import annotations

import http.client
import json
from typing import Any

import jsonschema
import pytest

from scheduler.extender import openapi
from tests.scheduler.calls import body
from tests.scheduler.extender.test_extender_messages import FROM_GO
from tests.scheduler.extenders import served

TEXT = {"text/plain": {"schema": {"type": "string"}}}


@pytest.fixture
def document() -> dict[str, Any]:
    """Made anew, whatever was asked before."""
    openapi.openapi_document.cache_clear()
    found: dict[str, Any] = json.loads(openapi.openapi_document())
    return found


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By method and path."""
    return {
        f"{method.upper()} {path}": it
        for path, methods in document["paths"].items()
        for method, it in methods.items()
    }


def json_of(name: str) -> dict[str, Any]:
    """Content of JSON after this schema."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def test_every_operation_is_there_with_its_statuses(document: dict[str, Any]) -> None:
    refused = {"400", "403", "408", "411", "413", "415"}
    assert {name: set(it["responses"]) for name, it in operations(document).items()} == {
        "POST /v1/prioritize": {"200", *refused},
        "POST /v1/explain": {"200", *refused},
        "GET /debug/nodes/{name}": {"200", "403", "404"},
        "GET /livez": {"200", "503"},
        "GET /readyz": {"200", "503"},
        "GET /metrics": {"200"},
        "GET /openapi.json": {"200"},
    }


def test_the_head_says_what_it_describes(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "gpuscape scheduler"
    assert document["info"]["description"] == (
        "An extender of kube-scheduler that prefers nodes whose free GPUs are linked."
        " It scores and never filters."
    )
    assert {name: it["summary"] for name, it in operations(document).items()} == {
        "POST /v1/prioritize": "Ranks nodes for a pod.",
        "POST /v1/explain": (
            "Explains why nodes are ranked as they are; without nodes, all that are known."
            " No filter of kube-scheduler is applied: name the nodes that pass."
        ),
        "GET /debug/nodes/{name}": "What is believed of a node.",
        "GET /livez": "Whether the program works.",
        "GET /readyz": "Whether all of the cluster that counts was read.",
        "GET /metrics": "Metrics.",
        "GET /openapi.json": "This document.",
    }


def test_requests_for_scores_are_read_with_either_list_of_nodes(document: dict[str, Any]) -> None:
    asked = operations(document)["POST /v1/prioritize"]["requestBody"]
    either = [
        {"required": ["NodeNames"], "properties": {"NodeNames": {"type": "array"}}},
        {"required": ["Nodes"], "properties": {"Nodes": {"type": "object"}}},
    ]
    args = json_of("ExtenderArgs")["application/json"]["schema"]
    schema = {"allOf": [args, {"anyOf": either}]}
    assert asked == {"required": True, "content": {"application/json": {"schema": schema}}}
    assert operations(document)["POST /v1/explain"]["requestBody"] == {
        "required": True,
        "content": json_of("ExtenderArgs"),
    }


def test_answers_have_the_schemas_of_what_is_sent(document: dict[str, Any]) -> None:
    answers = {name: it["responses"]["200"] for name, it in operations(document).items()}
    scores = {"type": "array", "items": {"$ref": "#/components/schemas/HostPriority"}}
    contents = {
        "POST /v1/prioritize": {"application/json": {"schema": scores}},
        "POST /v1/explain": json_of("Explanation"),
        "GET /debug/nodes/{name}": json_of("NodeDetail"),
        "GET /livez": TEXT,
        "GET /readyz": TEXT,
        "GET /metrics": TEXT,
        "GET /openapi.json": {"application/json": {"schema": {"type": "object"}}},
    }
    assert answers == {
        name: {"description": "The answer.", "content": content}
        for name, content in contents.items()
    }
    assert operations(document)["GET /debug/nodes/{name}"]["parameters"] == [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    ]


def test_refusals_are_text_with_their_reason(document: dict[str, Any]) -> None:
    refusals = {
        (status, it["description"])
        for operation in operations(document).values()
        for status, it in operation["responses"].items()
        if status != "200"
    }
    assert refusals == {
        ("400", "The request is malformed; the text names the key."),
        ("403", "A client certificate is needed, or another one."),
        ("404", "The node is unknown."),
        ("408", "The body took too long."),
        ("411", "The body has no Content-Length."),
        ("413", "The body is larger than 8388608 bytes, or has more than 200 whole Nodes in it."),
        ("415", "The body is encoded."),
        ("503", "It does not, or not yet."),
    }
    for operation in operations(document).values():
        for status, it in operation["responses"].items():
            assert status == "200" or it["content"] == TEXT


def test_every_schema_that_is_referred_to_is_there(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    named = {each.partition('"')[0] for each in text.split('"#/components/schemas/')[1:]}
    assert named <= document["components"]["schemas"].keys()
    assert {"ExtenderArgs", "HostPriority", "Explanation", "NodeDetail"} <= named


def test_every_path_is_served_as_described(document: dict[str, Any]) -> None:
    with served() as extender:
        for path, methods in document["paths"].items():
            asked = body() if "post" in methods else None
            reply = extender.ask(path.replace("{name}", "a"), asked)
            assert reply.status == http.client.OK
            kinds = next(iter(methods.values()))["responses"]["200"]["content"]
            assert reply.headers["Content-Type"].partition(";")[0] in kinds
        assert json.loads(extender.ask("/openapi.json").body) == document


def test_the_description_allows_the_nulls_that_go_writes_and_no_pod_that_is_null(
    document: dict[str, Any],
) -> None:
    arguments = {**document, "$ref": "#/components/schemas/ExtenderArgs"}
    sent = json.loads(FROM_GO)

    jsonschema.validate(sent, arguments)

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**sent, "Pod": None}, arguments)
