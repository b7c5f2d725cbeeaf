# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device manager: which devices the containers of a pod are given, or why none.

No clock, no sockets, and chance comes from the seed alone. Kinder than the real thing in one
way: with a GPU off the bus NVIDIA's plugin fails every allocation of its node (k8s-device-plugin
issue 2038); here it fails none. No TopologyManager: its policy counts as ``none``.
Source: Kubernetes' pkg/kubelet/cm/devicemanager; NVIDIA k8s-device-plugin, internal/rm.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from discovery.model import NodeSnapshot
from kube.api import Object
from kubelet.podresources.allocation_model import ClaimedDevice
from tests.kubelet_nodes.allocator import AllocationError
from tests.kubelet_nodes.claims import Claims, claimed
from tests.kubelet_nodes.device_lists import named
from tests.kubelet_nodes.links import LinkTypes, link_types
from tests.kubelet_nodes.offer import Device, Offer

REASON = "UnexpectedAdmissionError"

Given = dict[str, list[Device]]
"""Resource to devices of one container."""


class Refused(Exception):
    """The kubelet does not take the pod; the text is what it writes into the pod's status."""


class Policy(Protocol):
    """What chooses among whole GPUs: :class:`tests.kubelet_nodes.allocator.Allocator`."""

    def prefer(
        self,
        devices: Sequence[str],
        links: LinkTypes,
        *,
        available: Sequence[str],
        required: Sequence[str] = (),
        size: int,
    ) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container that runs, with its devices by resource."""

    name: str
    given: Given
    claims: tuple[ClaimedDevice, ...] = ()
    listed: bool = True
    """Whether pod-resources tells of it: not of init containers, but for sidecars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod that was taken."""

    namespace: str
    name: str
    containers: tuple[Container, ...]


class DeviceManager:
    """One node's devices and who has them."""

    def __init__(self, policy: Policy, seed: int | str = 0) -> None:
        self._policy = policy
        self._random = random.Random(seed)  # noqa: S311 (has to repeat)
        self._rows: tuple[str, ...] = ()
        self._links: LinkTypes = ()
        self.offer: Offer = {}
        self.pods: dict[str, Pod] = {}
        """By UID, in the order in which they were taken."""

    def register(self, offer: Offer, snapshot: NodeSnapshot) -> None:
        """What the plugin offers from now on. Who has devices keeps them."""
        self.offer = offer
        self._rows = tuple(gpu.uuid or gpu.bus_id for gpu in snapshot.gpus)
        self._links = link_types(snapshot)

    def admit(self, pod: Object, claims: Claims | None = None) -> Pod:
        """Give each container what it asks for, init containers first. Raises Refused.

        Apps are given what init containers had; sidecars keep theirs. A resource that no
        plugin ever registered is passed over, as the kubelet does. A pod that was taken
        before keeps what it has. ``claims`` are the pod's, allocated by the scheduler.
        """
        meta = pod["metadata"]
        if meta["uid"] not in self.pods:
            containers = self._containers(pod["spec"], claims or {})
            self.pods[meta["uid"]] = Pod(
                namespace=meta["namespace"], name=meta["name"], containers=tuple(containers)
            )
        return self.pods[meta["uid"]]

    def remove(self, uid: str) -> None:
        """Take back what a pod has, if it has any."""
        self.pods.pop(uid, None)

    def _containers(self, spec: Object, claims: Claims) -> list[Container]:
        inits = spec.get("initContainers", [])
        reusable: list[Device] = []
        containers: list[Container] = []
        for each in (*inits, *spec["containers"]):
            ends = each in inits and each.get("restartPolicy") != "Always"
            given = self._give(each, reusable, containers)
            reusable = _without(reusable, given)
            if ends:
                reusable += _flat(given)
            held = claimed(each, claims)
            containers.append(
                Container(name=each["name"], given=given, claims=held, listed=not ends)
            )
        return containers

    def _give(
        self, container: Object, reusable: Sequence[Device], beside: Sequence[Container]
    ) -> Given:
        limits = (container.get("resources") or {}).get("limits") or {}
        asked = {name: int(limits[name]) for name in self.offer if int(limits.get(name, 0))}
        return {
            name: self._choose(name, count, reusable, _held(beside))
            for name, count in asked.items()
        }

    def _choose(
        self, resource: str, count: int, reusable: Sequence[Device], held_here: set[str]
    ) -> list[Device]:
        healthy = {device.id: device for device in self.offer[resource] if device.healthy}
        if not healthy:
            raise _refused(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        kept = [device.id for device in reusable if device.id in healthy][:count]
        in_use = held_here.union(*(_held(pod.containers) for pod in self.pods.values()))
        free = named(healthy, healthy.keys() - in_use, self._random)
        if len(free) + len(kept) < count:
            raise _refused(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count - len(kept)}, Available: {len(free)}"
            )
        if len(kept) == count:
            return [healthy[each] for each in kept]
        return [healthy[each] for each in self._preferred(resource, kept, free, count)]

    def _preferred(
        self, resource: str, kept: list[str], free: list[str], count: int
    ) -> Sequence[str]:
        """The plugin's answer to GetPreferredAllocation."""
        if not all(device.is_whole_gpu for device in self.offer[resource]):
            return self._distributed(resource, kept, free, count)
        if count == 1:  # the policy scores every single GPU 0 and takes the first
            return free[:1]
        try:
            return self._policy.prefer(
                self._rows, self._links, available=[*free, *kept], required=kept, size=count
            )
        except AllocationError as error:
            raise _refused(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from error

    def _distributed(
        self, resource: str, kept: list[str], free: list[str], count: int
    ) -> Sequence[str]:
        """Shares of the devices with the fewest shares in use, one after the other."""
        used = Counter(device.hardware for device in self.offer[resource] if device.id not in free)
        hardware = {device.id: device.hardware for device in self.offer[resource]}
        chosen = list(kept)
        while len(chosen) < count:
            best = min(free, key=lambda each: used[hardware[each]])
            free.remove(best)
            used[hardware[best]] += 1
            chosen.append(best)
        return chosen


def _flat(given: Given) -> Iterator[Device]:
    for devices in given.values():
        yield from devices


def _without(devices: Sequence[Device], given: Given) -> list[Device]:
    return [device for device in devices if device not in tuple(_flat(given))]


def _held(containers: Sequence[Container]) -> set[str]:
    return {device.id for container in containers for device in _flat(container.given)}


def _refused(why: str) -> Refused:
    return Refused(f"Allocate failed due to {why}, which is unexpected")
