# SPDX-License-Identifier: Apache-2.0
"""The kubelet's allocation of GPUs, as metrics show it: device users by GPU and by GPU instance."""

from __future__ import annotations

from collections.abc import Callable

from agent.pods.known_pods import KnownPod
from api.device_names import DRA_DRIVER
from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot
from exporters.device_user_names import Claim, ContainerUser, ContainerUsers
from exporters.gpuscape.node_view import GpuAllocation
from kubelet.allocated_devices import AllocatedDevice, NodeAllocation

About = Callable[[str, str], KnownPod | None]
"""Looks up a pod by namespace and name, as the API server has it."""


def nothing_known(_namespace: str, _name: str) -> None:
    """The lookup of an agent that may not read pods: nothing is known of any."""


def gpu_allocation(
    allocation: NodeAllocation, snapshot: NodeSnapshot, about: About = nothing_known
) -> GpuAllocation:
    """The kubelet's allocation, as metrics show it; ``about`` as in :func:`container_users`."""
    return GpuAllocation(
        users=container_users(allocation, snapshot, about),
        allocatable=allocation.allocatable,
        allocated=allocation.allocated,
        whole=allocation.whole,
    )


def container_users(
    allocation: NodeAllocation, snapshot: NodeSnapshot, about: About = nothing_known
) -> ContainerUsers:
    """Device users of each GPU and GPU instance; ``about`` adds what it knows of their pods.

    Pods that it knows as ended are left out. Without that an ended pod that a kubelet still lists
    with a device stays next to the one that has it now.
    Order: namespace, pod, container, share, claim.
    """
    held: dict[GpuPart, set[ContainerUser]] = {}
    for container in allocation.containers:
        known = about(container.namespace, container.pod)
        if known is not None and known.ended:
            continue
        for device in container.devices:
            user = ContainerUser(
                namespace=container.namespace,
                pod=container.pod,
                container=container.container,
                uid=None if known is None else known.uid,
                share=device.share,
                claim=_claim(device, container.namespace, snapshot),
                labels=() if known is None else known.labels,
            )
            held.setdefault(device.part, set()).add(user)
    return {part: tuple(sorted(part_users, key=_order)) for part, part_users in held.items()}


def _claim(device: AllocatedDevice, namespace: str, snapshot: NodeSnapshot) -> Claim | None:
    """The device's claim. An old kubelet reports neither driver nor pool, which stay empty."""
    if device.claim is None:
        return None
    profile, uuid = _mig(device.part, snapshot)
    return Claim(
        namespace=namespace,
        name=device.claim.claim,
        driver=device.claim.driver or DRA_DRIVER,
        pool=device.claim.pool,
        device=device.claim.device or device.id,
        mig_profile=profile,
        mig_uuid=uuid,
    )


def _mig(part: GpuPart, snapshot: NodeSnapshot) -> tuple[str | None, str | None]:
    """Profile and UUID of the MIG device that fills a GPU instance; None where several share it."""
    devices = [
        device
        for gpu in snapshot.gpus
        if gpu.bus_id == part.bus_id
        for device in gpu.mig_devices
        if device.gpu_instance_id == part.gpu_instance_id
    ]
    return (devices[0].profile, devices[0].uuid) if len(devices) == 1 else (None, None)


def _order(user: ContainerUser) -> tuple[object, ...]:
    share = user.share or ""
    claim = ("", "") if user.claim is None else (user.claim.name, user.claim.device)
    # shares are numbers, but nobody promises that: shorter ones first is their order too
    return (user.namespace, user.pod, user.container, len(share), share, claim)
