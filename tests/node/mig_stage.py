# SPDX-License-Identifier: Apache-2.0
"""Real nodes whose MIG layouts change as in a cluster, for the tests of that.

The shipped agents, actuators and coordinators, NVIDIA's device plugin as a DaemonSet over the
driver's library, and what an admin does and sees.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from api import keys, mig_status_annotation, names
from api.mig_outcome import Outcome
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MigStatusAnnotation
from simulator.description.machine_schema import MachineDescription
from tests.agent.agent_process import until
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.node import mig_holder
from tests.node.admin_shell import AdminShell
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.injecting_runtime import LIBRARIES
from tests.node.node_mig import HOST, NodeMig
from tests.node.nvidia_plugin import RUNTIME_CLASS, NvidiaPlugin
from tests.node.plugin_daemonset import LABELS as PLUGIN_LABELS
from tests.node.plugin_daemonset import NAME as PLUGIN
from tests.node.plugin_daemonset import start_plugins

LONG: Final = 240.0
"""Seconds for a change with all that is around it on a busy machine of two cores."""
LAYOUT: Final = json.dumps({"0": {"3g.20gb": 2}})
WANTED: Final = {"nvidia.com/mig-3g.20gb": 2}
LARGE: Final = "nvidia.com/mig-3g.20gb"
SEVENTHS: Final = json.dumps({"0": {"1g.5gb": 7}})
SMALL: Final = "nvidia.com/mig-1g.5gb"
ENFORCING: Final = {"GPUSCAPE_MIG_MODE": "enforce", "GPUSCAPE_MIG_STRATEGY": "mixed"}
REPLICA_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
COORDINATOR: Final = "gpuscape coordinator --listen=:9402"
SERVED: Final = {"app": "served"}
_LINKED: Final = {"kubelet": "/var/lib/kubelet", "pod-logs": "/var/log/pods"}
"""Where links of the simulated host's root lead: see :mod:`tests.node.node_mig`."""
_DEPLOYMENT: Final = f"deployment/{names.COORDINATOR}"
_PLUGINS: Final = ",".join(f"{key}={value}" for key, value in PLUGIN_LABELS.items())


def kustomization(
    *,
    agent: Mapping[str, str] | None = None,
    coordinator: Mapping[str, str] | None = None,
    host_pids: bool = False,
) -> str:
    """What an admin writes for the agents with actuators; the variables are set beside ours.

    ``coordinator`` None: there is none. The simulated driver's part of the host is below a folder,
    from where links lead to the kubelet's and to the pods' logs; and the variable that leads to its
    library is not handed on to workers. ``host_pids``: the pod sees the node's processes, which on
    a host are in the root's /proc.
    """
    actuator = {
        "name": "actuator",
        "env": _variables({"GPUSCAPE_LIBRARY": f"{LIBRARIES}/libnvidia-ml.so.1"}),
        "volumeMounts": [
            {"name": name, "mountPath": path, "readOnly": True} for name, path in _LINKED.items()
        ],
    }
    pod = {
        "hostPID": host_pids,
        "containers": [{"name": "agent", "env": _variables(agent or {})}, actuator],
        "volumes": [
            {"name": name, "hostPath": {"path": path, "type": "Directory"}}
            for name, path in {"host": str(HOST), **_LINKED}.items()
        ],
    }
    resources, patches = ["gpuscape/deploy/base"], [_patch("DaemonSet", names.AGENT, pod)]
    if coordinator is not None:
        resources.append("gpuscape/deploy/coordinator")
        container = {"name": "coordinator", "env": _variables(coordinator)}
        anywhere = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}
        pod = {"containers": [container], "affinity": anywhere}  # every node here has GPUs
        patches.append(_patch("Deployment", names.COORDINATOR, pod))
    return json.dumps(
        {
            "resources": resources,
            "components": ["gpuscape/deploy/actuator"],
            "patches": patches,
        }
    )


def _variables(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _patch(kind: str, name: str, pod: Object) -> Object:
    body = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }
    return {"target": {"kind": kind, "name": name}, "patch": json.dumps(body)}


def served(
    node: str, resource: str = LARGE, *, arguments: Sequence[str] = (), grace_seconds: int = 1
) -> Object:
    """A ReplicaSet of one pod with a MIG device, on one node."""
    pod = gpu_pod("served", gpus("main", 1, resource=resource), node=node)
    pod["metadata"] = {"labels": SERVED}
    pod["spec"]["runtimeClassName"] = RUNTIME_CLASS
    pod["spec"]["terminationGracePeriodSeconds"] = grace_seconds
    pod["spec"]["containers"][0] |= {"image": mig_holder.IMAGE, "args": list(arguments)}
    selector = {"matchLabels": SERVED}
    return {
        "metadata": {"name": "served"},
        "spec": {"replicas": 1, "selector": selector, "template": pod},
    }


class MigStage:
    """The nodes, and what their admin does and sees."""

    def __init__(self, there: GpuCluster) -> None:
        self.there = there
        self.plane = there.cluster.plane
        self.nodes = there.cluster.nodes
        self.admin = AdminShell(self.plane)

    # what an admin does

    def annotate(self, node: str, **annotations: str | None) -> None:
        """As ``kubectl annotate node`` does."""
        written = {f"gpuscape.io/{key.replace('_', '-')}": it for key, it in annotations.items()}
        body = {"metadata": {"annotations": written}}
        self.plane.demand("PATCH", f"/api/v1/nodes/{node}", body, content_type=MERGE_PATCH)

    def serve(self, node: str, resource: str = LARGE, **more: Any) -> Object:
        """Make the ReplicaSet of :func:`served`; its pod, which runs."""
        self.plane.demand("POST", REPLICA_SETS, served(node, resource, **more))
        until(lambda: [pod["status"]["phase"] for pod in self.served()] == ["Running"], LONG)
        (pod,) = self.served()
        return pod

    def stop_serving(self) -> None:
        """Delete it; its pods are gone when this returns."""
        path = f"{REPLICA_SETS}/served?propagationPolicy=Background"
        self.plane.demand("DELETE", path)
        until(lambda: not self.served(), LONG)

    def scale_coordinator(self, replicas: int) -> None:
        """As ``kubectl scale``; it has so many when this returns."""
        words = ("-n", names.NAMESPACE, "scale", _DEPLOYMENT, f"--replicas={replicas}")
        self.plane.kubectl(*words)

        def running() -> int:
            found = [node.processes(COORDINATOR) for node in self.nodes.values()]
            return sum(map(len, found))

        until(lambda: running() == replicas, LONG)

    def restart_plugin(self, node: str) -> None:
        """Delete the device plugin's pod; the DaemonSet makes another one."""
        selected = f"--field-selector=spec.nodeName={node}"
        self.plane.kubectl("-n", "kube-system", "delete", "pods", "-l", _PLUGINS, selected)

    def reboot(self, node: str) -> None:
        """Take the node's power away, and have it start again.

        All processes and containers end at once, /run is empty, the driver has lost what no GPU
        keeps, and the boot id is another one; disks are as they were. Kernel, firmware and systemd
        are not started anew: driver, containerd and kubelet are, one after the other.
        """
        real, driver = self.nodes[node], self.there.gpus[node]
        real.power_off()
        driver.simulation.reboot()
        for file in (driver.simulation.host_root / "dev/nvidia-caps").iterdir():
            file.unlink()
        real.power_on()
        boot_id = driver.simulation.host_root / "proc" / "sys/kernel/random/boot_id"
        boot_id.write_text(f"{real.boot_id}\n")
        driver.start()
        real.start_containerd()
        real.start_kubelet()
        until(lambda: self.object(node)["status"]["nodeInfo"]["bootID"] == real.boot_id, LONG)
        until(real.is_ready, LONG)

    # what an admin sees

    def object(self, node: str) -> Object:
        """The Node now."""
        return self.nodes[node].object()

    def status(self, node: str) -> MigStatusAnnotation | None:
        """What its agent says; None: nothing."""
        text = (self.object(node)["metadata"].get("annotations") or {}).get(keys.MIG_STATUS)
        return None if text is None else mig_status_annotation.decode(text)

    def phase(self, node: str) -> str:
        """Of its status; empty where there is none."""
        status = self.status(node)
        return "" if status is None else status.phase

    def is_open(self, node: str) -> bool:
        """Pods may be scheduled there, and nothing of a change is left."""
        found = self.object(node)
        notes = found["metadata"].get("annotations") or {}
        return not found["spec"].get("unschedulable") and keys.MIG_PERMIT not in notes

    def served(self) -> list[Object]:
        """The ReplicaSet's pods."""
        found: list[Object] = self.plane.demand("GET", f"{PODS}?labelSelector=app%3Dserved")[
            "items"
        ]
        return found

    def events(self, node: str) -> dict[str, str]:
        """Reason to the last note of the Events about a Node."""
        return {it["reason"]: it["note"] for it in self.plane.events_about(node)}

    def begun(self) -> set[str]:
        """Nodes whose change has begun and not ended."""
        return {node for node in self.nodes if not self.is_open(node)}

    def offers(self, node: str) -> dict[str, int]:
        """What pods may ask for."""
        plugin = NvidiaPlugin(plane=self.plane, node=self.nodes[node], pod=PLUGIN)
        return {name: count for name, count in plugin.allocatable().items() if count}

    def is_changed(self, node: str, wanted: Mapping[str, int] = WANTED) -> bool:
        """It offers what was asked for, and nothing of the change is left."""
        offers = self.offers(node)
        return self.phase(node) == "unchanged" and offers == wanted and self.is_open(node)

    def instances(self, node: str) -> frozenset[tuple[str, int, int, int]]:
        """What is on the GPUs, without a look by any program: see :meth:`NodeMig.births`."""
        return NodeMig(self.there.gpus[node]).births()

    def looked_at(self) -> dict[str, Any]:
        """For messages."""
        return {
            node: (self.status(node), self.offers(node), self.is_open(node)) for node in self.nodes
        }

    # what was

    def ends(self, node: str, since: str) -> list[tuple[str, str]]:
        """Requests with their ends, in order, that the Node has shown."""
        found: dict[tuple[str, str], None] = {}
        for version in self.there.cluster.versions("/api/v1/nodes", since=since, name=node):
            text = (version["metadata"].get("annotations") or {}).get(keys.MIG_STATUS)
            status = None if text is None else mig_status_annotation.decode(text)
            if status is not None and status.request and status.outcome:
                found[status.request, status.outcome] = None
        return list(found)

    def check_cordons(self, since: str) -> None:
        """Never more than one node was cordoned, and none is left so; no change was refused, which
        is a cordon for nothing."""
        cordoned: set[str] = set()
        for version in self.there.cluster.versions("/api/v1/nodes", since=since):
            name, spec = version["metadata"]["name"], version["spec"]
            (cordoned.add if spec.get("unschedulable") else cordoned.discard)(name)
            assert len(cordoned) <= 1
        assert not cordoned
        for node in self.nodes:
            assert Outcome.REFUSED not in {end for _, end in self.ends(node, since)}

    def kill(self, program: str) -> None:
        """SIGKILL it wherever it runs; the kubelet starts its container again."""
        for node in self.nodes.values():
            for process in node.processes(program):
                process.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def mig_stage(
    folder: Path, *machines: MachineDescription | str, modes: bool = False
) -> Iterator[MigStage]:
    """A node for each machine; agents, actuators and coordinators are installed.

    ``modes``: there is what a change of modes by resets needs on a machine with NVSwitches. Fabric
    Manager runs where the actuator sees it, as it sees the cgroups of pods, and the device plugin
    can be paused as the GPU operator's.
    """
    with gpu_cluster(folder, *machines) as found:
        for node in found.cluster.nodes.values():
            node.import_image(mig_holder.image(folder / f"image-{node.name}"))
            mig = NodeMig.on(found.gpus[node.name])
            if modes:
                mig.gpus.start_fabric_manager()
                mig.show_cgroups()
        start_plugins(found, MigStrategy.MIXED, by_operator=modes)
        written = kustomization(
            agent=ENFORCING, coordinator={"GPUSCAPE_CANARY": "1s"}, host_pids=modes
        )
        overlay = found.cluster.overlay()
        (overlay / "kustomization.yaml").write_text(written)
        found.cluster.plane.kubectl("apply", "-k", overlay)
        yield MigStage(found)
