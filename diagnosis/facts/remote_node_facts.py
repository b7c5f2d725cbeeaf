# SPDX-License-Identifier: Apache-2.0
"""Facts about a Node as the cluster shows it, read with the rights of the person who asks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.cluster.confinement import CORE, Trial, permit_trial
from api import names
from base.errors import BadInput
from diagnosis.facts.cluster_facts import (
    STOPPED_WRITES,
    ServerFacts,
    agent_image,
    read_lease,
    read_server,
    value_or_unread,
)
from diagnosis.facts.gpu_schedulers import GpuSchedulers, schedulers_of_objects
from diagnosis.finding import Unread
from fleet.status.coordinator_view import CoordinatorView, read_coordinator
from kube.api import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    NODES,
    PODS,
    InspectedApi,
    Object,
)
from kube.api_errors import NotFound
from kube.lease import Lease
from kube.objects.node import Node
from kube.objects.typed_object import Metadata
from kube.present_objects import present_object, present_objects

COMPONENT: Final = "app.kubernetes.io/component"
_AGENT: Final = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteNodeFacts:
    """A Node, its agent, and the admission policies and coordinator around it."""

    name: str
    node: Node
    written_node: Object
    """The Node as the API server has it, with the managers of its fields."""
    server: ServerFacts
    lease: Lease | Unread | None
    agent_pods: tuple[Object, ...] | Unread
    gpu_schedulers: GpuSchedulers | Unread
    """Schedulers of the GPU pods on the Node."""
    agent_image: str
    """Image in the agent's DaemonSet; empty where that is not known."""
    missing_policies: tuple[str, ...] | Unread
    """Admission policies and bindings that should be there, as ``kind name``."""
    stopping_policy: str | Unread | None
    """The chart's admission policy that stops all writes; None where they go on."""
    other_namespaces: tuple[str, ...] | Unread
    """Namespaces for which policies of other installations are in the cluster."""
    permits: Trial | Unread | None
    """Whether a forged permit of a MIG change is refused; None where no coordinator acts."""
    coordinator: CoordinatorView | Unread

    @property
    def server_now(self) -> float:
        """Unix seconds by the API server's clock; by ours where its answer has no date."""
        return self.server.info.unix_seconds or time.time()


def read_remote_node(api: InspectedApi, name: str, namespace: str) -> RemoteNodeFacts:
    """Read a Node's facts; gpuscape is in ``namespace``. Raises BadInput for an unknown Node."""
    server = read_server(api)
    try:
        written_node = api.get(NODES, name)
    except NotFound as error:
        raise BadInput(f"there is no node {name} in the cluster") from error
    fields = {"spec.nodeName": name}
    pods = value_or_unread(lambda: tuple(present_objects(api, PODS, fields=fields)))
    coordinator = read_coordinator(api, namespace)
    return RemoteNodeFacts(
        name=name,
        node=Node.from_object(written_node),
        written_node=written_node,
        server=server,
        lease=read_lease(api, name, namespace),
        agent_pods=pods if isinstance(pods, Unread) else tuple(_agents(pods, namespace)),
        gpu_schedulers=pods if isinstance(pods, Unread) else schedulers_of_objects(pods),
        agent_image=agent_image(api, namespace),
        missing_policies=value_or_unread(lambda: tuple(_missing(api, namespace))),
        stopping_policy=value_or_unread(lambda: _stopping(api, namespace)),
        other_namespaces=value_or_unread(lambda: tuple(_other_namespaces(api, namespace))),
        permits=value_or_unread(lambda: permit_trial(api, name, namespace))
        if coordinator.holder
        else None,
        coordinator=Unread(coordinator.problem) if coordinator.problem else coordinator,
    )


def _agents(pods: tuple[Object, ...], namespace: str) -> Iterator[Object]:
    for pod in pods:
        meta = Metadata.from_object(pod["metadata"])
        component = meta.labels.get(COMPONENT, "")
        if meta.namespace == namespace and component.split("-")[0] == _AGENT:
            yield pod


def _stopping(api: InspectedApi, namespace: str) -> str | None:
    name = names.clusterwide(STOPPED_WRITES, namespace)
    return None if present_object(api, ADMISSION_BINDINGS, name) is None else name


def _other_namespaces(api: InspectedApi, namespace: str) -> Iterator[str]:
    """Namespaces of other installations, each known by an admission policy of its own."""
    ours = names.clusterwide(names.AGENT_NODE, namespace)
    bindings = present_objects(api, ADMISSION_BINDINGS, metadata_only=True)
    for name in sorted(binding["metadata"]["name"] for binding in bindings):
        if name != ours and names.is_clusterwide(names.AGENT_NODE, name):
            yield name.removeprefix(names.AGENT_NODE).removeprefix(".") or names.NAMESPACE


def _missing(api: InspectedApi, namespace: str) -> Iterator[str]:
    for policy in CORE:
        name = names.clusterwide(policy, namespace)
        for resource in (ADMISSION_POLICIES, ADMISSION_BINDINGS):
            if present_object(api, resource, name) is None:
                yield f"{resource.kind} {name}"
