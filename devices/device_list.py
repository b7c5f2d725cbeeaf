# SPDX-License-Identifier: Apache-2.0
"""The list of a resource over time: no device leaves it while somebody holds it. Pure.

A kubelet that starts again and misses a held device in the list crashes, at every start (1.34 and
later, with a TopologyManager policy but ``none``). So a device that is not offered any more stays,
unhealthy, until it has been free for a while. Seconds are those of the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kubelet.device_plugin.plugin_model import ListedDevice

LEAVE_SECONDS: Final = 60.0
"""Time that a device has to be neither offered nor held. The kubelet writes down who holds a device
after its call of Allocate only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceList:
    """What the kubelet is told of one resource; empty at the start."""

    devices: tuple[ListedDevice, ...] = ()
    """Devices that are offered, in their order; then devices that are to leave, by id."""
    last_needed: Mapping[str, float] = field(default_factory=dict)
    """Device that is to leave to when it was offered or held last."""


def next_list(
    before: DeviceList,
    offered: Sequence[ListedDevice],
    held: Mapping[str, int | None],
    now: float,
) -> DeviceList:
    """The list when these devices are offered and held.

    ``held``: ids of the resource that pods hold, with their NUMA nodes. One that was never offered
    to this process is in the list too: with its NUMA node, without which a kubelet with a NUMA
    policy that starts again ends the pod that holds it.
    """
    present = {device.id for device in offered}
    known = {device.id: device for device in before.devices if device.id not in present}
    leaving = known | {
        id_: ListedDevice(id=id_, numa_node=node)
        for id_, node in held.items()
        if id_ not in known and id_ not in present
    }
    needed = {
        id_: now if id_ in held else before.last_needed.get(id_, now) for id_ in sorted(leaving)
    }
    staying = {
        id_: time for id_, time in needed.items() if id_ in held or now - time < LEAVE_SECONDS
    }
    return DeviceList(
        devices=(*offered, *(replace(leaving[id_], healthy=False) for id_ in staying)),
        last_needed=staying,
    )
