# SPDX-License-Identifier: Apache-2.0
"""GPU nodes that exist in the API server alone, as agents would leave them, and pods for them."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, pod_key
from api.topology_annotation import TopologyAnnotation
from kube import lease
from tests.cluster.scheduling import GPU, PROFILE
from tests.controlplane.plane import ADMIN, MERGE_PATCH, Plane

GOLDEN = Path(__file__).parents[1] / "golden"
SIZES = {1: 0.40, 2: 0.25, 4: 0.20, 8: 0.15}
"""How many GPUs pods ask for, and how often."""

LEASE_SECONDS = 600
"""As long as the scheduler extender believes a silent agent at all."""
CONNECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the admin."""

    method: str
    path: str
    body: Any
    content_type: str = "application/json"


def send(plane: Plane, requests: Sequence[Request]) -> None:
    """Send all over a few connections that are kept; in no order. Raises AssertionError."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [requests[at::CONNECTIONS] for at in range(CONNECTIONS)]
        list(pool.map(partial(_send, plane), shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A node that nobody runs."""

    name: str
    machine: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def topology(self) -> TopologyAnnotation:
        """As its agent would publish it."""
        return _topology(self.machine)


def add_nodes(plane: Plane, nodes: Sequence[Written]) -> None:
    """Make these nodes with all that their agents would write about them but the Lease."""
    send(plane, [_node(node) for node in nodes])
    untainted = {"spec": {"taints": None}}  # admission gives every new Node the not-ready taint
    send(
        plane,
        [
            Request(
                method="PATCH",
                path=f"/api/v1/nodes/{node.name}",
                body=untainted,
                content_type=MERGE_PATCH,
            )
            for node in nodes
        ],
    )


def tell_states(
    plane: Plane,
    nodes: Sequence[Written],
    *,
    namespace: str = "",
    pods_each: int = 0,
    apart: int = 1,
) -> None:
    """Make each node's Lease, with the state that its agent would tell of so many bound pods.

    Each has one GPU, the next pod's is so many places ``apart``.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
    now = datetime.now(UTC)
    requests = []
    for node in nodes:
        pods = {
            pod_key(namespace, _bound_name(node, at)): 1 << at * apart for at in range(pods_each)
        }
        body = lease.lease_object(
            names.agent_lease(node.name),
            holder=node.name,
            duration_seconds=LEASE_SECONDS,
            wall_time=now,
        )
        body["metadata"]["annotations"] = {keys.STATE: state_annotation.encode(_state(node, pods))}
        requests.append(Request(method="POST", path=path, body=body))
    send(plane, requests)


def add_pods(
    plane: Plane, namespace: str, count: int, *, seed: int, scheduler: str = PROFILE
) -> None:
    """Make pods of all sizes for a scheduler; the seed decides which."""
    draw = random.Random(seed)  # noqa: S311 (has to repeat)
    sizes = draw.choices(list(SIZES), list(SIZES.values()), k=count)
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [pod(f"pod-{number:05}", size, scheduler=scheduler) for number, size in enumerate(sizes)]
    send(plane, [Request(method="POST", path=path, body=each) for each in pods])


def add_bound_pods(
    plane: Plane, namespace: str, nodes: Sequence[Written], *, pods_each: int
) -> None:
    """Make so many pods of one GPU on each node."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [pod(_bound_name(node, at), 1, node.name) for node in nodes for at in range(pods_each)]
    send(plane, [Request(method="POST", path=path, body=each) for each in pods])


def pod(
    name: str, gpus: int, node: str | None = None, *, scheduler: str = PROFILE
) -> dict[str, Any]:
    """A pod of a scheduler."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {"cpu": "4", "memory": "16Gi"}}
    spec = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def _bound_name(node: Written, at: int) -> str:
    return f"{node.name}-pod-{at}"


def _state(node: Written, pods: Mapping[str, int]) -> StateAnnotation:
    n = node.topology.n
    digits = max(1, -(-n // 4))
    return StateAnnotation(
        v=state_annotation.VERSION,
        gen=node.topology.gen,
        seq=1,
        ok=f"{(1 << n) - 1:0{digits}x}",
        used=f"{sum(pods.values()):0{digits}x}",
        pods={key: f"{mask:0{digits}x}" for key, mask in pods.items()},
    )


@cache
def _topology(machine: str) -> TopologyAnnotation:
    found = topology_annotation.decode(_text(machine))
    assert found is not None
    return found


@cache
def _text(machine: str) -> str:
    return (GOLDEN / machine / "topology.json").read_text(encoding="utf-8").strip()


def _node(node: Written) -> Request:
    room = {"cpu": "128", "memory": "2Ti", "pods": "110", GPU: str(node.topology.n)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    body = {
        "metadata": {
            "name": node.name,
            "labels": {"kubernetes.io/hostname": node.name, **node.labels},
            "annotations": {keys.TOPOLOGY: _text(node.machine)},
        },
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }
    return Request(method="POST", path="/api/v1/nodes", body=body)


def _send(plane: Plane, requests: Sequence[Request]) -> None:
    credential = plane.client(ADMIN)
    context = ssl.create_default_context(cafile=plane.ca_file)
    context.load_cert_chain(credential.certificate_file, credential.key_file)
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=context)
    with contextlib.closing(connection):
        for each in requests:
            headers = {"Content-Type": each.content_type}
            connection.request(each.method, each.path, json.dumps(each.body), headers)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status < http.client.MULTIPLE_CHOICES, said.decode()
