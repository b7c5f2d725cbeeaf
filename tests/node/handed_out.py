# SPDX-License-Identifier: Apache-2.0
"""What a node's device manager has handed out, found without any of our own code.

From the kubelet's checkpoint, and from the environment of the processes in the containers, as
the device plugin had it set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.controlplane.plane import Plane
from tests.node.machine import DISK
from tests.node.real_node import RealNode

GPU: Final = "nvidia.com/gpu"
VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
SHARE: Final = "::"
"""Before the number of a share, where the plugin shares its devices out."""

_CHECKPOINT: Final = "kubelet/device-plugins/kubelet_internal_checkpoint"
_BUNDLES: Final = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
_ANNOTATION: Final = "io.kubernetes.cri."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant:
    """The devices of one resource that one container has. Init containers that ended have some."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    """As the device plugin registered them; :func:`device_of` has what each is a share of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContainer:
    """A container whose first process runs."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    process: int
    """Its id on the node."""
    visible: frozenset[str]
    """The devices that its environment names; empty where it names none."""


def device_of(name: str) -> str:
    """The device that a registered one is, or is a share of. Source: k8s-device-plugin 0.19.0,
    internal/rm/devices.go, AnnotatedID."""
    return name.partition(SHARE)[0]


def grants(node: RealNode) -> tuple[DeviceGrant, ...]:
    """By the checkpoint: whatever counts as taken."""
    return tuple(
        DeviceGrant(
            pod_uid=entry["PodUID"],
            container=entry["ContainerName"],
            resource=entry["ResourceName"],
            ids=frozenset(name for ids in entry["DeviceIDs"].values() for name in ids),
        )
        for entry in _checkpoint(node)["PodDeviceEntries"] or ()
    )


def registered(node: RealNode) -> Mapping[str, frozenset[str]]:
    """By the checkpoint: the healthy devices of each resource, as its plugin registered them."""
    found = _checkpoint(node)["RegisteredDevices"] or {}
    return {resource: frozenset(ids or ()) for resource, ids in found.items()}


def whole_gpus(plane: Plane, node: RealNode, index: Mapping[str, int]) -> Mapping[str, set[int]]:
    """By pod, as ``namespace/name``: the indices of its whole GPUs, by the checkpoint.

    ``index``: that of each GPU, by UUID. Pods that the API server does not have are left out.
    """
    found = plane.demand("GET", "/api/v1/pods")["items"]
    by_uid = {it["metadata"]["uid"]: it["metadata"] for it in found}
    return {
        f"{pod['namespace']}/{pod['name']}": {index[name] for name in grant.ids}
        for grant in grants(node)
        if (pod := by_uid.get(grant.pod_uid)) and grant.resource == GPU
    }


def running(node: RealNode) -> Iterator[RunningContainer]:
    """Every container of the node's pods, sandboxes left out."""
    root = Path(f"/proc/{node.first_process}/root")
    bundles = root / _BUNDLES
    for bundle in bundles.iterdir() if bundles.exists() else ():  # not before the first pod
        try:
            spec = json.loads((bundle / "config.json").read_text())
            process = (bundle / "init.pid").read_text()
            program = (root / "proc" / process / "cmdline").read_text().split("\0")[:-1]
            environment = (root / "proc" / process / "environ").read_text()
        except (OSError, ValueError):  # it begins or ends
            continue
        if program != spec["process"]["args"]:  # runc, on its way to become it
            continue
        annotations = spec["annotations"].items()
        about = {key.removeprefix(_ANNOTATION): text for key, text in annotations}
        if about["container-type"] == "container":
            variables = dict(it.partition("=")[::2] for it in environment.split("\0"))
            yield RunningContainer(
                namespace=about["sandbox-namespace"],
                pod=about["sandbox-name"],
                pod_uid=about["sandbox-uid"],
                container=about["container-name"],
                process=int(process),
                visible=frozenset(filter(None, variables.get(VARIABLE, "").split(","))),
            )


def sandbox(node: RealNode, namespace: str, pod: str) -> int:
    """The id on the node of the process that holds a pod's network; the pod is there."""
    root = Path(f"/proc/{node.first_process}/root")
    for bundle in (root / _BUNDLES).iterdir():
        try:
            annotations = json.loads((bundle / "config.json").read_text())["annotations"]
            process = int((bundle / "init.pid").read_text())
        except (OSError, ValueError):  # it begins or ends
            continue
        about = {key.removeprefix(_ANNOTATION): text for key, text in annotations.items()}
        its = (about["container-type"], about["sandbox-namespace"], about["sandbox-name"])
        if its == ("sandbox", namespace, pod):
            return process
    raise AssertionError(f"no sandbox of {namespace}/{pod} on {node.name}")


def _checkpoint(node: RealNode) -> Mapping[str, Any]:
    """The kubelet replaces the file as a whole."""
    text = (node.folder / DISK / _CHECKPOINT).read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)["Data"]
    return found
