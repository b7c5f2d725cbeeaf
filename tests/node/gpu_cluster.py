# SPDX-License-Identifier: Apache-2.0
"""Real nodes with GPUs: a served machine on each, and the agents as ``deploy/base`` has them.

Nothing is patched: the agents load NVML's library, which the runtime class puts into their
containers, as on a node with a driver.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from api import keys, state_annotation
from api.state_annotation import StateAnnotation
from simulator.description.machine_schema import MachineDescription
from tests import exposition
from tests.agent.agent_process import until
from tests.deploy.daemonset import DEPLOY
from tests.node.node_gpus import NodeGpus
from tests.node.nvidia_plugin import NvidiaPlugin, make_runtime_class
from tests.node.real_cluster import GPU_NODE, RealCluster
from tests.node.real_node import SOON, RealNode

NAMESPACE: Final = "default"
"""Where tests make their pods; it has been there from the start."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCluster:
    """One that runs."""

    cluster: RealCluster
    gpus: Mapping[str, NodeGpus]
    """By node."""
    plugins: dict[str, NvidiaPlugin] = field(default_factory=dict)
    """NVIDIA's device plugin of each node that has one; tests put another one in its place."""

    @property
    def node(self) -> RealNode:
        """The only one. Raises ValueError where there are several."""
        (found,) = self.cluster.nodes.values()
        return found

    def scrape(self, node: str) -> Mapping[tuple[str, exposition.Labels], float] | None:
        """Every series of the agent there; None while nobody answers."""
        try:
            (pod,) = self.cluster.pods(node)
            text = self.cluster.nodes[node].get(f"http://{pod['status']['podIP']}:9400/metrics")
        except (ValueError, KeyError, subprocess.CalledProcessError):  # between two agents
            return None
        return exposition.series(f"{text.rstrip()}\n".encode())

    def state(self, node: str) -> StateAnnotation | None:
        """What the agent there has published of the kubelet's devices."""
        metadata = self.cluster.lease(node).get("metadata", {})
        text = metadata.get("annotations", {}).get(keys.STATE)
        return None if text is None else state_annotation.decode(text)


@contextlib.contextmanager
def gpu_cluster(
    folder: Path,
    *machines: MachineDescription | str,
    prepare: Callable[[RealNode], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[GpuCluster]:
    """A node for each machine; every agent has published its first state within.

    ``prepare`` changes a node before anything runs there; ``note`` takes what is done next.
    """
    with RealCluster.start(folder, nodes=len(machines), note=note) as cluster:
        note("starting an agent on each node")
        make_runtime_class(cluster.plane)
        served = {}
        for (name, node), machine in zip(cluster.nodes.items(), machines, strict=True):
            prepare(node)
            served[name] = NodeGpus.serve(node, machine)
            cluster.label(name, {GPU_NODE: "true"})
        cluster.plane.kubectl("apply", "-k", DEPLOY / "base")
        found = GpuCluster(cluster=cluster, gpus=served)
        for name in cluster.nodes:
            until(lambda name=name: found.state(name) is not None, SOON)  # type: ignore[misc]
        yield found
