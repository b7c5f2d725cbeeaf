# SPDX-License-Identifier: Apache-2.0
"""One resource of the node: its devices, their health over time, and the kubelet's questions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from api.mig_resources import GPU_RESOURCE
from base.log_once import LogOnce
from devices.container_access import AccessSettings, container_access
from devices.device_choice import (
    ChoiceKind,
    ChosenFrom,
    DeviceAnswer,
    DeviceChoice,
    DeviceRequest,
    LinkedSet,
)
from devices.device_health import DeviceHealth, after
from devices.device_list import DeviceList, next_list
from devices.offered_devices import OfferedDevice
from kubelet.device_plugin.plugin_model import ContainerAccess, ListedDevice

ANSWER_SECONDS: Final = 0.2
"""The kubelet starts no other pod meanwhile."""

log = logging.getLogger(__name__)


class PluginResource:
    """A resource with its answers. Belongs to one event loop; only the choice runs elsewhere."""

    def __init__(self, resource: str, executor: Executor, *, numa: bool = True) -> None:
        """``executor`` has one thread. ``numa``: whether devices are listed with NUMA nodes."""
        self._resource = resource
        self._access = AccessSettings()
        self._executor = executor
        self._numa = numa
        self._devices: tuple[OfferedDevice, ...] = ()
        self._known: dict[str, OfferedDevice] = {}
        self._health: dict[str, DeviceHealth] = {}
        self._list = DeviceList()
        self._linked_set: LinkedSet = lambda _available, _size, _required: None
        self._logged = LogOnce()
        self.fallbacks = Counter[str]()
        """Why answers were no choice, and how often."""

    @property
    def devices(self) -> tuple[ListedDevice, ...]:
        """The list for the kubelet."""
        return self._list.devices

    def offer(
        self,
        devices: Sequence[OfferedDevice],
        linked_set: LinkedSet,
        held: Mapping[str, int | None] | None,
        access: AccessSettings,
        *,
        reading: int,
        now: float,
    ) -> None:
        """Take over what the agent's file says, at this second of the monotonic clock.

        ``held``: devices that pods hold, with their NUMA nodes; None where that is not known now,
        so that each device in the list may be held.
        """
        before_ids = {device.id for device in self._devices}
        devices = [it for it in devices if not it.presumed or it.id in before_ids]
        self._devices, self._linked_set, self._access = tuple(devices), linked_set, access
        self._known |= {device.id: device for device in devices}
        listed = []
        for device in devices:
            before = self._health.get(device.id, DeviceHealth())
            health = self._health[device.id] = after(before, device.sighting(reading), now)
            self._report(device.id, before, health)
            node = device.numa_node if self._numa else None
            listed.append(ListedDevice(id=device.id, healthy=health.healthy, numa_node=node))
        if held is None:
            held = {device.id: device.numa_node for device in self._list.devices}
        if not self._numa:
            held = dict.fromkeys(held)
        self._list = next_list(self._list, listed, held, now)
        needed = {device.id for device in self._list.devices}
        self._known = {id_: device for id_, device in self._known.items() if id_ in needed}

    def _report(self, id_: str, before: DeviceHealth, health: DeviceHealth) -> None:
        facts = {"resource": self._resource, "device": id_}
        if before.healthy and not health.healthy:
            log.warning(
                "device unhealthy", extra={**facts, "why": health.reason, "stuck": health.stuck}
            )
        elif health.healthy and not before.healthy:
            log.info("device healthy again", extra=facts)

    async def preferred(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """The ids of the best set, else a fallback in time; counted and logged."""
        request = DeviceRequest(available=available, size=size, required=required)
        choice = self._choice(self._linked_set)
        answered = choice.refusal(request) or await self._in_time(choice, request)
        if answered.fallback:
            self._count(answered.fallback)
        return answered.ids

    async def _in_time(self, choice: DeviceChoice, request: DeviceRequest) -> DeviceAnswer:
        """The choice, off the event loop; the lowest devices where it is late or raises."""
        answer = partial(choice.answer, request)
        try:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(ANSWER_SECONDS):
                return await loop.run_in_executor(self._executor, answer)
        except TimeoutError:
            return self._lowest(request, "late")
        except Exception:  # an error would fail the pod for good
            log.exception("devices not chosen", extra={"resource": self._resource})
            return self._lowest(request, "defect")

    def access(self, ids: Sequence[str]) -> ContainerAccess:
        """What a container with these devices is started with; ids that are not known count."""
        if any(id_.partition("::")[0] not in self._known for id_ in ids):
            self._count("unknown-ids")
        return container_access(ids, self._known, self._access)

    def _choice(self, linked_set: LinkedSet) -> DeviceChoice:
        kind = ChoiceKind.LINKED if self._resource == GPU_RESOURCE else ChoiceKind.PACKED
        devices = [ChosenFrom(id=device.id, gpu=device.gpu) for device in self._devices]
        return DeviceChoice(devices, kind, linked_set)

    def _lowest(self, request: DeviceRequest, why: str) -> DeviceAnswer:
        answer = self._choice(lambda _available, _size, _required: None).answer(request)
        return DeviceAnswer(ids=answer.ids, fallback=why)

    def _count(self, why: str) -> None:
        self.fallbacks[why] += 1
        if self._logged.is_new(why, subject=why):
            log.warning(
                "devices chosen without their links",
                extra={"resource": self._resource, "why": why},
            )
