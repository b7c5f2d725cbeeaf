# SPDX-License-Identifier: Apache-2.0
"""Pods that come and go on nodes with GPUs, at random: what a busy cluster does to a kubelet."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.controlplane.plane import Object
from tests.node import handed_out
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster
from tests.node.gpu_pods import Asking, gpu_pod
from tests.node.handed_out import RunningContainer

NAMES: Final = 12
"""Of pods on a node. Names come again, for other pods with other devices."""
MOST_DEVICES: Final = 3
"""Of a container."""
RESTARTS: Final = ("Always", "OnFailure", "Never")


@dataclass(slots=True, kw_only=True)
class PodChurn:
    """Random changes of the pods of one node, on the cluster of all."""

    there: GpuCluster
    node: str
    random: Random
    made: int = 0
    """Pods so far."""
    story: list[str] = field(default_factory=list)
    """What was done, for the reader of a failure."""

    def step(self) -> None:
        """Make a pod, end a container of one, or delete one."""
        listed = self.listed()
        containers = [
            it
            for it in handed_out.running(self.there.cluster.nodes[self.node])
            if it.namespace == NAMESPACE and it.pod in listed
        ]
        free = sorted({f"{self.node}-{number}" for number in range(NAMES)} - listed.keys())
        choices = [
            *([self._make] * 3 if free and self._pending(listed.values()) < 2 else []),
            *([self._end] * 2 if containers else []),
            *([self._delete] * 2 if len(listed) > 1 else []),
        ] or [self._delete]
        act = self.random.choice(choices)
        if act == self._make:
            self._make(self.random.choice(free))
        elif act == self._end:
            containers.sort(key=lambda it: (it.pod, it.container))
            self._end(self.random.choice(containers))
        else:
            self._delete(self.random.choice(sorted(listed)))

    def clear(self) -> None:
        """Delete every pod."""
        for name in self.listed():
            self._delete(name)

    def _make(self, name: str) -> None:
        resources = sorted(self._offered())
        random = self.random
        init = [
            self._asking(f"init-{at}", resources, init=True)
            for at in range(random.choice((0, 0, 1, 2)))
        ]
        containers = [self._asking(f"main-{at}", resources) for at in range(random.randint(1, 2))]
        restart = random.choice(RESTARTS)
        pod = gpu_pod(name, *containers, init=init, restart=restart, node=self.node)
        self.there.cluster.plane.demand("POST", PODS, pod)
        self.made += 1
        self.story.append(f"{name} made: {restart}, {[*init, *containers]}")

    def _asking(self, name: str, resources: Sequence[str], *, init: bool = False) -> Asking:
        """A container that may ask for one resource, for none, or for two."""
        random = self.random
        chosen = random.sample(resources, min(len(resources), random.choice((0, 1, 1, 1, 1, 2))))
        devices = {resource: random.randint(1, MOST_DEVICES) for resource in chosen}
        return Asking(name=name, devices=devices, sidecar=init and random.random() < 0.5)

    def _end(self, container: RunningContainer) -> None:
        """Its process ends well or badly; what follows is the kubelet's affair."""
        how = self.random.choice(("TERM", "KILL"))
        node = self.there.cluster.nodes[self.node]
        try:
            node.run("kill", f"-{how}", str(container.process))
        except subprocess.CalledProcessError:
            return  # it had just ended
        self.story.append(f"{container.pod}: {container.container} gets SIG{how}")

    def _delete(self, name: str) -> None:
        answer = self.there.cluster.plane.request("DELETE", f"{PODS}/{name}")
        assert answer.status in (http.client.OK, http.client.NOT_FOUND), answer
        self.story.append(f"{name} deleted")

    def listed(self) -> dict[str, Object]:
        """The node's pods by name, those that wait for it too."""
        items = self.there.cluster.plane.demand("GET", PODS)["items"]
        return {
            it["metadata"]["name"]: it
            for it in items
            if it["metadata"]["name"].startswith(f"{self.node}-")
        }

    def _pending(self, pods: object) -> int:
        """How many wait for devices."""
        return sum("nodeName" not in pod["spec"] for pod in pods)  # type: ignore[attr-defined]

    def _offered(self) -> list[str]:
        allocatable = self.there.cluster.nodes[self.node].object()["status"]["allocatable"]
        return [it for it in allocatable if it.startswith("nvidia.com/")]
