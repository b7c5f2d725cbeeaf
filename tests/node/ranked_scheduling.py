# SPDX-License-Identifier: Apache-2.0
"""Scheduling by NVLink on real nodes: the shipped extender in containers, asked by kube-scheduler.

No kube-proxy runs here, so kube-scheduler is led to one of the extender's pods by a relay, which
follows them. It is a process, since the only nodes have GPUs, where its Deployment does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from api import names
from tests.agent.agent_process import until
from tests.cluster.certificates import SECRETS
from tests.cluster.scheduling import ACCOUNT, configuration, mounted
from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBERNETES
from tests.controlplane.pki import write_whole
from tests.controlplane.plane import Object
from tests.deploy.daemonset import DEPLOY
from tests.node.real_cluster import RealCluster
from tests.node.real_node import SOON

DEPLOYMENT: Final = "deployment/gpuscape-scheduler"
EXTENDER_PORT: Final = 8443
TIMEOUT: Final = "30s"
"""kube-scheduler's patience: the extender may start while the machine is busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedScheduling:
    """A scheduler for pods that name its profile, which runs until its cluster ends."""

    cluster: RealCluster
    target: Path
    """Says where the extender is."""

    @classmethod
    def install(cls, cluster: RealCluster, *variables: str) -> Self:
        """Install it as docs/scheduler.md says; ready when this returns.

        ``variables``: settings of the extender, as NAME=VALUE.
        """
        plane, folder = cluster.plane, cluster.plane.folder / "admin"
        for part in ("scheduler", "certificates"):
            plane.kubectl("apply", "-k", DEPLOY / part)
        if variables:
            plane.kubectl("-n", names.NAMESPACE, "set", "env", DEPLOYMENT, *variables)
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(cluster=cluster, target=folder / "extender")
        plane.kubectl(
            "-n", names.NAMESPACE, "rollout", "status", DEPLOYMENT, f"--timeout={SOON:.0f}s"
        )
        until(made.follow, SOON)
        port = plane.programs.relay(f"@{made.target}")
        made._start_scheduler(f"https://{components.LOOPBACK}:{port}")
        return made

    def follow(self) -> bool:
        """Lead to an extender that is ready; whether there is one."""
        ready = [pod["status"]["podIP"] for pod in self.extenders() if _is_ready(pod)]
        if ready:
            write_whole(self.target, f"{ready[0]}:{EXTENDER_PORT}".encode())
        return bool(ready)

    def extenders(self) -> list[Object]:
        """Its pods, those that end too."""
        ours = "labelSelector=app.kubernetes.io/component%3Dscheduler"
        path = f"/api/v1/namespaces/{names.NAMESPACE}/pods?{ours}"
        found: list[Object] = self.cluster.plane.demand("GET", path)["items"]
        return found

    def _start_scheduler(self, extender: str) -> None:
        plane = self.cluster.plane
        client = mounted(plane, SECRETS["client"], plane.folder / "admin" / "client")
        folder = plane.programs.folder / ACCOUNT
        folder.mkdir()
        command = components.scheduler(
            binaries(KUBERNETES[plane.minor]) / "kube-scheduler",
            folder,
            plane.kubeconfig("system:kube-scheduler"),
            configuration(extender, client, leads=False, timeout=TIMEOUT),
        )
        plane.programs.start(ACCOUNT, command)


def _is_ready(pod: Object) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions: list[dict[str, Any]] = pod["status"].get("conditions", [])
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
