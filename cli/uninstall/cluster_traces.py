# SPDX-License-Identifier: Apache-2.0
"""Traces of the programs in a whole cluster, read once with the rights of the caller.

Kinds that the caller may not read are named and not taken for absent.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from api import keys, names
from cli.failures import UNREADABLE, CommandFailure
from cli.uninstall.node_traces import Kept, NodeTraces, node_traces
from fleet import slot_lease
from fleet.rollback_record import RollbackRecord
from kube.api import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LEASES,
    NODE_FEATURES,
    NODES,
    PODS,
    Api,
    ApiResource,
    Object,
)
from kube.api_errors import Forbidden, NotFound
from kube.lease import Lease, owning_nodes
from kube.objects.typed_object import Metadata, field_managers
from kube.present_objects import present_objects

_NAME_LABEL: Final = "app.kubernetes.io/name"
_PROGRAM: Final = "gpuscape"
_OF_CHANGE: Final = frozenset({keys.MIG_PERMIT, keys.MIG_CORDON})
"""Annotations of a Node on which the coordinator has a change open."""
_MAKERS: Final = (DAEMON_SETS, DEPLOYMENTS)
"""Kinds whose controllers make the programs' pods again."""


_RBAC: Final = "rbac.authorization.k8s.io"
_CLUSTERWIDE: Final = (
    ApiResource(group=_RBAC, version="v1", kind="ClusterRole", namespaced=False),
    ApiResource(group=_RBAC, version="v1", kind="ClusterRoleBinding", namespaced=False),
    ADMISSION_POLICIES,
    ADMISSION_BINDINGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeObject:
    """An object that is deleted as a whole."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str
    node: str = ""
    """Node that the object belongs to; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTraces:
    """Everything that the programs have left in a cluster."""

    nodes: tuple[NodeTraces, ...]
    """Nodes with traces."""
    objects: tuple[WholeObject, ...]
    stays: tuple[Kept, ...]
    """Objects that are not ours alone, and what the API does not show."""
    running: tuple[str, ...]
    """Programs that would write again; empty: none."""
    ending: tuple[str, ...]
    """Pods of programs that nothing makes again: they may write until they have ended."""
    open_changes: tuple[str, ...]
    """Nodes with a MIG change that is not over."""
    unread_kinds: tuple[str, ...]
    """Kinds that could not be read, with the reasons."""


class TraceReader:
    """Reads kind after kind, and remembers those that it could not read."""

    def __init__(self, api: Api, namespace: str, now: float) -> None:
        """``now``: Unix time."""
        self._api = api
        self._namespace = namespace
        self._now = now
        self._unread_kinds: list[str] = []

    def read(self, *, admin_keys: bool) -> ClusterTraces:
        """All traces of the cluster.

        Raises CommandFailure where Nodes or Leases cannot be read, and ApiError where the server
        does not answer.
        """
        nodes = list(self._needed(NODES))
        leases = list(self._needed(LEASES, self._namespace))
        records = {record.node: record for record in map(_record, leases) if record is not None}
        traces = [
            node_traces(node, records.get(node["metadata"]["name"]), admin_keys=admin_keys)
            for node in nodes
        ]
        held = (
            node["metadata"]["name"]
            for node in nodes
            if _OF_CHANGE & Metadata.from_object(node["metadata"]).annotations.keys()
        )
        pods = self._metadata(PODS, self._namespace)
        makers = [
            f"{kind.kind} {meta['name']}"
            for kind in _MAKERS
            for meta in self._metadata(kind, self._namespace) or ()
            if _is_program(meta)
        ]
        return ClusterTraces(
            nodes=tuple(trace for trace in traces if trace.goes or trace.stays),
            objects=(*_leases(leases), *self._features(nodes)),
            stays=(*self._settings(), *self._clusterwide(), _FILES),
            running=(*makers, *self._agents(leases, pods)),
            ending=tuple(f"Pod {meta['name']}" for meta in pods or () if _is_program(meta)),
            open_changes=tuple(sorted({*records, *held})),
            unread_kinds=tuple(self._unread_kinds),
        )

    def _needed(self, kind: ApiResource, namespace: str | None = None) -> Iterator[Object]:
        try:
            yield from present_objects(self._api, kind, namespace=namespace)
        except Forbidden as error:
            raise CommandFailure(f"{kind.plural} cannot be read: {error}", UNREADABLE) from error

    def _metadata(
        self, kind: ApiResource, namespace: str | None = None
    ) -> list[dict[str, Any]] | None:
        """Metadata of all objects of a kind; None where it cannot be read, which is remembered."""
        try:
            objects = present_objects(self._api, kind, namespace=namespace, metadata_only=True)
            return [manifest["metadata"] for manifest in objects]
        except Forbidden as error:
            self._unread_kinds.append(f"{kind.plural}: you may not list them: {error}")
            return None
        except NotFound:
            return []  # a cluster that has no such kind has nothing of ours of it

    def _agents(
        self, leases: Iterable[Object], pods: Iterable[dict[str, Any]] | None
    ) -> Iterator[str]:
        """Agents by the Leases that they renew, but for pods that are gone or known as ours.

        A pod's Lease is held on after its end where the right to release it went with the pod.
        """
        other_pod_uids = {meta["uid"] for meta in pods or () if not _is_program(meta)}
        for lease in filter(_is_agents, leases):
            spec = Lease.from_object(lease).spec
            holder, renewed = spec.holder_identity, spec.renewed_at
            if not holder or renewed is None or spec.has_lapsed(self._now):
                continue
            age = self._now - renewed
            is_known_pod = pods is not None and _is_pod_uid(holder) and holder not in other_pod_uids
            if not is_known_pod:
                name = lease["metadata"]["name"]
                yield f"the agent of Lease {name}, renewed {max(age, 0):.0f} s ago"

    def _features(self, nodes: Iterable[Object]) -> Iterator[WholeObject]:
        node_by_feature = {names.node_feature(node["metadata"]["name"]): node for node in nodes}
        for meta in self._metadata(NODE_FEATURES) or ():
            if meta["name"] in node_by_feature and names.AGENT in field_managers(meta):
                node = node_by_feature[meta["name"]]["metadata"]["name"]
                yield _whole(NODE_FEATURES, meta, node)

    def _settings(self) -> Iterator[Kept]:
        for meta in self._metadata(CONFIG_MAPS, self._namespace) or ():
            if meta["name"] == names.MIG_POLICY:
                subject = f"ConfigMap {self._namespace}/{meta['name']}"
                yield Kept(subject=subject, why="it is your fleet policy")

    def _clusterwide(self) -> Iterator[Kept]:
        """Roles and policies: what installed them removes them."""
        end = names.clusterwide("", self._namespace)
        for kind in _CLUSTERWIDE:
            for meta in self._metadata(kind) or ():
                name = meta["name"]
                is_of_this = name.endswith(end) if end else "." not in name
                if name.startswith(f"{_PROGRAM}-") and is_of_this:
                    why = f"kubectl delete {kind.kind.lower()} {name}, if nothing installs it again"
                    yield Kept(subject=f"{kind.kind} {name}", why=why)


_FILES: Final = Kept(
    subject="files on the nodes",
    why="the API does not show them: /var/lib/gpuscape, where deploy/host-state or deploy/actuator"
    " ran, and a feature file of Node Feature Discovery, where that was the agent's sink",
)


def _record(lease: Object) -> RollbackRecord | None:
    return slot_lease.slot_of(lease).record if slot_lease.is_slot(lease) else None


def _leases(leases: Iterable[Object]) -> Iterator[WholeObject]:
    for lease in leases:
        meta = lease["metadata"]
        is_coordinators = slot_lease.is_slot(lease) or meta["name"] == names.COORDINATOR_LEASE
        if _is_agents(lease):
            node = names.node_of_lease(meta["name"], owning_nodes(Metadata.from_object(meta)))
            yield _whole(LEASES, meta, node)
        elif is_coordinators and names.COORDINATOR in field_managers(meta):
            yield _whole(LEASES, meta)


def _is_agents(lease: Object) -> bool:
    meta = lease["metadata"]
    return str(meta["name"]).startswith(names.LEASE_PREFIX) and names.AGENT in field_managers(meta)


def _is_program(meta: dict[str, Any]) -> bool:
    return Metadata.from_object(meta).labels.get(_NAME_LABEL) == _PROGRAM


def _is_pod_uid(holder: object) -> bool:
    """Whether a Lease's holder is a pod: agents elsewhere have names of another form."""
    try:
        return str(uuid.UUID(str(holder))) == holder
    except ValueError:
        return False


def _whole(resource: ApiResource, meta: dict[str, Any], node: str = "") -> WholeObject:
    return WholeObject(
        resource=resource,
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        node=node,
    )
