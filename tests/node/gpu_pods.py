# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for GPUs, on real nodes: each container runs until it is ended from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.controlplane.plane import Object
from tests.node.node_files import PAUSE
from tests.node.nvidia_plugin import GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A container and the devices that it asks for."""

    name: str
    devices: Mapping[str, int] = field(default_factory=dict)
    """Resource to how many."""
    sidecar: bool = False
    """Of an init container: it runs on beside the others."""

    def manifest(self) -> Object:
        """As a pod lists it."""
        limits = {name: str(number) for name, number in self.devices.items()}
        always = {"restartPolicy": "Always"} if self.sidecar else {}
        return {
            "name": self.name,
            "image": PAUSE,
            "imagePullPolicy": "Never",
            "resources": {"limits": limits},
            **always,
        }


def gpus(name: str, number: int, *, resource: str = GPU, sidecar: bool = False) -> Asking:
    """A container that asks for so many devices of one resource."""
    return Asking(name=name, devices={resource: number} if number else {}, sidecar=sidecar)


def gpu_pod(
    name: str,
    *containers: Asking,
    init: Sequence[Asking] = (),
    restart: str = "Always",
    node: str | None = None,
) -> Object:
    """A pod of these, for the scheduler; ``restart``: its policy, ``node``: where alone."""
    selector = {} if node is None else {"nodeSelector": {"kubernetes.io/hostname": node}}
    return {
        "metadata": {"name": name},
        "spec": {
            "initContainers": [it.manifest() for it in init],
            "containers": [it.manifest() for it in containers],
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            **selector,
        },
    }
