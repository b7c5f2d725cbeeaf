# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor`` as an admin runs it on a real node, or in the pod of the node's agent.

On the node it has the account of the agent.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api import names
from tests.agent.agent_process import GPUSCAPE
from tests.controlplane import components
from tests.node.container_agents import Agent
from tests.node.gpu_cluster import GpuCluster
from tests.node.network import SERVICE_IP
from tests.node.node_mig import MACHINE, NodeMig


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExamination:
    """What it found on a node."""

    code: int
    document: Mapping[str, Any]

    @property
    def causes(self) -> dict[str, str]:
        """Finding to what was found."""
        return {each["name"]: each["cause"] for each in self.document["findings"]}

    @property
    def not_looked_at(self) -> dict[str, str]:
        """Check to the reason."""
        checks = self.document["checks"]
        return {it["check"]: it["why"] for it in checks if it["outcome"] == "not looked at"}


def examined(there: GpuCluster, *settings: str) -> NodeExamination:
    """The doctor on the cluster's one node; ``settings``: flags of the agent's that matter."""
    node = there.node
    NodeMig.on(there.gpus[node.name])
    agent = Agent(node=node, pod=there.cluster.pods(node.name)[0])
    plane = there.cluster.plane
    who = {"token": agent.token()}
    kubeconfig = node.folder / "doctor.kubeconfig"
    written = components.kubeconfig(f"https://{SERVICE_IP}:443", plane.ca_file, who)
    kubeconfig.write_text(json.dumps(written), encoding="utf-8")
    options = {
        "kubeconfig": kubeconfig,
        "node-name": node.name,
        "namespace": names.NAMESPACE,
        "pod-uid": agent.uid,
        "kubelet-config": node.folder / "kubelet.json",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    try:
        printed = node.run(GPUSCAPE, "doctor", *flags, *settings, *MACHINE, "-o", "json")
        code = 0
    except subprocess.CalledProcessError as error:
        code, printed = error.returncode, error.stdout or error.stderr
    return NodeExamination(code=code, document=json.loads(printed))


def examined_in_its_pod(there: GpuCluster) -> NodeExamination:
    """The doctor by ``kubectl exec``, with the agent's own variables and the driver in its pod."""
    plane = there.cluster.plane
    (pod,) = there.cluster.pods(there.node.name)
    words = ("-n", names.NAMESPACE, "exec", pod["metadata"]["name"], "-c", "agent", "--")
    code, printed = plane.kubectl_exit(*words, "gpuscape", "doctor", "-o", "json")
    return NodeExamination(code=code, document=json.loads(printed))
