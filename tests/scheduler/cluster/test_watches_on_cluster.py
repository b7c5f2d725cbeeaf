# SPDX-License-Identifier: Apache-2.0
"""Watches and Events on a real API server, with the account's own rights and policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from api import keys, names
from api.gpu_request import Link
from kube.api import EVENTS, LEASES, NODES
from kube.client import ApiClient
from kube.events import Recorder
from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.cluster.pod_events import BUDGET, record_unlinked
from scheduler.cluster.pod_gpu_request import GPU
from scheduler.cluster.predictions import PredictionCheck
from scheduler.cluster.watches import Watches
from tests.access.stage import Roles, Stage
from tests.kube.clusters import client
from tests.scheduler.fleets import lease, topology, until
from tools.access.files import POLICIES

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster


class Cluster:
    """A node with its agent's Lease, and a namespace for pods, which is the installation's too."""

    def __init__(self, plane: Plane) -> None:
        self.stage = Stage(plane, Roles.SHIPPED, POLICIES[names.SCHEDULER])
        self.stage.wait_until_enforced()
        self.plane = plane
        self.namespace = self.stage.namespace
        self.admin = client("admin", plane.kubeconfig())
        self.node = f"{self.namespace}-gpus"
        annotations = {keys.TOPOLOGY: topology()}
        self.admin.create(NODES, {"metadata": {"name": self.node, "annotations": annotations}})
        token = plane.bound_token(self.namespace, names.SCHEDULER, self.node)
        self.api: ApiClient = client(names.SCHEDULER, plane.kubeconfig(token=token))

    def says(self, **facts: object) -> None:
        """The agent writes its first Lease, or the next."""
        made = lease(**facts)  # type: ignore[arg-type]  # handed through
        name = names.agent_lease(self.node)
        meta = {"name": name, "annotations": made["metadata"]["annotations"]}
        spec = {"holderIdentity": "agent", "leaseDurationSeconds": 180}
        if facts:
            self.admin.patch(LEASES, name, {"metadata": meta}, namespace=self.namespace)
        else:
            body = {"metadata": meta, "spec": spec}
            self.admin.create(LEASES, body, namespace=self.namespace)

    def make_pod(self, name: str, *, node: str | None = None) -> None:
        """A pod of two GPUs that should be linked."""
        self.plane.account(self.namespace, "pods")
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "2"}}}
        spec = {"schedulerName": "nobody", "serviceAccountName": "pods", "containers": [container]}
        meta = {"name": name, "annotations": {keys.LINK: "nvlink"}}
        body = {"metadata": meta, "spec": spec | ({"nodeName": node} if node else {})}
        self.plane.demand("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)

    def bind(self, name: str) -> None:
        """As a scheduler."""
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
        self.plane.demand("POST", path, {"metadata": {"name": name}, "target": target})

    def events(self) -> list[str]:
        """UIDs of the pods that our Events are about."""
        path = f"/apis/{EVENTS.group}/v1/namespaces/{self.namespace}/events"
        found = self.plane.demand("GET", path)["items"]
        ours = (it for it in found if it["reportingController"] == names.SCHEDULER)
        return [it["regarding"]["uid"] for it in ours]


@pytest.fixture
def cluster(any_plane: Plane) -> Iterator[Cluster]:
    """Of each Kubernetes that is served."""
    cluster = Cluster(any_plane)
    yield cluster
    cluster.api.close()
    cluster.admin.close()
    cluster.stage.close()


def test_a_pod_is_followed_from_its_binding_to_its_gpus_and_told_of_once(cluster: Cluster) -> None:
    landed: list[PredictionCheck] = []
    cache = NodeCache(ScoreTables(), landed=landed.append)
    watches = Watches(cluster.api, cache, namespace=cluster.namespace)
    replicas = [
        Recorder(cluster.api, controller=names.SCHEDULER, instance=f"replica-{at}", budget=BUDGET)
        for at in (0, 1)
    ]

    def free() -> int | NoView:
        view = cache.view(cluster.node)
        return view.free.bit_count() if isinstance(view, ScoringView) else view

    cluster.says()
    cluster.make_pod("there-before", node=cluster.node)
    cluster.make_pod("p")
    watches.start()
    try:
        until(lambda: cache.synced)
        at_first = free()
        cluster.bind("p")
        until(lambda: free() == 4)
        cluster.says(pods={"p": 0b101}, seq=2, namespace=cluster.namespace)
        until(lambda: bool(landed))
        found = free()
    finally:
        watches.close()
    for replica in replicas:
        record_unlinked(replica, landed[0])
        replica.flush()

    assert (at_first, found) == (6, 4)
    assert [landing.ask.name for landing in landed] == ["p"]
    assert landed[0].ask.wish.link is Link.NVLINK
    assert cluster.events() == [landed[0].ask.uid]
    assert [replica.dropped for replica in replicas] == [0, 0]
