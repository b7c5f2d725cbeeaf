# SPDX-License-Identifier: Apache-2.0
"""A cluster with the second kube-scheduler as it is shipped: account, profile, certificates."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from api import names
from tests.agent.agent_process import GPUSCAPE, until
from tests.cluster.certificates import SECRETS, certificates
from tests.cluster.front import Keys
from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, HELM, KUBERNETES
from tests.controlplane.own import OwnPlane
from tests.controlplane.plane import Object, Plane
from tests.deploy.daemonset import DEPLOY

ACCOUNT = "gpuscape-kube-scheduler"
PROFILE = "gpuscape"
SERVICE = "gpuscape-scheduler.gpuscape.svc"
"""The extender's certificate is for this name."""
GPU = "nvidia.com/gpu"


def configuration(
    address: str | None,
    client: Keys,
    *,
    profile: str = PROFILE,
    leads: bool = True,
    timeout: str | None = None,
) -> dict[str, Any]:
    """The shipped one, led to the extender at this address and to these files; None: without it.

    ``leads``: whether it holds the Lease, which one scheduler of a cluster can. ``timeout``
    is another than the shipped one, where a test rests on answers however busy its machine is.
    """
    (shipped,) = yaml.safe_load_all((DEPLOY / "kube-scheduler" / "configuration.yaml").read_text())
    made: dict[str, Any] = yaml.safe_load(shipped["data"]["config.yaml"])
    made["profiles"][0]["schedulerName"] = profile
    made["leaderElection"]["leaderElect"] = leads
    (extender,) = made["extenders"]
    if address is None:
        return {**made, "extenders": []}
    shipped_address = f"https://{SERVICE}"
    assert extender["urlPrefix"].startswith(f"{shipped_address}/")
    extender["urlPrefix"] = extender["urlPrefix"].replace(shipped_address, address)
    extender["tlsConfig"] = tls(client)
    extender["httpTimeout"] = timeout or extender["httpTimeout"]
    return made


def tls(client: Keys) -> dict[str, str]:
    """The scheduler's side of the connection, wherever the extender is."""
    return {
        "serverName": SERVICE,
        "caFile": str(client.authority),
        "certFile": str(client.certificate),
        "keyFile": str(client.key),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A control plane with the manifests of all three folders, and certificates of our own."""

    plane: OwnPlane
    server: Keys
    """The extender's."""
    client: Keys
    """kube-scheduler's."""
    namespace: str
    """For pods."""
    node: str
    """Where the programs' own pods are, whose tokens the programs have."""
    admin: Path
    """Has the files of both sides, as they are mounted."""

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path, minor: str = CONTROLLER_MANAGER_MINOR) -> Iterator[Stage]:
        """One on a control plane of its own, without what would wake nodes and make pods."""
        with Plane.start(folder / "plane", minor=minor, controller_manager=False) as plane:
            yield cls.create(plane, folder / "admin")

    @classmethod
    def create(cls, plane: OwnPlane, folder: Path, node: str | None = None) -> Stage:
        """Apply what an admin applies, and have the shipped program make the certificates.

        Without a ``node`` there is one for the programs that takes no other pods.
        """
        plane.account(names.NAMESPACE, "default")
        for part in ("scheduler", "kube-scheduler", "certificates"):
            plane.kubectl("apply", "-k", DEPLOY / part)
        node = node or plane.make_node("control", ready=False)
        folder.mkdir(parents=True, exist_ok=True)
        with certificates(plane, node, folder):
            sides = {side: mounted(plane, name, folder / side) for side, name in SECRETS.items()}
        return cls(plane=plane, namespace=plane.namespace("jobs"), node=node, admin=folder, **sides)

    def start_scheduler(self, configuration: Mapping[str, Any], name: str = ACCOUNT) -> int:
        """Start kube-scheduler with the shipped account's rights; it is ready soon after.

        Its process id.
        """
        plane = self.plane
        token = self.token(ACCOUNT)
        kubeconfig = plane.kubeconfig(token=token)
        connection = {**configuration.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        folder = plane.programs.folder / name
        folder.mkdir(exist_ok=True)
        command = components.scheduler(
            binaries(KUBERNETES[plane.minor]) / "kube-scheduler",
            folder,
            kubeconfig,
            {**configuration, "clientConnection": connection},
        )
        return plane.programs.start(name, command)

    def token(self, account: str) -> str:
        """Of a new pod of this account on the programs' node."""
        return self.plane.bound_token(names.NAMESPACE, account, self.node)

    def add_pod(
        self,
        gpus: int = 0,
        *,
        name: str | None = None,
        scheduler: str = PROFILE,
        spec: Object | None = None,
        **metadata: Any,
    ) -> str:
        """Make a pod that asks for so many GPUs; its name. ``metadata``: labels and the like."""
        container: Object = {"name": "main", "image": "none"}
        if gpus:
            container["resources"] = {"limits": {GPU: str(gpus)}}
        named = {"name": name} if name else {"generateName": f"gpus-{gpus}-"}
        pod = {
            "metadata": {**named, **metadata},
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                **(spec or {}),
            },
        }
        made = self.plane.demand("POST", self._pods, pod)
        return str(made["metadata"]["name"])

    def pod(self, name: str) -> Object:
        """As it is now."""
        return self.plane.demand("GET", self.path(name))

    def node_of(self, pod: str) -> str | None:
        """Where it is bound, if it is."""
        node: str | None = self.pod(pod)["spec"].get("nodeName")
        return node

    def placed(self, pod: str) -> str:
        """Wait until it is bound; where."""
        until(lambda: self.node_of(pod) is not None)
        return self.node_of(pod) or ""

    def remove_pod(self, name: str) -> None:
        """At once."""
        self.plane.demand("DELETE", self.path(name), {"gracePeriodSeconds": 0})

    def remove_pods(self) -> None:
        """All of them, and wait until they are gone."""
        now = {"gracePeriodSeconds": 0}
        self.plane.demand("DELETE", self._pods, now)
        until(lambda: not self.plane.demand("GET", self._pods)["items"])

    def path(self, pod: str) -> str:
        """Of a pod."""
        return f"{self._pods}/{pod}"

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"


def run(plane: Plane, commands: str, folder: Path, *, kubeconfig: Path | None = None) -> str:
    """What shell commands of a page print in this folder; all of them lead to this cluster.

    ``kubeconfig`` None: the admin's.
    """
    on_path = folder / "bin"
    on_path.mkdir(parents=True, exist_ok=True)
    kubectl = binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl"
    for program in (kubectl, binaries(HELM) / "helm", GPUSCAPE):
        (on_path / program.name).unlink(missing_ok=True)
        (on_path / program.name).symlink_to(program)
    environment = {
        **os.environ,
        "PATH": f"{on_path}:{os.environ['PATH']}",
        "KUBECONFIG": str(kubeconfig or plane.kubeconfig()),
    }
    done = subprocess.run(
        ["/bin/sh", "-euc", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mounted(plane: Plane, secret: str, folder: Path) -> Keys:
    """A Secret's files, as the kubelet puts them into a pod."""
    path = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{secret}"
    data = plane.demand("GET", path)["data"]
    folder.mkdir(exist_ok=True)
    for name, content in data.items():
        (folder / name).write_bytes(base64.b64decode(content))
    return Keys(certificate=folder / "tls.crt", key=folder / "tls.key", authority=folder / "ca.crt")
