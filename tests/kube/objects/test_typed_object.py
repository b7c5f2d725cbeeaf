# SPDX-License-Identifier: Apache-2.0
"""Nodes, pods and Leases are read as the official client reads them, which shares no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import ApiClient

from base.errors import BadInput
from kube.amounts.quantities import Amount
from kube.lease import Lease
from kube.objects.node import Node
from kube.objects.pod import Pod
from kube.objects.typed_object import TypedObject

KINDS: tuple[type[TypedObject], ...] = (Pod, Node, Lease)
TIMES = ("_time", "_timestamp", "_at", "time_added")
"""Ends of the names of fields that the official client reads as times."""
TIME = "2026-01-02T03:04:05Z"
DEFAULTS = {"when_unsatisfiable": "DoNotSchedule"}
"""Values that the API server fills in; everything else defaults to nothing."""

_text = st.text("abz09-.", max_size=6)


@st.composite
def written(draw: st.DrawFn, kind: type[TypedObject]) -> dict[str, Any]:
    """An object of this kind as JSON: each field absent, null or set, and keys that none knows."""
    hints = get_type_hints(kind)
    made: dict[str, Any] = draw(st.sampled_from([{}, {"newInNextRelease": {"a": [None]}}]))
    made = dict(made)
    for field, key in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        match draw(st.sampled_from(["absent", "null", "set", "set"])):
            case "null":
                made[key] = None
            case "set":
                made[key] = draw(value(field, hints[field]))
    return made


def value(field: str, hint: Any) -> st.SearchStrategy[Any]:
    """Values for a field of this type."""
    if field.endswith(TIMES):
        return st.just(TIME)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint == Amount:
        return st.sampled_from(["2", "500m", "16Gi"])
    if origin in (Union, UnionType):
        (hint,) = (argument for argument in arguments if argument is not NoneType)
        return value(field, hint)
    if origin is tuple and arguments[0] is not Any:
        return st.lists(value(field, arguments[0]), max_size=2)
    if origin is tuple:
        return st.just([])
    if field == "volumes":
        return st.just({"name": "v", "emptyDir": {"medium": "Memory"}})
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(_text, value(field, arguments[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, TypedObject):
        return written(hint)
    return {str: _text, int: st.integers(0, 9), bool: st.booleans()}[hint]


def full(kind: type[TypedObject]) -> dict[str, Any]:
    """An object of this kind in which no field is absent, null or empty."""
    hints = get_type_hints(kind)
    fields = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {key: filled(field, hints[field]) for field, key in fields}


def filled(field: str, hint: Any) -> Any:
    """A value for a field of this type that is not its default."""
    if field.endswith(TIMES):
        return TIME
    if field == "volumes":
        return [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    origin, arguments = get_origin(hint), get_args(hint)
    if hint == Amount:
        return "2"
    if origin in (Union, UnionType):
        return filled(field, next(it for it in arguments if it is not NoneType))
    if origin is tuple:
        return [] if arguments[0] is Any else [filled(field, arguments[0])]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"key": filled(field, arguments[1])}
    if isinstance(hint, type) and issubclass(hint, TypedObject):
        return full(hint)
    return {str: f"a-{field}", int: 7, bool: True}[hint]


REQUIRED: Mapping[str, Mapping[str, Any]] = {
    "OwnerReference": dict.fromkeys(("apiVersion", "kind", "name", "uid"), ""),
    "Condition": {"type": "", "status": ""},
    "Container": {"name": ""},
    "ContainerPort": {"containerPort": 0},
    "ContainerStatus": {
        **dict.fromkeys(("image", "imageID", "name"), ""),
        "ready": False,
        "restartCount": 0,
    },
    "NodeRequirement": {"key": "", "operator": ""},
    "NodeSystemInfo": dict.fromkeys(
        (
            *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "machineID"),
            *("kubeProxyVersion", "kubeletVersion", "operatingSystem", "osImage", "systemUUID"),
        ),
        "",
    ),
    "NodeTerms": {"nodeSelectorTerms": []},
    "PodSpec": {"containers": []},
    "SchedulingGate": {"name": ""},
    "SpreadConstraint": {
        "maxSkew": 0,
        "topologyKey": "",
        "whenUnsatisfiable": "DoNotSchedule",
    },
    "Taint": {"effect": "", "key": ""},
    "TerminatedContainer": {"exitCode": 0},
}
"""What the official client wants of each part; Go reads a part without them as if these stood
there."""


def completed(hint: Any, body: Any) -> Any:
    """The body with what the official client wants, wherever it is absent or null."""
    if isinstance(body, list):
        return [completed(get_args(hint)[0], part) for part in body]
    kinds = (hint, *get_args(hint))
    kind = next((it for it in kinds if isinstance(it, type) and issubclass(it, TypedObject)), None)
    if kind is None or body is None:
        return body
    hints = get_type_hints(kind)
    by_key = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    made = {
        key: completed(hints[by_key[key]], part) if key in by_key else part
        for key, part in body.items()
    }
    wanted = REQUIRED.get(kind.__name__, {})
    return {**made, **{key: it for key, it in wanted.items() if made.get(key) is None}}


def official(kind: type[TypedObject], body: Mapping[str, Any]) -> Any:
    text = json.dumps(completed(kind, body))
    return ApiClient().deserialize(text, f"V1{kind.__name__}", "application/json")


def differences(ours: Any, theirs: Any, place: str) -> list[str]:
    """Places at which the official object has another value; nothing equals the default."""
    if isinstance(ours, TypedObject):
        if theirs is None:
            return [] if ours == type(ours)() else [place]
        return [
            difference
            for field in ours.__struct_fields__
            for difference in differences(
                getattr(ours, field), getattr(theirs, field), f"{place}.{field}"
            )
        ]
    field = place.rpartition(".")[2]
    if field.startswith("volumes["):
        plain = ApiClient().sanitize_for_serialization(theirs)  # type: ignore[no-untyped-call]
        return [] if ours == plain else [place]
    if isinstance(ours, tuple):
        theirs = theirs or []
        if len(ours) != len(theirs):
            return [place]
        return [
            difference
            for index, (mine, other) in enumerate(zip(ours, theirs, strict=True))
            for difference in differences(mine, other, f"{place}[{index}]")
        ]
    if theirs is None:
        return [] if ours == DEFAULTS.get(field, ours) and not _is_set(ours, field) else [place]
    if isinstance(theirs, datetime):
        return [] if datetime.fromisoformat(ours) == theirs else [place]
    return [] if ours == theirs else [place]


def _is_set(ours: object, field: str) -> bool:
    return bool(ours) and field not in DEFAULTS


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_has_the_official_clients_key(kind: type[TypedObject]) -> None:
    body = full(kind)
    assert differences(kind.from_object(body), official(kind, body), kind.__name__) == []


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_official_client_reads_the_same(kind: type[TypedObject], data: st.DataObject) -> None:
    body = data.draw(written(kind))

    ours = kind.from_object(body)

    assert differences(ours, official(kind, body), kind.__name__) == []
    assert kind.from_json(json.dumps(body).encode()) == ours


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body", [{"metadata": {"name": 1}}, {"metadata": []}, {"metadata": {"labels": {"a": 1}}}]
)
def test_a_value_of_a_wrong_type_is_named(kind: type[TypedObject], body: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"\$\.metadata"):
        kind.from_object(body)
    with pytest.raises(BadInput, match=r"\$\.metadata"):
        kind.from_json(json.dumps(body).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":null}}',
        b'{"metadata":{"labels":null},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"metadata":' * 5000,
    ],
)
def test_what_is_no_json_object_is_bad_input(text: bytes) -> None:
    with pytest.raises(BadInput):
        Pod.from_json(text)


def test_null_in_a_deep_object_is_bad_input_and_no_crash() -> None:
    body: Any = {}
    for _ in range(900):
        body = {"a": body}
    with pytest.raises(BadInput):
        Pod.from_object({"metadata": 5, "spec": {"nodeName": None}, "more": body})
