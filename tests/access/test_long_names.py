# SPDX-License-Identifier: Apache-2.0
"""Leases of nodes whose names have no room in the Lease's: what a real API server lets agents do.

The nodes' names begin with the same 200 characters, so that no name alone keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pytest

from api import names
from tests.access import credentials
from tests.access.stage import Roles, Stage
from tests.controlplane.plane import Plane
from tests.controlplane.server import Object

pytestmark = pytest.mark.cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LongNamed:
    """A stage, and an agent on a Node of 253 characters next to another such Node."""

    stage: Stage
    own: Object
    other: Object
    token: str

    @property
    def path(self) -> str:
        """Of Leases."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.stage.namespace}/leases"

    def create(self, name: str, owner: Object | None) -> int:
        """Status of creating a Lease as the agent."""
        body = {"metadata": {"name": name, **_owned_by(owner)}, "spec": {}}
        return self._status("POST", self.path, body)

    def renew(self, name: str) -> int:
        """Status of changing a Lease as the agent."""
        body = {"spec": {"leaseDurationSeconds": 170}, "metadata": _owned_by(self.own)}
        return self._status("PATCH", f"{self.path}/{name}", body)

    def _status(self, method: str, path: str, body: Object) -> int:
        answer = self.stage.plane.request(
            method,
            f"{path}?fieldManager={names.AGENT}",
            body,
            token=self.token,
            content_type="application/merge-patch+json"
            if method == "PATCH"
            else "application/json",
        )
        return int(answer.status)


def _owned_by(node: Object | None) -> dict[str, Any]:
    if node is None:
        return {}
    meta = node["metadata"]
    reference = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
    return {"ownerReferences": [reference]}


@pytest.fixture(scope="module")
def long_named(plane: Plane) -> Iterator[LongNamed]:
    """The policies decide alone: the accounts are bound to cluster-admin."""
    stage = Stage(plane, Roles.DRIFT)
    try:
        stage.wait_until_enforced()
        start = f"{stage.namespace}-".ljust(252, "n")
        own, other = (
            plane.demand("POST", "/api/v1/nodes", {"metadata": {"name": start + last}})
            for last in "ab"
        )
        pod = credentials.pod(
            plane, stage.namespace, "agent-of-long", names.AGENT, own["metadata"]["name"]
        )
        token = credentials.token(plane, stage.namespace, names.AGENT, bound={"kind": "Pod", **pod})
        yield LongNamed(stage=stage, own=own, other=other, token=token)
    finally:
        stage.close()


def test_an_agent_writes_the_lease_that_its_node_owns(long_named: LongNamed) -> None:
    name = names.agent_lease(long_named.own["metadata"]["name"])

    assert long_named.create(name, long_named.own) == HTTPStatus.CREATED
    assert long_named.renew(name) == HTTPStatus.OK


def test_an_agent_makes_no_lease_that_its_node_does_not_own(long_named: LongNamed) -> None:
    name = names.shortened_name(names.LEASE_PREFIX, long_named.own["metadata"]["name"] + "x")

    assert long_named.create(name, None) == HTTPStatus.UNPROCESSABLE_ENTITY
    assert long_named.create(name, long_named.other) == HTTPStatus.UNPROCESSABLE_ENTITY


def test_an_agent_cannot_take_over_the_lease_of_a_node_with_the_same_start(
    long_named: LongNamed,
) -> None:
    name = names.agent_lease(long_named.other["metadata"]["name"])
    body = {"metadata": {"name": name, **_owned_by(long_named.other)}, "spec": {}}
    long_named.stage.plane.demand("POST", long_named.path, body)

    assert long_named.renew(name) == HTTPStatus.UNPROCESSABLE_ENTITY


@pytest.mark.parametrize("name", ["gpuscape-node-a", "mig-slot-0"])
def test_an_agent_writes_no_lease_of_another_start(long_named: LongNamed, name: str) -> None:
    assert long_named.create(name, long_named.own) == HTTPStatus.UNPROCESSABLE_ENTITY
