# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pod-resources socket over a device manager: v1 List and GetAllocatableResources.

One device of a resource an entry, with its NUMA node, as the kubelet tells them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import grpc

from kubelet.podresources import podresources_pb2 as wire
from kubelet.podresources.allocation_model import ClaimedDevice
from tests.kubelet.podresources_server import Aborted, serving
from tests.kubelet_nodes.devices import Pod
from tests.kubelet_nodes.offer import Device, Offer

SOCKET = "kubelet.sock"


class PodResourcesServer:
    """Serves what it was last shown, on ``kubelet.sock`` in a folder, between start and stop."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SOCKET
        self.delay_seconds = 0.0
        """How long each answer takes."""
        self.refusal: Aborted | None = None
        """What is answered to everything."""
        self._pods: tuple[wire.PodResources, ...] = ()
        self._devices: tuple[wire.ContainerDevices, ...] = ()
        self._open = contextlib.ExitStack()
        self._stopping = threading.Event()

    def show(self, offer: Offer, pods: Iterable[Pod]) -> None:
        """What is answered from now on."""
        self._pods = tuple(_pod(pod) for pod in pods)
        healthy = {
            name: [device for device in devices if device.healthy]
            for name, devices in offer.items()
        }
        self._devices = tuple(_devices(healthy))

    def start(self) -> None:
        """Serve; the socket is a new one each time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stopping.clear()
        self._open.enter_context(
            serving(
                self.path,
                {"List": self._list, "GetAllocatableResources": self._allocatable},
            )
        )
        self.path.chmod(0o600)  # root alone connects to the kubelet's

    def stop(self) -> None:
        """Serve no more; the socket goes. Answers that take their time break off."""
        self._stopping.set()
        self._open.close()

    def _list(self) -> bytes:
        self._before()
        return wire.ListPodResourcesResponse(pod_resources=self._pods).SerializeToString()

    def _allocatable(self) -> bytes:
        self._before()
        return wire.AllocatableResourcesResponse(devices=self._devices).SerializeToString()

    def _before(self) -> None:
        if self._stopping.wait(self.delay_seconds):
            raise Aborted(grpc.StatusCode.UNAVAILABLE, "the kubelet ends")
        if self.refusal is not None:
            raise self.refusal


def _pod(pod: Pod) -> wire.PodResources:
    return wire.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[
            wire.ContainerResources(
                name=each.name,
                devices=_devices(each.given),
                dynamic_resources=_claims(pod.namespace, each.claims),
            )
            for each in pod.containers
            if each.listed
        ],
    )


def _devices(given: Mapping[str, Sequence[Device]]) -> list[wire.ContainerDevices]:
    return [
        wire.ContainerDevices(
            resource_name=resource, device_ids=[device.id], topology=_topology(device)
        )
        for resource, devices in given.items()
        for device in devices
    ]


def _topology(device: Device) -> wire.TopologyInfo | None:
    if device.numa_node is None:
        return None
    return wire.TopologyInfo(nodes=[wire.NUMANode(ID=device.numa_node)])


def _claims(namespace: str, claimed: Iterable[ClaimedDevice]) -> list[wire.DynamicResource]:
    by_claim: dict[str, list[wire.ClaimResource]] = {}
    for each in claimed:
        by_claim.setdefault(each.claim, []).append(
            wire.ClaimResource(
                cdi_devices=[wire.CDIDevice(name=name) for name in each.cdi],
                driver_name=each.driver,
                pool_name=each.pool,
                device_name=each.device,
                share_id=each.share or None,
            )
        )
    return [
        wire.DynamicResource(claim_name=name, claim_namespace=namespace, claim_resources=devices)
        for name, devices in by_claim.items()
    ]
