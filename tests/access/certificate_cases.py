# SPDX-License-Identifier: Apache-2.0
"""What the program that makes certificates may and may not do."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from tests.access.ask import (
    Ask,
    Case,
    annotation,
    apply,
    delete,
    label,
    merge,
    post,
    put,
    steps,
    strategic,
)
from tests.access.node_cases import NODE, OWN
from tests.access.object_cases import LEASE
from tests.access.other_cases import PODS, eviction, named, read

SECRETS = "/api/v1/namespaces/$ns/secrets"
_OTHER = f"{SECRETS}/others"
_SERVER = f"{SECRETS}/gpuscape-scheduler-tls"
_ALL = ("gpuscape-scheduler-ca", "gpuscape-scheduler-tls", "gpuscape-kube-scheduler-tls")

_POLICY = "gpuscape-certificates-secret"
_GRANTS = "gpuscape-certificates-floor/grants"
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}


def as_data(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def secret(name: str, **more: Any) -> dict[str, Any]:
    """One with something in it."""
    data = {"ca.crt": as_data("before"), "note": as_data("kept")}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "annotations": {"example.com/note": "kept"}},
        "type": "Opaque",
        "data": data,
        **more,
    }


OBJECTS = tuple((SECRETS, secret(name)) for name in (*_ALL, "others"))
"""The Secrets that are there, and where they are created."""

_WRITTEN = {"data": {key: as_data("now") for key in ("ca.crt", "tls.crt", "tls.key")}}


def _case(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    only = only and (only if "/" in only else f"{_POLICY}/{only}")
    return Case(name=name, ask=ask, actor="certificates", only=only, **more)


REFUSED = {
    "certificates": [
        # what it may not do to its own
        _case("another key", merge(_SERVER, {"data": {"token": as_data("x")}}), "keys"),
        _case("another key by JSON", steps(_SERVER, ("add", "/data/token", as_data("x"))), "keys"),
        _case("another's key changed", merge(_SERVER, {"data": {"note": as_data("x")}}), "keys"),
        _case("another's key removed", merge(_SERVER, {"data": {"note": None}}), "keys"),
        _case("a key as text", merge(_SERVER, {"stringData": {"token": "x"}}), "keys"),
        _case("emptied", merge(_SERVER, {"data": None}), "keys"),
        _case("too much", merge(_SERVER, {"data": {"ca.crt": as_data("x" * 65537)}}), "size"),
        _case("unchangeable", merge(_SERVER, {"immutable": True}), "frozen"),
        _case("label", merge(_SERVER, label("example.com/new")), "frozen"),
        _case("annotation", merge(_SERVER, annotation("example.com/new")), "frozen"),
        _case("annotation removed", merge(_SERVER, annotation("example.com/note", None)), "frozen"),
        _case(
            "an account's token by annotation",
            merge(_SERVER, annotation("kubernetes.io/service-account.name", "workload")),
            "frozen",
        ),
        _case(
            "finalizer", merge(_SERVER, {"metadata": {"finalizers": ["example.com/x"]}}), "frozen"
        ),
        _case("owner", merge(_SERVER, {"metadata": {"ownerReferences": [_OWNER]}}), "frozen"),
        # other Secrets
        _case("another Secret", merge(_OTHER, _WRITTEN), "name"),
        _case("another Secret: nothing", merge(_OTHER, {}), "name"),
        _case("another Secret by PUT", put(_OTHER, _WRITTEN), "name"),
        _case("another Secret by apply", apply(_OTHER, secret("others", **_WRITTEN))),
        _case("another Secret: read", read(_OTHER), drift=200),
        _case("all Secrets: read", read(SECRETS), drift=200),
        _case("a new Secret", post(SECRETS, secret("$new")), drift=422),
        _case(
            "a new Secret with an account's token",
            post(
                SECRETS,
                secret(
                    "$new",
                    type="kubernetes.io/service-account-token",
                    metadata={
                        "name": "$new",
                        "annotations": {"kubernetes.io/service-account.name": "workload"},
                    },
                ),
            ),
        ),
        _case("a new Secret by apply", apply(f"{SECRETS}/new", secret("new"))),
        _case("its Secret: delete", delete(_SERVER)),
        _case("another's Secret: delete", delete(_OTHER)),
        # everything else
        _case("Node", merge(NODE, OWN), _GRANTS),
        _case("Lease", merge(LEASE, {"spec": {"leaseDurationSeconds": 1}}), _GRANTS),
        _case("pod: patch", merge(f"{PODS}/workload", label("example.com/new")), _GRANTS),
        _case(
            "pod: bind",
            post(
                f"{PODS}/pending/binding",
                named("pending", target={"kind": "Node", "name": "$node", "apiVersion": "v1"}),
            ),
            _GRANTS,
        ),
        _case("eviction", eviction("workload"), _GRANTS),
        _case(
            "a Secret elsewhere",
            post("/api/v1/namespaces/$elsewhere/secrets", secret("gpuscape-scheduler-ca")),
        ),
        _case(
            "foreign field manager",
            merge(_SERVER, _WRITTEN, manager="kubectl"),
            "gpuscape-certificates-floor/field-manager",
        ),
        replace(
            _case("not bound", merge(_SERVER, _WRITTEN), "gpuscape-certificates-floor/token"),
            actor="certificates-unbound",
        ),
        *(
            replace(_case(f"by the {who}", merge(_SERVER, _WRITTEN), _floor), actor=who)
            for who, _floor in (
                ("agent", "gpuscape-agent-floor/grants"),
                ("coordinator", "gpuscape-coordinator-floor/grants"),
                ("scheduler", "gpuscape-scheduler-floor/grants"),
            )
        ),
        *(
            replace(_case(f"read by the {who}", read(f"{SECRETS}/{_ALL[0]}"), drift=200), actor=who)
            for who in ("agent", "coordinator", "scheduler")
        ),
    ]
}
ALLOWED = {
    "certificates": [
        *(_case(f"{name}: write", merge(f"{SECRETS}/{name}", _WRITTEN)) for name in _ALL),
        *(_case(f"{name}: read", read(f"{SECRETS}/{name}")) for name in _ALL),
        _case(
            "the authority's key", merge(f"{SECRETS}/{_ALL[0]}", {"data": {"ca.key": as_data("x")}})
        ),
        _case("by a strategic patch", strategic(_SERVER, _WRITTEN)),
        _case("nothing", merge(_SERVER, {})),
    ]
}
