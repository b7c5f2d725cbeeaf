# SPDX-License-Identifier: Apache-2.0
"""A control plane of one's own, and starting more programs against any plane."""

from __future__ import annotations

import contextlib
import http.client
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.definitions import wait_until_served
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, ETCD, KUBERNETES, KWOK, NFD
from tests.controlplane.pki import Pki
from tests.controlplane.plane import Plane
from tests.controlplane.programs import Programs

KWOK_ANNOTATION, KWOK_GROUP = "kwok.x-k8s.io/node", "fake"
"""What a Node carries that is KWOK's."""


@dataclass(kw_only=True)
class OwnPlane(Plane):
    """A control plane whose programs this process may stop and start again."""

    programs: Programs
    etcd_port: int
    apiserver_flags: Sequence[str] = ()
    lives: int = 1
    """How often the API server may crash and come back, less one."""

    @classmethod
    def launch(
        cls,
        directory: Path,
        programs: Programs,
        minor: str,
        apiserver_flags: Sequence[str] = (),
        *,
        lives: int = 1,
    ) -> Self:
        """Start the store and the API server; ready when this returns."""
        directory.mkdir(parents=True, exist_ok=True)
        Pki.create(directory / "pki")
        plane = cls(
            minor=minor,
            folder=directory,
            port=components.free_port(),
            programs=programs,
            etcd_port=components.free_port(),
            apiserver_flags=apiserver_flags,
            lives=lives,
        )
        programs.remove(plane.store)
        plane.start_store()
        plane.start_apiserver()
        return plane

    @property
    def store(self) -> Path:
        """The folder with etcd's data."""
        return self.folder / "etcd"

    def start_store(self) -> None:
        """Start etcd, on the same port every time, and wait until it has a leader."""
        binary = binaries(ETCD) / "etcd"
        command = components.etcd(binary, self.store, self.etcd_port, components.free_port())
        self.programs.start("etcd", command)
        port = self.programs.way_to("etcd", self.etcd_port)
        self.programs.wait("etcd", lambda: _is_healthy(port))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[Path]:
        """Stop the API server, then the store, while the block lasts; gives the store's folder.

        An admin restores a backup so. Source: Kubernetes documentation, "Operating etcd clusters
        for Kubernetes", Restoring an etcd cluster.
        """
        self.stop_apiserver(signal.SIGKILL)
        self.programs.stop("etcd")
        yield self.store
        self.start_store()
        self.start_apiserver()

    def start_apiserver(self) -> None:
        """Start it, on the same port every time, and wait until it is ready."""
        command = components.apiserver(
            binaries(KUBERNETES[self.minor]) / "kube-apiserver",
            self.folder,
            self.pki,
            port=self.port,
            etcd_port=self.etcd_port,
            flags=self.apiserver_flags,
        )
        self.programs.start("kube-apiserver", command, lives=self.lives)
        self.programs.wait("kube-apiserver", self.is_ready)

    def stop_apiserver(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it; the store stays."""
        self.programs.stop("kube-apiserver", how)

    def is_ready(self) -> bool:
        """Whether the API server says so, and has made what every cluster has."""
        try:
            if self.request("GET", "/readyz").status != http.client.OK:
                return False
            self._ensure_namespace("default", {})
        except (OSError, http.client.HTTPException, AssertionError):
            return False
        return True


def _is_healthy(etcd_port: int) -> bool:
    """Whether the store has a leader. Source: etcd's documentation, Monitoring, Health Check."""
    connection = http.client.HTTPConnection(components.LOOPBACK, etcd_port, timeout=1)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def start_controller_manager(
    plane: Plane, programs: Programs, *, node_lifecycle: bool = False
) -> None:
    """Start the controllers; the newest serve an older API server too."""
    binary = binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kube-controller-manager"
    kubeconfig = plane.kubeconfig("system:kube-controller-manager")
    command = components.controller_manager(
        binary, plane.pki, kubeconfig, node_lifecycle=node_lifecycle
    )
    programs.start("kube-controller-manager", command)


def start_scheduler(plane: Plane, programs: Programs, configuration: Mapping[str, Any]) -> None:
    """Start a scheduler of the API server's version."""
    binary = binaries(KUBERNETES[plane.minor]) / "kube-scheduler"
    kubeconfig = plane.kubeconfig("system:kube-scheduler")
    command = components.scheduler(binary, programs.folder, kubeconfig, configuration)
    programs.start("kube-scheduler", command)


def start_kwok(plane: Plane, programs: Programs) -> None:
    """Start kubelets for the Nodes that carry ``KWOK_ANNOTATION`` with ``KWOK_GROUP``."""
    annotation = f"{KWOK_ANNOTATION}={KWOK_GROUP}"
    programs.start("kwok", components.kwok(binaries(KWOK), plane.kubeconfig(), annotation))


def install_node_features(plane: Plane) -> None:
    """Have the resource definitions of node-feature-discovery in the cluster, ready for use."""
    resources = ("-f", binaries(NFD) / "nfd-api-crds.yaml")
    plane.kubectl("apply", "--server-side", *resources)
    wait_until_served(plane, *resources)


def start_nfd_master(plane: Plane, programs: Programs, namespaces: Collection[str] = ()) -> None:
    """Start what turns NodeFeatures into labels; the definitions must be installed.

    It runs on a Node of its own, which it tidies up when it starts. ``namespaces``: those whose
    NodeFeatures count, all without any. On a shared plane name your own: the Nodes of other
    tests would be labelled too.
    """
    command = components.nfd_master(binaries(NFD), plane.kubeconfig(), namespaces)
    environment = {"NODE_NAME": plane.make_node(), "KUBERNETES_NAMESPACE": "default"}
    programs.start("nfd-master", command, environment=environment)


def start_nfd_worker(
    plane: Plane, programs: Programs, *, node: str, namespace: str, folder: Path
) -> None:
    """Start what turns the feature files in ``folder``/features.d into a node's NodeFeature.

    The namespace is the NodeFeature's. The folder is there before, or it is not watched.
    """
    (folder / "features.d").mkdir(parents=True, exist_ok=True)
    command = components.nfd_worker(binaries(NFD), plane.kubeconfig())
    environment = {"NODE_NAME": node, "KUBERNETES_NAMESPACE": namespace}
    programs.start("nfd-worker", command, cwd=folder, environment=environment)
