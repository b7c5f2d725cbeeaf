# SPDX-License-Identifier: Apache-2.0
"""Who else labels a Node: nfd-master from NodeFeatures, and gpu-feature-discovery through it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from api import names
from kube.api import NODE_FEATURES, Object
from tests.agent.agent_process import until
from tests.controlplane.own import (
    OwnPlane,
    install_node_features,
    start_controller_manager,
    start_nfd_master,
)
from tests.controlplane.plane import Plane

GFD = "gpu-feature-discovery"


def start(plane: OwnPlane) -> None:
    """Start nfd-master and the controllers.

    The definitions come first: the garbage collector looks for new kinds every 30 s only.
    """
    install_node_features(plane)
    start_controller_manager(plane, plane.programs)
    start_nfd_master(plane, plane.programs)


def node_feature(namespace: str, node: str) -> str:
    """Path of the NodeFeature in that namespace for a node's GPUs; who made it does not show."""
    return f"{_node_features(namespace)}/{names.node_feature(node)}"


def _node_features(namespace: str) -> str:
    return f"/apis/{NODE_FEATURES.api_version}/namespaces/{namespace}/{NODE_FEATURES.plural}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDiscovery:
    """gpu-feature-discovery on one node as the cluster sees it: DaemonSet, pod, NodeFeature.

    The DaemonSet is the controlling owner, the pod the other, and neither blocks deletion.
    Source: NVIDIA/k8s-device-plugin v0.20.0, internal/lm/output.go.
    """

    plane: Plane
    namespace: str
    node: str

    @classmethod
    def install(
        cls, plane: Plane, namespace: str, node: str, labels: Mapping[str, str]
    ) -> FeatureDiscovery:
        """Have it publish these labels."""
        self = cls(plane=plane, namespace=namespace, node=node)
        controller = plane.demand("POST", self._daemonsets, self._daemonset())
        feature = {
            "apiVersion": NODE_FEATURES.api_version,
            "kind": NODE_FEATURES.kind,
            "metadata": {
                "name": names.node_feature(node),
                "labels": {names.NODE_FEATURE_NODE_LABEL: node},
                "ownerReferences": [
                    {**owner("apps/v1", "DaemonSet", controller), "controller": True},
                    owner("v1", "Pod", self._pod()),
                ],
            },
            "spec": {"features": {}, "labels": dict(labels)},
        }
        plane.demand("POST", f"{_node_features(namespace)}?fieldManager={GFD}", feature)
        return self

    def uninstall(self) -> None:
        """Delete the DaemonSet; the garbage collector takes the rest after it."""
        self.plane.demand("DELETE", f"{self._daemonsets}/{self._name}")
        path = node_feature(self.namespace, self.node)
        until(lambda: self.plane.request("GET", path).status == 404)

    @property
    def _name(self) -> str:
        return f"{GFD}-{self.node}"

    @property
    def _daemonsets(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"

    def _daemonset(self) -> Object:
        """One for this node alone; without a scheduler its pod is made and never starts."""
        labels = {"app": self._name}
        pod = {
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "containers": [{"name": GFD, "image": "none"}],
        }
        return {
            "metadata": {"name": self._name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    def _pod(self) -> Object:
        """What the DaemonSet's controller makes, a moment later."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=app%3D{self._name}"
        until(lambda: bool(self.plane.demand("GET", path)["items"]))
        pod: Object = self.plane.demand("GET", path)["items"][0]
        return pod


def owner(api_version: str, kind: str, of: Object) -> Object:
    """A reference to an object that owns."""
    named = {part: of["metadata"][part] for part in ("name", "uid")}
    return {"apiVersion": api_version, "kind": kind, **named}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A Node as one write left it."""

    number: int
    """Its resourceVersion."""
    at: datetime
    labels: Mapping[str, str]


def versions(plane: Plane, node: str, since: int) -> list[Version]:
    """Every version of a Node since that mark of the audit log, oldest first."""
    found: dict[int, Version] = {}
    writes = plane.audit(
        since=since, resource="nodes", name=node, verb=("patch", "update"), code=200
    )
    for event in writes:
        if "dryRun=All" in event["requestURI"]:
            continue
        meta = event["responseObject"]["metadata"]
        version = Version(
            number=int(meta["resourceVersion"]),
            at=datetime.fromisoformat(event["stageTimestamp"]),
            labels=meta["labels"],
        )
        found.setdefault(version.number, version)  # a write that changes nothing makes no version
    return [found[number] for number in sorted(found)]


def labels_written(plane: Plane, node: str, since: int) -> set[str]:
    """Labels of a Node that an agent has written or removed since that mark."""
    events = plane.audit(since=since, resource="nodes", name=node, verb="patch", code=200)
    return {
        key
        for event in events
        if f"fieldManager={names.AGENT}" in event["requestURI"]
        for key in event["requestObject"]["metadata"].get("labels") or {}
    }


def master_looked_at(plane: Plane, node: str, since: int) -> bool:
    """Whether nfd-master has read that Node since the mark: it does before each write."""
    events = plane.audit(since=since, resource="nodes", name=node, verb="get", code=200)
    return any(event["userAgent"].startswith("nfd-master/") for event in events)


def seconds_without(of: Sequence[Version], keys: Collection[str]) -> float:
    """How long the Node lacked any of these labels. The newest version must have them all."""
    assert set(keys) <= of[-1].labels.keys()
    return sum(
        (after.at - before.at).total_seconds()
        for before, after in pairwise(of)
        if not set(keys) <= before.labels.keys()
    )
