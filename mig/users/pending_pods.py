# SPDX-License-Identifier: Apache-2.0
"""Pending pods as device users: pods without a node, by the resources that they request. Pure.

Safety: a pending pod may get any device of its resource at any moment, so it is a user of
all of them. A resource that the node does not offer is not counted here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from api.mig_resources import GPU_RESOURCE, SHARED_SUFFIX, MigStrategy
from discovery.mig_state import MigGpu
from mig.plugin_resources import device_resource, plugin_order
from mig.profile_names import part_name
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind, device_part


def pending_pod_users(
    gpus: Sequence[MigGpu], strategy: MigStrategy, requests: Mapping[str, Collection[str]]
) -> DeviceUsers:
    """Pending pods by the parts of a node's GPUs that they may get; ``gpus``: all of the node.

    ``requests``: a pod, ``namespace/name``, to the resources that it requests; ``strategy``: the
    device plugin's, which decides as which resource a device is offered.
    """
    waiting: dict[str, set[DeviceUser]] = {}
    for pod, resources in requests.items():
        for resource in resources:
            user = DeviceUser(UserKind.PENDING_POD, pod)
            waiting.setdefault(resource.removesuffix(SHARED_SUFFIX), set()).add(user)
    users: dict[MigPart, frozenset[DeviceUser]] = {}
    for part, resource in _offered(gpus, strategy):
        if resource in waiting:
            users[part] = frozenset(waiting[resource])
    return users


def _offered(gpus: Sequence[MigGpu], strategy: MigStrategy) -> Iterator[tuple[MigPart, str]]:
    """The node's devices: the part of a GPU and the resource of each."""
    profiles = plugin_order(gpus)
    for gpu in gpus:
        if gpu.mode is None or not gpu.mode.current or strategy is MigStrategy.NONE:
            yield MigPart(gpu.uuid, None), GPU_RESOURCE
        for instance, compute in gpu.devices():
            name = part_name(instance.profile, compute.slices)
            if strategy is MigStrategy.NONE:  # a pod that has the GPU runs on one of its instances
                yield MigPart(gpu.uuid, instance.id), GPU_RESOURCE
            else:
                part = device_part(gpu, instance, compute)
                yield part, device_resource(name, profiles, strategy)
