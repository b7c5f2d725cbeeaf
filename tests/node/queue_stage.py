# SPDX-License-Identifier: Apache-2.0
"""Kueue and JobSet on real nodes: two with a mesh of links, one with pairs, and our extender.

The second node with a mesh is nearly full: of its GPUs two are free that share no link. A scheduler
that fills nodes takes those; only the extender knows better.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.description.machine_catalog import load_machine
from tests import pages
from tests.agent.agent_process import until
from tests.cluster import queues
from tests.cluster.scheduling import run
from tests.controlplane.plane import Object
from tests.node import example_images, handed_out
from tests.node.chart_cluster import indices
from tests.node.gpu_cluster import PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.ranked_scheduling import RankedScheduling
from tests.node.real_node import SOON, RealNode

MESH: Final = "dgx1-v100"
PAIRS: Final = "a100-pcie-pairs"
_BEST: Final = 2
"""NVLinks between those GPUs of a DGX-1 that are linked best."""
TEAM: Final = "team-a"
"""As the page of workloads has it."""
JOB: Final = "batch.kubernetes.io/job-name"
_WORKLOADS: Final = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/workloads"


def _linked(links: int) -> set[frozenset[int]]:
    """Indices of two GPUs of a DGX-1 with at least so many links, by the machine's description."""
    return {frozenset({it.a, it.b}) for it in load_machine(MESH).direct if it.links >= links}


LINKED: Final = _linked(_BEST)
APART: Final = next(
    pair for a in range(8) for b in range(a) if (pair := frozenset({a, b})) not in _linked(1)
)
"""The free GPUs of the second node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStage:
    """The cluster, and what is true there."""

    there: GpuCluster
    clone: Path
    """Where commands are typed."""

    @property
    def empty(self) -> RealNode:
        """The node with a mesh whose GPUs are all free at first."""
        return next(iter(self.there.cluster.nodes.values()))

    def type(self, commands: str) -> str:
        """What they print. Fails where one of them does."""
        return run(self.there.cluster.plane, commands, self.clone)

    def create(self, file: str, name: str) -> None:
        """An object as in a file of ``examples/queue``, under another name."""
        text = (self.clone / "examples" / "queue" / file).read_text(encoding="utf-8")
        first = next(line for line in text.splitlines() if line.startswith("  name: "))
        named = text.replace(first, f"  name: {name}", 1)
        self.there.cluster.plane.kubectl("-n", TEAM, "create", "-f", "-", stdin=named)

    def running(self) -> Mapping[str, Object]:
        """By job: its pod that runs."""
        listed = self.there.cluster.plane.demand("GET", f"/api/v1/namespaces/{TEAM}/pods")
        return {
            it["metadata"]["labels"][JOB]: it
            for it in listed["items"]
            if it["status"]["phase"] == "Running"
        }

    def granted(self) -> Mapping[str, tuple[str, frozenset[int]]]:
        """By job that runs: its node, and the indices of the GPUs that the kubelet there has
        handed out to its pod."""
        return {job: self._granted(pod) for job, pod in self.running().items()}

    def _granted(self, pod: Object) -> tuple[str, frozenset[int]]:
        node = self.there.cluster.nodes[pod["spec"]["nodeName"]]
        index = indices(self.there.gpus[node.name].simulation)
        uid = pod["metadata"]["uid"]
        (grant,) = (it for it in handed_out.grants(node) if it.pod_uid == uid)
        return node.name, frozenset(index[name] for name in grant.ids)

    def waiting(self) -> set[str]:
        """Names of the objects for which Kueue has reserved nothing, by its workloads."""
        return {
            owner["name"]
            for it in self.there.cluster.plane.demand("GET", _WORKLOADS)["items"]
            for owner in it["metadata"]["ownerReferences"]
            if any(
                (each["type"], each["status"]) == ("QuotaReserved", "False")
                for each in it.get("status", {}).get("conditions", ())
            )
        }

    def finish(self, job: str) -> None:
        """Have the program of a job's pod end as one that is done; the pod has succeeded then."""
        pod = self.running()[job]
        uid = pod["metadata"]["uid"]
        node = self.there.cluster.nodes[pod["spec"]["nodeName"]]
        (container,) = (it for it in handed_out.running(node) if it.pod_uid == uid)
        node.run("kill", f"-{signal.SIGTERM:d}", str(container.process))
        path = f"/api/v1/namespaces/{TEAM}/pods/{pod['metadata']['name']}"
        plane = self.there.cluster.plane
        until(lambda: plane.demand("GET", path)["status"]["phase"] == "Succeeded", SOON)

    def occupy(self, node: RealNode) -> None:
        """Have pods on all GPUs of a node but those that are to be free; the agent has published
        it then."""
        plane, state = self.there.cluster.plane, self.there.state
        uuids = indices(self.there.gpus[node.name].simulation)
        for number in range(len(uuids)):
            body = gpu_pod(f"other-{number}", gpus("main", 1), node=node.name)
            plane.demand("POST", PODS, body)
        until(lambda: len(handed_out.grants(node)) == len(uuids), SOON)
        free = {uuid for uuid, number in uuids.items() if number in APART}
        spared = {it.pod_uid for it in handed_out.grants(node) if it.ids <= free}
        for pod in plane.demand("GET", PODS)["items"]:
            if pod["metadata"]["uid"] in spared:
                plane.demand("DELETE", f"{PODS}/{pod['metadata']['name']}")
        used = sum(1 << number for number in range(len(uuids)) if number not in APART)
        until(lambda: (its := state(node.name)) is not None and int(its.used, 16) == used, SOON)


@contextmanager
def queue_stage(folder: Path) -> Iterator[QueueStage]:
    """All runs within, and the namespace of the team is there, without the queue.

    Raises NotPreparedError and ProgramError.
    """
    with gpu_cluster(folder, MESH, MESH, PAIRS) as there:
        cluster = there.cluster
        nodes = list(cluster.nodes.values())
        example_images.provide(nodes, folder)
        for node in nodes:
            NvidiaPlugin.start(cluster.plane, node)
        RankedScheduling.install(cluster)
        inside = cluster.plane.kubeconfig_inside()
        queues.start_jobset(cluster.plane, cluster.plane.programs, inside)
        queues.start_kueue(cluster.plane, cluster.plane.programs, inside)
        cluster.plane.account(TEAM, "default")
        stage = QueueStage(there=there, clone=pages.clone(folder))
        stage.occupy(nodes[1])
        yield stage
