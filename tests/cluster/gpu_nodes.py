# SPDX-License-Identifier: Apache-2.0
"""GPU nodes of a cluster: simulated machines and real agents on nodes of KWOK's, and their pods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from api import keys, state_annotation, topology_annotation
from api.mig_resources import MigStrategy
from api.topology_annotation import TopologyAnnotation
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.cluster.agents import Site, agent, has_topology
from tests.cluster.scheduling import GPU, Stage
from tests.kubelet_nodes.kubelet import Kubelets
from tests.kubelet_nodes.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """One node."""

    site: Site
    node: Node

    @property
    def name(self) -> str:
        """The Node's."""
        return self.node.name

    @property
    def topology(self) -> TopologyAnnotation:
        """As its agent published it."""
        found = topology_annotation.decode(self.site.annotations(self.name)[keys.TOPOLOGY])
        assert found is not None
        return found

    def free(self) -> int | None:
        """Mask of the GPUs that its agent tells are free; None where it tells nothing."""
        lease = self.site.lease(self.name) or {"metadata": {}}
        text = lease["metadata"].get("annotations", {}).get(keys.STATE)
        found = None if text is None else state_annotation.decode(text)
        return None if found is None else found.free

    def gpus_of(self, uid: str) -> tuple[int, ...]:
        """The places of the GPUs that the kubelet gave a pod; none where it has no such pod."""
        pod = self.node.devices.pods.get(uid)
        if pod is None:
            return ()
        given = {device.id for each in pod.containers for device in each.given.get(GPU, ())}
        return tuple(at for at, gpu in enumerate(self.topology.ids) if gpu in given)

    def links(self, gpus: Sequence[int]) -> int:
        """NVLinks of the weakest step from one GPU of these to the next."""
        return min(self.topology.links(a, b) for a, b in pairwise(gpus))


@contextlib.contextmanager
def gpu_node(
    site: Site, kubelets: Kubelets, machine: str, name: str, folder: Path
) -> Iterator[GpuNode]:
    """One node with its devices and its agent, which has published when this begins."""
    simulation = Simulation.create(machine, folder / "machine")
    node = kubelets.join(simulation, name, strategy=MigStrategy.MIXED, is_kwoks=True)
    (folder / "sockets").symlink_to(node.sockets)
    with agent(site, name, simulation, folder):
        made = GpuNode(site=site, node=node)
        until(lambda: has_topology(site, name) and made.free() is not None)
        yield made


def leave_free(stage: Stage, node: GpuNode, gpus: Sequence[int]) -> None:
    """Fill a node with pods of one GPU, and take away those that have these.

    Its agent has told so when this returns.
    """
    pods = [stage.add_pod(1, spec={"nodeName": node.name}) for _ in range(node.topology.n)]
    uids = {pod: stage.pod(pod)["metadata"]["uid"] for pod in pods}
    until(lambda: all(node.gpus_of(uid) for uid in uids.values()))
    for pod, uid in uids.items():
        if set(node.gpus_of(uid)) & set(gpus):
            stage.remove_pod(pod)
    until(lambda: node.free() == mask(gpus))


def mask(gpus: Sequence[int]) -> int:
    """A set of places as the agents write it."""
    return sum(1 << gpu for gpu in gpus)
