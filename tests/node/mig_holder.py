# SPDX-License-Identifier: Apache-2.0
"""Pods whose program holds the MIG devices that they were given, and says whether it has them.

The program is ``mig_holder.c``, built by the compiler that builds the simulator's library; its
image has it, the C library and nothing else. The device plugin and the runtime class give it the
rest: the variable with the devices, and the driver's library.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.node import images
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.machine import LOGS
from tests.node.nvidia_plugin import RUNTIME_CLASS
from tests.node.real_node import SOON, RealNode

IMAGE: Final = "localhost/mig-holder:1"
SOURCE: Final = Path(__file__).with_name("mig_holder.c")
_ALSO_VALID: Final = 5
"""Times that a program must find its devices after something happened: a second."""


def build(folder: Path) -> Path:
    """Compile the program, next to what it loads. Raises CalledProcessError."""
    return images.place_program(SOURCE, folder, "/mig-holder", "-ldl", "-pthread")


def image(folder: Path) -> Path:
    """The file of the image, made in ``folder``.

    The simulator's library needs no more than the program: since glibc 2.34 all that it may use is
    in libc.
    """
    program = build(folder / "mig-holder-root")
    config = {"Entrypoint": ["/mig-holder"]}
    return images.write(folder / "mig-holder.tar", IMAGE, program.parent, config)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigHolderPod:
    """A pod with one container, in which the program runs."""

    there: GpuCluster
    node: RealNode
    name: str

    @classmethod
    def start(
        cls, there: GpuCluster, node: RealNode, name: str, resource: str, number: int = 1
    ) -> MigHolderPod:
        """Make it; it has opened its devices when this returns. Needs the image on the node."""
        body = gpu_pod(name, gpus("main", number, resource=resource), restart="Never")
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
        body["spec"]["runtimeClassName"] = RUNTIME_CLASS
        body["spec"]["containers"][0]["image"] = IMAGE
        there.cluster.plane.demand("POST", PODS, body)
        pod = cls(there=there, node=node, name=name)
        until(lambda: pod.ended or len(pod.devices) == number, SOON)
        pod.check()
        return pod

    @property
    def object(self) -> Object:
        """The pod now."""
        found: Object = self.there.cluster.plane.demand("GET", f"{PODS}/{self.name}")
        return found

    @property
    def lines(self) -> list[list[str]]:
        """What it has written, in words, without what the kubelet puts before each line."""
        files = (self.node.folder / LOGS / "pods").glob(f"{NAMESPACE}_{self.name}_*/*/*.log")
        texts = [file.read_text(errors="replace") for file in sorted(files)]
        return [line.split()[3:] for text in texts for line in text.splitlines()]

    @property
    def devices(self) -> frozenset[str]:
        """The MIG devices that it has opened."""
        return frozenset(line[1] for line in self.lines if line[:1] == ["open"])

    @property
    def ended(self) -> bool:
        """It does not run any more."""
        return self.object["status"]["phase"] in ("Failed", "Succeeded")

    def check(self) -> None:
        """It runs in its first container, and finds its devices valid a few times from now on."""
        turns = self._turns()
        until(lambda: self.ended or self._is_ahead(turns), SOON)
        status = self.object["status"]
        assert status["phase"] == "Running", (status, self.lines[-3:])
        assert [it["restartCount"] for it in status["containerStatuses"]] == [0]
        words = {line[0] for line in self.lines if line}
        assert words <= {"open", "valid"}, self.lines[-3:]

    @property
    def is_there(self) -> bool:
        """Its devices are not free yet."""
        answer = self.there.cluster.plane.request("GET", f"{PODS}/{self.name}")
        return answer.status != http.client.NOT_FOUND

    def delete(self) -> None:
        """Have it end, which takes a moment."""
        self.there.cluster.plane.demand("DELETE", f"{PODS}/{self.name}")

    def _turns(self) -> Mapping[str, int]:
        """Device to how often it was found valid."""
        return {line[1]: int(line[2]) for line in self.lines if line[:1] == ["valid"]}

    def _is_ahead(self, before: Mapping[str, int]) -> bool:
        now = self._turns()
        return bool(now) and all(
            now.get(name, 0) >= before.get(name, 0) + _ALSO_VALID for name in self.devices
        )
