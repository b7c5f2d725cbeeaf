# SPDX-License-Identifier: Apache-2.0
"""A cluster with real nodes in a network of its own: control plane, kubelets, containers.

Clusters beside each other have the same addresses and do not meet. Everything ends with the
process that started it, however that one ends.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api import names
from tests.cluster.queues import JOBSET_PROGRAM, KUEUE_PROGRAM
from tests.controlplane.builds import binaries
from tests.controlplane.components import LOOPBACK
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, NODE_PROGRAMS
from tests.controlplane.own import OwnPlane, start_controller_manager, start_scheduler
from tests.controlplane.pki import write_whole
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.deploy.daemonset import DEPLOY
from tests.node import images, needs
from tests.node.machine import DISK
from tests.node.network import GATEWAY, NetworkPrograms
from tests.node.real_node import RealNode

AGENT: Final = names.AGENT
GPU_NODE: Final = "nvidia.com/gpu.present"
"""The label that the shipped DaemonSet asks for."""
PORT: Final = 443
SERVICE: Final = "service-address"
"""A program, where a test has one: it serves pods in the cluster's network."""
INSIDE: Final = ("etcd", "kube-apiserver", SERVICE, JOBSET_PROGRAM, KUEUE_PROGRAM)
"""Programs in the network: the API server calls webhooks of the last two at its loopback."""

_OVERLAY: Final = """\
resources: [gpuscape/deploy/base]
components: [gpuscape/deploy/simulated]
"""
"""What a person writes for a cluster without GPUs."""


class NetworkPlane(OwnPlane):
    """A control plane in a network of its own, which a relay leads to from outside.

    Store and API server are inside, where pods reach the latter at the service's address; the
    other programs listen nowhere, and reach it as everybody outside does.
    """

    programs: NetworkPrograms

    def start_apiserver(self) -> None:
        """Start it, for machines and pods too, and wait until it is ready."""
        if not self.apiserver_flags:
            self.programs.relay(f"{LOOPBACK}:{PORT}", self.port)
            kubelets = self.client("kube-apiserver-kubelet-client", ("system:masters",))
            self.apiserver_flags = (
                "--bind-address=0.0.0.0",
                f"--secure-port={PORT}",
                f"--advertise-address={GATEWAY}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={kubelets.certificate_file}",
                f"--kubelet-client-key={kubelets.key_file}",
            )
        super().start_apiserver()

    def kubeconfig_inside(self) -> Path:
        """The admin's, for a program in the network."""
        text = self.kubeconfig().read_text(encoding="utf-8")
        inside = text.replace(self.url, f"https://{LOOPBACK}:{PORT}")
        return write_whole(self.folder / "inside.kubeconfig", inside.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCluster:
    """One that runs, with our image on every node."""

    plane: NetworkPlane
    nodes: Mapping[str, RealNode]
    """By name; all Ready when the cluster starts."""

    @staticmethod
    @contextlib.contextmanager
    def start(
        folder: Path,
        *,
        nodes: int = 2,
        minor: str = CONTROLLER_MANAGER_MINOR,
        note: Callable[[str], None] = lambda _: None,
    ) -> Iterator[RealCluster]:
        """Run it while the block lasts; the API server, scheduler and kubelets are of ``minor``.

        ``note`` takes what is done next.

        Raises NotPreparedError and ProgramError.
        """
        needs.demand()
        for family in NODE_PROGRAMS[minor]:
            binaries(family)
        folder.mkdir(parents=True, exist_ok=True)
        note("making the image")
        ours, pause = images.our_image(), images.pause_image(folder)
        note("starting the control plane")
        with contextlib.ExitStack() as running:
            programs = running.enter_context(NetworkPrograms(folder / "logs", inside=INSIDE))
            plane = NetworkPlane.launch(folder, programs, minor)
            start_controller_manager(plane, programs, node_lifecycle=True)
            start_scheduler(plane, programs, {})
            started = {}
            for number in range(1, nodes + 1):
                note(f"starting node {number} of {nodes}")
                node = RealNode.start(plane, programs, number, folder / f"node-{number}")
                running.callback(node.end)
                programs.remove(node.folder / DISK)  # should its machine's keeper be killed
                started[node.name] = node
                for image in (pause, ours):
                    node.import_image(image)
            yield RealCluster(plane=plane, nodes=started)

    def install(self) -> None:
        """Apply the agents' manifests to all nodes, each with a simulated machine."""
        for name in self.nodes:
            self.label(name, {GPU_NODE: "true"})
        self.plane.kubectl("apply", "-k", self.overlay())

    def overlay(self) -> Path:
        """The folder of the kustomization that is applied."""
        folder = self.plane.folder / "overlay"
        folder.mkdir(exist_ok=True)
        if not (folder / "gpuscape").exists():
            (folder / "gpuscape").symlink_to(DEPLOY.parent)
        (folder / "kustomization.yaml").write_text(_OVERLAY, encoding="utf-8")
        return folder

    def label(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Change labels of a Node as the admin; None removes."""
        body = {"metadata": {"labels": labels}}
        self.plane.demand("PATCH", f"/api/v1/nodes/{node}", body, content_type=MERGE_PATCH)

    def pods(self, node: str) -> list[Object]:
        """The agents' pods on a node, those that end too."""
        ours = "labelSelector=app.kubernetes.io/component%3Dagent"
        there = f"fieldSelector=spec.nodeName%3D{node}"
        path = f"/api/v1/namespaces/{names.NAMESPACE}/pods?{ours}&{there}"
        found: list[Object] = self.plane.demand("GET", path)["items"]
        return found

    def lease(self, node: str) -> Object:
        """The agent's Lease; empty where there is none yet."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
        answer = self.plane.request("GET", f"{path}/{names.agent_lease(node)}")
        return answer.body if answer.status == http.client.OK else {}

    def resource_version(self) -> str:
        """Of the cluster now, to ask later what came after."""
        listed = self.plane.demand("GET", "/api/v1/nodes?limit=1")
        return str(listed["metadata"]["resourceVersion"])

    def versions(self, path: str, *, since: str, name: str = "") -> list[Object]:
        """Every version of the objects of a list that was written after ``since``, oldest first.

        What was deleted is there once more, as it was last. ``name``: of one object alone.
        """
        query = f"watch=1&timeoutSeconds=1&resourceVersion={since}"
        if name:
            query += f"&fieldSelector=metadata.name%3D{name}"
        body = self.plane.request("GET", f"{path}?{query}").body
        lines = body["text"].splitlines() if "text" in body else [json.dumps(body)]
        events = [event for line in lines if (event := json.loads(line))]
        known = ("ADDED", "MODIFIED", "DELETED")
        assert all(it.get("type") in known for it in events), events
        return [event["object"] for event in events]
