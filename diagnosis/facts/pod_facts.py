# SPDX-License-Identifier: Apache-2.0
"""Facts about a pod: its Events, and the nodes that the scheduler's filters leave for it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Final

import msgspec

from base.errors import BadInput
from diagnosis.facts.cluster_facts import ServerFacts, read_server, value_or_unread
from diagnosis.facts.gpu_schedulers import GpuSchedulers, gpu_schedulers, schedulers_of_objects
from diagnosis.finding import Unread
from kube.api import EVENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS, InspectedApi
from kube.objects.node import Node
from kube.objects.pod import Pod
from kube.present_objects import present_object, present_objects
from scheduler.cluster.cluster_reading import ClusterReading, wait_until
from scheduler.explanation_source import ExplainedPod
from scheduler.filters.node_filters import FilteredNodes, NodeFilter

_MAKERS: Final = (JOBS, REPLICA_SETS, STATEFUL_SETS)
"""Kinds of objects that make pods; the Event of a refused pod is about its maker."""


class EventMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of an Event."""

    creation_timestamp: str | None = None


class PodEvent(msgspec.Struct, frozen=True, rename="camel"):
    """The reason, note and time of an events.k8s.io/v1 Event."""

    metadata: EventMeta = EventMeta()
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    """Time of Events by the former API, which have no ``eventTime``."""

    @property
    def time(self) -> str:
        """Time of the Event, in RFC 3339: times compare as texts."""
        return (
            self.deprecated_last_timestamp
            or self.event_time
            or self.metadata.creation_timestamp
            or ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredCluster:
    """All nodes of the cluster, and those that the pod may go to."""

    nodes: tuple[Node, ...]
    filtered: FilteredNodes
    gpu_schedulers: GpuSchedulers
    """Schedulers of GPU pods on nodes that the pod may go to, also if they have no room now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """Facts about a pod, or about the object that should have made it."""

    title: str
    """``namespace/name``."""
    pod: Pod | None
    """None: no pod has this name, but an object of kind ``maker`` does."""
    maker: str = ""
    """Kind of the object of this name that makes pods; empty where the pod exists."""
    server: ServerFacts
    events: tuple[PodEvent, ...] | Unread
    """Events about the pod or its maker, the oldest first."""
    constraints: Pod
    cluster: FilteredCluster | Unread
    """Not read for a pod that has a node, or has ended."""
    gpu_schedulers: GpuSchedulers | Unread
    """Schedulers of GPU pods on its node, or as ``cluster`` has them while it has none."""


def read_pod(api: InspectedApi, namespace: str, name: str, timeout_seconds: float) -> PodFacts:
    """Read a pod's facts. Raises BadInput where no pod and no maker of pods has this name."""
    server, title = read_server(api), f"{namespace}/{name}"
    events = value_or_unread(lambda: _events(api, namespace, name))
    manifest = present_object(api, PODS, name, namespace=namespace)
    if manifest is None:
        return PodFacts(
            title=title,
            pod=None,
            maker=_maker(api, namespace, name),
            server=server,
            events=events,
            constraints=Pod(),
            cluster=Unread("there is no pod yet", applies=False),
            gpu_schedulers=Unread("there is no pod yet", applies=False),
        )
    constraints = ExplainedPod(manifest=manifest, is_there=True).constraints
    pod = Pod.from_object(manifest)
    cluster = _cluster(api, pod, constraints, timeout_seconds)
    return PodFacts(
        title=title,
        pod=pod,
        server=server,
        events=events,
        constraints=constraints,
        cluster=cluster,
        gpu_schedulers=value_or_unread(lambda: _on_its_node(api, pod))
        if isinstance(cluster, Unread)
        else cluster.gpu_schedulers,
    )


def _cluster(
    api: InspectedApi, pod: Pod, constraints: Pod, timeout_seconds: float
) -> FilteredCluster | Unread:
    if pod.is_bound or pod.status.phase not in ("", "Pending"):
        return Unread("the pod has its node", applies=False)
    with closing(ClusterReading(api)) as reading:
        wait_until(lambda: reading.is_whole, lambda: reading.why_not, timeout_seconds)
        filtered = reading.filtered(constraints)
        short = (out.node for out in filtered.left_out if out.filter is NodeFilter.RESOURCES)
        pods = reading.pods_by_node(constraints)
        return FilteredCluster(
            nodes=reading.nodes,
            filtered=filtered,
            gpu_schedulers=gpu_schedulers(
                pod for node in (*filtered.candidates, *short) for pod in pods.get(node, ())
            ),
        )


def _on_its_node(api: InspectedApi, pod: Pod) -> GpuSchedulers:
    """Schedulers of the GPU pods on the node of a pod that has one; the pod itself may be one."""
    fields = {"spec.nodeName": pod.spec.node_name}
    found = present_objects(api, PODS, fields=fields) if pod.is_bound else ()
    return schedulers_of_objects(found)


def _events(api: InspectedApi, namespace: str, name: str) -> tuple[PodEvent, ...]:
    events = present_objects(api, EVENTS, namespace=namespace, fields={"regarding.name": name})
    read = (msgspec.convert(event, PodEvent) for event in events)
    return tuple(sorted(read, key=lambda event: event.time))


def _maker(api: InspectedApi, namespace: str, name: str) -> str:
    """Kind of the object of this name that makes pods. Raises BadInput where there is none."""
    for resource in _MAKERS:
        if present_object(api, resource, name, namespace=namespace) is not None:
            return resource.kind
    raise BadInput(f"there is no pod, Job, ReplicaSet or StatefulSet {namespace}/{name}: see -n")
