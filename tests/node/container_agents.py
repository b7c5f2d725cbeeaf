# SPDX-License-Identifier: Apache-2.0
"""Agents in containers on real nodes: what they are, and what was written meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import psutil

from api import names
from tests.agent.agent_process import until
from tests.controlplane.audit import Event
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.node.process_cgroup import ProcessCgroup
from tests.node.real_cluster import AGENT, RealCluster
from tests.node.real_node import SOON, RealNode

PODS: Final = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
DAEMONSET: Final = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets/{AGENT}"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
PROGRAM: Final = "gpuscape agent"
CREDENTIALS: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def labels_of(machine: str) -> Mapping[str, str]:
    """What a simulated machine's Node is to have, by the reviewed file."""
    golden = Path(__file__).parents[1] / f"golden/{machine}/labels-none.txt"
    return dict(line.split("=", 1) for line in golden.read_text().splitlines())


LABELS: Final = labels_of("dgx-a100")
"""Of the machine that the shipped component simulates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent of one node, as it is when this is made."""

    node: RealNode
    pod: Object

    @property
    def name(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["uid"])

    @property
    def status(self) -> Mapping[str, Any]:
        """Of the container."""
        (found,) = self.pod["status"]["containerStatuses"]
        return dict(found)

    @property
    def process(self) -> psutil.Process:
        """The oldest in the container."""
        return self.node.processes(PROGRAM)[0]

    @property
    def address(self) -> str:
        """Of the pod."""
        return str(self.pod["status"]["podIP"])

    def metrics(self) -> str:
        """A scrape through the pod's address."""
        return self.node.get(f"http://{self.address}:9400/metrics")

    @property
    def cgroup(self) -> ProcessCgroup:
        """Of the container, outside of the machine."""
        return ProcessCgroup.of(self.process)

    def file(self, path: str) -> Path:
        """A file as the container sees it."""
        return Path(f"/proc/{self.process.pid}/root", path.lstrip("/"))

    def token(self) -> str:
        """What lies in the container now."""
        return self.file(f"{CREDENTIALS}/token").read_text()

    def requests(self, cluster: RealCluster, *, since: int = 0) -> list[Event]:
        """What it asked the API server for from a mark of the audit log on."""
        user = f"system:serviceaccount:{names.NAMESPACE}:{AGENT}"
        events = cluster.plane.audit(since=since, user=user)
        return [it for it in events if self.address in it["sourceIPs"]]


def agents(cluster: RealCluster, labels: Mapping[str, str] = LABELS) -> dict[str, Agent]:
    """By node, when on each one pod is Ready, holds the Lease, and all labels are there."""
    until(lambda: all(is_settled(cluster, node, labels) for node in cluster.nodes.values()), SOON)
    return {
        name: Agent(node=node, pod=cluster.pods(name)[0]) for name, node in cluster.nodes.items()
    }


def is_settled(cluster: RealCluster, node: RealNode, wanted: Mapping[str, str]) -> bool:
    """Whether its one agent does all that it is there for."""
    pods = cluster.pods(node.name)
    if len(pods) != 1 or "deletionTimestamp" in pods[0]["metadata"] or not is_ready(pods[0]):
        return False
    holder = cluster.lease(node.name).get("spec", {}).get("holderIdentity")
    labels = node.object()["metadata"]["labels"]
    return bool(holder == pods[0]["metadata"]["uid"] and wanted.keys() <= labels.keys())


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition is so."""
    conditions = pod["status"].get("conditions", ())
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What was written in the cluster since it began."""

    cluster: RealCluster
    since: str

    def holders(self, node: str) -> list[str]:
        """Whom the Lease named, one after the other; empty for nobody."""
        versions = self.cluster.versions(LEASES, since=self.since, name=names.agent_lease(node))
        named = [it["spec"].get("holderIdentity") or "" for it in versions]
        return [holder for holder, _ in groupby(named)]

    def pod(self, name: str) -> list[Object]:
        """A pod as it was, one version after the other."""
        return self.cluster.versions(PODS, since=self.since, name=name)

    def lost_labels(self) -> list[str]:
        """What a version of a Node lacked."""
        return [
            f"{it['metadata']['name']}: {key}"
            for it in self.cluster.versions("/api/v1/nodes", since=self.since)
            for key in sorted(LABELS.keys() - it["metadata"]["labels"].keys())
        ]


@contextmanager
def episode(cluster: RealCluster) -> Iterator[Episode]:
    """What happens in the block loses no label."""
    happens = Episode(cluster=cluster, since=cluster.resource_version())
    yield happens
    assert happens.lost_labels() == []


def change(cluster: RealCluster, patch: Object, *, how: str = MERGE_PATCH) -> None:
    """Change the DaemonSet."""
    cluster.plane.demand("PATCH", DAEMONSET, patch, content_type=how)


@contextmanager
def changed(cluster: RealCluster, patch: Object, *, how: str = MERGE_PATCH) -> Iterator[None]:
    """The DaemonSet is so while the block lasts, and all its pods are."""
    try:
        change(cluster, patch, how=how)
        roll_out(cluster)
        yield
    finally:
        cluster.plane.kubectl("-n", names.NAMESPACE, "rollout", "undo", f"daemonset/{AGENT}")
        roll_out(cluster)


def roll_out(cluster: RealCluster) -> None:
    """Wait until the DaemonSet's pods are all as it is now."""
    arguments = ("rollout", "status", f"daemonset/{AGENT}", f"--timeout={SOON:.0f}s")
    cluster.plane.kubectl("-n", names.NAMESPACE, *arguments)


def restarts(cluster: RealCluster, agent: Agent) -> int:
    """How often the container of the pod was started anew."""
    (pod,) = cluster.pods(agent.node.name)
    return int(Agent(node=agent.node, pod=pod).status["restartCount"])
