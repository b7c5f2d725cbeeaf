# SPDX-License-Identifier: Apache-2.0
"""A node as in a cluster: containerd and the kubelet on a machine of namespaces."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import psutil

from tests.agent.agent_process import until
from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.families import CNI, CONTAINERD, KUBELETS, RUNC
from tests.controlplane.plane import Object, Plane
from tests.controlplane.programs import Programs
from tests.node import cgroups, node_files
from tests.node.machine import BOOT_ID, FIRST_PROCESS, REBOOTS
from tests.node.network import SERVICE_IP, NetworkPrograms
from tests.slower import SLOWER

SOON: Final = 240.0 * SLOWER
"""For what is bound to come, even where the machine is busy."""
_GET: Final = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=9).read().decode())
"""
GPUS: Final = Path("/var/lib/gpus")
"""On the node: the machine whose GPUs it has, where :mod:`tests.node.node_gpus` made one."""
NAMESPACES: Final = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")


class RealNode:
    """One that runs, with the files that its programs read in ``folder``.

    ``folder/logs`` has containerd.log and kubelet.log, ``folder/var-log/pods`` the logs of
    containers; both stay when the node has ended.
    """

    def __init__(self, plane: Plane, network: NetworkPrograms, number: int, folder: Path) -> None:
        """Make the machine; nothing runs on it yet."""
        self.name = f"real-{number}"
        self.folder = folder
        self._plane = plane
        self._machine = network.machine(self.name, number, folder)
        self.programs = Programs(folder / "logs", supervisor=self._machine.arguments())

    @classmethod
    def start(cls, plane: Plane, network: NetworkPrograms, number: int, folder: Path) -> Self:
        """Start a machine, containerd and the kubelet; its Node is Ready when this returns."""
        node = cls(plane, network, number, folder)
        try:
            node.start_containerd()
            node.start_kubelet()
            until(node.is_ready, SOON)
        except BaseException:
            node.end()
            raise
        return node

    @property
    def first_process(self) -> int:
        """Of the machine, as seen from outside: for nsenter and /proc/ID/root."""
        return int((self.folder / FIRST_PROCESS).read_text())

    def start_containerd(self) -> None:
        """Start it and wait for its socket."""
        networks = self.folder / "networks"
        networks.mkdir(exist_ok=True)
        self._write("networks/pods.conflist", node_files.pod_network(self._machine.pods))
        runc, gpu_runtime = binaries(RUNC) / "runc", self.folder / "gpu-runtime"
        gpu_runtime.write_text(node_files.gpu_runtime(gpus=GPUS, runc=runc), encoding="utf-8")
        gpu_runtime.chmod(0o755)
        config = self.folder / "containerd.toml"
        config.write_text(
            node_files.containerd_config(
                runtimes={"runc": runc, "nvidia": gpu_runtime},
                plugins=binaries(CNI),
                networks=networks,
            ),
            encoding="utf-8",
        )
        self.programs.start(
            "containerd",
            [self.program("containerd"), "--config", config],
            environment=self._environment,
        )
        self.programs.wait("containerd", self._containerd_answers, seconds=SOON)

    def start_kubelet(self, settings: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Start it, as its Node's own user; ``settings`` of its configuration beside ours."""
        credential = self._plane.kubelet(self.name)
        user = {
            "client-certificate": str(credential.certificate_file),
            "client-key": str(credential.key_file),
        }
        server = f"https://{SERVICE_IP}:443"
        kubeconfig = components.kubeconfig(server, self._plane.ca_file, user)
        config = node_files.kubelet_config(
            ca_file=self._plane.ca_file, cgroup_v1=not cgroups.is_unified(), settings=settings
        )
        self.programs.start(
            "kubelet",
            [
                binaries(KUBELETS[self._plane.minor]) / "kubelet",
                f"--config={self._write('kubelet.json', config)}",
                f"--kubeconfig={self._write('kubeconfig.json', kubeconfig)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self._machine.address.partition('/')[0]}",
            ],
            environment=self._environment,
        )

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End ``containerd`` or ``kubelet``; containers go on."""
        self.programs.stop(name, how)

    def power_off(self) -> None:
        """End all that runs there at once, containers included, and what is in memory alone."""
        (self.folder / REBOOTS).touch()
        os.kill(self.first_process, signal.SIGKILL)
        self.programs.end()

    def power_on(self) -> None:
        """Have a machine with the same disk and another boot id, on which nothing runs yet."""
        self.programs = Programs(self.folder / "logs", supervisor=self._machine.arguments())
        self.programs.start("boot", ["true"])  # it takes orders when this returns

    @property
    def boot_id(self) -> str:
        """As its kernel shows it."""
        return self.run("cat", f"/proc/sys/{BOOT_ID}").strip()

    def is_ready(self) -> bool:
        """Whether the Node's condition is so."""
        answer = self._plane.request("GET", f"/api/v1/nodes/{self.name}")
        if answer.status != http.client.OK:
            return False
        conditions = answer.body["status"].get("conditions", ())
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def object(self) -> Object:
        """The Node now."""
        return self._plane.demand("GET", f"/api/v1/nodes/{self.name}")

    def run(self, *command: str | Path) -> str:
        """What a command prints on the machine. Raises CalledProcessError."""
        enter = ("nsenter", f"--target={self.first_process}", *NAMESPACES, "--")
        done = subprocess.run(
            [*enter, *command],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def get(self, url: str) -> str:
        """What an HTTP server answers to a client on the machine. Raises CalledProcessError."""
        return self.run(sys.executable, "-c", _GET, url)

    def program(self, name: str) -> Path:
        """One of containerd's programs, as ``ctr``."""
        return binaries(CONTAINERD) / name

    def import_image(self, file: Path) -> None:
        """Have the image of a file in the store that the kubelet's pods start from."""
        self.run("ctr", "--namespace=k8s.io", "images", "import", file)

    def processes(self, command: str) -> list[psutil.Process]:
        """Those on the machine, containers included, whose command line ends so; the oldest
        first."""
        below = psutil.Process(self.first_process).children(recursive=True)
        found = [it for it in below if " ".join(_command_line(it)).endswith(command)]
        return sorted(found, key=lambda it: it.create_time())

    def end(self) -> None:
        """End all that runs on it, and remove what it wrote."""
        self.programs.end()

    def _containerd_answers(self) -> bool:
        try:
            self.run("ctr", "version")
        except subprocess.CalledProcessError:
            return False
        return True

    @property
    def _environment(self) -> Mapping[str, str]:
        path = f"{binaries(CONTAINERD)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "TMPDIR": "/run"}

    def _write(self, name: str, content: Mapping[str, Any]) -> Path:
        file = self.folder / name
        file.write_text(json.dumps(content), encoding="utf-8")
        return file


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []
