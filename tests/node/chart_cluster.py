# SPDX-License-Identifier: Apache-2.0
"""An empty cluster for the chart: nodes with GPUs, and one for the control plane's programs.

What a GPU cluster has is there: a driver, NVIDIA's device plugin and RuntimeClass, the label by
which Node Feature Discovery tells GPU nodes, images where a registry would have them. The rest
comes from the lines of the project's pages, typed in a clone of it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from api import keys, names, state_annotation
from api.mig_resources import MigStrategy
from simulator.description.machine_schema import MachineDescription
from simulator.simulation import Simulation
from tests import pages
from tests.agent.agent_process import until
from tests.cluster.scheduling import run
from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBERNETES
from tests.controlplane.pki import write_whole
from tests.controlplane.plane import MERGE_PATCH
from tests.controlplane.programs import ROOT
from tests.deploy.chart import IMAGE
from tests.deploy.daemonset import container, daemonset
from tests.node import handed_out, images, service_address
from tests.node.node_gpus import NodeGpus
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.real_cluster import GPU_NODE, SERVICE, RealCluster
from tests.node.real_node import SOON, RealNode

CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
HOST: Final = f"{names.SCHEDULER}.{names.NAMESPACE}.svc"
"""By which kube-scheduler finds the extender."""
HOW_TO_CHANGE: Final = (
    "helm upgrade gpuscape deploy/chart --namespace gpuscape --reset-then-reuse-values"
)
KUBE_SCHEDULER: Final = "gpuscape-kube-scheduler"
_SLICES: Final = f"/apis/discovery.k8s.io/v1/namespaces/{names.NAMESPACE}/endpointslices"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartCluster:
    """One that runs."""

    cluster: RealCluster
    gpus: Mapping[str, NodeGpus]
    """By node; the node of the control plane has none."""
    clone: Path
    """Where commands are typed."""
    target: Path
    """Names the endpoint that the extender's Service leads to."""

    def type(
        self, commands: str, *, tree: Path | None = None, kubeconfig: Path | None = None
    ) -> str:
        """What they print in the clone or another tree of the project, to an admin of the cluster
        or somebody with another kubeconfig.

        Fails where one of them does.
        """
        return run(self.cluster.plane, commands, tree or self.clone, kubeconfig=kubeconfig)

    def roll_out(self, *workloads: str) -> None:
        """Wait until all pods of each are new and ready."""
        for name in workloads:
            wait = ("rollout", "status", name, f"--timeout={SOON:.0f}s")
            self.cluster.plane.kubectl("-n", names.NAMESPACE, *wait)

    def start_scheduling(self) -> None:
        """Wait for the extender and the scheduler, which are installed; they answer then.

        kube-scheduler waits for the extender's scores, which come late on a busy machine: it would
        place pods without them.
        """
        self.type(f"{HOW_TO_CHANGE} --set scheduler.kubeScheduler.extenderTimeout=30s")
        self.roll_out(f"deployment/{names.SCHEDULER}", f"deployment/{KUBE_SCHEDULER}")
        until(self.lead_to_extender, SOON)

    def lead_to_extender(self) -> bool:
        """Have the Service lead to an endpoint of its that is ready; whether there is one."""
        ours = f"labelSelector=kubernetes.io%2Fservice-name%3D{names.SCHEDULER}"
        for found in self.cluster.plane.demand("GET", f"{_SLICES}?{ours}")["items"]:
            for endpoint in found["endpoints"] or ():
                if endpoint["conditions"]["ready"]:
                    (port,) = found["ports"]
                    address = f"{endpoint['addresses'][0]}:{port['port']}"
                    write_whole(self.target, address.encode())
                    return True
        return False

    def held(self, node: RealNode) -> Mapping[str, set[int]]:
        """As :func:`handed_out.whole_gpus`."""
        index = indices(self.gpus[node.name].simulation)
        return handed_out.whole_gpus(self.cluster.plane, node, index)

    def free(self, node: RealNode, gpus: int = 8) -> set[int]:
        """Those of its first GPUs that the extender takes for free, by what the agent has
        published."""
        annotations = self.cluster.lease(node.name)["metadata"]["annotations"]
        state = state_annotation.decode(annotations[keys.STATE])
        used = int(state.used, 16) if state else 0
        return {number for number in range(gpus) if not used >> number & 1}


def indices(simulation: Simulation) -> Mapping[str, int]:
    """UUID to index of each GPU, by NVML."""
    with simulation:
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return {pynvml.nvmlDeviceGetUUID(it): number for number, it in enumerate(handles)}
        finally:
            pynvml.nvmlShutdown()


@contextmanager
def chart_cluster(
    folder: Path,
    *machines: MachineDescription | str,
    strategy: MigStrategy = MigStrategy.NONE,
    settings: Mapping[str, Any] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[ChartCluster]:
    """A node for each machine, and one without GPUs, while the block lasts.

    ``strategy`` and ``settings`` are the device plugins'. Raises NotPreparedError and ProgramError.
    """
    with RealCluster.start(folder, nodes=len(machines) + 1, note=note) as cluster:
        plane, target = cluster.plane, folder / "extender"
        target.write_text("", encoding="utf-8")
        command = [sys.executable, "-m", "tests.node.service_address", HOST, f"@{target}"]
        plane.programs.start(SERVICE, command, cwd=ROOT)
        log = plane.programs.log(SERVICE)
        plane.programs.wait(SERVICE, lambda: log.read_text() == "ready\n", seconds=SOON)
        *with_gpus, control = cluster.nodes.values()
        note("starting the device plugin on each node")
        scheduler = _scheduler_image(cluster, folder)
        served = {}
        for node, machine in zip(with_gpus, machines, strict=True):
            served[node.name] = NodeGpus.serve(node, machine)
            NvidiaPlugin.start(plane, node, strategy=strategy, settings=settings)
            cluster.label(node.name, {GPU_NODE: "true"})
        cluster.label(control.name, {CONTROL_PLANE: ""})
        taint = {"spec": {"taints": [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]}}
        path = f"/api/v1/nodes/{control.name}"
        plane.demand("PATCH", path, taint, content_type=MERGE_PATCH)
        for node in cluster.nodes.values():
            node.stop("kubelet")
            node.start_kubelet(service_address.KUBELET)
            node.import_image(scheduler)
            offer(node, own_image(), f"{IMAGE}:{own_image().rpartition(':')[2]}")
        yield ChartCluster(cluster=cluster, gpus=served, clone=pages.clone(folder), target=target)


def own_image() -> str:
    """The name under which nodes have our image."""
    return f"docker.io/library/{container(daemonset())['image']}"


def offer(node: RealNode, image: str, name: str) -> None:
    """Have an image under another name too, as if it had been pulled from a registry."""
    node.run("ctr", "--namespace=k8s.io", "images", "tag", "--force", image, name)


def _scheduler_image(cluster: RealCluster, folder: Path) -> Path:
    """Kubernetes' own program under the name of its project's image."""
    root = folder / "kube-scheduler"
    (root / "bin").mkdir(parents=True)
    program = binaries(KUBERNETES[cluster.plane.minor]) / "kube-scheduler"
    shutil.copy2(program, root / "bin" / "kube-scheduler")
    version = cluster.plane.demand("GET", "/version")["gitVersion"]
    name = f"registry.k8s.io/kube-scheduler:{version}"
    config = {"Env": ["PATH=/bin"]}
    return images.write(folder / "kube-scheduler.tar", name, root, config)
