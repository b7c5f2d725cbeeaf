# SPDX-License-Identifier: Apache-2.0
"""Holders that are still to come: pods without a node, by the resources that they ask for. Pure.

Safety: a pod that waits may be given any device of its resource at any moment, so it holds all of
them. What the node does not offer is nobody's claim here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from api.mig_resources import GPU_RESOURCE, SHARED_SUFFIX, MigStrategy
from discovery.mig_state import MigGpu
from mig.holders import HolderKind, MigHolder, MigHolders, MigPart
from mig.plugin_resources import device_resource, plugin_order
from mig.profile_names import part_name


def claim_holders(
    gpus: Sequence[MigGpu], strategy: MigStrategy, asked: Mapping[str, Collection[str]]
) -> MigHolders:
    """Who waits for what on these GPUs, all of a node's.

    ``asked``: a pod, ``namespace/name``, to the resources that it asks for; ``strategy``: the
    device plugin's, which says what a device is offered as.
    """
    waiting: dict[str, set[MigHolder]] = {}
    for pod, resources in asked.items():
        for resource in resources:
            holder = MigHolder(HolderKind.CLAIM, pod)
            waiting.setdefault(resource.removesuffix(SHARED_SUFFIX), set()).add(holder)
    found: dict[MigPart, frozenset[MigHolder]] = {}
    for part, resource in _offered(gpus, strategy):
        if resource in waiting:
            found[part] = frozenset(waiting[resource])
    return found


def _offered(gpus: Sequence[MigGpu], strategy: MigStrategy) -> Iterator[tuple[MigPart, str]]:
    """What the node offers: a part for each device, and the resource that it is of."""
    profiles = plugin_order(gpus)
    for gpu in gpus:
        if gpu.mode is None or not gpu.mode.current or strategy is MigStrategy.NONE:
            yield MigPart(gpu.uuid, None), GPU_RESOURCE
        for one, compute in gpu.devices():
            name = part_name(one.profile, compute.slices)
            if strategy is MigStrategy.NONE:  # whoever has the GPU runs on one of its instances
                yield MigPart(gpu.uuid, one.id), GPU_RESOURCE
            else:
                yield MigPart(gpu.uuid, one.id), device_resource(name, profiles, strategy)
