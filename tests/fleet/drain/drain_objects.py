# SPDX-License-Identifier: Apache-2.0
"""Pods, owners and PodDisruptionBudgets as the API has them, with only what a test is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api.mig_request_annotation import MigRequestAnnotation
from api.state_annotation import pod_key
from kube.api import NODES, POD_DISRUPTION_BUDGETS, PODS, ApiResource, Object
from tests.fakes.api import FakeApi

PLACE = "team-a"


def owned_by(kind: str, name: str, *, group: str = "batch/v1") -> list[Object]:
    """An ownerReference of a controller, whose UID says what it is."""
    uid = f"uid-{kind}-{name}"
    return [{"apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": True}]


def pod(name: str = "a", *, owners: Any = None, phase: str = "Running", **more: Any) -> Object:
    """A pod that runs, is ready, asks for a GPU and belongs to a ReplicaSet; parts by keyword."""
    of = owned_by("ReplicaSet", "web", group="apps/v1") if owners is None else owners
    metadata = {
        "name": name,
        "namespace": PLACE,
        "uid": f"uid-{name}",
        "labels": {"app": "a"},
        "ownerReferences": of,
    }
    ready = "True" if phase == "Running" else "False"
    return {
        "metadata": {**metadata, **more.pop("metadata", {})},
        "spec": {
            "nodeName": "n",
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ],
            **more.pop("spec", {}),
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready}],
            **more.pop("status", {}),
        },
    }


def owner(kind: str, name: str, **more: Any) -> Object:
    """An object that owns pods."""
    metadata = {"name": name, "namespace": PLACE, "uid": f"uid-{kind}-{name}"}
    return {"kind": kind, "metadata": {**metadata, **more.pop("metadata", {})}, **more}


def by_uid(*owners: Object) -> dict[str, Object]:
    """As a view has them."""
    return {each["metadata"]["uid"]: each for each in owners}


def budget(
    allowed: int, name: str = "keep", *, selector: Any = None, namespace: str = PLACE, **status: int
) -> Object:
    """A PodDisruptionBudget that lets so many go; of the app ``a`` unless a selector is given."""
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "a"}} if selector is None else selector},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, **status},
    }


def request(*users: str, others: Sequence[str] = (), unlisted: int = 0) -> MigRequestAnnotation:
    """A request of an agent that names pods of the one namespace."""
    return MigRequestAnnotation(
        v=2,
        request="00112233445566aa",
        plan="00112233445566aa",
        gpus=(0,),
        pods=tuple(pod_key(PLACE, name) for name in users),
        other_pods=tuple(pod_key(PLACE, name) for name in others),
        unlisted=unlisted,
    )


def store(api: FakeApi, resource: ApiResource, *things: Object) -> list[tuple[str, str]]:
    """Have objects as they are, with the UIDs that the server gives; their names."""
    for thing in things:
        body: Object = {key: thing[key] for key in ("metadata", "spec") if key in thing}
        place = thing["metadata"]["namespace"]
        api.server.create(resource, body, place)
        if status := thing.get("status"):
            api.server.patch(
                resource,
                thing["metadata"]["name"],
                {"status": status},
                place,
                status=resource in (NODES, PODS, POD_DISRUPTION_BUDGETS),
            )
    return [(thing["metadata"]["namespace"], thing["metadata"]["name"]) for thing in things]
